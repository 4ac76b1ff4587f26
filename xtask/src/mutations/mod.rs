//! A stage of the soak that changes the source, one place at a time, and looks for changes that no
//! test notices.
//!
//! `cargo mutants` makes the changes in a copy of the sources (`scratch`) and runs the short suites
//! there. A round takes a share of them that fits its time, by its seed. What survives and does not
//! stand in `xtask/survivors.txt`, with the reason why it changes nothing, is a failure. So is a
//! line of that file whose change was noticed or is gone: the list may only shrink.
//!
//! `EXTANT_MUTATE` names the parts to change, separated by commas, and `EXTANT_SHARD=K/N` the share
//! of each: every Nth change from the Kth on.

mod parts;
mod scratch;
pub(crate) mod survivors;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::binaries;
use crate::outcome::Totals;
use crate::suite::MODELLED;
use parts::Subject;
use survivors::{Found, without_position};

/// Seconds that a change takes: building the package and running its suites.
const SECONDS_EACH: u64 = 30;
/// How long the suites may take for one change, in seconds; more if they take long without one.
const LIMIT: &str = "60";

/// Runs the stage for about `seconds`.
pub(crate) fn run(root: &Path, seconds: u64, seed: u64) -> Totals {
    let known = survivors::read(root);
    let mut totals = Totals::default();
    let copy = match scratch::update(root) {
        Ok(copy) => copy,
        Err(why) => {
            println!("mutations: {why}");
            return Totals::of(0, 1);
        }
    };
    let names = std::env::var("EXTANT_MUTATE").ok();
    let chosen = parts::chosen(names.as_deref()).unwrap_or_else(|why| {
        println!("mutations: {why}");
        totals += Totals::of(0, 1);
        Vec::new()
    });
    let part = seconds / chosen.len().max(1) as u64;
    for subject in chosen {
        let round = Round {
            copy: &copy,
            subject,
            out: root.join("target/mutations").join(subject.name),
        };
        match round.run(part, seed) {
            Ok(found) => totals += found.judge(&known, subject.files),
            Err(why) => {
                println!("mutations: {}: {why}", subject.name);
                totals += Totals::of(0, 1);
            }
        }
    }
    totals
}

/// The share of `all` changes that `seconds` are enough for; a seed's share differs from another's.
fn shard(all: u64, seconds: u64, seed: u64) -> String {
    let shards = (all * SECONDS_EACH).div_ceil(seconds.max(1));
    let shards = shards.clamp(1, all.max(1));
    format!("{}/{shards}", seed % shards)
}

/// A subject's turn.
struct Round<'a> {
    /// The copy of the sources that is changed.
    copy: &'a Path,
    subject: &'a Subject,
    /// The directory in which `cargo mutants` leaves its logs and lists.
    out: PathBuf,
}

