//! The run of one test binary, which never hangs: when a test, or the binary as a whole, has run
//! for too long, the tests that have not ended are named with what every thread does, the binary is
//! killed, and they count as failed.

use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::outcome::Outcome;

#[allow(unreachable_pub, reason = "the test kit's")]
#[path = "../../crates/testkit/src/stacks.rs"]
mod stacks;

/// How often the limits are looked at.
const LOOK: Duration = Duration::from_millis(250);
/// How long the output of a binary that has ended is waited for: a daemon that it left may keep it
/// open.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs the test binary `command`. A test may take as long as `limit`, the binary three times that.
/// `tests` lists its tests; `say` gets the lines that say more than that all is well.
pub(crate) fn watch(
    mut command: Command,
    limit: Duration,
    tests: impl Fn() -> Vec<String>,
    mut say: impl FnMut(&str),
) -> io::Result<Outcome> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let lines = lines_of(&mut child);
    let begin = Instant::now();
    let mut outcome = Outcome::default();
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(line) => {
                take(&mut outcome, &line, &mut say);
                continue;
            }
            // The output has ended, and the binary is about to.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(1)),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(status) = child.try_wait()? {
            while let Ok(line) = lines.recv_timeout(LAST_WORDS) {
                take(&mut outcome, &line, &mut say);
            }
            outcome.binary_ended();
            if !status.success() && outcome.totals.failed == 0 {
                outcome.append(Outcome::broken(
                    &format!("{command:?}: {status}"),
                    Vec::new(),
                ));
            }
            return Ok(outcome);
        }
        let mut hung = outcome.hung(limit);
        if hung.is_empty() && begin.elapsed() >= limit.saturating_mul(3) {
            hung = tests();
            hung.retain(|name| !outcome.ended.contains(name));
            if hung.is_empty() {
                hung.push(format!("{command:?}"));
            }
        } else if hung.is_empty() {
            continue;
        }
        let stacks = stacks::of_process(child.id());
        child.kill()?;
        child.wait()?;
        hung.iter()
            .for_each(|name| say(&format!("test {name} ... FAILED, and was killed")));
        say(&stacks);
        outcome.killed(&hung, &stacks);
        return Ok(outcome);
    }
}

fn take(outcome: &mut Outcome, line: &[u8], say: &mut impl FnMut(&str)) {
    let line = String::from_utf8_lossy(line);
    if outcome.line(&line) {
        say(&line);
    }
}

/// The lines of the output as they come.
fn lines_of(child: &mut Child) -> Receiver<Vec<u8>> {
    let (send, lines) = channel();
    if let Some(output) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut all = BufReader::new(output).split(b'\n').map_while(Result::ok);
            all.all(|line| send.send(line).is_ok())
        });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{TOLD_AFTER, Totals};

    /// The outcome of a program that speaks as a test binary does, and what it said.
    fn watched(body: &str, limit: Duration) -> (Outcome, String) {
        let mut command = Command::new("sh");
        command.args(["-c", body]);
        let tests = || vec!["a::fine".to_owned(), "b::hung".to_owned()];
        let mut said = String::new();
        let outcome = watch(command, limit, tests, |line| said += line).unwrap();
        (outcome, said)
    }

    #[test]
    fn a_test_that_hangs_is_named_and_killed() {
        let body = "echo running 3 tests; echo test a::fine ... ok; echo test c::not ... ignored\n\
                    echo 'test b::hung has been running for over 60 seconds'; exec sleep 1000";
        let (outcome, said) = watched(body, TOLD_AFTER);
        assert!(said.contains("test b::hung ... FAILED"), "{said}");
        let report = outcome.report();
        assert_eq!(report.first().unwrap(), "---- b::hung ----");
        assert_eq!(report.last().unwrap(), "failed: b::hung");
        let expected = Totals {
            skipped: 1,
            ..Totals::of(1, 1)
        };
        assert_eq!(outcome.totals, expected);
    }

    #[test]
    fn a_binary_that_hangs_has_those_named_that_did_not_end() {
        let body = "echo running 2 tests; echo test a::fine ... ok; exec sleep 1000";
        let (outcome, _) = watched(body, Duration::from_millis(500));
        assert_eq!(outcome.report().last().unwrap(), "failed: b::hung");
        assert_eq!(outcome.totals, Totals::of(1, 1));
    }

    #[test]
    fn a_long_test_that_ended_is_not_taken_for_one_that_hangs() {
        let body = "echo running 1 test; echo 'test a has been running for over 60 seconds'\n\
                    echo 'test a ... ok'; sleep 1\n\
                    echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";
        let limit = TOLD_AFTER + Duration::from_millis(200);
        let (outcome, _) = watched(body, limit);
        assert_eq!(outcome.totals, Totals::of(1, 0));
    }

    #[test]
    fn a_binary_that_ends_without_a_result_failed() {
        let (outcome, _) = watched("exit 3", TOLD_AFTER);
        assert_eq!(outcome.totals, Totals::of(0, 1));
        let (outcome, _) = watched("echo running 2 tests; exit 3", TOLD_AFTER);
        assert_eq!(outcome.totals, Totals::of(0, 1));
    }
}
