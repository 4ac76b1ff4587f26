//! The latched failure and the `errors=` policy.
//!
//! A fault is damage found on disk, or metadata that could not be read or written in the middle of
//! a change. It never ends the process. By policy the file system goes on (`continue`), refuses
//! changes (`remount-ro`), or refuses everything (`panic`, and shutdown by request). Each fault is
//! recorded in the superblock as in Linux, so that the next check looks for it: past the journal
//! where that has stopped, through it where it goes on.
//!
//! This file has the state; `report_fault` changes it for a file system, with its journal and its
//! device.
//!
//! # Invariants
//! - A level, once reached, is never left.
//! - Metadata that could not be written stops the journal, and with it changes, whatever the
//!   policy. So does a failed flush of the device ([`Fault::flush_failed`]).
//!
//! # Locks
//! The level is an atomic. The record has a lock under which nothing is called.

use extant_sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;

use extant_disk::superblock::{RawSuperblock, State};
use extant_sync::Mutex;
use extant_units::Pblk;

use crate::config::ErrorsPolicy;
use crate::state::volume::edit_marks;
use crate::state::volume::mounted_superblock::now;
use crate::types::error::{Error, Location, Result};

/// How far the file system has been stopped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum StopLevel {
    Running = 0,
    /// Changes are refused.
    ReadOnly = 1,
    /// Everything is refused.
    Shutdown = 2,
}

/// The latched failure.
#[derive(Debug)]
pub(crate) struct Fault {
    level: AtomicU8,
    pub(crate) policy: ErrorsPolicy,
    pub(crate) inner: Mutex<Inner>,
}

/// Notes of faults.
#[derive(Debug, Default)]
pub(crate) struct Inner {
    /// The reason of the first stop.
    why: Option<Arc<str>>,
    /// Faults that are not in the superblock yet.
    pub(crate) unrecorded: Option<Record>,
    /// The openers of all files are told, or have been told, that writes may be lost.
    pub(crate) writes_lost: bool,
}

/// Faults in the form of the superblock's fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    count: u32,
    first: Event,
    last: Event,
}

/// One fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    time: u64,
    ino: u32,
    block: u64,
    code: u8,
    source: &'static str,
}

impl Record {
    /// Merges the record into the superblock's.
    fn store(&self, raw: &mut RawSuperblock) {
        raw.set_state(raw.state() | State::ERROR);
        if raw.error_count.get() == 0 {
            raw.set_first_error_time(self.first.time);
            raw.first_error_ino.set(self.first.ino);
            raw.first_error_block.set(self.first.block);
            raw.first_error_func = name(self.first.source);
            raw.first_error_line.set(0);
            raw.first_error_errcode = self.first.code;
        }
        raw.set_last_error_time(self.last.time);
        raw.last_error_ino.set(self.last.ino);
        raw.last_error_block.set(self.last.block);
        raw.last_error_func = name(self.last.source);
        raw.last_error_line.set(0);
        raw.last_error_errcode = self.last.code;
        let count = raw.error_count.get().saturating_add(self.count);
        raw.error_count.set(count);
    }
}

impl Inner {
    /// Adds a fault that is not in the superblock yet.
    pub(crate) fn remember(&mut self, event: Event) {
        self.unrecorded = Some(match self.unrecorded {
            None => Record {
                count: 1,
                first: event,
                last: event,
            },
            Some(record) => Record {
                count: record.count.saturating_add(1),
                last: event,
                ..record
            },
        });
    }
}

/// The reason of a shutdown that was asked for.
pub(crate) const BY_REQUEST: &str = "shut down by request";

impl Fault {
    /// No failure so far.
    pub(crate) fn new(policy: ErrorsPolicy) -> Self {
        Self {
            level: AtomicU8::new(StopLevel::Running as u8),
            policy,
            inner: Mutex::new(Inner::default()),
        }
    }

