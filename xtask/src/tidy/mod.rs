//! Rules that no compiler checks. Each finding is a line `file:line: what is wrong (rule)`, and an
//! error: no rule has exemptions.

mod circles;
mod columns;
mod commands;
mod doc_names;
mod features;
mod file_names;
mod finding;
mod functions;
mod graph;
mod imports;
mod invariants;
mod layers;
mod limits;
mod links;
mod listed_changes;
mod manifests;
mod module_order;
mod names;
mod openers;
mod pages;
#[cfg(test)]
mod planted;
mod public_items;
mod repository;
mod seeds;
mod sources;
mod spans;
mod subjects;
mod tokens;
mod type_names;
mod words;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use crate::figures;
use doc_names::Known;
use finding::Finding;
use repository::Repository;

/// The findings of each rule, by its name.
type Findings = BTreeMap<&'static str, Vec<Finding>>;

/// Checks everything and prints what is wrong.
///
/// `--api` writes the lists of public items first.
pub(crate) fn run(root: &Path, args: &[String]) -> ExitCode {
    if args.iter().any(|arg| arg == "--api")
        && let Err(e) = public_items::write(&Repository::read(root))
    {
        eprintln!("cannot write the lists of public items: {e}");
        return ExitCode::FAILURE;
    }
    if is_tidy(root) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Checks everything and prints what is wrong; returns whether nothing is.
pub(crate) fn is_tidy(root: &Path) -> bool {
    let lines = lines(&check(&Repository::read(root)));
    for line in &lines {
        eprintln!("{line}");
    }
    if !lines.is_empty() {
        eprintln!("tidy: {} findings", lines.len());
    }
    lines.is_empty()
}

/// The findings of all rules, one a line.
fn lines(findings: &Findings) -> Vec<String> {
    let all = findings.iter();
    all.flat_map(|(rule, found)| found.iter().map(move |f| format!("{f} ({rule})")))
        .collect()
}

fn check(repository: &Repository) -> Findings {
    let root = repository.root.as_path();
    let mut all = check_files(repository);
    all.insert("file-names", file_names::check(&repository.files));
    all.insert("pages", pages::check(repository));
    all.insert("figures", check_figures(repository));
    let types = repository.with("rs");
    let types = types.map(|s| (s.path.as_path(), &s.product));
    all.insert("type-names", type_names::check(types));
    all.insert("commits", subjects::check(&repository.commits));
    let graphs = graphs(repository);
    let map = repository.text(module_order::DOCUMENT);
    all.insert("order", module_order::check(map, &graphs));
    all.insert("circles", circles::check(&graphs));
    let source = |file: &str| repository.text_of(file);
    let survivors = listed_changes::check(&repository.survivors, source);
    all.insert("survivors", survivors);
    let rust = repository.with("rs");
    let sources = rust.map(|s| (s.path.as_path(), &s.tokens));
    let known = Known::new(&repository.files, sources);
    all.insert("invariants", check_invariants(repository, &known));
    all.insert("doc-names", check_documents(repository, &known));
    let basic = all.entry("basic").or_default();
    if repository.files.is_empty() {
        basic.push(Finding::new(root, "git lists no files"));
    }
    basic.extend(features::check(root));
    basic.extend(manifests::check(repository));
    basic.extend(public_items::check(repository));
    let rust = repository.with("rs").map(|s| s.text.as_str());
    basic.extend(seeds::check(root, rust));
    all
}

/// The rules that look at one file at a time.
fn check_files(repository: &Repository) -> Findings {
    let mut all = Findings::new();
    let mut add = |rule, found: Vec<Finding>| all.entry(rule).or_default().extend(found);
    for source in &repository.sources {
        let (file, text) = (source.path.as_path(), source.text.as_str());
        add("columns", columns::check(file, text));
        add("words", words::check(file, text));
        if source.is("rs") {
            add("basic", sources::check(file, text));
            if source.tokens.is_empty() {
                add("basic", vec![Finding::new(file, "cannot be read as Rust")]);
            }
            add("functions", functions::check(file, &source.tokens));
            add(
                "parameters",
                functions::check_parameters(file, &source.product),
            );
            add("openers", openers::check(file, text));
            add("names", names::check(file, &source.tokens));
        } else if file.ends_with("Cargo.toml") {
            add("basic", layers::check(file, text));
        } else if source.is("md") {
            add("basic", links::check(&repository.root, file, text));
        }
    }
    for rule in ["parameters", "openers", "names"] {
        let found = all.remove(rule).unwrap_or_default();
        all.insert(rule, limits::beyond(rule, found));
    }
    all
}

/// The graph of each crate's sources.
fn graphs(repository: &Repository) -> circles::Graphs {
    let mut all = circles::Graphs::new();
    for source in repository.with("rs") {
        let dir = source.path.ancestors().find(|dir| dir.ends_with("src"));
        if let Some(dir) = dir {
            let inside = source.path.strip_prefix(dir).unwrap_or(&source.path);
            let graph = all.entry(dir.to_path_buf()).or_default();
            graph.add(inside, &source.product);
        }
    }
    all
}

fn check_invariants(repository: &Repository, known: &Known<'_>) -> Vec<Finding> {
    let document = repository.text(invariants::DOCUMENT);
    // The numbers in this program's tests are no invariants.
    let code = repository
        .with("rs")
        .filter(|s| !s.path.starts_with("xtask"));
    let code = code.map(|s| (s.path.as_path(), s.text.as_str()));
    invariants::check(document, code, &known.words)
}

/// Tables and pictures that are not what the reports in `docs/figures` make.
fn check_figures(repository: &Repository) -> Vec<Finding> {
    let is_page = |path: &Path| path.parent() == Some("docs".as_ref()) || path == "README.md";
    let pages = repository.with("md").filter(|source| is_page(&source.path));
    let pages: Vec<_> = pages.map(|s| (s.path.clone(), s.text.clone())).collect();
    let stale = figures::stale(&repository.root, figures::made(&repository.root, &pages));
    let what = |text| match text {
        Ok(_) => "is not what `cargo xtask figures` makes".into(),
        Err(fault) => format!("{fault}"),
    };
    let stale = stale.into_iter();
    stale
        .map(|(file, text)| Finding::new(&file, what(text)))
        .collect()
}

/// The rules for what documents and headers name. The changelog speaks of the past.
fn check_documents(repository: &Repository, known: &Known<'_>) -> Vec<Finding> {
    let commands = commands::Commands::read(&repository.root);
    let mut all = commands.check_themselves();
    let documents = repository.with("md");
    for document in documents.filter(|s| !s.path.ends_with("CHANGELOG.md")) {
        all.extend(known.check(&document.path, &document.text));
        all.extend(commands.check(&document.path, &document.text));
    }
    for source in repository.with("rs") {
        all.extend(known.check(&source.path, &doc_names::header(&source.text)));
    }
    all
}

/// The repository obeys its own rules.
#[test]
fn the_repository_is_tidy() {
    let lines = lines(&check(&Repository::read(&crate::root())));
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}
