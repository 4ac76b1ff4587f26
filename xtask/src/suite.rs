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
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::binaries::{self, Binary};
use crate::failures::Failures;

/// Test binaries that a run of all suites has run at once.
const AT_ONCE: usize = 3;
/// The suites that take longest, and so begin first: a long one at the end would run alone.
const LONGEST: &[&str] = &[
    "tests.exerciser",
    "engine.power_loss",
    "bench.small",
    "extant.faults",
    "tests.installed",
    "cli.hand_over",
    "tests.posix",
    "tests.round_trip",
    "engine.mmp",
    "capi.interface",
    "tests.matrix",
    "extant.consistency",
];

/// Results over all test binaries of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Totals {
    /// So many that passed, and that failed.
    pub(crate) fn of(passed: u64, failed: u64) -> Self {
        Self {
            passed,
            failed,
            skipped: 0,
        }
    }

    /// Whether nothing failed so far.
    pub(crate) fn fine(self) -> bool {
        self.failed == 0
    }
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, more: Totals) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.skipped += more.skipped;
    }
}

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
/// The kernel's switch for rings.
const RINGS: &str = "/sys/module/fuse/parameters/enable_uring";

/// The interleavings: a build of its own, in which a model checker schedules the locks of the page
/// cache, of the I/O tree, of the range lock and of the cache of names.
pub(crate) const INTERLEAVINGS: &str = "-p extant-iomap -p extant-extent-io-tree \
    -p extant-range-lock -p extant-name-cache --test interleavings \
    --target-dir target/interleavings";
/// What that build is made with.
pub(crate) const MODELLED: (&str, &str) = ("RUSTFLAGS", "--cfg extant_shuttle");

/// All suites with the interleavings and the examples of the documentation, their noise left out,
/// their totals at the end, and `beside` them what else is checked. With arguments, `cargo test
/// --workspace` with these.
pub(crate) fn test(root: &Path, args: &[String], beside: Option<Beside<'_>>) -> ExitCode {
    let logs = Logs::fresh(root);
    let all = if args.is_empty() {
        run_all(root, beside, &logs)
    } else {
        run(root, "--workspace", args, &[], &logs)
    };
    conclude(all, &logs)
}

/// A check that runs beside the suites: the number of its parts that failed, and what it says.
pub(crate) type Beside<'a> = &'a (dyn Fn() -> (u64, Vec<u8>) + Sync);

/// Builds all suites and runs them, some at once.
fn run_all(root: &Path, beside: Option<Beside<'_>>, logs: &Logs) -> Totals {
    let built = binaries::build(root, &logs.binaries, &[])
        .and_then(|built| Ok((built, binaries::build_command(root, &logs.target, &[])?)));
    let (mut built, command) = match built {
        Ok(built) => built,
        Err(error) => {
            eprintln!("the tests were not built: {error}");
            return Totals::of(0, 1);
        }
    };
    let place = |binary: &Binary| LONGEST.iter().position(|name| *name == binary.name);
    built.sort_by_key(|binary| place(binary).unwrap_or(LONGEST.len()));
    let has_rings = Path::new(RINGS).exists();
    let over_rings = |binary: &Binary| has_rings && OVER_RINGS.contains(&binary.name.as_str());
    let again: Vec<_> = built
        .iter()
        .filter(|one| over_rings(one))
        .cloned()
        .collect();
    let mut runs: VecDeque<_> = built.into_iter().map(|binary| (binary, false)).collect();
    runs.extend(again.into_iter().map(|binary| (binary, true)));
    let left = Mutex::new(runs);
    let next = || {
        let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
        left.pop_front()
    };
    let worker = || {
        let mut totals = Totals::default();
        while let Some((binary, over_rings)) = next() {
            totals += run_binary(&binary, over_rings, &command, logs);
        }
        totals
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(worker)).collect();
        let beside = beside.map(|check| scope.spawn(check));
        let mut all = run(root, INTERLEAVINGS, &[], &[MODELLED], logs);
        all += run(root, "--workspace --doc", &[], &[], logs);
        for worker in workers {
            // A worker that panicked lost the results of its binaries.
            all += worker.join().unwrap_or(Totals::of(0, 1));
        }
        if let Some(beside) = beside {
            let (failed, said) = beside.join().unwrap_or((1, Vec::new()));
            print!("{}", String::from_utf8_lossy(&said));
            all += Totals::of(0, failed);
        }
        all
    })
}

/// Runs one binary to its end, and then prints what it said. It uses `extant`, which was built.
fn run_binary(binary: &Binary, over_rings: bool, extant: &Path, logs: &Logs) -> Totals {
    let begin = Instant::now();
    let mut said = String::new();
    let totals = match binary.watched(1) {
        Ok(mut command) => {
            command.env("EXTANT_BIN", extant);
            if over_rings {
                command.env("EXTANT_TRANSPORT", "uring");
            }
            logs.run(command, |line| {
                said += line;
                said.push('\n');
            })
        }
        Err(error) => {
            eprintln!("cannot run {}: {error}", binary.name);
            Totals::of(0, 1)
        }
    };
    if totals != Totals::default() {
        let how = if over_rings { " over rings" } else { "" };
        let seconds = begin.elapsed().as_secs();
        print!("{}{how} ({seconds} s)\n{said}", binary.name);
    }
    totals
}

