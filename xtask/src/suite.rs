//! Running the suites and adding up their results.
//!
//! The last line is always `N passed, N failed, N skipped`. A test that found the machine lacking
//! says so in a file (`$EXTANT_SKIP_LOG`, see the test kit) and counts as skipped, not as passed;
//! so do ignored ones. A run that could not even be built counts as one failure. Before it stands
//! once more what failed, and what that said.
//!
//! A run of all suites has some of them run at once: many wait for daemons, disks and clocks. For
//! the same reason another check may run beside them.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::binaries::{self, Binary};
use crate::outcome::{Outcome, Totals};
use crate::watch::watch;

/// Test binaries that a run of all suites has run at once.
const AT_ONCE: u64 = 3;
/// Test binaries that a round under load has run at once, unless the environment says otherwise.
const UNDER_LOAD: u64 = 10;
/// How far the order of the binaries moves from round to round.
const STRIDE: usize = 7;
/// The limit of a test in seconds, unless the environment has another: several times what the
/// slowest takes on a busy machine. Under load it gets a small part of a processor.
const LIMIT: u64 = 600;
const LIMIT_UNDER_LOAD: u64 = 3600;
/// The suites that take longest, and so begin first: a long one at the end would run alone.
const LONGEST: &[&str] = &[
    "tests.exerciser",
    "engine.extant_engine",
    "engine.power_loss",
    "tests.posix",
    "extant.faults",
    "tests.matrix",
    "engine.mmp",
    "bench.small",
    "engine.iomap_rows",
    "fuse.extant_fuse",
    "engine.model",
    "capi.interface",
    "tests.round_trip",
    "tests.kill",
    "tests.installed",
];

/// Suites that a run of all has run over rings of io_uring too, where the kernel knows them. The
/// longer ones are the stage `rings` of a soak.
const OVER_RINGS: &[&str] = &[
    "tests.attributes",
    "tests.consistency",
    "tests.direct",
    "tests.full",
    "tests.posix",
    "tests.ranges",
    "tests.requests",
];
/// The compiler of the workspace's crates in a run of all suites: it is clippy, too.
const COMPILER: &str = "scripts/compile-for-tests";
/// The kernel's switch for rings.
const RINGS: &str = "/sys/module/fuse/parameters/enable_uring";

/// The interleavings: a build of its own, in which a model checker schedules the locks of the page
/// cache, of the I/O tree, of the range lock and of the cache of names.
pub(crate) const INTERLEAVINGS: &str = "-p extant-iomap -p extant-extent-io-tree \
    -p extant-range-lock -p extant-name-cache --test interleavings \
    --target-dir target/interleavings";
/// Both, in one build.
const MODELS: &str = "-p extant-iomap -p extant-extent-io-tree -p extant-range-lock \
    -p extant-name-cache -p extant-engine --test interleavings --test schedules \
    --target-dir target/interleavings";
/// The schedules of the whole engine: in the same build.
pub(crate) const SCHEDULES: &str =
    "-p extant-engine --test schedules --target-dir target/interleavings";
/// The variable of the environment that makes that build.
pub(crate) const MODELLED: (&str, &str) = ("RUSTFLAGS", "--cfg extant_shuttle");

/// A choice of test binaries, and how they are run.
#[derive(Default)]
pub(crate) struct Run<'a> {
    /// Cargo test's arguments that choose what is built.
    pub(crate) suites: Vec<String>,
    /// The test binaries' arguments.
    pub(crate) tests: Vec<String>,
    /// More of the environment.
    pub(crate) env: Vec<(&'a str, &'a str)>,
}

impl Run<'_> {
    /// The suites that `words` choose.
    pub(crate) fn of(words: &str) -> Self {
        Run {
            suites: words.split_whitespace().map(str::to_owned).collect(),
            ..Run::default()
        }
    }

    /// The suites that cargo test's arguments choose, of the workspace if they name no package.
    /// The arguments behind `--` are for the test binaries.
    fn by(args: &[String]) -> Self {
        let mut parts = args.splitn(2, |arg| arg == "--");
        let suites = parts.next().unwrap_or_default();
        let names_one = |arg: &String| ["-p", "--package", "--workspace"].contains(&arg.as_str());
        let all = (!suites.iter().any(names_one)).then(|| "--workspace".to_owned());
        Run {
            suites: all.into_iter().chain(suites.iter().cloned()).collect(),
            tests: parts.next().unwrap_or_default().to_vec(),
            env: Vec::new(),
        }
    }
}

/// All suites with the interleavings and the examples of the documentation, their noise left out,
/// their totals at the end, and `beside` them what else is checked. With arguments, the suites that
/// these choose.
pub(crate) fn test(root: &Path, args: &[String], beside: Option<Beside<'_>>) -> ExitCode {
    let logs = Logs::fresh(root);
    if args.is_empty() {
        if let Err(error) = run_all(root, beside, &logs) {
            logs.add(Outcome::broken(
                "the build of the tests",
                vec![error.to_string()],
            ));
        }
    } else {
        logs.run(root, &Run::by(args));
    }
    logs.conclude()
}

