//! The blocks that a walk through a file's map has met, so that it ends where no sound file would
//! go on.
//!
//! A block map may name the same indirect block at every index, and so map 2^32 blocks with three.
//! A file has no more blocks than the volume: a walk that has met twice as many (other threads may
//! shift blocks along behind it) ends with damage. Holes need no such bound: one indirect block
//! shows at least as many as it has pointers, so a map without data is walked in 2^20 steps.

use extant_sync::atomic::{AtomicU64, Ordering};

use extant_disk::damage::MapDamage;

use crate::state::inode::Inode;
use crate::state::map::MapState;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// The number of blocks that one walk has met.
#[derive(Default)]
pub(crate) struct Walked(AtomicU64);

impl Walked {
    /// Counts a range of `len` blocks.
    ///
    /// # Errors
    /// Damage: there were more than any file of the volume can have.
    pub(crate) fn add(&self, fs: &Fs, inode: &Inode, len: u32, state: MapState) -> Result<()> {
        if !matches!(state, MapState::Written(_) | MapState::Unwritten(_)) {
            return Ok(());
        }
        let before = self.0.fetch_add(len.into(), Ordering::Relaxed);
        // No overflow: block numbers have 48 bits, and the walk ends here before the count has 50.
        if before + u64::from(len) <= 2 * fs.layout.end().get() {
            return Ok(());
        }
        let error = Error::corrupt(Location::Inode(inode.ino), MapDamage::PastVolume);
        fs.fault.report(fs, &error);
        Err(error)
    }
}
