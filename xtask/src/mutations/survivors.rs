//! The list of changes that no test can notice: `xtask/survivors.txt`.
//!
//! A line is `FILE: CHANGE # REASON`, the change as `mutate` names it. The reason says why
//! nothing that can be observed is different. The stage holds the list against what it finds;
//! `cargo xtask tidy` against the files and functions that there are.

use std::collections::BTreeSet;
use std::path::Path;

use crate::outcome::Totals;

/// The path of the list.
pub(crate) const LIST: &str = "xtask/survivors.txt";

/// The results of a round, as names of changes.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Every change that there is, tried or not.
    pub(super) all: BTreeSet<String>,
    pub(super) noticed: Vec<String>,
    pub(super) missed: Vec<String>,
}

/// The changes of the list.
pub(super) fn read(root: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root.join(LIST)).unwrap_or_default();
    entries(&text)
        .map(|entry| entry.change.to_owned())
        .collect()
}

/// A line of the list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// Counted from one.
    pub(crate) line: usize,
    pub(crate) change: &'a str,
    /// Why no test can notice it; empty if the line says nothing.
    pub(crate) reason: &'a str,
}

/// The lines of the list that name changes.
pub(crate) fn entries(text: &str) -> impl Iterator<Item = Entry<'_>> {
    let lines = (1..).zip(text.lines());
    let lines = lines.filter(|(_, text)| !text.starts_with('#') && !text.trim().is_empty());
    lines.map(|(line, text)| {
        let (change, reason) = text.split_once(" # ").unwrap_or((text, ""));
        Entry {
            line,
            change: change.trim(),
            reason: reason.trim(),
        }
    })
}

/// `a/b.rs:12: replace ...` without its line, which moves.
pub(super) fn without_position(line: &str) -> String {
    let Some((position, what)) = line.split_once(": ") else {
        return line.to_owned();
    };
    let file = position.split(':').next().unwrap_or(position);
    format!("{file}: {what}")
}

impl Found {
    /// Holds the round against the list, whose entries for other parts than `files` do not count.
    pub(super) fn judge(&self, known: &BTreeSet<String>, files: &str) -> Totals {
        let mut failed = 0;
        let mut fail = |why: &str, name: &str| {
            println!("mutations: {why}: {name}");
            failed += 1;
        };
        for name in self.missed.iter().filter(|name| !known.contains(*name)) {
            fail("no test notices", name);
        }
        // Two changes may have one name: the list means those that survive.
        for name in self.noticed.iter().filter(|name| known.contains(*name)) {
            if !self.missed.contains(name) {
                fail("a test notices it now, so strike it off the list", name);
            }
        }
        let own = known.iter().filter(|name| name.starts_with(files));
        for name in own.filter(|name| !self.all.contains(*name)) {
            fail(
                "there is no such change any more, so strike it off the list",
                name,
            );
        }
        Totals::of(self.noticed.len() as u64, failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# a comment\n\n\
                        s/a.rs: replace f with () # a hint to the processor\n\
                        s/b.rs: replace < with <= in g # both ways end there\n\
                        t/c.rs: replace h with ()\n";

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_line_has_a_change_and_its_reason() {
        let all: Vec<Entry<'_>> = entries(LIST).collect();
        assert_eq!(all.len(), 3);
        assert_eq!(
            (all[0].line, all[0].change),
            (3, "s/a.rs: replace f with ()")
        );
        assert_eq!(all[1].reason, "both ways end there");
        assert_eq!((all[2].line, all[2].reason), (5, ""));
    }

    #[test]
    fn what_survives_must_be_listed_and_what_is_listed_must_survive() {
        let known: BTreeSet<String> = entries(LIST).map(|e| e.change.to_owned()).collect();
        let all = [
            "s/a.rs: replace f with ()",
            "s/b.rs: replace < with <= in g",
        ];
        let mut found = Found {
            all: names(&all).into_iter().collect(),
            noticed: vec![without_position("s/c.rs:1:1: replace h with ()")],
            missed: vec![without_position("s/a.rs:12:5: replace f with ()")],
        };
        assert_eq!(found.judge(&known, "s/"), Totals::of(1, 0));
        found.missed.push("s/c.rs: replace i with ()".into());
        assert_eq!(found.judge(&known, "s/"), Totals::of(1, 1));
        found.noticed.push("s/b.rs: replace < with <= in g".into());
        assert_eq!(found.judge(&known, "s/"), Totals::of(2, 2));
    }

    #[test]
    fn a_line_whose_change_is_gone_fails_its_part_only() {
        let known: BTreeSet<String> = entries(LIST).map(|e| e.change.to_owned()).collect();
        let found = Found {
            all: names(&["s/a.rs: replace f with ()"]).into_iter().collect(),
            ..Found::default()
        };
        assert_eq!(found.judge(&known, "s/"), Totals::of(0, 1));
        assert_eq!(found.judge(&known, "t/"), Totals::of(0, 1));
        assert_eq!(found.judge(&known, "u/"), Totals::of(0, 0));
    }
}
