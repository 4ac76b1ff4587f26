//! Whether the blocks of a directory are all different ones.
//!
//! A map that names the same blocks again and again makes a directory as large as its size field says, whatever the volume has:
//! a walk over it would take as long, and give as many names, as the image likes. So a walk over many blocks first goes
//! through the map, once for as long as the inode is in memory. It ends at the first block that comes twice; so it meets no more
//! blocks than the volume has. What is appended later comes from the allocator.

use std::collections::BTreeMap;

use extant_units::{Lblk, Pblk};

use crate::error::{Error, Place, Result};
use crate::fs::Fs;
use crate::inode::Inode;
use crate::map::{self, MapState};

/// Runs of blocks: their first, and one past their last. Neighbours are one.
#[derive(Default)]
struct Runs(BTreeMap<u64, u64>);

impl Runs {
    /// Adds `start..end`; false if it has some of that already.
    fn add(&mut self, start: u64, end: u64) -> bool {
        let before = self.0.range(..=start).next_back();
        let before = before.map(|(&first, &last)| (first, last));
        let after = self.0.range(start..).next();
        let after = after.map(|(&first, &last)| (first, last));
        if before.is_some_and(|(_, last)| last > start)
            || after.is_some_and(|(first, _)| first < end)
        {
            return false;
        }
        let first = before
            .filter(|&(_, last)| last == start)
            .map(|(first, _)| first);
        let end = match after.filter(|&(first, _)| first == end) {
            Some((first, last)) => {
                self.0.remove(&first);
                last
            }
            None => end,
        };
        self.0.insert(first.unwrap_or(start), end);
        true
    }
}

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
    let mut seen = Runs::default();
    let mut at = 0;
    // Every round moves on by at least one block; a map of many short runs has them on disk, or ends at the first that comes again.
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
    Error::corrupt(Place::DirBlock(dir.ino, lblk), what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_joined_and_meet_only_once() {
        let mut runs = Runs::default();
        for (start, end) in [(10, 20), (30, 40), (20, 25), (28, 30), (5, 10), (25, 28)] {
            assert!(runs.add(start, end), "{start}..{end}");
        }
        assert_eq!(runs.0, BTreeMap::from([(5, 40)]));
        for (start, end) in [(5, 6), (39, 40), (12, 13), (0, 6), (39, 50), (0, 50)] {
            assert!(!runs.add(start, end), "{start}..{end}");
        }
        assert!(runs.add(0, 5) && runs.add(40, 41));
        assert_eq!(runs.0, BTreeMap::from([(0, 41)]));
    }
}
