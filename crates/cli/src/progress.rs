//! The progress bars of long copies and of checks.
//!
//! It shows on a terminal only, and only for what takes longer than a moment; scripts see nothing
//! of it.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

/// Copies that end sooner show no bar.
const PATIENCE: Duration = Duration::from_millis(400);
/// How it looks.
const TEMPLATE: &str = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} {wide_msg}";

/// The same where it is not known how much there will be.
const STREAM: &str = "{bytes} {bytes_per_sec} {wide_msg}";

/// The same for work in no unit.
const STEPS: &str = "{bar:30} {percent:>3}% {eta}";

/// Shows how far a check has come, on a terminal.
pub(crate) struct Steps(ProgressBar);

impl Steps {
    /// A bar of nothing done yet.
    pub(crate) fn new() -> Steps {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(STEPS) {
            bar.set_style(style);
        }
        Steps(bar)
    }

    /// Shows what is done of the work in all.
    pub(crate) fn show(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        self.0.finish_and_clear();
    }
}

/// Counts what is copied.
pub(crate) struct Progress {
    bar: ProgressBar,
    wanted: bool,
    since: Instant,
    /// Files that were begun, and bytes of them that are done, holes among them.
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Progress {
    /// A bar, unless it is not wanted or standard error is no terminal.
    pub(crate) fn new(quiet: bool) -> Progress {
        let wanted = !quiet && io::stderr().is_terminal();
        Progress {
            bar: ProgressBar::hidden(),
            wanted,
            since: Instant::now(),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Returns whether a total is worth finding out.
    pub(crate) fn wanted(&self) -> bool {
        self.wanted
    }

    /// Shows how many bytes are done of those that there are.
    pub(crate) fn show(&self, done: u64, total: u64) {
        self.expect(total);
        // A count behind the bar's adds nothing.
        self.add(done.saturating_sub(self.bar.position()));
    }

    /// Says how many bytes there will be.
    pub(crate) fn expect(&self, bytes: u64) {
        self.bar.set_length(bytes);
    }

    /// Names what is being copied.
    pub(crate) fn begin(&self, name: impl FnOnce() -> String) {
        self.files.fetch_add(1, Ordering::Relaxed);
        if self.wanted {
            self.bar.set_message(
                name()
                    .chars()
                    .filter(|c| !c.is_control())
                    .collect::<String>(),
            );
        }
    }

    /// Counts bytes.
    pub(crate) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if !self.wanted {
            return;
        }
        self.bar.inc(bytes);
        if self.bar.is_hidden() && self.since.elapsed() > PATIENCE {
            let template = match self.bar.length() {
                Some(_) => TEMPLATE,
                None => STREAM,
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                self.bar.set_style(style);
            }
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Counts of the copy, for programs.
    pub(crate) fn json(&self) -> Value {
        json!({
            "files": self.files.load(Ordering::Relaxed),
            "bytes": self.bytes.load(Ordering::Relaxed),
        })
    }

    /// Takes the bar away while `print` prints.
    pub(crate) fn pause<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
