//! System calls that another process is made to make, as foreign code in it would.

use crate::{Cmd, Error, Result, tools};

/// Outcome of the call.
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

/// An attempt of foreign code: its name, the call's number on x86-64, its arguments, and what it
/// comes to in a confined daemon.
pub type Attempt = (&'static str, i64, &'static [&'static str], Injected);

const REFUSED: Injected = Injected::Returned(-13);
const ENDED: Injected = Injected::Ended(31);
/// A buffer.
const ROOM: &str = "room for an answer of the kernel or a value for it................";

/// All attempts of foreign code.
pub const ATTEMPTS: [Attempt; 17] = [
    ("open", 257, &["-100", "/etc/passwd", "0"], REFUSED),
    (
        "stat",
        262,
        &["-100", "/etc/passwd", ROOM, "0x1000"],
        REFUSED,
    ),
    (
        "statx",
        332,
        &["-100", "/etc/passwd", "0x1000", "0x7ff", ROOM],
        REFUSED,
    ),
    ("socket", 41, &["2", "2", "0"], ENDED),
    ("multipath tcp", 41, &["2", "1", "262"], ENDED),
    ("unix socket", 41, &["1", "1", "0"], ENDED),
    ("connect", 42, &["0", ROOM, "110"], ENDED),
    ("sendto", 44, &["0", "x", "1", "0", ROOM, "110"], ENDED),
    ("sendmsg", 46, &["0", ROOM, "0"], ENDED),
    ("exec", 59, &["/bin/true", "0", "0"], ENDED),
    ("own a file's signals", 72, &["0", "8", "1"], ENDED),
    ("choose a file's signal", 72, &["0", "10", "9"], ENDED),
    ("ptrace", 101, &["16", "1", "0", "0"], ENDED),
    ("processor of another", 203, &["1", "8", ROOM], ENDED),
    ("unshare", 272, &["0x10000000"], ENDED),
    ("limit of another", 302, &["1", "7", ROOM, "0"], ENDED),
    ("io_uring_setup", 425, &["8", "0"], ENDED),
];
