//! Lines for standard error, from names and messages that are not trusted.

use std::io::{self, Write};

pub(crate) use extant_nbd::harmless;

/// Prints a line to standard error, made [`harmless`].
///
/// A line that cannot be written is lost: its reader has gone away, or the disk below it is full.
/// The command goes on and ends with its own status, and a mount in the foreground stays.
pub(crate) fn print_error_line(line: &str) {
    // One write: lines of several threads do not mix.
    let line = harmless(line) + "\n";
    let _ = io::stderr().write_all(line.as_bytes());
}
