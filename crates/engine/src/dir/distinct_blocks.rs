//! A check that all blocks of a directory differ.
//!
//! A hostile map that names the same blocks repeatedly makes a directory as large as its size field
//! says, whatever the volume has. A walk over it would take as long, and return as many names, as
//! the image likes. So a walk over many blocks first goes through the map, once while the inode is
//! in memory. It ends at the first block that comes twice, so it meets at most as many blocks as
//! the volume has. Blocks that are appended later come from the allocator.

use extant_disk::damage::DirectoryDamage;
use extant_units::{Lblk, Pblk};

use crate::map;
use crate::map::DistinctRuns;
use crate::state::inode::Inode;
use crate::state::map::MapState;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// Goes through the map of `dir`, `blocks` blocks long. `check_interrupted` may end that at every
/// run.
///
/// # Errors
/// A block that occurs twice; the errors of `check_interrupted` and of the map.
pub(super) fn check(
    fs: &Fs,
    dir: &Inode,
    blocks: u32,
    check_interrupted: impl Fn() -> Result<()>,
) -> Result<()> {
    let mut seen = DistinctRuns::default();
    let mut at = 0;
    // Each round moves on by at least one block. A map of many short runs has them on disk, or ends
    // at the first repeated block.
    while at < blocks {
        check_interrupted()?;
        let lblk = Lblk::new(at);
        let run = map::lookup(fs, dir, lblk, blocks - at)?;
        if let MapState::Written(pblk) = run.state
            && !seen.add(pblk.get(), pblk.plus(run.len.into()).get())
        {
            return Err(repeated(dir, lblk, pblk));
        }
        debug_assert!((1..=blocks - at).contains(&run.len), "{run:?}");
        at += run.len;
    }
    Ok(())
}

fn repeated(dir: &Inode, lblk: Lblk, pblk: Pblk) -> Error {
    let damage = DirectoryDamage::RepeatedBlock { block: pblk };
    Error::corrupt(Location::DirBlock(dir.ino, lblk), damage)
}