/// A check that runs beside the suites: the number of its parts that failed, and what it says.
pub(crate) type Beside<'a> = &'a (dyn Fn() -> (u64, Vec<u8>) + Sync);

/// Builds all suites and runs them, some at once.
fn run_all(root: &Path, beside: Option<Beside<'_>>, logs: &Logs) -> io::Result<()> {
    let compiler = root.join(COMPILER).display().to_string();
    let linted = [("RUSTC_WORKSPACE_WRAPPER", compiler.as_str())];
    let all = Run::of("--workspace --tests --examples").suites;
    let mut built = binaries::build(root, &all, &linted)?;
    let command = binaries::build_command(root, &[], &linted)?;
    let command = command.display().to_string();
    let rank = |binary: &Binary| LONGEST.iter().position(|name| *name == binary.name);
    built.sort_by_key(|binary| rank(binary).unwrap_or(LONGEST.len()));
    let plain = Run {
        env: vec![("EXTANT_BIN", &command)],
        ..Run::default()
    };
    let rings = Run {
        env: vec![("EXTANT_BIN", &command), ("EXTANT_TRANSPORT", "uring")],
        ..Run::default()
    };
    let has_rings = Path::new(RINGS).exists();
    let over_rings = |one: &&Binary| has_rings && OVER_RINGS.contains(&one.name.as_str());
    let again = built.iter().filter(over_rings).map(|one| (one, &rings));
    let queue: VecDeque<_> = built.iter().map(|one| (one, &plain)).chain(again).collect();
    std::thread::scope(|scope| {
        let beside = beside.map(|check| scope.spawn(check));
        let suites = scope.spawn(|| logs.run_at_once(AT_ONCE, queue));
        let mut models = Run::of(MODELS);
        models.env.push(MODELLED);
        logs.run(root, &models);
        let mut examples = binaries::cargo(root);
        examples.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
        examples.envs(linted);
        logs.add(logs.watched(examples, Duration::MAX, Vec::new, |line| println!("{line}")));
        let ended = [
            suites.join().is_ok(),
            beside.is_none_or(|beside| match beside.join() {
                Ok((failed, said)) => {
                    print!("{}", String::from_utf8_lossy(&said));
                    failed == 0
                }
                Err(_) => false,
            }),
        ];
        for (what, _) in ["a suite", "the lint"]
            .iter()
            .zip(ended)
            .filter(|(_, fine)| !fine)
        {
            logs.add(Outcome::broken(what, Vec::new()));
        }
    });
    Ok(())
}

/// Rounds of test binaries under load: `cargo xtask rounds N [CARGO TEST'S ARGUMENTS]`. Each has as
/// many threads as the machine has processors, and many run at once. The order differs from round
/// to round, and with it the neighbours.
pub(crate) fn rounds(root: &Path, args: &[String]) -> ExitCode {
    let rounds = args.first().and_then(|first| first.parse::<usize>().ok());
    let Some(rounds) = rounds else {
        eprintln!("usage: cargo xtask rounds N [cargo test's arguments]");
        return ExitCode::from(2);
    };
    let logs = Logs::fresh(root);
    let chosen = args.get(1..).unwrap_or_default();
    let run = Run::by(chosen);
    let suites = [&run.suites[..], &["--tests".to_owned()]].concat();
    let built = binaries::build(root, &suites, &[])
        .and_then(|built| Ok((built, binaries::build_command(root, &run.suites, &[])?)));
    let (mut built, command) = match built {
        Ok((built, command)) => (built, command.display().to_string()),
        Err(error) => {
            eprintln!("the tests were not built: {error}");
            return ExitCode::FAILURE;
        }
    };
    let limit = number("EXTANT_TEST_LIMIT").unwrap_or(LIMIT_UNDER_LOAD);
    let limit = limit.to_string();
    let at_once = number("EXTANT_AT_ONCE").unwrap_or(UNDER_LOAD);
    for round in 1..=rounds {
        println!("round {round}: {} binaries, load {}", built.len(), load());
        let by = STRIDE % built.len().max(1);
        built.rotate_left(by);
        let limited = Run {
            tests: run.tests.clone(),
            env: vec![("EXTANT_TEST_LIMIT", &limit), ("EXTANT_BIN", &command)],
            ..Run::default()
        };
        logs.run_at_once(at_once, built.iter().map(|one| (one, &limited)).collect());
    }
    logs.conclude()
}

/// The threads that ran or wanted to, averaged over the last minute.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace()
        .next()
        .unwrap_or("unknown")
        .to_owned()
}

