//! The rule of commands: what documents say to type exists, as `extant X`, `make X` or
//! `cargo xtask X`.

use std::collections::BTreeSet;
use std::path::Path;

use super::finding::Finding;
use super::spans::code_spans;

/// The file with the subcommands of `extant`.
const GRAMMAR: &str = "crates/cli/src/args/mod.rs";
const MAKEFILE: &str = "Makefile";
/// The file with the chores of `cargo xtask`.
const CHORES: &str = "xtask/src/main.rs";

/// The words that may follow each command.
#[derive(Debug, Default)]
pub(super) struct Commands {
    extant: BTreeSet<String>,
    make: BTreeSet<String>,
    xtask: BTreeSet<String>,
}

impl Commands {
    /// Reads them from the sources.
    pub(super) fn read(root: &Path) -> Commands {
        let read = |p: &str| std::fs::read_to_string(root.join(p)).unwrap_or_default();
        Commands {
            extant: subcommands(&read(GRAMMAR)),
            make: targets(&read(MAKEFILE)),
            xtask: chores(&read(CHORES)),
        }
    }

    /// That the lists could be read at all.
    pub(super) fn check_themselves(&self) -> Vec<Finding> {
        let lists = [
            (GRAMMAR, &self.extant),
            (MAKEFILE, &self.make),
            (CHORES, &self.xtask),
        ];
        let empty = lists.iter().filter(|(_, list)| list.len() < 3);
        empty
            .map(|(file, _)| Finding::new(Path::new(file), "the commands cannot be found any more"))
            .collect()
    }

    /// The commands in a document that do not exist.
    pub(super) fn check(&self, file: &Path, text: &str) -> Vec<Finding> {
        let mut all = Vec::new();
        for span in code_spans(text) {
            for command in span.text.split(['|', ';', '&', '(', '$']) {
                let words: Vec<&str> = command.split_whitespace().collect();
                if let Some(what) = self.wrong(&words) {
                    all.push(Finding::at(file, span.line, what));
                }
            }
        }
        all
    }

    fn wrong(&self, words: &[&str]) -> Option<String> {
        let is_before = |word: &&&str| **word == "sudo" || word.contains('=');
        let before = words.iter().take_while(is_before).count();
        let words = words.get(before..).unwrap_or_default();
        let (program, word, known) = match words {
            ["cargo", "xtask", word, ..] => ("cargo xtask", word, &self.xtask),
            ["make", word, ..] => ("make", word, &self.make),
            [program, word, ..] if program.rsplit('/').next() == Some("extant") => {
                ("extant", word, &self.extant)
            }
            _ => return None,
        };
        let is_name = word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        let is_name = is_name && !word.starts_with('-');
        (is_name && !known.contains(*word)).then(|| format!("there is no `{program} {word}`"))
    }
}

/// The variants of `enum Command`, in lower case.
fn subcommands(grammar: &str) -> BTreeSet<String> {
    let body = grammar.split("enum Command {").nth(1).unwrap_or_default();
    let lines = body.lines().take_while(|line| *line != "}");
    let variants = lines.filter_map(|line| {
        let line = line.strip_prefix("    ")?;
        let end = line.find(['(', ' ', ','])?;
        let name = line.get(..end)?;
        name.starts_with(|c: char| c.is_ascii_uppercase())
            .then(|| name.to_lowercase())
    });
    variants.collect()
}

/// The names before colons at the start of lines.
fn targets(makefile: &str) -> BTreeSet<String> {
    let heads = makefile.lines().filter_map(|line| line.split_once(':'));
    heads
        .filter(|(name, rest)| !rest.starts_with('=') && !name.contains([' ', '\t', '.', '#']))
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// The patterns `Some("NAME")`.
fn chores(main: &str) -> BTreeSet<String> {
    let names = main.split("Some(\"").skip(1);
    names
        .filter_map(|rest| rest.split('"').next().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands() -> Commands {
        Commands {
            extant: subcommands(
                "enum Command {\n    /// Ls\n    Ls(Ls),\n    Manual {\n        x: X,\n    },\n}\n\
                 enum A {\n    Other(B),\n}\n",
            ),
            make: targets("A ?= b\nX := y\n.PHONY: z\ntest: lint\n\tdo: it\nlint:\n"),
            xtask: chores("Some(\"tidy\") => tidy(),"),
        }
    }

    #[test]
    fn the_lists_are_read() {
        let list = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(" ");
        let all = commands();
        assert_eq!(list(&all.extant), "ls manual");
        assert_eq!(list(&all.make), "lint test");
        assert_eq!(list(&all.xtask), "tidy");
        assert_eq!(Commands::default().check_themselves().len(), 3);
    }

    #[test]
    fn commands_that_do_not_exist_are_found() {
        let all = commands();
        let count = |text: &str| all.check(Path::new("d.md"), text).len();
        assert_eq!(
            count("`extant ls a:/`, `make test`, `cargo xtask tidy`, `extant --help`"),
            0
        );
        assert_eq!(
            count("`extant` reads, make sure, `cargo test -p extant name`"),
            0
        );
        assert_eq!(count("`extant gone`"), 1);
        assert_eq!(
            count("    x | sudo A=b target/release/extant gone /x && make gone"),
            2
        );
        assert_eq!(count("```\ncargo xtask gone\n```"), 1);
    }
}