/// Where the tests leave what they skipped and what they measured; and what failed so far.
pub(crate) struct Logs {
    target: PathBuf,
    skips: PathBuf,
    reports: PathBuf,
    binaries: PathBuf,
    failures: Mutex<Failures>,
}

impl Logs {
    /// Both, empty.
    pub(crate) fn fresh(root: &Path) -> Logs {
        let target = binaries::target(root);
        let logs = Logs {
            skips: target.join("skipped-tests.log"),
            reports: target.join("test-reports.log"),
            binaries: target.join("test-binaries.log"),
            target,
            failures: Mutex::default(),
        };
        for file in [&logs.skips, &logs.reports] {
            // Missing is what a first run finds.
            let _ = std::fs::remove_file(file);
        }
        logs
    }

    /// Runs what prints as the test harness does. `say` gets the lines that are not noise.
    fn run(&self, mut command: Command, mut say: impl FnMut(&str)) -> Totals {
        command
            .env("EXTANT_SKIP_LOG", &self.skips)
            .env("EXTANT_REPORT_LOG", &self.reports)
            .stdout(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                eprintln!("cannot run {:?}: {error}", command.get_program());
                return Totals::of(0, 1);
            }
        };
        let mut totals = Totals::default();
        let mut failures = Failures::default();
        let out = child.stdout.take().map(BufReader::new);
        for line in out.into_iter().flat_map(|out| out.split(b'\n')) {
            let Ok(line) = line else { break };
            let line = String::from_utf8_lossy(&line);
            failures.line(&line);
            match parse(&line) {
                Some(result) => {
                    totals += result;
                    if result != Totals::default() {
                        say(&line);
                    }
                }
                None if is_noise(&line) => {}
                None => say(&line),
            }
        }
        failures.binary_ended();
        self.failures().append(failures);
        let fine = child.wait().is_ok_and(|status| status.success());
        if !fine && totals.failed == 0 {
            // It did not build, or a test binary died before it could say what failed.
            totals.failed = 1;
        }
        totals
    }

    fn failures(&self) -> std::sync::MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cargo's arguments that have this program run the test binaries: none of them may hang.
fn runner() -> Vec<String> {
    let Ok(program) = std::env::current_exe() else {
        return Vec::new();
    };
    let runner = format!(
        "target.'cfg(all())'.runner = [{:?}, \"watch\"]",
        program.display().to_string()
    );
    vec!["--config".to_owned(), runner]
}

/// `cargo test`, with `what` to choose the suites, `args` behind that, and `env` around it.
pub(crate) fn run(
    root: &Path,
    what: &str,
    args: &[String],
    env: &[(&str, &str)],
    logs: &Logs,
) -> Totals {
    let mut cargo = binaries::cargo(root);
    cargo
        .arg("test")
        .args(what.split_whitespace())
        .arg("--no-fail-fast")
        .args(runner())
        .args(args);
    cargo.envs(env.iter().copied());
    logs.run(cargo, |line| println!("{line}"))
}

/// Prints what was reported and skipped, and the totals.
pub(crate) fn conclude(mut all: Totals, logs: &Logs) -> ExitCode {
    let read = |p: &Path| std::fs::read_to_string(p).unwrap_or_default();
    for line in read(&logs.reports).lines() {
        println!("report: {}", line.replace('\t', ": "));
    }
    for line in read(&logs.skips).lines() {
        println!("skipped: {}", line.replace('\t', ": "));
        all.skipped += 1;
        all.passed = all.passed.saturating_sub(1);
    }
    for line in logs.failures().report() {
        println!("{line}");
    }
    println!(
        "{} passed, {} failed, {} skipped",
        all.passed, all.failed, all.skipped
    );
    if all.failed == 0 && all.passed > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The counts in `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
fn parse(line: &str) -> Option<Totals> {
    let counts = line.strip_prefix("test result: ")?;
    let count = |word: &str| {
        let part = counts
            .split([';', '.'])
            .find(|p| p.trim_end().ends_with(word))?;
        part.split_whitespace().next()?.parse().ok()
    };
    Some(Totals {
        passed: count(" passed")?,
        failed: count(" failed")?,
        skipped: count(" ignored")?,
    })
}

/// Lines of cargo test that only say that all is well.
fn is_noise(line: &str) -> bool {
    let passed =
        line.starts_with("test ") && (line.ends_with("... ok") || line.contains("... ignored"));
    let count = line.starts_with("running ") && line.split_whitespace().count() == 3;
    passed || count || line.is_empty()
}

#[cfg(test)]
mod tests {
    use super::{Totals, is_noise, parse};

    #[test]
    fn results_are_understood() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; \
                    0 measured; 0 filtered out; finished in 1.05s";
        assert_eq!(
            parse(line),
            Some(Totals {
                passed: 12,
                failed: 3,
                skipped: 1
            })
        );
        assert_eq!(parse("test a::b ... ok"), None);
        assert!(is_noise("test a::b ... ok") && is_noise("running 3 tests"));
        assert!(!is_noise("test a::b ... FAILED"));
    }
}
