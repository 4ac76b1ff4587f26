//! The results that test binaries print: how many tests passed, which run long, and what failed, to
//! be shown once more at the end of a run. There a log is read first, and often alone.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;
use std::time::{Duration, Instant};

/// Lines of a test's output that are shown from its beginning.
const FIRST: usize = 12;
/// Lines that are shown from its end.
const LAST: usize = 28;
/// Tests whose output is shown; of more, the names.
const SHOWN: usize = 12;
/// When the test harness says for the first time that a test takes long.
pub(crate) const TOLD_AFTER: Duration = Duration::from_secs(60);

/// The numbers of tests by their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
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

    /// The counts in `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
    fn parse(line: &str) -> Option<Totals> {
        let counts = line.strip_prefix("test result: ")?;
        let count = |word: &str| {
            let mut parts = counts.split([';', '.']);
            let part = parts.find(|part| part.trim_end().ends_with(word))?;
            part.split_whitespace().next()?.parse().ok()
        };
        Some(Totals {
            passed: count(" passed")?,
            failed: count(" failed")?,
            skipped: count(" ignored")?,
        })
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, more: Totals) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.skipped += more.skipped;
    }
}

/// The results of a run, and its failures in the order in which they were printed.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) totals: Totals,
    failures: Vec<Failure>,
    /// Test binaries that ended without a result.
    died: usize,
    /// The test whose output the next lines are.
    open: Option<usize>,
    /// The results of the binary that runs, as far as it has told them.
    running: Option<Totals>,
    /// The tests of that binary that ended.
    pub(crate) ended: BTreeSet<String>,
    /// Those that take long, and since when they run.
    long: BTreeMap<String, Instant>,
}

#[derive(Debug)]
struct Failure {
    test: String,
    said: Vec<String>,
}

impl Outcome {
    /// An outcome of which only the numbers are known.
    pub(crate) fn counted(totals: Totals) -> Outcome {
        Outcome {
            totals,
            ..Outcome::default()
        }
    }

    /// The outcome of something that did not run at all, in words.
    pub(crate) fn broken(what: &str, said: Vec<String>) -> Outcome {
        let mut outcome = Outcome::counted(Totals::of(0, 1));
        let at = outcome.entry(what);
        outcome.failures[at].said = said;
        outcome
    }

    /// Takes the next line of the output. Returns whether it says more than that all is well.
    pub(crate) fn line(&mut self, line: &str) -> bool {
        let is_begin = |rest: &str| rest.ends_with(" tests") || rest.ends_with(" test");
        let stdout = |rest: &str| rest.strip_suffix(" stdout ----").map(str::to_owned);
        if let Some(test) = line.strip_prefix("---- ").and_then(stdout) {
            self.open = Some(self.entry(&test));
        } else if line == "failures:" {
            self.open = None;
        } else if let Some(totals) = Totals::parse(line) {
            self.totals += totals;
            (self.open, self.running) = (None, None);
            return totals != Totals::default();
        } else if let Some(failure) = self.open.and_then(|at| self.failures.get_mut(at)) {
            failure.said.push(line.to_owned());
        } else if let Some(rest) = line.strip_prefix("test ") {
            return self.test(rest);
        } else if line.strip_prefix("running ").is_some_and(is_begin) {
            self.binary_ended();
            self.running = Some(Totals::default());
            return false;
        }
        !line.is_empty()
    }

    /// Takes a line about one test.
    fn test(&mut self, rest: &str) -> bool {
        if let Some((name, _)) = rest.split_once(" has been running for over ") {
            let since = Instant::now().checked_sub(TOLD_AFTER);
            let since = since.unwrap_or_else(Instant::now);
            self.long.entry(name.to_owned()).or_insert(since);
        } else if let Some((name, result)) = rest.split_once(" ... ") {
            self.long.remove(name);
            self.ended.insert(name.to_owned());
            let (is_fine, is_ignored) = (result == "ok", result.starts_with("ignored"));
            if result == "FAILED" {
                self.entry(name);
            }
            if let Some(totals) = &mut self.running {
                totals.passed += u64::from(is_fine);
                totals.skipped += u64::from(is_ignored);
                totals.failed += u64::from(result == "FAILED");
            }
            return !(is_fine || is_ignored);
        }
        true
    }

    /// The tests that have run for as long as `limit`.
    pub(crate) fn hung(&self, limit: Duration) -> Vec<String> {
        let hung = self
            .long
            .iter()
            .filter(|(_, since)| since.elapsed() >= limit);
        hung.map(|(name, _)| name.clone()).collect()
    }

