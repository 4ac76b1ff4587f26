//! Rounds of test binaries under load: `cargo xtask rounds N [--timed] [CARGO TEST'S ARGUMENTS]`.
//!
//! A round runs each test binary once, ten of them at a time (`EXTANT_AT_ONCE`). Each has as many
//! threads as the machine has processors, so on two of them about twenty threads want to run. The
//! order differs from round to round, and with it the neighbours. With `--timed` a round leaves out
//! what gives the same result in every round ([`crate::steady`]).
//!
//! `EXTANT_SHARE` has a binary take about so many seconds of processor time in a round: where it
//! took more in its first one, its tests take turns from then on.
//!
//! `target/rounds` has the state: `binaries` what is run, `done` a line for each binary of a round
//! that has ended, and `failed/` the output of those that failed, with the stacks of panics and
//! hangs. A run that was stopped goes on with the same binaries and with what its last round
//! lacks. Without that directory the binaries are built, and rounds begin anew.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use crate::binaries::{self, Binary};
use crate::failures::Failures;
use crate::{steady, watch};

/// Test binaries that run at once, unless the environment says otherwise.
const AT_ONCE: usize = 10;
/// The limit of a test in seconds, unless the environment says otherwise: with so many at once a
/// test gets a small part of a processor.
const TEST_LIMIT: &str = "3600";
/// How far the order of the binaries moves from round to round.
const STRIDE: usize = 7;

/// How the run of a binary ended.
#[derive(Clone, Debug, PartialEq)]
struct Ended {
    round: usize,
    name: String,
    is_fine: bool,
    seconds: f64,
    load: f64,
    /// Seconds of processor time, of the processes that were waited for.
    cpu: f64,
    /// Each of its tests is run in one of so many rounds.
    turns: usize,
}

