//! Diagnostics: what the library logs goes to standard error, as a line like the command's own.
//!
//! `EXTANT_LOG` (error, warn, info, debug, trace) says how much; warnings by default. A daemon has
//! no standard error any more and writes to the system's log instead.

use std::fmt::{self, Write as _};
use std::os::unix::net::UnixDatagram;
use std::sync::OnceLock;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::printable::{harmless, print_error_line};

static COMMAND: OnceLock<&'static str> = OnceLock::new();
static SYSTEM_LOG: OnceLock<UnixDatagram> = OnceLock::new();

/// Begins to log to standard error.
pub(crate) fn install() {
    let level = std::env::var("EXTANT_LOG")
        .ok()
        .and_then(|word| word.parse().ok());
    let lines = Lines {
        level: level.unwrap_or(Level::WARN),
    };
    // Can only fail if there is a subscriber already.
    let _ = tracing::subscriber::set_global_default(lines);
}

/// Names the command that lines begin with.
pub(crate) fn set_command(name: &'static str) {
    let _ = COMMAND.set(name);
}

/// A connection to the system's log.
#[derive(Debug)]
pub(crate) struct SystemLog(UnixDatagram);

impl SystemLog {
    /// Connects, where there is one.
    pub(crate) fn connect() -> Option<SystemLog> {
        let socket = UnixDatagram::unbound().and_then(|s| s.connect("/dev/log").map(|()| s));
        socket.ok().map(SystemLog)
    }

    /// From now on logs go there.
    pub(crate) fn take(self) {
        let _ = SYSTEM_LOG.set(self.0);
    }
}

/// Prints events, one line each; knows no spans.
struct Lines {
    level: Level,
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.level
    }

    fn event(&self, event: &Event<'_>) {
        let (word, priority) = match *event.metadata().level() {
            Level::ERROR => ("error: ", 3),
            Level::WARN => ("warning: ", 4),
            Level::INFO => ("", 6),
            _ => ("debug: ", 7),
        };
        let mut text = Text::default();
        event.record(&mut text);
        // Names from images and archives are in it.
        let text = harmless(&text.0);
        // Until a command is named, the lines are of what mount(8) calls.
        let command = COMMAND.get().copied().unwrap_or("mount");
        match SYSTEM_LOG.get() {
            Some(log) => {
                /// The facility of daemons, as the protocol counts.
                const DAEMON: u8 = 3 << 3;
                let pid = std::process::id();
                let line = format!("<{}>extant[{pid}]: {word}{text}", DAEMON | priority);
                // There is no other place to report that the log is gone.
                let _ = log.send(line.as_bytes());
            }
            None => print_error_line(&format!("extant: {command}: {word}{text}")),
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The message of an event, and its fields behind it.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
