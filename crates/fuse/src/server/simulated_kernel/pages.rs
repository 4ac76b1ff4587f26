//! Files as the simulated kernel knows them: sizes, attributes that may be old, dirty pages.

use std::collections::{BTreeMap, BTreeSet};

pub(super) const PAGE: u64 = 4096;

/// A dirty page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    /// Its content.
    pub(super) byte: u8,
    /// There was space for it, beside all that was accepted, when it was accepted.
    pub(super) is_promised: bool,
}

/// A file's inode in the simulated kernel.
#[derive(Debug, Default)]
pub(super) struct Inode {
    /// Handle of the process that writes it.
    pub(super) handle: u64,
    /// The size; a size that grew by cached writes is the kernel's alone.
    pub(super) size: u64,
    /// The attributes need not be asked for.
    pub(super) is_valid: bool,
    /// Times that it was told that they are old: an answer to an older question does not count.
    pub(super) told: u64,
    /// Pages that are not written back.
    pub(super) dirty: BTreeMap<u64, Page>,
    /// Pages that are being written back.
    pub(super) under_way: BTreeSet<u64>,
    /// A write-back failed since the last fsync.
    pub(super) error: Option<i32>,
    /// Times that one failed.
    pub(super) failures: u64,
    /// Pages that were accepted and lost.
    pub(super) lost: BTreeSet<u64>,
    /// Lookups that the server counts.
    pub(super) lookups: u64,
}

impl Inode {
    /// Takes a page to be written back: its content and its length.
    pub(super) fn begin(&mut self, page: u64) -> Option<(Page, u64)> {
        if self.under_way.contains(&page) {
            return None;
        }
        let content = self.dirty.remove(&page)?;
        self.under_way.insert(page);
        let len = self.size.saturating_sub(page * PAGE).min(PAGE);
        Some((content, len))
    }

    /// Drops pages from `size` on.
    pub(super) fn truncate(&mut self, size: u64) {
        self.dirty.split_off(&size.div_ceil(PAGE));
        self.size = size;
    }
}
