//! Joint writeback: a small file's part in a write of many files.
//!
//! The file system allocates the data of many new files in one run of blocks, writes it in one
//! request, and then enters all of it. What the files have in common is its own. A
//! [`JointWrite`] is one file's part: its dirty folios under writeback, their bytes, and the way
//! back to a pass of the file's own.
//!
//! # Locks
//! A pass, and the folios of a file. Of a second file they are only tried: a thread that holds one
//! of them may wait for the first file.

use std::io::IoSlice;
use std::sync::Arc;

use extant_pagecache::{Folio, FolioGuard, WritebackPass};

use crate::ops::WritebackOps;
use crate::writeback::Batch;

/// The dirty folios of a file, under writeback until one of the functions that consume it.
#[must_use = "the folios stay under writeback"]
pub struct JointWrite<'a, O: WritebackOps + ?Sized> {
    batch: Batch<'a, O>,
    _pass: WritebackPass<'a>,
}

impl<'a, O: WritebackOps + ?Sized> JointWrite<'a, O> {
    /// Puts `folios`, ascending and all that are dirty, under writeback. `None`, with nothing
    /// changed, if a lock of one would have to be waited for.
    pub fn take(
        ops: &'a O,
        pass: WritebackPass<'a>,
        folios: &'a [Arc<Folio>],
    ) -> Option<JointWrite<'a, O>> {
        let pages = ops.address_space();
        let locked: Option<Vec<FolioGuard<'a>>> = folios
            .iter()
            .map(|folio| pages.try_lock_stable(folio))
            .collect();
        let mut batch = Batch::new(ops);
        for (folio, guard) in folios.iter().zip(locked?) {
            batch.take_locked(folio, guard);
        }
        let _pass = pass;
        Some(Self { batch, _pass })
    }

    /// The length of the dirty data in whole blocks, if it is one run from the start of the file.
    pub fn run_from_start(&self) -> Option<u64> {
        self.batch.run_from_start()
    }

    /// The dirty data.
    pub fn slices(&self) -> impl Iterator<Item = IoSlice<'_>> {
        self.batch.slices()
    }

    /// Ends the writeback: the data is on the device, and part of the file there.
    pub fn finish(self) {
        self.batch.finish();
    }

    /// Writes the data as a pass of this file alone does. The folios leave writeback in any case.
    ///
    /// # Errors
    /// As [`crate::write_back`].
    pub fn write_alone(self) -> Result<(), O::Error> {
        self.batch.write(&mut None)
    }
}