impl Round<'_> {
    fn run(&self, seconds: u64, seed: u64) -> Result<Found, String> {
        let all = self.list()?;
        let given = std::env::var("EXTANT_SHARD").ok();
        let shard = given.unwrap_or_else(|| shard(all.len() as u64, seconds, seed));
        // What an earlier round left.
        let _ = std::fs::remove_dir_all(&self.out);
        let (name, count) = (self.subject.name, all.len());
        println!("mutations: {name}: {count} changes, part {shard}");
        let mut command = self.mutants();
        command.args(["--shard", &shard, "--sharding", "round-robin"]);
        self.suites(&mut command, self.subject.suites, self.subject.tests);
        let mut found = self.outcome(command, "suites")?;
        if self.subject.is_modelled && !found.missed.is_empty() {
            found = self.ask_models(found)?;
        }
        let (tried, missed) = (found.noticed.len() + found.missed.len(), found.missed.len());
        println!("mutations: {name}: {count} changes, {tried} tried, {missed} survive");
        found.all = all.iter().map(|line| without_position(line)).collect();
        Ok(found)
    }

    /// `cargo mutants` for the subject's files.
    fn mutants(&self) -> Command {
        let mut command = binaries::cargo(self.copy);
        command.arg("mutants");
        // No stack of it is read: links sooner, and takes less space.
        command.env("CARGO_PROFILE_DEV_DEBUG", "false");
        command.args(["--package", self.subject.package]);
        command.args(["--file", self.subject.files, "--no-shuffle"]);
        // Code of the models alone, which the suites do not build, and what only formats.
        command.args([
            "--exclude-re",
            r"modelled(::|\.rs)|impl (fmt::)?Debug|impl std::fmt::Debug",
        ]);
        command
    }

    fn suites(&self, command: &mut Command, suites: &[&str], tests: &[&str]) {
        let limits = ["--minimum-test-timeout", LIMIT, "--timeout-multiplier", "5"];
        command.arg("--in-place").args(limits);
        for suite in suites {
            command.args(["--cargo-arg", suite]);
        }
        if !tests.is_empty() {
            command.args(["--", "--"]).args(tests);
        }
    }

    /// Every change that there is, with its position.
    fn list(&self) -> Result<Vec<String>, String> {
        let listed = self.mutants().arg("--list").output();
        let listed = listed.map_err(|error| error.to_string())?;
        if !listed.status.success() {
            let told = String::from_utf8_lossy(&listed.stderr);
            return Err(format!("cargo install --locked cargo-mutants: {told}"));
        }
        let text = String::from_utf8_lossy(&listed.stdout);
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Runs `cargo mutants` and reads what became of its changes.
    fn outcome(&self, mut command: Command, what: &str) -> Result<Found, String> {
        let out = self.out.join(what);
        std::fs::create_dir_all(&out).map_err(|error| error.to_string())?;
        command.arg("--output").arg(&out);
        let ended = command.status().map_err(|error| error.to_string())?;
        // All noticed; some missed; some timed out. Otherwise the suites fail as they are, say.
        if !matches!(ended.code(), Some(0 | 2 | 3)) {
            return Err(format!("cargo mutants: {ended}"));
        }
        let read = |name: &str| {
            let text = std::fs::read_to_string(out.join("mutants.out").join(name));
            text.map_err(|error| format!("{name}: {error}"))
        };
        let names = |text: &str| text.lines().map(without_position).collect::<Vec<_>>();
        let mut noticed = names(&read("caught.txt")?);
        // A hang is noticed, too.
        noticed.extend(names(&read("timeout.txt")?));
        let missed = names(&read("missed.txt")?);
        Ok(Found {
            all: BTreeSet::new(),
            noticed,
            missed,
        })
    }

    /// Has the models of interleavings look at what the suites did not notice.
    fn ask_models(&self, mut found: Found) -> Result<Found, String> {
        let mut command = self.mutants();
        for name in &found.missed {
            let what = name
                .split_once(": ")
                .map_or(name.as_str(), |(_, what)| what);
            command.args(["--examine-re", &format!("{}$", escaped(what))]);
        }
        self.suites(&mut command, &["--test", "interleavings"], &[]);
        command.env(MODELLED.0, MODELLED.1);
        // What is built with it would push out what is built without.
        command.env("CARGO_TARGET_DIR", self.copy.join("target/interleavings"));
        let models = self.outcome(command, "models")?;
        // A name that survives anywhere stays one that survives.
        let noticed =
            |name: &String| models.noticed.contains(name) && !models.missed.contains(name);
        let (more, missed) = found.missed.into_iter().partition(noticed);
        found.missed = missed;
        found.noticed.extend::<Vec<String>>(more);
        Ok(found)
    }
}

/// `text` as a regular expression that matches it alone.
fn escaped(text: &str) -> String {
    let mut all = String::new();
    for letter in text.chars() {
        // Only these: a backslash gives others, as angles, a meaning.
        if r"\.+*?()|[]{}^$#&-~".contains(letter) {
            all.push('\\');
        }
        all.push(letter);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_fits_the_time_and_follows_the_seed() {
        assert_eq!(shard(100, 3000, 7), "0/1");
        assert_eq!(shard(100, 300, 7), "7/10");
        assert_eq!(shard(100, 300, 13), "3/10");
        assert_eq!(shard(0, 0, 13), "0/1");
    }

    #[test]
    fn a_name_is_its_own_expression() {
        assert_eq!(
            escaped("replace f -> A<()> with 1"),
            r"replace f \-> A<\(\)> with 1"
        );
    }
}
