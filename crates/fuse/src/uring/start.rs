//! The start of the workers: all of them, or none.
//!
//! After INIT the kernel holds back all requests until each of its queues has an entry, or until it
//! has refused one: then it sends them by `/dev/fuse`. From the first request over a ring on there
//! is no way back. So the workers start in steps, and none takes a step before all have taken the
//! one before it:
//!
//! 1. Their threads run, and take their rings into use.
//! 2. Those that have no entry of the last queue register theirs. The kernel still waits.
//! 3. Those of the last queue do. With its first entry the rings carry requests.
//!
//! Should a step fail, the workers end, and the kernel is given a command that it has to refuse
//! ([`super::ring::decline`]). In the third step one entry is enough: a worker whose entry the
//! kernel refuses ends, and the others serve.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

/// How a worker hears of its next step, and tells how the last one went.
pub(super) struct WorkerStart {
    next: Receiver<()>,
    outcome: Sender<io::Result<()>>,
}

/// The same from the side of the thread that starts the workers.
pub(super) struct StartControl {
    next: Sender<()>,
    outcome: Receiver<io::Result<()>>,
    /// The worker's entry is one of the last queue's.
    is_last: bool,
}

/// Both sides, for one worker.
pub(super) fn start_of_worker(is_last: bool) -> (StartControl, WorkerStart) {
    let (next, told) = channel();
    let (outcome, heard) = channel();
    let control = StartControl {
        next,
        outcome: heard,
        is_last,
    };
    let next = told;
    (control, WorkerStart { next, outcome })
}

impl WorkerStart {
    /// Tells how a step went, and waits for the next. Returns whether there is one.
    pub(super) fn next_after(&self, outcome: io::Result<()>) -> bool {
        self.outcome.send(outcome).is_ok() && self.next.recv().is_ok()
    }
}

impl StartControl {
    fn go(&self) {
        // A worker that is gone has no outcome, either.
        let _ = self.next.send(());
    }

    fn outcome(&self) -> io::Result<()> {
        let died = |_| Err(io::Error::other("a ring's worker died"));
        self.outcome.recv().unwrap_or_else(died)
    }
}

/// Takes all workers to where they serve. Returns the numbers of those whose entry the kernel has
/// refused, which do not.
///
/// # Errors
/// The rings carry no request. The workers end when `controls` is dropped.
pub(super) fn take_steps(controls: &[StartControl]) -> io::Result<Vec<usize>> {
    controls.iter().try_for_each(StartControl::outcome)?;
    let (last, others): (Vec<_>, Vec<_>) = (0..).zip(controls).partition(|(_, c)| c.is_last);
    others.iter().for_each(|(_, control)| control.go());
    others
        .iter()
        .try_for_each(|(_, control)| control.outcome())?;
    last.iter().for_each(|(_, control)| control.go());
    let mut refused = Vec::new();
    let mut first_error = None;
    for (number, control) in &last {
        if let Err(error) = control.outcome() {
            refused.push(*number);
            first_error.get_or_insert(error);
        }
    }
    match first_error {
        Some(error) if refused.len() == last.len() => Err(error),
        _ => {
            controls.iter().for_each(StartControl::go);
            Ok(refused)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Starts workers of two queues, the second of which is the last, that fail at these steps.
    /// Returns the outcome, and which of them serve.
    fn started(fail_at: [Option<usize>; 4]) -> (io::Result<Vec<usize>>, Vec<bool>) {
        thread::scope(|scope| {
            let (controls, workers): (Vec<_>, Vec<_>) = (0..4)
                .zip(fail_at)
                .map(|(number, fail_at)| {
                    let (control, start) = start_of_worker(number >= 2);
                    let worker = scope.spawn(move || {
                        (0..2).all(|step| {
                            let failed = fail_at == Some(step);
                            let outcome = if failed {
                                Err(io::Error::other(format!("{number}")))
                            } else {
                                Ok(())
                            };
                            start.next_after(outcome) && !failed
                        })
                    });
                    (control, worker)
                })
                .unzip();
            let outcome = take_steps(&controls);
            drop(controls);
            let serve = workers.into_iter().map(|worker| worker.join().unwrap());
            (outcome, serve.collect())
        })
    }

    #[test]
    fn all_serve_or_none() {
        let (outcome, serve) = started([None; 4]);
        assert_eq!((outcome.unwrap(), serve), (vec![], vec![true; 4]));
        for number in 0..4 {
            for step in 0..2 {
                let mut fail_at = [None; 4];
                fail_at[number] = Some(step);
                let (outcome, serve) = started(fail_at);
                if step == 1 && number >= 2 {
                    // One entry of the last queue is enough.
                    assert_eq!(outcome.unwrap(), [number]);
                    assert!((0..4).all(|n| serve[n] == (n != number)), "{number}");
                } else {
                    assert_eq!(outcome.unwrap_err().to_string(), number.to_string());
                    assert_eq!(serve, [false; 4], "{number} {step}");
                }
            }
        }
        let (outcome, serve) = started([None, None, Some(1), Some(1)]);
        assert!(outcome.is_err() && serve == [false; 4]);
    }

    #[test]
    fn a_worker_that_dies_is_no_hang() {
        let (control, start) = start_of_worker(false);
        drop(start);
        assert!(take_steps(&[control]).is_err());
    }
}
