//! The capabilities and the groups of a caller, which a request does not carry.
//!
//! # Invariants
//! - Only capabilities in the user namespace of this process count: in a namespace of its own any
//!   process has all of them.
//! - A thread that waits for the reply to a request that was read can neither end nor change its
//!   credentials, so its number stays its own until the reply.
//! - What `/proc` says of a thread counts only while the thread acts as the user that the request
//!   names. A server in the kernel (of NFS) acts for its clients, with fewer privileges than its
//!   thread has.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::PathBuf;

use rustix::thread::CapabilitySet;

use crate::abi::InHeader;

/// A thread that waits for the reply to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    /// Its number.
    pub(crate) tid: u32,
    /// The user that it acts as, by the request.
    pub(crate) uid: u32,
}

impl Caller {
    /// That of a request.
    pub(crate) fn of(header: &InHeader) -> Self {
        Self {
            tid: header.pid,
            uid: header.uid,
        }
    }
}

/// The effective capabilities of a caller; none if its thread acts as another user than it is.
///
/// # Errors
/// `/proc` does not say: it is not there, it is that of other processes, or the thread is that of a
/// user with more privileges than this process has.
pub(crate) fn of_caller(caller: Caller) -> io::Result<CapabilitySet> {
    let namespace = file_of(caller.tid, "ns/user")?;
    if fs::read_link(namespace)? != fs::read_link("/proc/self/ns/user")? {
        return Ok(CapabilitySet::empty());
    }
    let status = fs::read(file_of(caller.tid, "status")?)?;
    if acts_as(&status) != Some(caller.uid) {
        return Ok(CapabilitySet::empty());
    }
    effective(&status).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns whether `gid` is one of the supplementary groups of a caller.
///
/// # Errors
/// `/proc` does not say; the thread acts as another user than it is; `gid` stands for every group
/// that this user namespace does not know.
pub(crate) fn is_in_group(caller: Caller, gid: u32) -> io::Result<bool> {
    let status = fs::read(file_of(caller.tid, "status")?)?;
    if acts_as(&status) != Some(caller.uid) || stands_for_others(gid)? {
        return Err(io::ErrorKind::Unsupported.into());
    }
    has_group(&status, gid).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns whether groups without a number in this user namespace are shown as `gid`.
fn stands_for_others(gid: u32) -> io::Result<bool> {
    let known = fs::read_to_string("/proc/self/gid_map")?;
    let all = known.split_whitespace().eq(["0", "0", "4294967295"]);
    let other = fs::read_to_string("/proc/sys/kernel/overflowgid")?;
    Ok(!all && other.trim() == gid.to_string())
}

/// The path of a file of `/proc` that describes the thread.
fn file_of(tid: u32, name: &str) -> io::Result<PathBuf> {
    let own = fs::read_link("/proc/self")?;
    // A `/proc` of another namespace has other processes under the same numbers.
    if own.as_os_str() != OsStr::new(&std::process::id().to_string()) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(PathBuf::from(format!("/proc/{tid}/{name}")))
}

/// The rest of the line that begins so in the status of a thread, whose name may hold any bytes but
/// newlines.
fn line_of<'a>(status: &'a [u8], begins: &[u8]) -> Option<&'a [u8]> {
    let mut lines = status.split(|&byte| byte == b'\n');
    lines.find_map(|line| line.strip_prefix(begins))
}

/// The user that a thread uses files as: the last of four in its status.
fn acts_as(status: &[u8]) -> Option<u32> {
    let users = line_of(status, b"Uid:\t")?;
    let last = users.rsplit(|&byte| byte == b'\t').next()?;
    std::str::from_utf8(last).ok()?.parse().ok()
}

/// Returns whether the status of a thread lists a group.
fn has_group(status: &[u8], gid: u32) -> Option<bool> {
    let groups = line_of(status, b"Groups:\t")?;
    let mut groups = groups.split(|&byte| byte == b' ');
    Some(groups.any(|group| group == gid.to_string().as_bytes()))
}

/// The capabilities in the status of a thread.
fn effective(status: &[u8]) -> Option<CapabilitySet> {
    let digits = line_of(status, b"CapEff:\t")?;
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
        let caller = Caller {
            tid: tid.cast_unsigned(),
            uid: rustix::process::geteuid().as_raw(),
        };
        assert_eq!(of_caller(caller).unwrap(), own);
        let for_another = Caller {
            uid: caller.uid + 1,
            ..caller
        };
        assert_eq!(of_caller(for_another).unwrap(), CapabilitySet::empty());
        let unseen = Caller { tid: 0, ..caller };
        assert!(of_caller(unseen).is_err(), "a caller that cannot be seen");
    }

    #[test]
    fn the_groups_of_this_thread_are_found() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let caller = Caller {
            tid: tid.cast_unsigned(),
            uid: rustix::process::geteuid().as_raw(),
        };
        let own = rustix::process::getgroups().unwrap();
        for gid in own.iter().map(|gid| gid.as_raw()) {
            assert!(is_in_group(caller, gid).unwrap());
        }
        assert!(!is_in_group(caller, u32::MAX - 1).unwrap());
        let unseen = Caller { tid: 0, ..caller };
        assert!(is_in_group(unseen, 0).is_err());
        let for_another = Caller {
            uid: caller.uid + 1,
            ..caller
        };
        assert!(is_in_group(for_another, 0).is_err());
    }

    #[test]
    fn the_user_that_files_are_used_as_is_the_last() {
        let status = b"Name:\tUid:\t9\nUid:\t0\t1\t2\t1000\nGid:\t5\t5\t5\t5\n";
        assert_eq!(acts_as(status), Some(1000));
        assert_eq!(acts_as(b"Uid:\tx\n"), None);
    }

    #[test]
    fn each_group_of_a_line_counts() {
        let status = b"Name:\tGroups:\t7\nGroups:\t4 24 1000 \nNStgid:\t24\n";
        let listed = [4, 24, 1000, 7, 2, 0].map(|gid| has_group(status, gid));
        assert_eq!(listed, [true, true, true, false, false, false].map(Some));
        assert_eq!(has_group(b"Groups:\t \n", 0), Some(false));
        assert_eq!(has_group(b"Name:\tx\n", 0), None);
    }

    #[test]
    fn a_name_is_not_taken_for_a_line() {
        let status = b"Name:\tCapEff:\t\xff\nCapEff:\t0000000000200000\n";
        assert_eq!(effective(status), Some(CapabilitySet::SYS_ADMIN));
        assert_eq!(effective(b"CapEff:\tx\n"), None);
        assert_eq!(effective(b"Name:\tCapEff:\n"), None);
    }
}
