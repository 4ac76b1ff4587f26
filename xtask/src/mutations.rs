//! A stage of the soak that changes the source, one place at a time, and looks for changes that no
//! test notices.
//!
//! `cargo mutants` makes the changes and runs the short suites. A round takes a share of them that
//! fits its time, by its seed. What survives and does not stand in `xtask/survivors.txt`, with the
//! reason why it changes nothing, is a failure; so is a line of that file whose change was noticed:
//! the list may only shrink.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::suite::Totals;

/// Which sources are changed: their package, their files, and cargo test's arguments for the
/// suites.
const SUBJECTS: &[(&str, &[&str], &[&str])] = &[
    (
        "extant-extent-io-tree",
        &["crates/extent-io-tree/src/**"],
        &[],
    ),
    ("extant-range-lock", &["crates/range-lock/src/**"], &[]),
    ("extant-iomap", &["crates/iomap/src/**"], &[]),
    ("extant-bufferhead", &["crates/bufferhead/src/**"], &[]),
    ("extant-jbd2", &["crates/jbd2/src/**"], &[]),
    ("extant-pagecache", &["crates/pagecache/src/**"], &[]),
    (
        "extant-engine",
        &[
            "crates/engine/src/file/**",
            "crates/engine/src/map/**",
            "crates/engine/src/alloc/**",
            "crates/engine/src/orphan/**",
            "crates/engine/src/namei/**",
        ],
        &["--lib"],
    ),
];

/// What a change takes: building the package and running its suites.
const SECONDS_EACH: u64 = 60;
/// The longest that the suites may take for one change.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs the stage for about `seconds`.
pub(crate) fn run(root: &Path, seconds: u64, seed: u64) -> Totals {
    let known = survivors(root);
    let mut totals = Totals::default();
    let part = seconds / SUBJECTS.len() as u64;
    for subject in SUBJECTS {
        match round(root, subject, part, seed) {
            Ok(found) => totals += found.judge(&known),
            Err(why) => {
                println!("mutations: {}: {why}", subject.0);
                totals += Totals::of(0, 1);
            }
        }
    }
    totals
}

/// The lines of the list, without their reasons.
fn survivors(root: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root.join("xtask/survivors.txt")).unwrap_or_default();
    parse_survivors(&text)
}

fn parse_survivors(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let names = lines.filter_map(|line| Some(line.split_once(" # ")?.0.trim().to_owned()));
    names.collect()
}

/// What became of the changes of a round, by their names.
#[derive(Debug, Default)]
struct Found {
    noticed: Vec<String>,
    missed: Vec<String>,
}

impl Found {
    fn judge(&self, known: &BTreeSet<String>) -> Totals {
        // Two changes may have one name: the list means those that survive.
        let survives = |name: &&String| self.missed.contains(name);
        let new = self.missed.iter().filter(|name| !known.contains(*name));
        let old = self.noticed.iter().filter(|name| known.contains(*name));
        let old = old.filter(|name| !survives(name));
        let mut failed = 0;
        for name in new {
            println!("mutations: no test notices: {name}");
            failed += 1;
        }
        for name in old {
            println!("mutations: a test notices it now, so strike it off the list: {name}");
            failed += 1;
        }
        Totals::of(self.noticed.len() as u64, failed)
    }
}

fn round(
    root: &Path,
    (package, files, suites): &(&str, &[&str], &[&str]),
    seconds: u64,
    seed: u64,
) -> Result<Found, String> {
    let chosen = || {
        let mut command = Command::new(env!("CARGO"));
        command
            .current_dir(root)
            .args(["mutants", "--package", package]);
        for file in *files {
            command.args(["--file", file]);
        }
        command
    };
    let listed = chosen().arg("--list").stderr(Stdio::inherit()).output();
    let listed = listed.map_err(|error| error.to_string())?;
    if !listed.status.success() {
        return Err("cargo install --locked cargo-mutants".into());
    }
    let all = String::from_utf8_lossy(&listed.stdout).lines().count() as u64;
    let shards = (all * SECONDS_EACH)
        .div_ceil(seconds.max(1))
        .clamp(1, all.max(1));
    let out = root.join("target/mutations").join(package);
    // What an earlier round left.
    let _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir_all(&out).map_err(|error| error.to_string())?;
    let mut command = chosen();
    let shard = format!("{}/{shards}", seed % shards);
    let limit = LIMIT.as_secs().to_string();
    command.args([
        "--no-shuffle",
        "--shard",
        &shard,
        "--timeout",
        &limit,
        "--output",
    ]);
    command.arg(&out).arg("--").args(*suites);
    println!("mutations: {package}: {all} changes, part {shard}");
    let ended = command.status().map_err(|error| error.to_string())?;
    // All noticed; some missed; some timed out. Otherwise the suites fail without a change, say.
    if !matches!(ended.code(), Some(0 | 2 | 3)) {
        return Err(format!("cargo mutants: {ended}"));
    }
    let read = |name: &str| {
        let text = std::fs::read_to_string(out.join("mutants.out").join(name));
        text.map_err(|error| format!("{name}: {error}"))
    };
    let names = |text: &str| text.lines().map(without_place).collect::<Vec<_>>();
    let mut noticed = names(&read("caught.txt")?);
    // A hang is noticed, too.
    noticed.extend(names(&read("timeout.txt")?));
    let missed = names(&read("missed.txt")?);
    Ok(Found { noticed, missed })
}

/// `a/b.rs:12:5: replace ...` without its line and column, which move.
fn without_place(line: &str) -> String {
    let Some((place, what)) = line.split_once(": ") else {
        return line.to_owned();
    };
    let file = place.split(':').next().unwrap_or(place);
    format!("{file}: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_survives_must_be_listed_and_what_is_listed_must_survive() {
        let list = "# a comment\n\
                    a.rs: replace f with () # a hint to the processor\n\
                    b.rs: replace < with <= in g # both ways end there\n";
        let known = parse_survivors(list);
        assert_eq!(known.len(), 2);
        let missed = "a.rs:12:5: replace f with ()";
        let mut found = Found {
            noticed: vec![without_place("c.rs:1:1: replace h with ()")],
            missed: vec![without_place(missed)],
        };
        assert_eq!(found.judge(&known), Totals::of(1, 0));
        found.missed.push("c.rs: replace i with ()".into());
        assert_eq!(found.judge(&known), Totals::of(1, 1));
        found.noticed.push("b.rs: replace < with <= in g".into());
        assert_eq!(found.judge(&known), Totals::of(2, 2));
    }
}