/// Runs as many rounds as `args` says, of the binaries that the rest of it chooses.
pub(crate) fn run(root: &Path, args: &[String]) -> ExitCode {
    let rounds = args.first().and_then(|first| first.parse::<usize>().ok());
    let Some(rounds) = rounds else {
        eprintln!("usage: cargo xtask rounds N [--timed] [cargo test's arguments]");
        return ExitCode::from(2);
    };
    match Rounds::new(root, args.get(1..).unwrap_or_default()) {
        Ok(all) => all.run_to(rounds),
        Err(error) => {
            eprintln!("rounds: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Ended {
    fn line(&self) -> String {
        let how = if self.is_fine { "ok" } else { "FAILED" };
        format!(
            "{}\t{}\t{how}\t{:.1}\t{:.1}\t{:.1}\t{}\n",
            self.round, self.name, self.seconds, self.load, self.cpu, self.turns
        )
    }

    fn parse(line: &str) -> Option<Ended> {
        let mut parts = line.split('\t');
        Some(Ended {
            round: parts.next()?.parse().ok()?,
            name: parts.next()?.to_owned(),
            is_fine: parts.next()? == "ok",
            seconds: parts.next()?.parse().ok()?,
            load: parts.next()?.parse().ok()?,
            cpu: parts.next()?.parse().ok()?,
            turns: parts.next()?.parse().ok()?,
        })
    }
}

/// The state of the rounds, and what they run.
struct Rounds {
    binaries: Vec<Binary>,
    state: PathBuf,
    ended: Mutex<Vec<Ended>>,
}

impl Rounds {
    /// Takes up the state that is there, or builds the binaries that `args` choose.
    fn new(root: &Path, args: &[String]) -> std::io::Result<Rounds> {
        let state = binaries::target(root).join("rounds");
        std::fs::create_dir_all(state.join("failed"))?;
        if !state.join("binaries").exists() {
            keep(root, &state, args)?;
        }
        let binaries = std::fs::read_to_string(state.join("binaries"))?;
        let binaries: Vec<Binary> = binaries.lines().filter_map(Binary::parse).collect();
        let done = std::fs::read_to_string(state.join("done")).unwrap_or_default();
        let ended = Mutex::new(done.lines().filter_map(Ended::parse).collect());
        Ok(Rounds {
            binaries,
            state,
            ended,
        })
    }

    fn ended(&self) -> Vec<Ended> {
        let ended = self.ended.lock();
        ended.map(|ended| ended.clone()).unwrap_or_default()
    }

    /// What the round lacks, in its order.
    fn left(&self, round: usize) -> VecDeque<Binary> {
        let ended = self.ended();
        let done: BTreeSet<&str> = ended
            .iter()
            .filter(|ended| ended.round == round)
            .map(|ended| ended.name.as_str())
            .collect();
        let mut binaries = self.binaries.clone();
        let by = round * STRIDE % binaries.len().max(1);
        binaries.rotate_left(by);
        binaries.retain(|binary| !done.contains(binary.name.as_str()));
        binaries.into()
    }

    fn run_to(&self, rounds: usize) -> ExitCode {
        for round in 1..=rounds {
            let left = self.left(round);
            if left.is_empty() {
                continue;
            }
            println!("round {round}: {} binaries", left.len());
            if let Err(error) = self.run_round(round, left) {
                eprintln!("rounds: stopped in round {round}: {error}");
                self.conclude();
                return ExitCode::FAILURE;
            }
        }
        self.conclude()
    }

    fn run_round(&self, round: usize, left: VecDeque<Binary>) -> std::io::Result<()> {
        let at_once = std::env::var("EXTANT_AT_ONCE").ok();
        let at_once = at_once.and_then(|text| text.parse().ok());
        let left = Mutex::new(left);
        let next = || left.lock().ok()?.pop_front();
        std::thread::scope(|scope| {
            let worker = || -> std::io::Result<()> {
                while let Some(binary) = next() {
                    let ended = self.run_binary(round, &binary);
                    if ended.is_err() {
                        // The others end what they have begun.
                        left.lock().map(|mut left| left.clear()).unwrap_or_default();
                    }
                    self.record(ended?)?;
                }
                Ok(())
            };
            let count = at_once.unwrap_or(AT_ONCE);
            let workers: Vec<_> = (0..count).map(|_| scope.spawn(worker)).collect();
            let stopped = || std::io::Error::other("a worker panicked");
            let mut ends = workers.into_iter().map(|worker| worker.join());
            ends.try_for_each(|end| end.map_err(|_| stopped())?)
        })
    }

    /// Runs one binary to its end. An error means that the rounds are to stop.
    fn run_binary(&self, round: usize, binary: &Binary) -> std::io::Result<Ended> {
        let log = self.state.join(format!("{round}-{}.log", binary.name));
        let output = File::create(&log)?;
        let begin = Instant::now();
        let turns = self.turns(&binary.name);
        let cpu = self.state.join(format!("{round}-{}.cpu", binary.name));
        let limit = std::env::var("EXTANT_TEST_LIMIT").unwrap_or_else(|_| TEST_LIMIT.into());
        let status = binary
            .watched(turns)?
            .env("EXTANT_TEST_LIMIT", limit)
            .env(watch::CPU_NOTE, &cpu)
            .env(watch::ROUND, round.to_string())
            .env("RUST_BACKTRACE", "1")
            .env("EXTANT_BIN", self.state.join("bin/extant"))
            .env("EXTANT_SKIP_LOG", self.state.join("skipped"))
            .env("EXTANT_REPORT_LOG", self.state.join("reports"))
            .stderr(output.try_clone()?)
            .stdout(output)
            .status()?;
        if let Some(signal) = status.signal() {
            return Err(std::io::Error::other(format!("signal {signal}")));
        }
        if status.success() {
            std::fs::remove_file(&log)?;
        } else {
            let kept = self
                .state
                .join("failed")
                .join(log.file_name().unwrap_or_default());
            std::fs::rename(&log, kept)?;
        }
        Ok(Ended {
            round,
            name: binary.name.clone(),
            is_fine: status.success(),
            seconds: begin.elapsed().as_secs_f64(),
            load: load(),
            cpu: watch::take_cpu_note(&cpu),
            turns,
        })
    }

    /// Of so many rounds each runs a test of the binary once.
    fn turns(&self, name: &str) -> usize {
        let share = std::env::var("EXTANT_SHARE").ok();
        let Some(share) = share.and_then(|text| text.parse::<f64>().ok()) else {
            return 1;
        };
        let ended = self.ended();
        let first = ended.iter().find(|ended| ended.name == name);
        first.map_or(1, |first| turns(first.cpu, share))
    }

    fn record(&self, ended: Ended) -> std::io::Result<()> {
        let mut all = self
            .ended
            .lock()
            .map_err(|_| std::io::Error::other("a worker panicked"))?;
        let done = self.state.join("done");
        let mut file = OpenOptions::new().append(true).create(true).open(done)?;
        file.write_all(ended.line().as_bytes())?;
        if !ended.is_fine {
            println!("round {}: {} failed", ended.round, ended.name);
        }
        all.push(ended);
        Ok(())
    }

    /// Says how many rounds each binary has behind it, at which load, and which tests failed.
    fn conclude(&self) -> ExitCode {
        let ended = self.ended();
        let mut runs: BTreeMap<&str, usize> = BTreeMap::new();
        for binary in &self.binaries {
            runs.insert(&binary.name, 0);
        }
        for one in &ended {
            *runs.entry(&one.name).or_default() += 1;
        }
        let complete = runs.values().min().copied().unwrap_or(0);
        let rarest = self.binaries.iter().map(|one| times(&one.name, &ended));
        let rarest = rarest.min().unwrap_or(0);
        let load = ended.iter().map(|one| one.load).sum::<f64>() / (ended.len() as f64).max(1.0);
        let failed = ended.iter().filter(|one| !one.is_fine).count();
        for (test, times) in self.failed_tests() {
            println!("failed {times} times: {test}");
        }
        let (binaries, all) = (runs.len(), ended.len());
        let cpu = ended.iter().map(|one| one.cpu).sum::<f64>() / 60.0;
        println!(
            "{complete} rounds of {binaries} binaries, each test {rarest} times or more; \
             {all} runs, {failed} failed; mean load {load:.1}; \
             {cpu:.1} minutes of processor time"
        );
        if failed == 0 && complete > 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    /// How often each test failed, by the logs that were kept.
    fn failed_tests(&self) -> BTreeMap<String, usize> {
        let mut all = BTreeMap::new();
        let logs = std::fs::read_dir(self.state.join("failed"));
        for log in logs.into_iter().flatten().flatten() {
            let text = std::fs::read(log.path()).unwrap_or_default();
            let mut failures = Failures::default();
            let text = String::from_utf8_lossy(&text);
            text.lines().for_each(|line| failures.line(line));
            failures.binary_ended();
            let file = log.file_name();
            let file = file.to_string_lossy();
            let binary = file.split_once('-').map_or(&*file, |(_, name)| name);
            let binary = binary.strip_suffix(".log").unwrap_or(binary);
            let names = failures.names();
            if names.is_empty() {
                *all.entry(format!("{binary}: died")).or_default() += 1;
            }
            for name in names {
                *all.entry(format!("{binary}: {name}")).or_default() += 1;
            }
        }
        all
    }
}

/// Builds the test binaries, and keeps them with their list.
fn keep(root: &Path, state: &Path, args: &[String]) -> std::io::Result<()> {
    let bin = state.join("bin");
    std::fs::create_dir_all(&bin)?;
    let timed = args.first().is_some_and(|first| first == "--timed");
    let args = args.get(usize::from(timed)..).unwrap_or_default();
    let mut all = binaries::build(root, &state.join("notes"), args)?;
    for binary in &mut all {
        binary.keep_in(&bin)?;
    }
    if timed {
        steady::leave_out(&mut all);
    }
    let lines: String = all.iter().map(Binary::line).collect();
    let extant = binaries::build_command(root, &binaries::target(root), args)?;
    std::fs::create_dir_all(bin.join("examples"))?;
    for file in ["extant", "examples/hand_over"] {
        let kept = bin.join(file);
        let _ = std::fs::remove_file(&kept);
        std::fs::hard_link(extant.with_file_name(file), kept)?;
    }
    std::fs::write(state.join("binaries"), lines)
}

/// How often every test of a binary was run, by the turns of its runs.
fn times(name: &str, ended: &[Ended]) -> usize {
    let mut runs: BTreeMap<usize, usize> = BTreeMap::new();
    for one in ended.iter().filter(|one| one.name == name) {
        *runs.entry(one.turns).or_default() += 1;
    }
    runs.iter().map(|(turns, runs)| runs / turns.max(&1)).sum()
}

/// How many rounds share what takes `seconds`, if each has `share` of them for it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "seconds of processor time, and not negative"
)]
fn turns(seconds: f64, share: f64) -> usize {
    if seconds > share && share > 0.0 {
        (seconds / share).ceil() as usize
    } else {
        1
    }
}

/// The threads that ran or wanted to, averaged over the last minute.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_more_than_its_share_is_shared_by_rounds() {
        let all = [turns(2.0, 4.0), turns(4.1, 4.0), turns(77.0, 4.0)];
        assert_eq!(all, [1, 2, 20]);
        assert_eq!([turns(9.0, 0.0), turns(0.0, 1.0)], [1, 1]);
    }

    fn rounds(binaries: &[&str], ended: Vec<Ended>) -> Rounds {
        let lines = binaries
            .iter()
            .map(|name| format!("iomap.{name}\t/c/iomap\t/t/deps/{name}-0a1b\t--exact"));
        Rounds {
            binaries: lines.filter_map(|line| Binary::parse(&line)).collect(),
            state: PathBuf::from("/nowhere"),
            ended: Mutex::new(ended),
        }
    }

    fn ended(round: usize, name: &str, is_fine: bool) -> Ended {
        Ended {
            round,
            name: name.to_owned(),
            is_fine,
            seconds: 1.5,
            load: 20.5,
            cpu: 2.5,
            turns: 1,
        }
    }

    #[test]
    fn a_test_is_run_as_often_as_it_has_its_turn() {
        let shared = |round| Ended {
            turns: 3,
            ..ended(round, "a", true)
        };
        let all = [
            ended(1, "a", true),
            ended(1, "b", true),
            shared(2),
            shared(3),
        ];
        assert_eq!(
            times("a", &all),
            1,
            "two of three have had their turn again"
        );
        let all = [&all[..], &[shared(4)]].concat();
        assert_eq!(
            [times("a", &all), times("b", &all), times("c", &all)],
            [2, 1, 0]
        );
    }

    #[test]
    fn what_has_ended_is_read_as_it_was_written() {
        let one = ended(3, "iomap.model", false);
        assert_eq!(Ended::parse(one.line().trim_end()), Some(one));
        assert_eq!(Ended::parse("3\tiomap"), None);
    }

    #[test]
    fn a_stopped_round_goes_on_with_what_it_lacks() {
        let done = vec![ended(1, "iomap.a", true), ended(1, "iomap.c", false)];
        let all = rounds(&["a", "b", "c"], done);
        let names =
            |round| -> Vec<String> { all.left(round).into_iter().map(|b| b.name).collect() };
        assert_eq!(names(1), ["iomap.b"]);
        assert_eq!(names(2), ["iomap.c", "iomap.a", "iomap.b"]);
    }
}
