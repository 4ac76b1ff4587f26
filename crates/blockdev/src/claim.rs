//! Claims: the locks that exclude a second user of an image.
//!
//! # Responsibility
//! One process of this host may write an image, or several may read it. The locks are those of open
//! file descriptions (`F_OFD_SETLK`), on bytes past the end of any file: one byte for a writer, a
//! region of slots for readers.
//!
//! # Invariants
//! - A writer holds an exclusive lock on the writer's byte and on all slots.
//! - A reader that may write the file holds an exclusive lock on one slot. A reader that may not
//!   holds no lock: it sees a writer, but excludes none.
//! - Only an exclusive lock means that a file is in use. It needs a descriptor that can write. A
//!   process that may only read the file can take shared locks and `flock`s of both kinds, so these
//!   do not decide. A `flock` is taken as well, if possible, for programs that check only that.
//!
//! # Concurrency
//! If shared locks of other processes keep a writer from its lock, [`is_open_for_writing`] decides
//! instead. Every writer calls it before it opens the file, so the next writer sees a writer
//! without a lock. Two writers that start at the same moment, while a third process holds shared
//! locks on purpose, may miss each other; the kernel does not distinguish them from the third.

#![allow(unsafe_code, reason = "locks and leases have no safe interface")]

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsRawFd;

/// The writer's byte: half way to the largest offset, past the end of any file.
const WRITER: i64 = 1 << 62;
/// The first slot of readers.
const SLOTS: i64 = WRITER + 1;
/// The number of slots: so many that two readers rarely choose the same.
const SLOT_COUNT: i64 = 1 << 32;
/// `F_SETSIG` of fcntl(2).
const SET_SIGNAL: libc::c_int = 10;
/// The number of slots that a reader tries.
const TRIES: usize = 4;

/// The outcome of an attempt to claim a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// The claim is held until the file is closed.
    Held,
    /// Another process has claimed the file.
    InUse,
    /// Shared locks conflict, which any process can take that may read the file.
    Obstructed,
    /// The file's file system has no such locks.
    Unsupported,
}

/// The argument of `fcntl` for a lock.
fn flock_of(kind: i32, start: i64, len: i64) -> libc::flock {
    // SAFETY: all fields are integers, for which zeros are a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    #[allow(clippy::cast_possible_truncation, reason = "constants below 8")]
    {
        lock.l_type = kind as i16;
        lock.l_whence = libc::SEEK_SET as i16;
    }
    lock.l_start = start;
    lock.l_len = len;
    lock
}

/// Takes an exclusive lock on `len` bytes from `start` on; false if another lock conflicts.
fn lock(file: &File, start: i64, len: i64) -> io::Result<bool> {
    let mut lock = flock_of(libc::F_WRLCK, start, len);
    // SAFETY: the descriptor is open, and the kernel reads a `flock` that lives through the call.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) };
    if done == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

/// Releases the locks of [`for_writing`] or [`for_reading`], also if a process that is being forked
/// shares the open file.
pub(crate) fn release(file: &File) {
    let mut lock = flock_of(libc::F_UNLCK, WRITER, 1 + SLOT_COUNT);
    // SAFETY: as in `lock`.
    let _ = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) };
    let _ = file.unlock();
}

/// Returns whether another open file has an exclusive lock in `len` bytes from `start` on.
fn is_locked(file: &File, start: i64, len: i64) -> io::Result<bool> {
    // A shared lock conflicts with exclusive ones only.
    let mut lock = flock_of(libc::F_RDLCK, start, len);
    // SAFETY: as in `lock`; the kernel writes a `flock` back.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(i32::from(lock.l_type) == libc::F_WRLCK)
}

/// Returns whether a writer, or with `by_readers_too` a reader, has claimed the regular file
/// `file`. False if the host cannot tell: then the other checks of opening decide.
pub(crate) fn is_claimed(file: &File, by_readers_too: bool) -> bool {
    let len = if by_readers_too { 1 + SLOT_COUNT } else { 1 };
    is_locked(file, WRITER, len).unwrap_or(false)
}

/// Claims `file`, which is open for writing, for a writer.
pub(crate) fn for_writing(file: &File) -> Claim {
    match lock(file, WRITER, 1 + SLOT_COUNT) {
        Ok(true) => {
            let _ = file.try_lock();
            Claim::Held
        }
        Ok(false) if is_claimed(file, true) => Claim::InUse,
        Ok(false) => Claim::Obstructed,
        Err(_) => match file.try_lock() {
            Ok(()) => Claim::Unsupported,
            Err(_) => Claim::InUse,
        },
    }
}

/// Claims `mark`, which is open for writing, for a reader: one slot.
pub(crate) fn for_reading(mark: &File) -> Claim {
    for _ in 0..TRIES {
        let random = RandomState::new().hash_one(mark.as_raw_fd());
        let slot = SLOTS + (random >> 32).cast_signed();
        match lock(mark, slot, 1) {
            Ok(true) => return Claim::Held,
            Ok(false) if is_claimed(mark, false) => return Claim::InUse,
            Ok(false) => {}
            Err(_) => return Claim::Unsupported,
        }
    }
    Claim::Obstructed
}

/// Returns whether any process of this host has the regular file `file`, which is open for reading,
/// open for writing; the kernel counts, for a loop device. `None` if the kernel does not say: the
/// caller neither owns the file nor is privileged, or the file system has no leases.
///
/// The kernel grants a read lease only while no descriptor can write. The lease is released before
/// this returns.
pub(crate) fn is_open_for_writing(file: &File) -> Option<bool> {
    let fd = file.as_raw_fd();
    // An open that meets the lease makes the kernel signal this process: with a signal that does
    // nothing, not with SIGIO, which ends a process. SAFETY: the descriptor is open, the argument a
    // number.
    if unsafe { libc::fcntl(fd, SET_SIGNAL, libc::SIGURG) } != 0 {
        return None;
    }
    // SAFETY: as above.
    if unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) } == 0 {
        // SAFETY: as above.
        unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) };
        return Some(false);
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN) => Some(true),
        _ => None,
    }
}
