//! A repository with an offence against each rule, which the rule must find.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::check;
use super::repository::{Repository, Source};

/// A rule (none where another file offends with this one), a file, and its text.
type Offence = (&'static str, &'static str, String);

fn in_files() -> Vec<Offence> {
    let person = concat!("some", "body");
    let long = "let x = 1;\n".repeat(80);
    vec![
        ("columns", "a.md", "x".repeat(120)),
        (
            "words",
            "crates/a/src/words.rs",
            format!("//! {person} waits.\n"),
        ),
        (
            "functions",
            "crates/a/src/functions.rs",
            format!("//! H.\nfn long() {{\n{long}}}\n"),
        ),
        ("file-names", "crates/a/src/b/words.rs", "//! H.\n".into()),
        (
            "type-names",
            "crates/a/src/one.rs",
            "//! H.\nstruct Same;\n".into(),
        ),
        (
            "type-names",
            "crates/a/src/two.rs",
            "//! H.\nenum Same {}\n".into(),
        ),
        (
            "type-names",
            "crates/a/src/three.rs",
            "//! H.\nmod within {\n    struct Same;\n}\n".into(),
        ),
    ]
}

fn between_files() -> Vec<Offence> {
    vec![
        (
            "circles",
            "crates/a/src/left.rs",
            "//! H.\nuse crate::right::R;\n".into(),
        ),
        (
            "circles",
            "crates/a/src/right.rs",
            "//! H.\nuse crate::left::L;\n".into(),
        ),
        (
            "order",
            "crates/b/src/below.rs",
            "//! H.\nuse crate::above::Q;\n".into(),
        ),
        ("", "crates/b/src/above.rs", "//! H.\n".into()),
        (
            "",
            "docs/ARCHITECTURE.md",
            "| modules of `b` | x |\n|---|---|\n| `below` |\n| `above` |\n".into(),
        ),
        (
            "parameters",
            "crates/a/src/many.rs",
            "//! H.\nfn many((a, b): (u8, u8), c: u8, d: u8, e: u8, f: u8) {}\n".into(),
        ),
        (
            "openers",
            "crates/a/src/opener.rs",
            "//! What it is.\n".into(),
        ),
        (
            "names",
            "crates/a/src/generic.rs",
            "//! H.\nstruct Wish;\n".into(),
        ),
        (
            "doc-names",
            "crates/a/src/head.rs",
            "//! See `gone.rs`.\n".into(),
        ),
        ("basic", "crates/a/src/open.rs", "//! H.\nfn f() {\n".into()),
        (
            "invariants",
            "crates/a/src/rows.rs",
            format!("//! Keeps {}99.\n", 'J'),
        ),
        ("doc-names", "docs/NAMES.md", "`nowhere/gone.rs`\n".into()),
        ("pages", "docs/NAMES.md", String::new()),
        (
            "figures",
            "docs/FIGURES.md",
            "<!-- figures: gone.json\ncolumns: a\nb\n-->\n<!-- figures: end -->\n".into(),
        ),
        ("basic", "docs/LINKS.md", "[a](nowhere.md)\n".into()),
        ("basic", "crates/a/src/headless.rs", "fn f() {}\n".into()),
        (
            "basic",
            "crates/disk/Cargo.toml",
            "[package]\nname = \"extant-disk\"\n[dependencies]\nextant-engine.workspace = true\n"
                .into(),
        ),
    ]
}

#[test]
fn each_rule_finds_what_is_planted() {
    let offences = [in_files(), between_files()].concat();
    let sources = offences.iter().filter(|(.., text)| !text.is_empty());
    let sources = sources.map(|(_, file, text)| Source::new(PathBuf::from(file), text.clone()));
    let sources: Vec<Source> = sources.collect();
    let repository = Repository {
        root: PathBuf::from("/nowhere"),
        files: sources.iter().map(|source| source.path.clone()).collect(),
        sources,
        commits: vec![("abc".into(), "mend it".into())],
        survivors: "crates/a/src/one.rs: replace gone with () # no reason\n".into(),
    };
    let found = check(&repository);
    for (rule, file) in [
        ("commits", "commit/abc"),
        ("survivors", "xtask/survivors.txt"),
    ] {
        let of_rule = found.get(rule).map(Vec::as_slice).unwrap_or_default();
        let hit = of_rule.iter().any(|f| f.file == Path::new(file));
        assert!(hit, "{rule} says nothing of {file}: {of_rule:?}");
    }
    // A rule that is not planted here would not be asked.
    let planted = offences.iter().map(|(rule, ..)| *rule);
    let planted: BTreeSet<&str> = planted.chain(["commits", "survivors"]).collect();
    let unplanted = found.keys().find(|rule| !planted.contains(*rule));
    assert_eq!(unplanted, None, "a rule without an offence");
    for (rule, file, _) in offences.iter().filter(|(rule, ..)| !rule.is_empty()) {
        let of_rule = found.get(rule).map(Vec::as_slice).unwrap_or_default();
        let path = Path::new(file);
        let name = path.file_stem().and_then(|name| name.to_str());
        let names_it = |what: &str| name.is_some_and(|name| what.contains(name));
        let hit = of_rule.iter().any(|f| f.file == path || names_it(&f.what));
        assert!(hit, "{rule} says nothing of {file}: {of_rule:?}");
    }
}