/// The number that a variable of the environment has.
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The files in which tests leave what they skipped and measured, and the outcome so far.
pub(crate) struct Logs {
    skips: PathBuf,
    reports: PathBuf,
    outcome: Mutex<Outcome>,
}

impl Logs {
    /// Both, empty.
    pub(crate) fn fresh(root: &Path) -> Logs {
        let target = binaries::target(root);
        let logs = Logs {
            skips: target.join("skipped-tests.log"),
            reports: target.join("test-reports.log"),
            outcome: Mutex::default(),
        };
        for file in [&logs.skips, &logs.reports] {
            // Missing is what a first run finds.
            let _ = std::fs::remove_file(file);
        }
        logs
    }

    /// Adds what came of a part of the run.
    pub(crate) fn add(&self, part: Outcome) {
        let outcome = self.outcome.lock();
        outcome.unwrap_or_else(PoisonError::into_inner).append(part);
    }

    /// Returns whether nothing failed so far.
    pub(crate) fn is_fine(&self) -> bool {
        let outcome = self.outcome.lock();
        outcome
            .unwrap_or_else(PoisonError::into_inner)
            .totals
            .failed
            == 0
    }

    /// Builds the suites of a run and runs them one after the other.
    pub(crate) fn run(&self, root: &Path, run: &Run<'_>) {
        match binaries::build(root, &run.suites, &run.env) {
            Ok(built) => {
                for binary in &built {
                    self.run_binary(binary, run);
                }
            }
            Err(error) => self.add(Outcome::broken(
                "the build of a suite",
                vec![error.to_string()],
            )),
        }
    }

    /// Runs a program of `scripts` that prints as the test harness does.
    pub(crate) fn run_script(&self, root: &Path, words: &str) {
        let mut words = words.split_whitespace();
        let program = root.join("scripts").join(words.next().unwrap_or_default());
        let mut command = std::process::Command::new(program);
        command.args(words).current_dir(root);
        self.add(self.watched(command, Duration::MAX, Vec::new, |line| println!("{line}")));
    }

    /// Runs binaries, so many at once.
    fn run_at_once(&self, at_once: u64, queue: VecDeque<(&Binary, &Run<'_>)>) {
        let queue = Mutex::new(queue);
        let next = || {
            queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front()
        };
        std::thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    while let Some((binary, run)) = next() {
                        self.run_binary(binary, run);
                    }
                });
            }
        });
    }

    /// Runs one binary to its end, and then prints what it said.
    fn run_binary(&self, binary: &Binary, run: &Run<'_>) {
        let begin = Instant::now();
        let mut said = String::new();
        let mut command = binary.command();
        command.args(&run.tests).envs(run.env.iter().copied());
        let named = run
            .env
            .iter()
            .find(|(name, _)| *name == "EXTANT_TEST_LIMIT");
        let named = named.and_then(|(_, seconds)| seconds.parse().ok());
        let limit = named
            .or_else(|| number("EXTANT_TEST_LIMIT"))
            .unwrap_or(LIMIT);
        let limit = Duration::from_secs(limit);
        let tests = || binary.tests(&run.tests);
        let outcome = self.watched(command, limit, tests, |line| {
            said += line;
            said.push('\n');
        });
        if outcome.totals != Totals::default() {
            let over_rings = run.env.contains(&("EXTANT_TRANSPORT", "uring"));
            let how = if over_rings { " over rings" } else { "" };
            let seconds = begin.elapsed().as_secs();
            print!("{}{how} ({seconds} s)\n{said}", binary.name);
        }
        self.add(outcome);
    }

    /// Runs what prints as the test harness does.
    fn watched(
        &self,
        mut command: std::process::Command,
        limit: Duration,
        tests: impl Fn() -> Vec<String>,
        say: impl FnMut(&str),
    ) -> Outcome {
        command
            .env("EXTANT_SKIP_LOG", &self.skips)
            .env("EXTANT_REPORT_LOG", &self.reports);
        let what = format!("{:?}", command.get_program());
        let outcome = watch(command, limit, tests, say);
        outcome.unwrap_or_else(|error| Outcome::broken(&what, vec![error.to_string()]))
    }

    /// Prints what was reported and skipped, what failed, and the totals.
    pub(crate) fn conclude(self) -> ExitCode {
        let read = |p: &Path| std::fs::read_to_string(p).unwrap_or_default();
        let outcome = self.outcome.into_inner();
        let outcome = outcome.unwrap_or_else(PoisonError::into_inner);
        let mut all = outcome.totals;
        for line in read(&self.reports).lines() {
            println!("report: {}", line.replace('\t', ": "));
        }
        for line in read(&self.skips).lines() {
            println!("skipped: {}", line.replace('\t', ": "));
            all.skipped += 1;
            all.passed = all.passed.saturating_sub(1);
        }
        for line in outcome.report() {
            println!("{line}");
        }
        let (passed, failed, skipped) = (all.passed, all.failed, all.skipped);
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        if failed == 0 && passed > 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}
