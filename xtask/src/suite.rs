//! Running the suites and adding up their results.
//!
//! The last line is always `N passed, N failed, N skipped`. A test that found the machine lacking
//! says so in a file (`$EXTANT_SKIP_LOG`, see the test kit) and counts as skipped, not as passed;
//! so do ignored ones. A run that could not even be built counts as one failure. Before it stands
//! once more what failed, and what that said.

use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::failures::Failures;

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

/// The interleavings: a build of its own, in which a model checker schedules the locks of the page
/// cache, of the I/O tree and of the range lock.
pub(crate) const INTERLEAVINGS: &str = "-p extant-iomap -p extant-extent-io-tree \
    -p extant-range-lock --test interleavings --target-dir target/interleavings";
/// What that build is made with.
pub(crate) const MODELLED: (&str, &str) = ("RUSTFLAGS", "--cfg extant_shuttle");

/// `cargo test --workspace` and the interleavings, their noise left out, their totals at the end.
/// With arguments, the first alone.
pub(crate) fn test(root: &Path, args: &[String]) -> ExitCode {
    let logs = Logs::fresh(root);
    let mut all = run(root, "--workspace", args, &[], &logs);
    if args.is_empty() {
        all += run(root, INTERLEAVINGS, &[], &[MODELLED], &logs);
    }
    conclude(all, &logs)
}

/// Where the tests leave what they skipped and what they measured; and what failed so far.
pub(crate) struct Logs {
    skips: PathBuf,
    reports: PathBuf,
    failures: RefCell<Failures>,
}

impl Logs {
    /// Both, empty.
    pub(crate) fn fresh(root: &Path) -> Logs {
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(d) => root.join(d),
            None => root.join("target"),
        };
        let logs = Logs {
            skips: target.join("skipped-tests.log"),
            reports: target.join("test-reports.log"),
            failures: RefCell::default(),
        };
        for file in [&logs.skips, &logs.reports] {
            // Missing is what a first run finds.
            let _ = std::fs::remove_file(file);
        }
        logs
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
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(root)
        .arg("test")
        .args(what.split_whitespace())
        .arg("--no-fail-fast")
        .args(runner())
        .args(args);
    cargo
        .env("EXTANT_SKIP_LOG", &logs.skips)
        .env("EXTANT_REPORT_LOG", &logs.reports);
    cargo.envs(env.iter().copied()).stdout(Stdio::piped());
    let mut totals = Totals::default();
    let mut child = match cargo.spawn() {
        Ok(c) => c,
        Err(e) => {
            eprintln!("cannot run cargo: {e}");
            return Totals {
                failed: 1,
                ..totals
            };
        }
    };
    if let Some(out) = child.stdout.take() {
        let mut failures = logs.failures.borrow_mut();
        for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            failures.line(&line);
            match parse(&line) {
                Some(t) => {
                    totals += t;
                    if t != Totals::default() {
                        println!("{line}");
                    }
                }
                None if is_noise(&line) => {}
                None => println!("{line}"),
            }
        }
        failures.binary_ended();
    }
    let fine = child.wait().is_ok_and(|s| s.success());
    if !fine && totals.failed == 0 {
        // It did not build, or a test binary died before it could say what failed.
        totals.failed = 1;
    }
    totals
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
    for line in logs.failures.borrow().report() {
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