    /// Fails once changes are refused: [`Error::ReadOnly`] after a fault, [`Error::Shutdown`] after
    /// a shutdown.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.check_not_editing()?;
        if self.level.load(Ordering::Relaxed) == StopLevel::Running as u8 {
            return Ok(());
        }
        self.refuse()
    }

    /// Fails with [`Error::Shutdown`] once everything is refused, reads as well.
    #[inline]
    pub(crate) fn check_alive(&self) -> Result<()> {
        self.check_not_editing()?;
        if self.level.load(Ordering::Relaxed) < StopLevel::Shutdown as u8 {
            return Ok(());
        }
        self.refuse()
    }

    /// Fails within an edit of a file of this file system: the caller's thread holds its locks.
    #[inline]
    pub(crate) fn check_not_editing(&self) -> Result<()> {
        if edit_marks::is_editing(self) {
            return Err(Error::Deadlock);
        }
        Ok(())
    }

    /// Returns whether the device may still be written to for a record: no shutdown by request, no
    /// unmount.
    pub(crate) fn is_alive(&self) -> bool {
        self.check_alive().is_ok() || self.inner.lock().unrecorded.is_some()
    }

    #[cold]
    fn refuse(&self) -> Result<()> {
        if self.level.load(Ordering::Relaxed) == StopLevel::ReadOnly as u8 {
            return Err(Error::ReadOnly);
        }
        let why = self.inner.lock().why.clone();
        let why = why.unwrap_or_else(|| "by request".into());
        Err(Error::Shutdown(why.into()))
    }

    /// Returns whether a request stopped the file system, and no fault before it.
    pub(crate) fn is_by_request(&self) -> bool {
        self.inner.lock().why.as_deref() == Some(BY_REQUEST)
    }

    /// Why changes are refused, if they are.
    pub(crate) fn why(&self) -> Option<Arc<str>> {
        if self.check().is_ok() {
            return None;
        }
        self.inner.lock().why.clone()
    }

    /// Raises the level. Returns true for the first caller that stops anything. That caller runs
    /// `noted` before the level is visible: a later caller therefore finds the first fault
    /// recorded.
    pub(crate) fn raise(
        &self,
        level: StopLevel,
        why: &str,
        noted: impl FnOnce(&mut Inner),
    ) -> bool {
        debug_assert!(level > StopLevel::Running, "a level is never left");
        let mut inner = self.inner.lock();
        inner.why.get_or_insert_with(|| why.into());
        let first = self.level.load(Ordering::Relaxed) == StopLevel::Running as u8;
        if first {
            noted(&mut inner);
        }
        self.level.fetch_max(level as u8, Ordering::Relaxed);
        first
    }

    /// Refuses everything from now on, at the end of an unmount, when nothing is left to stop.
    pub(crate) fn close(&self) {
        self.raise(StopLevel::Shutdown, "unmounted", |_| ());
    }

    /// Writes the faults that are not recorded yet into `raw`: the superblock is about to be
    /// written anyway.
    pub(crate) fn note_in(&self, raw: &mut RawSuperblock) {
        let Some(record) = self.inner.lock().unrecorded.take() else {
            return;
        };
        record.store(raw);
    }
}

/// Notes in `raw` that the journal's copy of `block` is damaged. The mount found that before
/// anything was built.
pub(crate) fn note_damaged_log(raw: &mut RawSuperblock, block: Pblk) {
    let event = Event {
        code: EFSBADCRC,
        block: block.get(),
        ..Event::new("journal")
    };
    let record = Record {
        count: 1,
        first: event,
        last: event,
    };
    record.store(raw);
}

/// The format's numbers of errors.
const EIO: u8 = 2;
const EFSBADCRC: u8 = 4;
const EFSCORRUPTED: u8 = 5;

impl Event {
    /// A failure of the device, met by `source`, now.
    pub(crate) fn new(source: &'static str) -> Self {
        Self {
            time: now(),
            ino: 0,
            block: 0,
            code: EIO,
            source,
        }
    }

    /// The record of `error`, if it is a fault.
    pub(crate) fn of(error: &Error) -> Option<Self> {
        let mut event = Self::new("io");
        match error {
            Error::Corrupt { location, .. } => {
                event.code = EFSCORRUPTED;
                (event.source, event.ino, event.block) = match *location {
                    Location::Superblock => ("superblock", 0, 0),
                    Location::GroupDesc(_) => ("group_desc", 0, 0),
                    Location::BlockBitmap(_) => ("block_bitmap", 0, 0),
                    Location::InodeBitmap(_) => ("inode_bitmap", 0, 0),
                    Location::Inode(ino) => ("inode", ino.get(), 0),
                    Location::ExtentNode(ino, block) => ("extent_node", ino.get(), block.get()),
                    Location::DirBlock(ino, _) => ("directory", ino.get(), 0),
                    Location::XattrBlock(ino, block) => ("xattr", ino.get(), block.get()),
                    Location::Orphans => ("orphans", 0, 0),
                    Location::Journal => ("journal", 0, 0),
                    Location::Block(block) => ("block", 0, block.get()),
                };
            }
            Error::Io(_) => {}
            _ => return None,
        }
        Some(event)
    }
}

/// `source` as the superblock stores the location of an error.
fn name(source: &str) -> [u8; 32] {
    let mut field = [0; 32];
    debug_assert!(source.len() <= field.len(), "{source} is cut");
    for (to, from) in field.iter_mut().zip(source.bytes()) {
        *to = from;
    }
    field
}
