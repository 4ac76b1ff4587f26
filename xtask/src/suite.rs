//! Running the suites and adding up their results.
//!
//! The last line is always `N passed, N failed, N skipped`. A test that found the machine lacking
//! says so in a file (`$EXTANT_SKIP_LOG`, see the test kit) and counts as skipped, not as passed;
//! so do ignored ones. A run that could not even be built counts as one failure.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Results over all test binaries of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// `cargo test --workspace`, its noise left out, its totals at the end.
pub(crate) fn test(root: &Path, args: &[String]) -> ExitCode {
    let logs = Logs::fresh(root);
    let all = run(root, &["--workspace"], args, &[], &logs);
    conclude(all, &logs)
}

/// The suites whose length is a parameter, until `minutes` (60) are over.
pub(crate) fn soak(root: &Path, args: &[String]) -> ExitCode {
    let minutes = args.first().and_then(|m| m.parse().ok()).unwrap_or(60);
    let end = Instant::now() + Duration::from_secs(minutes * 60);
    let logs = Logs::fresh(root);
    let mut all = Totals::default();
    let mut seed = 1000u64;
    while Instant::now() < end && all.failed == 0 {
        seed += 1;
        println!("soak: round with EXTANT_SEED={seed}");
        let seed = seed.to_string();
        let env = [
            ("EXTANT_SEED", seed.as_str()),
            ("EXTANT_KILLS", "300"),
            ("EXTANT_SECONDS", "60"),
        ];
        let round = [
            "-p",
            "extant-tests",
            "--test",
            "kill",
            "--test",
            "threads",
            "--test",
            "exerciser",
            "--test",
            "replay",
        ];
        let t = run(root, &round, &[], &env, &logs);
        all.passed += t.passed;
        all.failed += t.failed;
        all.skipped += t.skipped;
    }
    conclude(all, &logs)
}

/// Where the tests leave what they skipped and what they measured.
struct Logs {
    skips: PathBuf,
    reports: PathBuf,
}

impl Logs {
    fn fresh(root: &Path) -> Logs {
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(d) => root.join(d),
            None => root.join("target"),
        };
        let logs = Logs {
            skips: target.join("skipped-tests.log"),
            reports: target.join("test-reports.log"),
        };
        for file in [&logs.skips, &logs.reports] {
            // Missing is what a first run finds.
            let _ = std::fs::remove_file(file);
        }
        logs
    }
}

fn run(root: &Path, what: &[&str], args: &[String], env: &[(&str, &str)], logs: &Logs) -> Totals {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(root)
        .arg("test")
        .args(what)
        .arg("--no-fail-fast")
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
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            match parse(&line) {
                Some(t) => {
                    totals.passed += t.passed;
                    totals.failed += t.failed;
                    totals.skipped += t.skipped;
                    if t != Totals::default() {
                        println!("{line}");
                    }
                }
                None if is_noise(&line) => {}
                None => println!("{line}"),
            }
        }
    }
    let fine = child.wait().is_ok_and(|s| s.success());
    if !fine && totals.failed == 0 {
        // It did not build, or a test binary died before it could say what failed.
        totals.failed = 1;
    }
    totals
}

fn conclude(mut all: Totals, logs: &Logs) -> ExitCode {
    let read = |p: &Path| std::fs::read_to_string(p).unwrap_or_default();
    for line in read(&logs.reports).lines() {
        println!("report: {}", line.replace('\t', ": "));
    }
    for line in read(&logs.skips).lines() {
        println!("skipped: {}", line.replace('\t', ": "));
        all.skipped += 1;
        all.passed = all.passed.saturating_sub(1);
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
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.05s";
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
