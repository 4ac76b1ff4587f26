//! A stage of the soak that changes the source, one place at a time, and looks for changes that no
//! test notices.
//!
//! `mutate`, a program outside of the workspace, builds a copy of the sources (`scratch`) with all
//! changes of a part in it, and tries each with the tests that reach it. A round that is too short
//! for all takes a share by its seed. What survives and does not stand in `xtask/survivors.txt`,
//! with the reason why it changes nothing, is a failure. So is a line of that file whose change was
//! noticed or is gone: the list may only shrink.
//!
//! `EXTANT_MUTATE` names the parts to change, separated by commas.

mod parts;
mod scratch;
pub(crate) mod survivors;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::binaries;
use crate::outcome::Totals;
use crate::suite::MODELLED;
use parts::Subject;
use survivors::{Found, without_position};

/// Runs the stage for about `seconds`.
pub(crate) fn run(root: &Path, seconds: u64, seed: u64) -> Totals {
    let known = survivors::read(root);
    let mut totals = Totals::default();
    let names = std::env::var("EXTANT_MUTATE").ok();
    let chosen = parts::chosen(names.as_deref()).unwrap_or_else(|why| {
        println!("mutations: {why}");
        totals += Totals::of(0, 1);
        Vec::new()
    });
    let part = seconds / chosen.len().max(1) as u64;
    for subject in chosen {
        let round = Round {
            root,
            subject,
            out: root.join("target/mutations/out").join(subject.name),
            seconds: part,
            seed,
        };
        match round.run() {
            Ok(found) => totals += found.judge(&known, subject.files),
            Err(why) => {
                println!("mutations: {}: {why}", subject.name);
                totals += Totals::of(0, 1);
            }
        }
    }
    totals
}

/// A subject's turn.
struct Round<'a> {
    root: &'a Path,
    subject: &'a Subject,
    /// The directory of the lists.
    out: PathBuf,
    seconds: u64,
    seed: u64,
}

impl Round<'_> {
    fn run(&self) -> Result<Found, String> {
        let copy = scratch::update(self.root)?;
        // What an earlier round left.
        let _ = std::fs::remove_dir_all(&self.out);
        let suites = self.out.join("suites");
        let mut tool = self.tool(&copy, &suites, "built");
        tool.envs(self.subject.environment.iter().copied());
        self.call(tool.args(self.subject.suites))?;
        let mut found = found(&suites)?;
        if self.subject.is_modelled && !found.missed.is_empty() {
            self.ask_models(&copy, &mut found)?;
        }
        Ok(found)
    }

    /// The program, without the suites that it is to build.
    fn tool(&self, copy: &Path, out: &Path, built: &str) -> Command {
        let subject = self.subject;
        let at = self.root.join("target/mutations");
        let mut tool = binaries::cargo(self.root);
        tool.args(["run", "-q", "--manifest-path", "mutate/Cargo.toml"]);
        tool.arg("--target-dir").arg(at.join("tool")).arg("--");
        tool.arg("--root").arg(copy).arg("--out").arg(out);
        tool.arg("--built").arg(at.join(built));
        tool.args(["--package", subject.package, "--files", subject.files]);
        tool.args(["--seconds", &self.seconds.to_string()]);
        tool.args(["--seed", &self.seed.to_string()]);
        tool
    }

    fn call(&self, tool: &mut Command) -> Result<(), String> {
        let ended = tool.status().map_err(|error| error.to_string())?;
        let told = || format!("mutate: {ended}");
        ended.success().then_some(()).ok_or_else(told)
    }

    /// Has the models of interleavings look at what the suites did not notice.
    fn ask_models(&self, copy: &Path, found: &mut Found) -> Result<(), String> {
        let models = self.out.join("models");
        let mut tool = self.tool(copy, &models, "interleavings");
        for list in MISSED {
            tool.arg("--only").arg(self.out.join("suites").join(list));
        }
        tool.args(["--test", "interleavings"])
            .env(MODELLED.0, MODELLED.1);
        self.call(&mut tool)?;
        // A name that survives anywhere stays one that survives.
        let noticed = self::found(&models)?;
        let is_noticed =
            |name: &String| noticed.noticed.contains(name) && !noticed.missed.contains(name);
        let missed = std::mem::take(&mut found.missed);
        let (more, missed) = missed.into_iter().partition(is_noticed);
        found.missed = missed;
        found.noticed.extend::<Vec<String>>(more);
        Ok(())
    }
}

/// The lists of what no test notices.
const MISSED: [&str; 2] = ["missed", "unreached"];

/// Reads the lists of a round.
fn found(out: &Path) -> Result<Found, String> {
    let read = |names: &[&str]| {
        let mut all = Vec::new();
        for name in names {
            let text = std::fs::read_to_string(out.join(name));
            let text = text.map_err(|error| format!("{name}: {error}"))?;
            all.extend(text.lines().map(without_position));
        }
        Ok::<_, String>(all)
    };
    // A hang is noticed, too.
    let (noticed, missed) = (read(&["noticed", "timed-out"])?, read(&MISSED)?);
    let mut found = Found::default();
    found.all.extend(read(&["untried"])?);
    found.all.extend(noticed.iter().chain(&missed).cloned());
    Ok(Found {
        noticed,
        missed,
        ..found
    })
}
