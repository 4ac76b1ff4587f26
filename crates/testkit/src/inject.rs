//! System calls that another process is made to make, as foreign code in it would.

use crate::{Cmd, Error, Result, tools};

/// What became of the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Injected {
    /// It returned this: an error's number, negated, or a value.
    Returned(i64),
    /// The process was ended by this signal.
    Ended(i32),
}

/// Has the main thread of the process `pid`, which waits in a call, make the call `number`.
/// Arguments that are no numbers are passed as strings. Needs root and `python3`; x86-64.
///
/// # Errors
/// The process cannot be traced.
pub fn inject(pid: u32, number: i64, arguments: &[&str]) -> Result<Injected> {
    let output = Cmd::new("python3")
        .arg(tools::workspace().join("tests/inject.py"))
        .args([pid.to_string(), number.to_string()])
        .args(arguments)
        .ok()?;
    let text = output.out.trim();
    let unclear = || Error::new(format!("inject.py says {text:?}"));
    if let Some(signal) = text.strip_prefix("SIG ") {
        return signal.parse().map(Injected::Ended).map_err(|_| unclear());
    }
    text.parse().map(Injected::Returned).map_err(|_| unclear())
}

/// What foreign code would try, and what it comes to in a confined daemon: the call's number on
/// x86-64, its arguments, its outcome.
pub const ATTEMPTS: [(&str, i64, &[&str], Injected); 6] = [
    (
        "open",
        257,
        &["-100", "/etc/passwd", "0"],
        Injected::Returned(-13),
    ),
    ("socket", 41, &["2", "2", "0"], Injected::Ended(31)),
    ("exec", 59, &["/bin/true", "0", "0"], Injected::Ended(31)),
    ("ptrace", 101, &["16", "1", "0", "0"], Injected::Ended(31)),
    ("unshare", 272, &["0x10000000"], Injected::Ended(31)),
    ("io_uring_setup", 425, &["8", "0"], Injected::Ended(31)),
];