    /// Takes it that `tests` hung and the binary was killed; `stacks` is what it did then.
    pub(crate) fn killed(&mut self, tests: &[String], stacks: &str) {
        self.totals += self.running.take().unwrap_or_default();
        self.totals.failed += tests.len() as u64;
        for test in tests {
            let at = self.entry(test);
            let said = "it had not ended at its limit, and its binary was killed";
            let stacks = stacks.lines().filter(|_| Some(test) == tests.first());
            self.failures[at].said = [said]
                .into_iter()
                .chain(stacks)
                .map(str::to_owned)
                .collect();
        }
    }

    /// Notes the end of a binary, with its result or without.
    pub(crate) fn binary_ended(&mut self) {
        if let Some(totals) = self.running.take() {
            self.totals += totals;
            self.totals.failed += 1;
            self.died += 1;
        }
        (self.open, self.long) = (None, BTreeMap::new());
        self.ended.clear();
    }

    /// Adds another run, which has ended.
    pub(crate) fn append(&mut self, other: Outcome) {
        self.totals += other.totals;
        self.failures.extend(other.failures);
        self.died += other.died;
    }

    /// The failure of this test that came last.
    fn entry(&mut self, test: &str) -> usize {
        let known = self
            .failures
            .iter()
            .rposition(|failure| failure.test == test);
        known.unwrap_or_else(|| {
            self.failures.push(Failure {
                test: test.to_owned(),
                said: Vec::new(),
            });
            self.failures.len() - 1
        })
    }

    /// All failures for a reader: what the tests said, and then their names.
    pub(crate) fn report(&self) -> Vec<String> {
        let mut report = Vec::new();
        for Failure { test, said } in self.failures.iter().take(SHOWN) {
            report.push(format!("---- {test} ----"));
            let left_out = said.len().saturating_sub(FIRST + LAST);
            for (at, line) in said.iter().enumerate() {
                if left_out == 0 || at < FIRST || at >= FIRST + left_out {
                    report.push(line.clone());
                } else if at == FIRST {
                    report.push(format!("[{left_out} lines, see above]"));
                }
            }
        }
        if self.died > 0 {
            let died = self.died;
            let what = format!("failed: {died} test binaries ended without a result, see above");
            report.push(what);
        }
        let names = self.failures.iter().map(|failure| &failure.test);
        report.extend(names.map(|test| format!("failed: {test}")));
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(output: &str) -> Outcome {
        let mut outcome = Outcome::default();
        for line in output.lines() {
            outcome.line(line);
        }
        outcome.binary_ended();
        outcome
    }

    #[test]
    fn results_are_understood() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; \
                    0 measured; 0 filtered out; finished in 1.05s";
        let expected = Totals {
            skipped: 1,
            ..Totals::of(12, 3)
        };
        assert_eq!(outcome(line).totals, expected);
        let says_more = |line: &str| Outcome::default().line(line);
        assert!(!says_more("test a::b ... ok") && !says_more("running 3 tests"));
        assert!(says_more("test a::b ... FAILED") && says_more(line));
    }

    #[test]
    fn each_failure_is_printed_with_its_output() {
        let output = "running 3 tests\n\
                      test a::fine ... ok\n\
                      test b::bad ... FAILED\n\
                      test c::mute ... FAILED\n\
                      \n\
                      failures:\n\
                      \n\
                      ---- b::bad stdout ----\n\
                      thread 'b::bad' panicked at x.rs:1:\n\
                      left is not right\n\
                      \n\
                      failures:\n    b::bad\n    c::mute\n\
                      \n\
                      test result: FAILED. 1 passed; 2 failed; 0 ignored\n\
                      running 1 test\n\
                      test a::fine ... ok\n\
                      test result: ok. 1 passed; 0 failed; 0 ignored\n";
        let expected = [
            "---- b::bad ----",
            "thread 'b::bad' panicked at x.rs:1:",
            "left is not right",
            "",
            "---- c::mute ----",
            "failed: b::bad",
            "failed: c::mute",
        ];
        let outcome = outcome(output);
        assert_eq!(outcome.report(), expected);
        assert_eq!(outcome.totals, Totals::of(2, 2));
    }

    #[test]
    fn long_output_is_printed_in_part_and_a_death_is_a_failure() {
        let lines: String = (0..100).map(|n| format!("line {n}\n")).collect();
        let output = format!(
            "running 1 test\ntest t ... FAILED\nfailures:\n---- t stdout ----\n{lines}\
             failures:\n    t\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored\nrunning 2 tests\ntest u ... ok\n"
        );
        let outcome = outcome(&output);
        let report = outcome.report();
        assert_eq!(report[1..13].first().unwrap(), "line 0");
        assert_eq!(report[13], "[60 lines, see above]");
        assert_eq!(report[14..42].last().unwrap(), "line 99");
        assert!(report[42].contains("1 test binaries"), "{report:?}");
        assert_eq!(report[43], "failed: t");
        assert_eq!(outcome.totals, Totals::of(1, 2));
    }
}
