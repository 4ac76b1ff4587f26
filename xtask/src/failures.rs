//! What failed, picked out of the output of `cargo test`, to be shown once more at the end of a
//! run: there a log is read first, and often alone.

/// Lines of a test's output that are shown from its beginning.
const FIRST: usize = 12;
/// Lines that are shown from its end.
const LAST: usize = 28;
/// Tests whose output is shown; of more, the names.
const SHOWN: usize = 12;

/// The failures of a run, in the order in which they were printed.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    tests: Vec<Failed>,
    /// The test whose output the next lines are.
    open: Option<usize>,
    /// Tests have begun to run, and their result is still to come.
    running: bool,
    /// Test binaries that ended without a result.
    died: usize,
}

#[derive(Debug)]
struct Failed {
    name: String,
    said: Vec<String>,
}

impl Failures {
    /// Takes the next line of the output.
    pub(crate) fn line(&mut self, line: &str) {
        let output_of = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"));
        let failed = line
            .strip_prefix("test ")
            .and_then(|rest| rest.strip_suffix(" ... FAILED"));
        if let Some(name) = output_of {
            self.open = Some(self.entry(name));
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.open = None;
            self.running &= line == "failures:";
        } else if let Some(at) = self.open {
            if let Some(test) = self.tests.get_mut(at) {
                test.said.push(line.to_owned());
            }
        } else if let Some(name) = failed {
            self.tests.push(Failed {
                name: name.to_owned(),
                said: Vec::new(),
            });
        } else if is_begin(line) {
            self.binary_ended();
            self.running = true;
        }
    }

    /// A test binary has ended, with its result or without.
    pub(crate) fn binary_ended(&mut self) {
        self.died += usize::from(std::mem::take(&mut self.running));
        self.open = None;
    }

    /// Adds what failed in another run, which has ended.
    pub(crate) fn append(&mut self, mut other: Failures) {
        self.tests.append(&mut other.tests);
        self.died += other.died;
    }

    /// The test of this name that failed last.
    fn entry(&mut self, name: &str) -> usize {
        let known = self.tests.iter().rposition(|test| test.name == name);
        known.unwrap_or_else(|| {
            self.tests.push(Failed {
                name: name.to_owned(),
                said: Vec::new(),
            });
            self.tests.len() - 1
        })
    }

    /// The tests that failed.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.tests.iter().map(|test| test.name.as_str()).collect()
    }

    /// All of it for a reader: what the tests said, and then their names.
    pub(crate) fn report(&self) -> Vec<String> {
        let mut report = Vec::new();
        for test in self.tests.iter().take(SHOWN) {
            report.push(format!("---- {} ----", test.name));
            let said = &test.said;
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
            report.push(format!(
                "failed: {} test binaries ended without a result, see above",
                self.died
            ));
        }
        report.extend(
            self.tests
                .iter()
                .map(|test| format!("failed: {}", test.name)),
        );
        report
    }
}

/// Whether tests begin to run: `running 12 tests`.
fn is_begin(line: &str) -> bool {
    let count = line.strip_prefix("running ");
    count.is_some_and(|rest| rest.ends_with(" tests") || rest.ends_with(" test"))
}

#[cfg(test)]
mod tests {
    use super::Failures;

    fn report(output: &str) -> Vec<String> {
        let mut failures = Failures::default();
        output.lines().for_each(|line| failures.line(line));
        failures.binary_ended();
        failures.report()
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
            "",
            "---- c::mute ----",
            "failed: b::bad",
            "failed: c::mute",
        ];
        assert_eq!(report(output), expected);
    }

    #[test]
    fn long_output_is_printed_in_part_and_a_death_is_printed() {
        let lines: String = (0..100).map(|n| format!("line {n}\n")).collect();
        let output = format!(
            "running 1 test\ntest t ... FAILED\nfailures:\n---- t stdout ----\n{lines}\
             failures:\n    t\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored\nrunning 2 tests\ntest u ... ok\n"
        );
        let report = report(&output);
        assert_eq!(report[1..13].first().unwrap(), "line 0");
        assert_eq!(report[13], "[60 lines, see above]");
        assert_eq!(report[14..42].last().unwrap(), "line 99");
        assert!(report[42].contains("1 test binaries"), "{report:?}");
        assert_eq!(report[43], "failed: t");
    }
}
