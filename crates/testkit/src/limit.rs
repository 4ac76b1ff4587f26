//! Limits of time for tests: a hang is a failure that says what every thread did.
//!
//! [`wait_until`] bounds one wait of a test; [`Watchdog`] a whole test, whose hang may be in the
//! code under test. Neither decides an outcome: on a machine of any speed a sound test stays far
//! below its limit. `cargo xtask test` has limits of its own for each test and each test binary.

use std::path::Path;
use std::process::{abort, id};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, current, sleep, yield_now};
use std::time::{Duration, Instant};

use extant_host::patience;

use crate::stacks;

/// The longest wait for something that another thread is about to do, see [`patience()`].
const LIMIT: Duration = Duration::from_secs(60);

/// Looks of a wait before it sleeps between two of them: what another thread does in a moment is
/// seen at once, and a longer wait leaves the processor to it.
const LOOKS: u32 = 1000;
/// Between two looks of a longer wait.
const PAUSE: Duration = Duration::from_micros(500);

/// The flags in `/proc/net/unix` of a socket that accepts connections.
const ACCEPTS: &str = "00010000";

/// Waits until `happens`, which another thread is about to bring about.
///
/// # Panics
/// If that takes a minute.
#[track_caller]
pub fn wait_until(what: &str, mut happens: impl FnMut() -> bool) {
    let (begin, limit) = (Instant::now(), patience(LIMIT));
    let mut looks = 0;
    while !happens() {
        if begin.elapsed() > limit {
            eprintln!("{}", stacks::of_process(id()));
            panic!("this did not happen within {limit:?}: {what}");
        }
        looks += 1;
        if looks < LOOKS {
            yield_now();
        } else {
            sleep(PAUSE);
        }
    }
}

/// Returns whether a server listens at a Unix socket. The file is there a moment before, and to try
/// a connection would be a client's, which some servers serve and then end. See proc_net(5).
pub fn is_listening(socket: &Path) -> bool {
    let table = std::fs::read("/proc/net/unix").unwrap_or_default();
    lists(&String::from_utf8_lossy(&table), socket)
}

fn lists(table: &str, socket: &Path) -> bool {
    let mut lines = table.lines().map(|line| line.split_whitespace());
    lines.any(|mut fields| {
        let accepts = fields.nth(3) == Some(ACCEPTS);
        accepts && fields.nth(3).map(Path::new) == Some(socket)
    })
}

/// Raises a flag when it is dropped: threads that go on until then end also if the test that
/// started them fails.
#[derive(Debug)]
#[must_use = "the flag is raised when this is dropped"]
pub struct Stop<'a>(&'a AtomicBool);

impl<'a> Stop<'a> {
    /// Raises `flag` at the end of the scope.
    pub fn at_end(flag: &'a AtomicBool) -> Self {
        Self(flag)
    }
}

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Ends the process, with the stacks of all threads, unless it is dropped in time.
#[derive(Debug)]
#[must_use = "the limit holds until this is dropped"]
pub struct Watchdog {
    fine: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// A limit for the test on this thread; a longer one where many suites run ([`patience()`]).
    ///
    /// # Panics
    /// If the host has no thread for it.
    pub fn new(limit: Duration) -> Self {
        let limit = patience(limit);
        let (fine, ended) = channel();
        let test = current().name().unwrap_or("a test").to_owned();
        let thread = std::thread::Builder::new().name("watchdog".into());
        let watch = move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{test} hangs: it has run for {limit:?}");
                eprintln!("{}", stacks::of_process(id()));
                abort();
            }
        };
        Self {
            fine: Some(fine),
            thread: Some(thread.spawn(watch).expect("a thread for the watchdog")),
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.fine.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to say any more.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cmd, TempDir};

    #[test]
    fn a_socket_listens_only_once_it_accepts() {
        let dir = TempDir::new("listening").unwrap();
        let path = dir.join("socket");
        let bound = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        assert!(path.exists() && !is_listening(&path));
        drop(bound);
        std::fs::remove_file(&path).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(is_listening(&path) && !is_listening(&dir.join("sock")));
    }

    /// The test that the test below starts in a process of its own.
    #[test]
    fn a_test_that_hangs() {
        if std::env::var_os("EXTANT_HANG").is_some() {
            let _limit = Watchdog::new(Duration::from_millis(50));
            loop {
                std::thread::park();
            }
        }
    }

    #[test]
    fn a_hang_ends_the_process_and_is_reported() {
        drop(Watchdog::new(Duration::from_secs(3600)));
        let hung = Cmd::new(std::env::current_exe().unwrap())
            .args(["a_test_that_hangs", "--nocapture"])
            .env("EXTANT_HANG", "1")
            // Both debuggers may take their time.
            .limit(Duration::from_secs(300))
            .run()
            .unwrap();
        assert_ne!(hung.code, Some(0));
        let output = hung.err + &hung.out;
        assert!(output.contains("a_test_that_hangs hangs"), "{output}");
        assert!(output.contains("hread"), "no stacks: {output}");
    }
}
