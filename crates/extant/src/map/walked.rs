//! What a walk through a file's map has seen, so that it ends where no sound file would go on.
//!
//! A block map may name the same block of numbers at every place, and so map 2^32 blocks with
//! three. A file has no more blocks than the volume: a walk that has met twice as many (other
//! threads may move blocks along behind it) ends with damage. Holes need no such bound: one block
//! of numbers tells at least of as many as it has places, so a map without data is gone through in
//! 2^20 steps.

use std::sync::atomic::{AtomicU64, Ordering};

use super::MapState;
use crate::error::{Error, Location, Result};
use crate::fs::Fs;
use crate::inode::Inode;

/// Blocks that one walk has met.
#[derive(Default)]
pub(crate) struct Walked(AtomicU64);

impl Walked {
    /// Notes a range of `len` blocks.
    ///
    /// # Errors
    /// Damage: there were more than any file of the volume can have.
    pub(crate) fn add(&self, fs: &Fs, inode: &Inode, len: u32, state: MapState) -> Result<()> {
        if !matches!(state, MapState::Written(_) | MapState::Unwritten(_)) {
            return Ok(());
        }
        let before = self.0.fetch_add(len.into(), Ordering::Relaxed);
        if before.saturating_add(len.into()) <= fs.layout.end.get().saturating_mul(2) {
            return Ok(());
        }
        let error = Error::corrupt(
            Location::Inode(inode.ino),
            "the file maps more blocks than the volume has",
        );
        fs.fault.report(fs, &error);
        Err(error)
    }
}
