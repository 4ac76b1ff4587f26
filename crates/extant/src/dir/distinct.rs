//! Whether the blocks of a directory are all different ones.
//!
//! A map that names the same blocks again and again makes a directory as large as its size field
//! says, whatever the volume has: a walk over it would take as long, and give as many names, as the
//! image likes. So a walk over many blocks first goes through the map, once for as long as the
//! inode is in memory. It ends at the first block that comes twice; so it meets no more blocks than
//! the volume has. What is appended later comes from the allocator.

use extant_units::{Lblk, Pblk};

use crate::error::{Error, Location, Result};
use crate::fs::Fs;
use crate::inode::Inode;
use crate::map::{self, DistinctRuns, MapState};

/// Goes through the map of `dir`, `blocks` blocks long; `go_on` may end that at every run.
///
/// # Errors
/// A block that is there twice; what `go_on` and the map say.
pub(super) fn check(
    fs: &Fs,
    dir: &Inode,
    blocks: u32,
    go_on: impl Fn() -> Result<()>,
) -> Result<()> {
    let mut seen = DistinctRuns::default();
    let mut at = 0;
    // Every round moves on by at least one block; a map of many short runs has them on disk, or
    // ends at the first that comes again.
    while at < blocks {
        go_on()?;
        let lblk = Lblk::new(at);
        let run = map::lookup(fs, dir, lblk, blocks - at)?;
        if let MapState::Written(pblk) = run.state
            && !seen.add(pblk.get(), pblk.get().saturating_add(run.len.into()))
        {
            return Err(repeated(dir, lblk, pblk));
        }
        at = at.saturating_add(run.len.max(1));
    }
    Ok(())
}

fn repeated(dir: &Inode, lblk: Lblk, pblk: Pblk) -> Error {
    let what = format_args!("block {pblk} of the volume is in the directory a second time");
    Error::corrupt(Location::DirBlock(dir.ino, lblk), what)
}
