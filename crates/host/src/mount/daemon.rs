//! A FUSE daemon in our foreground, with a watchdog over it.

use crate::cmd::{Cmd, Running};
use crate::{Error, Result, patience};
use rustix::process::{Pid, Signal, kill_process};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// A daemon that runs longer than this counts as hung ([`patience()`]). `EXTANT_WATCHDOG` (seconds)
/// overrides it.
pub const WATCHDOG: Duration = Duration::from_secs(400);

/// A running daemon. Dropped, it is killed.
#[derive(Debug)]
pub(super) struct Daemon {
    running: Running,
    // Dropping the sender ends the watchdog; a limit from it counts from then on.
    alive: Sender<Duration>,
}

impl Daemon {
    /// Starts `cmd` and its watchdog.
    pub(super) fn start(cmd: Cmd) -> Result<Daemon> {
        let line = cmd.line();
        let running = cmd.spawn()?;
        let raw = i32::try_from(running.pid()).ok().and_then(Pid::from_raw);
        let pid = raw.ok_or_else(|| Error::new("impossible process id"))?;
        let (alive, watch) = mpsc::channel::<Duration>();
        let limit = std::env::var("EXTANT_WATCHDOG")
            .ok()
            .and_then(|v| v.parse().ok());
        let mut limit = limit.map_or_else(|| patience(WATCHDOG), Duration::from_secs);
        std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || {
                loop {
                    match watch.recv_timeout(limit) {
                        Ok(longer) => limit = longer,
                        Err(RecvTimeoutError::Disconnected) => return,
                        Err(RecvTimeoutError::Timeout) => break,
                    }
                }
                eprintln!("WATCHDOG: killing `{line}` after {} s", limit.as_secs());
                // Until we reap it the number cannot belong to another process.
                let _ = kill_process(pid, Signal::KILL);
            })?;
        Ok(Daemon { running, alive })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Counts it as hung only after `limit` from now.
    pub(super) fn watch_for(&self, limit: Duration) {
        // A watchdog that has ended has killed it.
        let _ = self.alive.send(limit);
    }

    /// The process itself.
    pub(super) fn running(&mut self) -> &mut Running {
        &mut self.running
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.running.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_was_changed_counts() {
        let mut daemon = Daemon::start(Cmd::new("sleep").arg("600")).unwrap();
        daemon.watch_for(Duration::from_millis(20));
        let end = daemon.running().wait(Duration::from_secs(60)).unwrap();
        assert_eq!(end.code, None, "{}", end.describe());
    }
}
