//! The rule of `docs/SEEDS.md`: it has every row of every seed, the tests and counters that it
//! names exist, and tests that carry a row's number are listed in that row.

use std::collections::BTreeSet;
use std::path::Path;

use super::finding::Finding;

const DOCUMENT: &str = "docs/SEEDS.md";
/// The files with the names of counters.
const COUNTERS: &[&str] = &[
    "crates/engine/src/state/volume/stats.rs",
    "crates/engine/src/api/inspect/layer_counters.rs",
];

/// The sections and the rows that each has.
const SECTIONS: &[(&str, &[&str], u32)] = &[
    ("A1", &["T1", "T2"], 0),
    ("A2", &[], 27),
    ("A3", &[], 11),
    ("A4", &[], 9),
    ("A5", &[], 1),
];

/// Prefixes of test names that go on with a row's number, and their sections.
const NUMBERED: &[(&str, &str)] = &[("iomap_", "A2"), ("io_tree_", "A3")];

/// `sources` are the texts of all `.rs` files.
pub(super) fn check<'a>(root: &Path, sources: impl Iterator<Item = &'a str>) -> Vec<Finding> {
    let read = |p: &str| std::fs::read_to_string(root.join(p)).unwrap_or_default();
    let tests: BTreeSet<&str> = sources.flat_map(tests).collect();
    let counters: String = COUNTERS.iter().map(|file| read(file)).collect();
    let what = wrong(&read(DOCUMENT), &tests, &counters);
    what.into_iter()
        .map(|what| Finding::new(Path::new(DOCUMENT), what))
        .collect()
}

/// The names of the test functions in a source.
fn tests(text: &str) -> impl Iterator<Item = &str> {
    text.split("#[test]").skip(1).filter_map(|rest| {
        let (_, rest) = rest.split_once("fn ")?;
        rest.split('(').next()
    })
}

/// Returns the faults of the document.
fn wrong(document: &str, tests: &BTreeSet<&str>, counters: &str) -> Vec<String> {
    let rows: Vec<SeedRow<'_>> = rows(document).collect();
    let mut all = Vec::new();
    for &(section, named, count) in SECTIONS {
        let numbers = (1..=count).map(|n| n.to_string());
        for id in named.iter().map(|&name| name.to_owned()).chain(numbers) {
            match rows
                .iter()
                .filter(|r| r.section == section && r.id == id)
                .count()
            {
                1 => {}
                0 => all.push(format!("has no row {id} of {section}")),
                _ => all.push(format!("has row {id} of {section} more than once")),
            }
        }
    }
    let empty = rows.iter().filter(|row| row.shown.trim().is_empty());
    all.extend(empty.map(|row| format!("row {} of {} says nothing", row.id, row.section)));
    for name in names(document) {
        if !tests.contains(name) && !is_word_of(counters, name) && !name.ends_with("_iomap") {
            all.push(format!("`{name}` is neither a test nor a counter"));
        }
    }
    for &(prefix, section) in NUMBERED {
        for test in tests {
            let number = test
                .strip_prefix(prefix)
                .and_then(|rest| rest.split('_').next());
            let Some(number) = number.and_then(|digits| digits.parse::<u32>().ok()) else {
                continue;
            };
            let row = rows
                .iter()
                .find(|row| row.section == section && row.id == number.to_string());
            if row.is_some_and(|row| !names(row.shown).any(|name| name == *test)) {
                all.push(format!("row {number} of {section} does not list `{test}`"));
            }
        }
    }
    all
}

struct SeedRow<'a> {
    section: &'a str,
    id: &'a str,
    shown: &'a str,
}

/// The rows of the tables, with the section that they stand in.
fn rows(document: &str) -> impl Iterator<Item = SeedRow<'_>> {
    let mut section = "";
    document.lines().filter_map(move |line| {
        if let Some(title) = line.strip_prefix("## ") {
            section = title.split(':').next().unwrap_or_default();
        }
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (id, _, shown) = (cells.next()?, cells.next()?, cells.next()?);
        let shown = shown.trim_end_matches('|');
        (id != "#").then_some(SeedRow { section, id, shown })
    })
}

/// The words in backticks that look like the name of a test or counter.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2).filter(|name| {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        name.contains('_') && name.chars().all(allowed)
    })
}

fn is_word_of(text: &str, word: &str) -> bool {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "## A5: x\n| # | a | b |\n|---|---|---|\n| 1 | x | `a_test`, `a_counter`; `Volume::x` |\n";

    fn findings(document: &str, list: &[&str]) -> Vec<String> {
        let all = wrong(document, &list.iter().copied().collect(), "a_counter,");
        // Other sections are missing in these documents.
        all.into_iter()
            .filter(|f| !f.starts_with("has no row"))
            .collect()
    }

    #[test]
    fn names_that_do_not_exist_are_found() {
        assert_eq!(findings(GOOD, &["a_test"]), Vec::<String>::new());
        let missing = ["`a_test` is neither a test nor a counter"];
        assert_eq!(findings(GOOD, &[]), missing);
        assert_eq!(wrong("", &BTreeSet::new(), "").len(), 2 + 27 + 11 + 9 + 1);
    }

    #[test]
    fn numbered_tests_belong_to_their_row() {
        let document = "## A2: x\n| 7 | x | with issue 7 |\n";
        let unlisted = ["row 7 of A2 does not list `iomap_07_x`"];
        assert_eq!(findings(document, &["iomap_07_x", "iomap_43_x"]), unlisted);
        let empty = ["row 7 of A2 says nothing"];
        assert_eq!(findings("## A2: x\n| 7 | x |  |\n", &[]), empty);
    }

    #[test]
    fn tests_are_found_in_sources() {
        let text = "#[test]\n#[should_panic]\nfn a_b() {}\nfn helper() {}\n#[test]\nfn c() {}";
        assert_eq!(super::tests(text).collect::<Vec<_>>(), ["a_b", "c"]);
    }
}
