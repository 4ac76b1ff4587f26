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
    // Dropping the sender ends the watchdog.
    _alive: Sender<()>,
}

impl Daemon {
    /// Starts `cmd` and its watchdog.
    pub(super) fn start(cmd: Cmd) -> Result<Daemon> {
        let line = cmd.line();
        let running = cmd.spawn()?;
        let raw = i32::try_from(running.pid()).ok().and_then(Pid::from_raw);
        let pid = raw.ok_or_else(|| Error::new("impossible process id"))?;
        let (alive, watch) = mpsc::channel::<()>();
        let limit = std::env::var("EXTANT_WATCHDOG")
            .ok()
            .and_then(|v| v.parse().ok());
        let limit = limit.map_or_else(|| patience(WATCHDOG), Duration::from_secs);
        std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || {
                if watch.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                    eprintln!("WATCHDOG: killing `{line}` after {} s", limit.as_secs());
                    // Until we reap it the number cannot belong to another process.
                    let _ = kill_process(pid, Signal::KILL);
                }
            })?;
        Ok(Daemon {
            running,
            _alive: alive,
        })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.running.pid()
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
