//! The capabilities of a caller, which a request does not carry.
//!
//! # Invariants
//! - Only capabilities in the user namespace of this process count: in a namespace of its own any
//!   process has all of them.
//! - A thread that waits for the reply to a request that was read can neither end nor change its
//!   credentials, so its number stays its own until the reply.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::PathBuf;

use rustix::thread::CapabilitySet;

/// The effective capabilities of the thread `tid`, which waits for the reply to a request.
///
/// # Errors
/// `/proc` does not say: it is not there, it is that of other processes, or the thread is that of a
/// user with more privileges than this process has.
pub(crate) fn of_thread(tid: u32) -> io::Result<CapabilitySet> {
    let own = fs::read_link("/proc/self")?;
    // A `/proc` of another namespace has other processes under the same numbers.
    if own.as_os_str() != OsStr::new(&std::process::id().to_string()) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let of = |name: &str| PathBuf::from(format!("/proc/{tid}/{name}"));
    if fs::read_link(of("ns/user"))? != fs::read_link("/proc/self/ns/user")? {
        return Ok(CapabilitySet::empty());
    }
    effective(&fs::read(of("status"))?).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The line of them in the status of a thread, whose name may hold any bytes but newlines.
fn effective(status: &[u8]) -> Option<CapabilitySet> {
    let mut lines = status.split(|&byte| byte == b'\n');
    let digits = lines.find_map(|line| line.strip_prefix(b"CapEff:\t"))?;
    let bits = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16);
    Some(CapabilitySet::from_bits_retain(bits.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capabilities_of_this_thread_are_found() {
        let own = rustix::thread::capabilities(None).unwrap().effective;
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        assert_eq!(of_thread(tid.cast_unsigned()).unwrap(), own);
        assert!(of_thread(0).is_err(), "a caller that cannot be seen");
    }

    #[test]
    fn a_name_is_not_taken_for_a_line() {
        let status = b"Name:\tCapEff:\t\xff\nCapEff:\t0000000000200000\n";
        assert_eq!(effective(status), Some(CapabilitySet::SYS_ADMIN));
        assert_eq!(effective(b"CapEff:\tx\n"), None);
        assert_eq!(effective(b"Name:\tCapEff:\n"), None);
    }
}
