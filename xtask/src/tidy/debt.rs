//! What still breaks a rule: a list per rule, of files and how much each may, that only shrinks.
//!
//! The lists are `xtask/tidy-debt/RULE.txt`, a line `FILE WEIGHT` per file. A rule's total may
//! never grow. Within it debt may move between files, as code does; `tidy --shrink` writes down
//! where it is. A list that says more than is there is a warning, and an error in `tidy --strict`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::finding::Finding;

const LISTS: &str = "xtask/tidy-debt";

/// Debt by file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Debt {
    by_file: BTreeMap<PathBuf, usize>,
}

/// What a rule's findings mean beside its list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) errors: Vec<String>,
    /// Errors if the check is strict.
    pub(super) stale: Vec<String>,
}

impl Debt {
    pub(super) fn read(root: &Path, rule: &str) -> Debt {
        // A rule without a list has no debt.
        Debt::parse(&fs::read_to_string(list(root, rule)).unwrap_or_default())
    }

    /// The entries of a list. Of a file that a merge left there twice the larger entry counts.
    fn parse(text: &str) -> Debt {
        let mut by_file = BTreeMap::new();
        for line in text.lines() {
            let Some((file, weight)) = line.split_once(' ') else {
                continue;
            };
            if let Ok(weight) = weight.trim().parse::<usize>() {
                let entry = by_file.entry(PathBuf::from(file)).or_insert(0);
                *entry = weight.max(*entry);
            }
        }
        Debt { by_file }
    }

    /// What `findings` amount to.
    pub(super) fn of(findings: &[Finding]) -> Debt {
        let mut by_file = BTreeMap::new();
        for finding in findings {
            *by_file.entry(finding.file.clone()).or_insert(0) += finding.weight;
        }
        Debt { by_file }
    }

    pub(super) fn total(&self) -> usize {
        self.by_file.values().sum()
    }

    fn weight(&self, file: &Path) -> usize {
        self.by_file.get(file).copied().unwrap_or_default()
    }

    /// Compares what was found with what is allowed.
    pub(super) fn judge(&self, rule: &str, findings: &[Finding]) -> Verdict {
        let found = Debt::of(findings);
        let mut verdict = Verdict::default();
        let grown = found.total() > self.total();
        for (file, &weight) in &found.by_file {
            let allowed = self.weight(file);
            if weight <= allowed {
                continue;
            }
            if grown {
                let here = findings.iter().filter(|f| f.file == *file);
                verdict.errors.extend(here.map(|f| format!("{f} ({rule})")));
            } else {
                let what = "more than its list says; was it moved here? see `tidy --shrink`";
                let line = format!("{}: {weight}, {what} ({rule})", file.display());
                verdict.stale.push(line);
            }
        }
        for (file, &allowed) in &self.by_file {
            let weight = found.weight(file);
            if weight < allowed {
                let what = format!("{weight} left of {allowed}; run `tidy --shrink` ({rule})");
                verdict.stale.push(format!("{}: {what}", file.display()));
            }
        }
        verdict
    }

    /// Makes the rule's list say what `findings` need, unless that is more than it says.
    pub(super) fn shrink(&self, root: &Path, rule: &str, findings: &[Finding]) -> io::Result<()> {
        let found = Debt::of(findings);
        if found.total() <= self.total() {
            found.write(root, rule)?;
        }
        Ok(())
    }

    fn write(&self, root: &Path, rule: &str) -> io::Result<()> {
        let file = list(root, rule);
        if self.by_file.is_empty() {
            return match fs::remove_file(file) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed,
            };
        }
        let mut text = String::new();
        for (file, weight) in &self.by_file {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{} {weight}", file.display());
        }
        fs::write(file, text)
    }
}

fn list(root: &Path, rule: &str) -> PathBuf {
    root.join(LISTS).join(format!("{rule}.txt"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, usize)]) -> Vec<Finding> {
        let finding =
            |(file, weight): &(&str, usize)| Finding::new(Path::new(file), "x").weighing(*weight);
        files.iter().map(finding).collect()
    }

    #[test]
    fn debt_may_not_grow() {
        let debt = Debt::parse("a.rs 3\nb.rs 1\n");
        let judge = |files: &[(&str, usize)]| {
            let verdict = debt.judge("rule", &found(files));
            (verdict.errors.len(), verdict.stale.len())
        };
        assert_eq!(judge(&[("a.rs", 1), ("a.rs", 2), ("b.rs", 1)]), (0, 0));
        assert_eq!(judge(&[("a.rs", 4), ("b.rs", 1)]), (1, 0));
        assert_eq!(judge(&[("a.rs", 3), ("b.rs", 1), ("c.rs", 1)]), (1, 0));
        assert_eq!(judge(&[("a.rs", 2), ("b.rs", 1)]), (0, 1));
        assert_eq!(judge(&[("b.rs", 1), ("c.rs", 3)]), (0, 2));
        assert_eq!(
            Debt::default()
                .judge("rule", &found(&[("a.rs", 1)]))
                .errors
                .len(),
            1
        );
    }

    #[test]
    fn lists_are_understood_in_the_middle_of_a_merge() {
        let debt = Debt::parse("<<<<<<< HEAD\na.rs 3\n=======\na.rs 2\n>>>>>>> x\nb.rs 1\n");
        assert_eq!(debt, Debt::parse("a.rs 3\nb.rs 1\n"));
    }
}
