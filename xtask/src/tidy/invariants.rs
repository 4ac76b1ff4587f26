//! The rule of invariants: `docs/INVARIANTS.md` lists each that the code speaks of, and each row
//! has something that shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::finding::Finding;

/// The list.
pub(super) const DOCUMENT: &str = "docs/INVARIANTS.md";

/// Checks the document against the sources, by path and text, and all of their words.
pub(super) fn check<'a>(
    document: &str,
    sources: impl Iterator<Item = (&'a Path, &'a str)>,
    words: &BTreeSet<String>,
) -> Vec<Finding> {
    let mut all = Vec::new();
    let rows: BTreeMap<u32, Row<'_>> = rows(document).map(|row| (row.number, row)).collect();
    if rows.is_empty() {
        all.push(Finding::new(
            Path::new(DOCUMENT),
            "the rows cannot be found any more",
        ));
    }
    let mut spoken = BTreeSet::new();
    for (file, text) in sources {
        for (at, number) in numbers(text) {
            spoken.insert(number);
            if !rows.contains_key(&number) {
                let what = format!("J{number} is not listed in {DOCUMENT}");
                all.push(Finding::at(file, line_of(text, at), what));
            }
        }
    }
    for row in rows.values() {
        all.extend(row.check(spoken.contains(&row.number), words));
    }
    all
}

struct Row<'a> {
    line: usize,
    number: u32,
    shown: &'a str,
}

impl Row<'_> {
    /// A row whose number no source has must name a test, or say why there is none.
    fn check(&self, is_spoken_of: bool, words: &BTreeSet<String>) -> Vec<Finding> {
        let finding = |what: String| Finding::at(Path::new(DOCUMENT), self.line, what);
        let mut all = Vec::new();
        let mut named = false;
        for name in self.shown.split('`').skip(1).step_by(2) {
            match exists(name, words) {
                Some(true) => named = true,
                Some(false) => all.push(finding(format!("there is no `{name}`"))),
                None => {}
            }
        }
        if self.shown.trim().is_empty() {
            all.push(finding(format!("J{} says nothing", self.number)));
        } else if !named && !is_spoken_of {
            let what = format!(
                "J{}: no assertion has its number, and no test is named",
                self.number
            );
            all.push(finding(what));
        }
        all
    }
}

/// Returns whether a name in backticks exists; none if it is no name of an item or a file.
fn exists(name: &str, words: &BTreeSet<String>) -> Option<bool> {
    let last = name.rsplit("::").next().unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '*';
    if !last.contains('_') || !last.chars().all(is_name) {
        return None;
    }
    Some(match last.split_once('*') {
        Some((prefix, _)) => words.iter().any(|word| word.starts_with(prefix)),
        None => words.contains(last),
    })
}

/// The rows of the tables.
fn rows(document: &str) -> impl Iterator<Item = Row<'_>> {
    let lines = document.lines().enumerate();
    lines.filter_map(|(i, line)| {
        let mut cells = line.strip_prefix("| J")?.splitn(3, " | ");
        let number = cells.next()?.parse().ok()?;
        let shown = cells.nth(1)?.trim_end_matches('|');
        Some(Row {
            line: i + 1,
            number,
            shown,
        })
    })
}

/// The line, from one on, of a position.
fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or_default().matches('\n').count() + 1
}

/// The numbers behind a J in a source, as in `J7` and `j7_a_test`, with their positions.
fn numbers(text: &str) -> impl Iterator<Item = (usize, u32)> {
    let mut before = ' ';
    let starts = text.char_indices().filter_map(move |(at, c)| {
        let is_start = (c == 'J' || c == 'j') && !before.is_alphanumeric() && before != '_';
        before = c;
        is_start.then_some(at)
    });
    starts.filter_map(|at| {
        let rest = text.get(at + 1..)?;
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let number = rest.get(..digits)?.parse().ok()?;
        let after = rest.get(digits..)?;
        // `j1` may be anything; a test goes on with a word.
        let is_upper = text.get(at..)?.starts_with('J');
        let goes_on = after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let is_one = if is_upper {
            !goes_on
        } else {
            after.starts_with('_')
        };
        is_one.then_some((at, number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOC: &str =
        "| # | a | b |\n|---|---|---|\n| J1 | x | walk; `j1_*` |\n| J2 | y | debug |\n";

    fn findings(document: &str, code: &str) -> Vec<String> {
        let words = super::super::tokens::words_of(code);
        let words = words.map(str::to_owned).collect();
        let sources = [(Path::new("a.rs"), code)];
        let all = check(document, sources.into_iter(), &words);
        all.into_iter().map(|f| f.to_string()).collect()
    }

    #[test]
    fn rows_and_code_name_each_other() {
        let code = "// J2: asserted\nfn j1_a_test() {}\nlet j7 = OBJ8;";
        assert_eq!(findings(DOC, code), Vec::<String>::new());
        assert_eq!(
            findings(DOC, &format!("{code}\n// J3")),
            ["a.rs:4: J3 is not listed in docs/INVARIANTS.md"]
        );
        assert_eq!(findings(DOC, "fn j1_a_test() {}").len(), 1);
        assert_eq!(
            findings(DOC, "// J1 J2"),
            ["docs/INVARIANTS.md:3: there is no `j1_*`"]
        );
        assert_eq!(findings("", code).len(), 3);
    }
}
