//! Files as the simulated kernel knows them: sizes, attributes that may be old, dirty pages.

use std::collections::{BTreeMap, BTreeSet};

use extant_testkit::Rng;

use crate::abi::AttrWire;

pub(super) const PAGE: u64 = 4096;
/// Pages of one WRITE at most.
const RUN: u64 = 8;

/// A dirty page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    /// Its content.
    pub(super) byte: u8,
    /// There was space for it, beside all that was accepted, when it was accepted.
    pub(super) is_promised: bool,
}

/// Consecutive pages of a file that are written back together.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) id: u64,
    pub(super) first: u64,
    pub(super) pages: Vec<Page>,
}

impl Run {
    pub(super) fn numbers(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.pages.len() as u64
    }
}

/// A file's inode in the simulated kernel.
#[derive(Debug, Default)]
pub(super) struct Inode {
    /// Handle of the process that writes it.
    pub(super) handle: u64,
    /// The size; a size that grew by cached writes is the kernel's alone.
    pub(super) size: u64,
    /// The attributes need not be asked for before a write.
    pub(super) is_valid: bool,
    /// The number of blocks, unless it may be old.
    pub(super) blocks: Option<u64>,
    /// The attributes are of a reply that its caller took late.
    pub(super) is_late: bool,
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
    /// Takes attributes from a reply; they need not be asked for again if they are `valid`.
    pub(super) fn learn(&mut self, valid: bool, attr: &AttrWire) {
        self.is_valid = valid;
        self.blocks = valid.then_some(attr.blocks);
        self.is_late = false;
    }

    /// The attributes that it knows are old.
    pub(super) fn doubt(&mut self) {
        self.is_valid = false;
        self.blocks = None;
        self.told += 1;
    }

    /// Takes pages to be written back: `first`, if it is dirty, or one that `rng` chooses, and
    /// those that follow it.
    pub(super) fn begin(&mut self, id: u64, first: Option<u64>, rng: &mut Rng) -> Option<Run> {
        let at = rng.index(self.dirty.len());
        let first = match first {
            Some(first) => self.dirty.contains_key(&first).then_some(first)?,
            None => *self.dirty.keys().nth(at)?,
        };
        let most = rng.between(1, RUN);
        let mut pages: Vec<Page> = Vec::new();
        for page in first..first + most {
            let is_alike = |one: &Page| one.is_promised == pages.last().unwrap_or(one).is_promised;
            match self.dirty.get(&page).copied().filter(is_alike) {
                Some(one) => pages.push(one),
                None => break,
            }
            self.dirty.remove(&page);
            let is_new = self.under_way.insert(page);
            assert!(is_new && page * PAGE < self.size, "page {page} of {self:?}");
        }
        Some(Run { id, first, pages })
    }

    /// Drops pages from `size` on.
    pub(super) fn truncate(&mut self, size: u64) {
        self.dirty.split_off(&size.div_ceil(PAGE));
        self.size = size;
    }
}
