//! Tables and pictures of the documentation, made from the reports in `docs/figures`.
//!
//! Each report `NAME.json` has a page `NAME.md` beside it, with all of its tables. The README and
//! the pages of `docs` have tables between marks, as `extant-figures` says. `cargo xtask figures`
//! makes them all, and tidy compares.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use extant_figures::{Fault, Report, fill};

/// The folder of the reports, from the root.
const FOLDER: &str = "docs/figures";
/// Results that `scripts/xfstests/page` makes a page of.
const OTHER: &str = "xfstests.json";

/// A file, and the text that it should have, or why it cannot be made.
pub(crate) type Made = (PathBuf, Result<String, Fault>);

/// Writes every file that differs from what is made.
pub(crate) fn run(root: &Path) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for (file, text) in stale(root, made(root, &pages(root))) {
        let written = text.map_err(|fault| fault.to_string());
        let written = written
            .and_then(|text| fs::write(root.join(&file), text).map_err(|error| error.to_string()));
        match written {
            Ok(()) => println!("{}", file.display()),
            Err(why) => {
                eprintln!("{}: {why}", file.display());
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// The files that differ from what is made, or cannot be.
pub(crate) fn stale(root: &Path, made: Vec<Made>) -> Vec<Made> {
    let differs = |(file, text): &Made| match text {
        Ok(text) => fs::read_to_string(root.join(file)).ok().as_ref() != Some(text),
        Err(_) => true,
    };
    made.into_iter().filter(differs).collect()
}

/// Makes the pages of all reports, and the tables and pictures of `pages`.
pub(crate) fn made(root: &Path, pages: &[(PathBuf, String)]) -> Vec<Made> {
    let mut all = Vec::new();
    for file in files(root, FOLDER, "json") {
        if file.ends_with(OTHER) {
            continue;
        }
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let page = read(root, &name).map(|report| {
            let title = name.trim_end_matches(".json");
            let made_by = format!("Made from [{name}]({name}) by `cargo xtask figures`.");
            format!("# {title}\n\n{made_by}\n\n{}", report.markdown())
        });
        all.push((file.with_extension("md"), page));
    }
    for (page, text) in pages {
        let folder = if page.starts_with("docs") {
            "figures/"
        } else {
            "docs/figures/"
        };
        match fill(text, folder, &|name| read(root, name)) {
            Ok(filled) => {
                let pictures = filled.pictures.into_iter();
                all.extend(pictures.map(|(name, svg)| (Path::new(FOLDER).join(name), Ok(svg))));
                all.push((page.clone(), Ok(filled.page)));
            }
            Err(fault) => all.push((page.clone(), Err(fault))),
        }
    }
    all
}

/// The README and the pages of `docs`.
fn pages(root: &Path) -> Vec<(PathBuf, String)> {
    let mut files = files(root, "docs", "md");
    files.push("README.md".into());
    let texts = files.into_iter().filter_map(|file| {
        let text = fs::read_to_string(root.join(&file)).ok()?;
        Some((file, text))
    });
    texts.collect()
}

fn files(root: &Path, folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join(folder)).into_iter().flatten();
    let names = entries
        .flatten()
        .map(|entry| Path::new(folder).join(entry.file_name()));
    let mut files: Vec<PathBuf> = names
        .filter(|file| file.extension().is_some_and(|e| e == extension))
        .collect();
    files.sort();
    files
}

fn read(root: &Path, name: &str) -> Result<Report, Fault> {
    let text = fs::read_to_string(root.join(FOLDER).join(name));
    let text = text.map_err(|error| Fault::new(format!("{name}: {error}")))?;
    Report::read(&text).map_err(|fault| Fault::new(format!("{name}: {fault}")))
}
