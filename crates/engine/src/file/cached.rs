//! Data in memory of a file as a whole, and of all files: quiescing it, checking it, dropping it.

use std::sync::Arc;

use extant_pagecache::{CachedRun, InvalidateExclusive, WritebackPass};
use extant_range_lock::TreeStats;
use extant_units::{Lblk, Pos};

use crate::file::mapping::iomap_ops::FileContext;
use crate::file::mapping::ordered_data::write_ordered;
use crate::file::range_lock;
use crate::inode::ExclusiveGuard;
use crate::map;
use crate::state::inode::Inode;
use crate::volume::Fs;

/// Counters of the range locks of all files.
pub(crate) fn range_lock_stats(fs: &Fs) -> TreeStats {
    let mut sum = fs.files.past_ranges.get();
    for inode in fs.inodes.all() {
        if let Some(state) = inode.file_state.get() {
            sum += state.ranges.stats();
        }
    }
    sum
}

/// Returns whether the file's state in memory exists: its data has been used since the inode came
/// into memory.
pub(crate) fn has_file_state(inode: &Inode) -> bool {
    inode.file_state.get().is_some()
}

/// A file whose data no other thread changes, fills or writes back while this exists.
#[must_use]
pub(crate) struct QuiescedFile<'a> {
    inode: &'a Inode,
    _data: Option<(InvalidateExclusive<'a>, WritebackPass<'a>)>,
    _size: ExclusiveGuard<'a>,
}

/// Excludes writers, truncation, fills and writeback of a file until the result is dropped.
pub(crate) fn quiesce(inode: &Inode) -> QuiescedFile<'_> {
    let size = inode.lock_exclusively();
    range_lock::wait_until_unlocked(inode, &size);
    let state = inode.file_state.get().map(|state| {
        let blocks = state.address_space.invalidate_lock().write();
        (blocks, state.address_space.writeback_pass())
    });
    QuiescedFile {
        inode,
        _data: state,
        _size: size,
    }
}

/// Waits until the ranges that are locked now have been unlocked: direct requests may be in flight
/// whose queue is not waited for.
pub(crate) fn wait_for_range_locks(fs: &Fs) {
    for inode in fs.inodes.all() {
        if let Some(state) = inode.file_state.get() {
            state.ranges.wait_unlocked();
        }
    }
}

impl<'a> QuiescedFile<'a> {
    /// The file's inode.
    pub(crate) fn inode(&self) -> &'a Inode {
        self.inode
    }

    /// Checks the file's folios, and shows each run of their blocks to `each`.
    pub(crate) fn verify_cache(
        &self,
        each: impl FnMut(CachedRun) -> Result<(), String>,
    ) -> Result<(), String> {
        let size = Pos::new(self.inode.size());
        let mapping = self
            .inode
            .file_state
            .get()
            .map(|state| &state.address_space);
        mapping.map_or(Ok(()), |mapping| mapping.verify(size, each))
    }
}

/// Drops what is cached and also on the device.
pub(crate) fn drop_clean(inode: &Inode) {
    if let Some(state) = inode.file_state.get() {
        state.address_space.drop_clean(Pos::ZERO, Pos::MAX);
    }
}

/// Drops the cached pages and the reservations of a file whose inode is about to be evicted (as
/// `truncate_inode_pages_final`). No other thread can reach it.
pub(crate) fn drop_data_for_eviction(fs: &Fs, inode: &Arc<Inode>) {
    if let Some(state) = inode.file_state.get() {
        write_ordered(&FileContext::new(fs, inode), Pos::ZERO);
        state.address_space.evict();
    }
    map::drop_delayed(fs, inode, Lblk::ZERO, 1 << 32);
}

/// Drops what is cached of all files and not dirty, and gives the memory back.
pub(crate) fn drop_caches(fs: &Fs) {
    for inode in fs.inodes.all() {
        if let Some(state) = inode.file_state.get() {
            state.address_space.drop_clean(Pos::ZERO, Pos::MAX);
        }
    }
    fs.files.pages.shrink(0);
}
