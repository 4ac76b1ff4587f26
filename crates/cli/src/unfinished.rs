//! Clean-up when a signal ends this process: it leaves no file that is on its way, and nothing of a
//! measurement.
//!
//! A new file has no name before it is complete, where the host has such files. Elsewhere it has a
//! temporary one, which goes when a signal ends the process. SIGKILL leaves it there.

use std::io;
use std::os::raw::c_int;
use std::thread;

use extant::build::remove_unfinished;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Removes temporary files before SIGHUP, SIGINT or SIGTERM ends the process, from now on. What the
/// caller of the program has it ignore stays ignored.
///
/// # Errors
/// Those of the host.
pub(crate) fn remove_when_ended() -> io::Result<()> {
    when_ended(remove_unfinished)
}

/// Has `clean_up` run before SIGHUP, SIGINT or SIGTERM ends the process, as above.
///
/// # Errors
/// Those of the host.
pub(crate) fn when_ended(clean_up: fn()) -> io::Result<()> {
    on_signals(move |signal| {
        clean_up();
        // It does not return for these signals.
        let _ = emulate_default_handler(signal);
    })
}

/// Has `stop` run at the first SIGHUP, SIGINT or SIGTERM, and a second one end the process.
///
/// # Errors
/// Those of the host.
pub(crate) fn stop_when_ended(stop: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut stopped = false;
    on_signals(move |signal| {
        if stopped {
            let _ = emulate_default_handler(signal);
        }
        stop();
        stopped = true;
    })
}

fn on_signals(mut call: impl FnMut(c_int) + Send + 'static) -> io::Result<()> {
    let ignored = ignored();
    let wanted = [SIGHUP, SIGINT, SIGTERM];
    let taken = wanted
        .into_iter()
        .filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let mut signals = Signals::new(taken.collect::<Vec<c_int>>())?;
    let wait = move || signals.forever().for_each(&mut call);
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)?;
    Ok(())
}

/// The signals that this process ignores, the first in the lowest bit; none where that is unknown.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    mask.unwrap_or(0)
}
