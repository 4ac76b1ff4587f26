//! A file in memory: its state ([`FileState`]), and that of one opener
//! ([`OpenState`]).
//!
//! [`FileState`] holds a piece of every part of this module. `file_state_init` makes it when the
//! file's data is first used.

use extant_sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use extant_jbd2::{Handle, OrderedData};
use extant_pagecache::{
    AddressSpace, ErrorCursor, Readahead, RecentFolios, Writeback, WritebackFault,
};
use extant_range_lock::RangeLock;
use extant_sync::Mutex;
use extant_units::Pos;

use crate::state::file::{DataPath, DataPathCell, Flight, MerkleTree, OrderedRanges};

/// The largest readahead window.
const READAHEAD_BYTES: u64 = 2 << 20;

/// A file's state in memory: made at its first use.
pub(crate) struct FileState {
    pub(crate) address_space: Arc<AddressSpace>,
    /// Which way the data takes.
    pub(crate) data_path: DataPathCell,
    /// The turn of a thread that makes the file longer. It protects nothing, as the EOF lock does
    /// that: the threads wait here instead, where a wait costs less.
    pub(crate) extend_turn: Mutex<()>,
    /// Parts of the file that are locked.
    pub(crate) ranges: RangeLock,
    /// Direct I/O so far.
    pub(crate) direct: Direct,
    /// Ranges that commits wait for.
    pub(crate) ordered: OrderedRanges,
    /// Data that the buffer-head path has handed to the device.
    pub(crate) flight: Flight,
    /// The tree that its data is checked against, where fs-verity protects it: made at the first
    /// read.
    pub(crate) merkle_tree: OnceLock<Box<MerkleTree>>,
    /// For callers that have no state of their own.
    pub(crate) shared: OpenState,
    /// A front end has lost data of it before a write of that came here.
    pub(crate) lost_above: AtomicBool,
    /// Functions that the page cache and the journal call.
    pub(crate) callbacks: FileCallbacks,
}

/// Functions that the page cache and the journal call to have a file's data written. Both know a
/// file's data and no file system, so this comes from above; see [`crate::volume::Upcalls`].
pub(crate) struct FileCallbacks {
    /// The page cache has a weak pointer to it.
    pub(crate) writeback: Arc<dyn Writeback>,
    /// For transactions that must not be durable before the data.
    pub(crate) ordered: Arc<dyn OrderedData>,
}

impl FileState {
    /// The way that it takes now.
    pub(crate) fn data_path(&self) -> DataPath {
        self.data_path.get()
    }

    /// Returns whether some of it is not on the device.
    pub(crate) fn is_dirty(&self) -> bool {
        self.address_space.dirty_bytes() != 0
    }

    /// Returns whether some of it was lost, and no opener has been told.
    pub(crate) fn has_unseen_fault(&self) -> bool {
        self.address_space.errors().has_unseen() || self.lost_above.load(Ordering::Acquire)
    }

    /// Makes the commit of `h`'s transaction wait for the data of `[start, end)`.
    pub(crate) fn add_ordered_range(&self, h: &mut Handle, start: Pos, end: Pos) {
        self.ordered.add(h.tid(), start, end);
        h.order(&self.callbacks.ordered);
    }

    /// Notes that data of it may be lost, for every opener.
    pub(crate) fn note_lost_writes(&self) {
        self.address_space.errors().record(WritebackFault::Io);
    }
}

/// State of one opener of a file: make one per open file with [`crate::file::open`].
pub(crate) struct OpenState {
    pub(crate) readahead: Readahead,
    pub(crate) recent: RecentFolios,
    pub(crate) errors: ErrorCursor,
}

impl OpenState {
    /// The state of an opener that is told the failures after `errors`.
    pub(crate) fn new(errors: ErrorCursor) -> Self {
        Self {
            readahead: Readahead::new(READAHEAD_BYTES),
            recent: RecentFolios::default(),
            errors,
        }
    }
}

/// Memory of a file's direct I/O.
#[derive(Default)]
pub(crate) struct Direct {
    /// Fills lock what they read.
    announced: AtomicBool,
    /// All of them do: those that began before have ended.
    fills_know: AtomicBool,
}

impl Direct {
    /// Returns whether fills have to lock what they read: true from the first direct read or write
    /// on, for as long as the inode is in memory.
    #[inline]
    pub(crate) fn is_announced(&self) -> bool {
        self.announced.load(Ordering::SeqCst)
    }

    /// Before the first direct read or write: from here on fills stay out of locked ranges. Takes
    /// the invalidate lock for a moment, if that is new.
    pub(crate) fn announce(&self, mapping: &AddressSpace) {
        if self.fills_know.load(Ordering::Acquire) {
            return;
        }
        self.announced.store(true, Ordering::SeqCst);
        drop(mapping.invalidate_lock().write());
        self.fills_know.store(true, Ordering::Release);
    }
}
