//! Defragmentation of a file that may be in use: all of it, in the fewest runs that free space
//! allows.
//!
//! A file without a name (the donor) gets the space first, unwritten, from the longest free runs.
//! Only if that makes fewer runs than the data has now do the two files exchange blocks, piece by
//! piece ([`crate::file::relocate`]). The eviction of the donor frees the old blocks. A crash
//! leaves the donor as an orphan, which the next mount evicts, and every piece in the old blocks or
//! in the new ones.
//!
//! If less is free than the file has, the work goes part by part, as far as the space that each
//! part leaves suffices.
//!
//! # Locks
//! The file's `lock` exclusively, for a piece at a time: writers run between pieces, readers wait
//! for the exchange alone. Ranges that are cut off or punched meanwhile are skipped. No other
//! thread can reach the donor.

use std::ops::Range;
use std::sync::Arc;

use extant_iomap::WritebackControl;
use extant_units::{Blocks, Ino, Lblk, Pos, at_most_u32};

use crate::file::file_state_init::require_regular;
use crate::file::relocate::{self, End, Piece};
use crate::file::writeback::writeback_range;
use crate::inode::InodeFlags;
use crate::inode::path_choice::is_data_journalled;
use crate::new_inode::{self, NewInode};
use crate::state::alloc::Run;
use crate::state::inode::{Inode, InodeRef};
use crate::state::map::{AllocateMode, MapState, Status};
use crate::types::error::{Error, Result};
use crate::types::{Cred, Defragmented, FileKind};
use crate::volume::{Fs, credits, stop};
use crate::{alloc, map, orphan};

/// Free blocks that a defragmentation leaves to other users of the volume.
const MARGIN_BLOCKS: u64 = 256;

/// A part with fewer blocks than this is not worth a donor of its own.
const MIN_DONOR_BLOCKS: u64 = 256;

/// Defragments `inode`. Calls `progress` with the number of bytes done and the number of all.
///
/// # Errors
/// [`Error::NotSupported`] for files without extents and for journalled data; [`Error::Invalid`]
/// for anything but a regular file; [`Error::NotPermitted`] for immutable files; [`Error::NoSpace`]
/// if there is no inode, or no space for a node; [`Error::Busy`] for a file that views keep
/// changing; device, map and journal failures. Each piece is in its old blocks or in new ones.
pub(crate) fn defragment(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    cred: &Cred,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Defragmented> {
    check_movable(fs, inode)?;
    let result = Defragmentation { fs, inode, cred }.run(progress);
    result.inspect_err(|error| crate::file::latch_if_corrupt(fs, error))
}

/// Fails unless the blocks of `inode` can be moved.
pub(in crate::file) fn check_movable(fs: &Fs, inode: &Arc<Inode>) -> Result<()> {
    fs.check_writable()?;
    require_regular(inode)?;
    inode.check_changeable(true)?;
    let flags = inode.flags();
    if !flags.contains(InodeFlags::EXTENTS) {
        return Err(Error::NotSupported(
            "moving blocks of a file without extents",
        ));
    }
    if flags.contains(InodeFlags::ENCRYPT) {
        return Err(Error::NotSupported("moving blocks of an encrypted file"));
    }
    if is_data_journalled(fs, inode) {
        return Err(Error::NotSupported("moving blocks of journalled data"));
    }
    Ok(())
}

struct Defragmentation<'a> {
    fs: &'a Arc<Fs>,
    inode: &'a Arc<Inode>,
    cred: &'a Cred,
}

impl Defragmentation<'_> {
    fn run(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Defragmented> {
        let (fs, inode) = (self.fs, self.inode);
        writeback_range(fs, inode, WritebackControl::integrity(Pos::ZERO, Pos::MAX))?;
        let bs = fs.layout.block_size;
        let all = self.ranges(0)?;
        let mut done = Defragmented {
            runs_before: all.len() as u64,
            runs_after: all.len() as u64,
            moved: 0,
        };
        let total: u64 = all.iter().map(|range| u64::from(range.len)).sum();
        let fewest = fewest(&all);
        let mut seen = 0;
        let mut from = 0;
        while done.runs_before > fewest {
            let rest = self.ranges(from)?;
            let part = self.part(&rest);
            let Some(end) = part.last().map(Status::end) else {
                break;
            };
            let within = from..rest.last().map_or(end, Status::end);
            let whole = whole_clusters(&part, &within, fs.layout.cluster_bits);
            done.moved += self.move_part(&part, &whole)? << bs.log2();
            seen += part.iter().map(|range| u64::from(range.len)).sum::<u64>();
            progress(seen.min(total) << bs.log2(), total << bs.log2());
            from = end;
        }
        done.runs_after = self.ranges(0)?.len() as u64;
        Ok(done)
    }

    /// The allocated ranges from block `from` on.
    fn ranges(&self, from: u64) -> Result<Vec<Status>> {
        let mut ranges = Vec::new();
        let mut at = from;
        let walked = map::Walked::default();
        // Positions only grow, so the loop ends.
        while let Some(range) = map::range_at(self.fs, self.inode, at, u64::MAX)? {
            at = range.end();
            walked.add(self.fs, self.inode, range.len, range.state)?;
            if matches!(range.state, MapState::Written(_) | MapState::Unwritten(_)) {
                ranges.push(range);
            }
        }
        Ok(ranges)
    }

    /// The first ranges, as many as the free space suffices for.
    fn part(&self, ranges: &[Status]) -> Vec<Status> {
        let layout = &self.fs.layout;
        let free = self.fs.alloc.counts.available_to_users().get();
        // Nothing, where less than the margin is free.
        let mut left = free.saturating_sub(MARGIN_BLOCKS + free / 64);
        let wanted: u64 = ranges.iter().map(|range| u64::from(range.len)).sum();
        if left < MIN_DONOR_BLOCKS.min(wanted) {
            return Vec::new();
        }
        let mut part = Vec::new();
        for range in ranges {
            let from = u64::from(range.lblk.get());
            let Some(fits) = range.cut(from, from + left) else {
                break;
            };
            let place = u64::from(layout.place_in_cluster(range.lblk));
            let space = layout.in_whole_clusters(place + u64::from(fits.len));
            left = left.saturating_sub(space);
            part.push(fits);
        }
        part
    }

    /// Moves `whole`, what of `part` lies in clusters of its own, if all of `part` lies in fewer
    /// runs then. Returns the number of blocks moved.
    fn move_part(&self, part: &[Status], whole: &[Status]) -> Result<u64> {
        let fs = self.fs;
        let donor = self.donor()?;
        let left = left_behind(part, whole);
        let result = match self.allocate_for_donor(&donor, whole) {
            Ok(runs) if runs + left < part.len() => self.exchange(&donor, whole),
            Ok(_) => Ok(0),
            // Other threads took the space: what cannot be improved stays.
            Err(error) if error.is_lack_of_room() => Ok(0),
            Err(error) => Err(error),
        };
        drop(donor);
        fs.reap_all();
        // The next part may need the old blocks.
        fs.journal.force_commit()?;
        result
    }

    /// A new file without a name, which receives the space.
    fn donor(&self) -> Result<InodeRef> {
        let fs = self.fs;
        let root = fs.iget(Ino::ROOT)?;
        let new = NewInode {
            kind: FileKind::Regular,
            perm: 0o600,
            rdev: 0,
            links: 0,
        };
        alloc::retry_unlocked(fs, || {
            let _shared = root.lock_shared();
            let _owners = new_inode::prepare(fs, &root, self.cred)?;
            let mut h = fs.start(credits::inode_create(fs) + credits::ORPHAN)?;
            let inode = new_inode::new(fs, &mut h, &root, &new, self.cred)?;
            orphan::add(fs, &mut h, &inode).inspect_err(|error| stop(&h, error))?;
            Ok(inode)
        })
    }

    /// Allocates for `donor` where `part` has blocks, from the longest free runs. Returns the
    /// number of runs.
    fn allocate_for_donor(&self, donor: &InodeRef, part: &[Status]) -> Result<usize> {
        let fs = self.fs;
        let mut runs = alloc::free_runs(fs, 1)?;
        let mut last = None;
        let mut count = 0;
        for segment in segments(part) {
            let (mut at, end) = segment;
            while at < end {
                let left = end - at;
                let Some(choice) = choose(&runs, left) else {
                    return Err(Error::NoSpace);
                };
                let Some(run) = runs.get_mut(choice) else {
                    return Err(Error::NoSpace);
                };
                let want = run.len.get().min(left);
                let lblk = u32::try_from(at).map_err(|_| Error::FileTooBig)?;
                let len = at_most_u32(want);
                let goal = run.start;
                let found = alloc::retry_unlocked(fs, || {
                    let how = AllocateMode {
                        unwritten: true,
                        goal: Some(goal),
                        ..AllocateMode::default()
                    };
                    let mut h = fs.start(credits::allocate(fs))?;
                    map::allocate(fs, &mut h, donor, Lblk::new(lblk), len, how)
                })?;
                let MapState::Unwritten(start) = found.state else {
                    return Err(Error::NoSpace);
                };
                let got = u64::from(found.len);
                debug_assert!((1..=want).contains(&got), "{got} of {want} blocks");
                if last != Some((at, start)) {
                    count += 1;
                }
                at += got;
                last = Some((at, start.plus(got)));
                if start == goal {
                    run.start = goal.plus(got);
                    run.len = Blocks::new(run.len.get() - got);
                } else {
                    // Another thread has taken it by now.
                    runs = alloc::free_runs(fs, 1)?;
                }
            }
        }
        Ok(count)
    }

    /// Exchanges the blocks of `part` with the donor's. Returns how many.
    fn exchange(&self, donor: &InodeRef, part: &[Status]) -> Result<u64> {
        let mut moved = 0;
        for (start, end) in segments(part) {
            let mut at = start;
            while at < end {
                let lblk = u32::try_from(at).map_err(|_| Error::FileTooBig)?;
                let len = at_most_u32(end - at);
                let end_of = |inode| End {
                    inode,
                    at: Lblk::new(lblk),
                };
                let _excluded = crate::file::lock_whole_file(self.fs, self.inode);
                if self.inode.is_gone() {
                    return Err(Error::Stale);
                }
                check_movable(self.fs, self.inode)?;
                let (from, to) = (end_of(self.inode), end_of(donor.shared()));
                at += match relocate::exchange(self.fs, from, to, len)? {
                    Piece::Moved(count) => {
                        moved += u64::from(count);
                        u64::from(count)
                    }
                    Piece::Skipped(count) => u64::from(count),
                };
            }
        }
        Ok(moved)
    }
}

/// The parts of `ranges`, those of the blocks `within` a file that come first, in clusters of
/// `1 << bits` blocks that have nothing else: a cluster can only move with all of its blocks.
fn whole_clusters(ranges: &[Status], within: &Range<u64>, bits: u32) -> Vec<Status> {
    if bits == 0 {
        return ranges.to_vec();
    }
    let first = |range: &Status| u64::from(range.lblk.get()) >> bits;
    let last = |range: &Status| (range.end() - 1) >> bits;
    let mut whole = Vec::new();
    for (at, range) in ranges.iter().enumerate() {
        let before = match at.checked_sub(1).and_then(|at| ranges.get(at)) {
            Some(before) => Some(last(before)),
            None => within.start.checked_sub(1).map(|block| block >> bits),
        };
        let behind = ranges.get(at + 1).map(first);
        let (mut from, mut to) = (u64::from(range.lblk.get()), range.end());
        if before == Some(first(range)) {
            from = (first(range) + 1) << bits;
        }
        // Of the last range more may be there than what is moved now.
        let goes_on = behind.is_none() && to < within.end && !to.is_multiple_of(1 << bits);
        if behind == Some(last(range)) || goes_on {
            to = last(range) << bits;
        }
        whole.extend(range.cut(from, to));
    }
    whole
}

/// The runs of `part` that stay where they are if `whole`, parts of it, moves.
fn left_behind(part: &[Status], whole: &[Status]) -> usize {
    let mut left = 0;
    for range in part {
        let (mut at, end) = (u64::from(range.lblk.get()), range.end());
        for moved in whole {
            if let Some(moved) = moved.cut(at, end) {
                left += usize::from(u64::from(moved.lblk.get()) > at);
                at = moved.end();
            }
        }
        left += usize::from(at < end);
    }
    left
}

/// The stretches of the file that `ranges` cover without a hole.
fn segments(ranges: &[Status]) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = Vec::new();
    for range in ranges {
        let start = u64::from(range.lblk.get());
        match all.last_mut() {
            Some((_, end)) if *end == start => *end = range.end(),
            _ => all.push((start, range.end())),
        }
    }
    all
}

/// The fewest runs that `ranges` fit into: one for each stretch of each state.
fn fewest(ranges: &[Status]) -> u64 {
    let unwritten = |range: &Status| matches!(range.state, MapState::Unwritten(_));
    let joins = |pair: &[Status]| {
        let [left, right] = pair else { return false };
        left.end() == u64::from(right.lblk.get()) && unwritten(left) == unwritten(right)
    };
    let joined = ranges.windows(2).filter(|pair| joins(pair)).count();
    (ranges.len() - joined) as u64
}

/// The index of the shortest of `runs` that has `want` blocks, else of the longest.
fn choose(runs: &[Run], want: u64) -> Option<usize> {
    let lens = || runs.iter().map(|run| run.len.get()).enumerate();
    let fits = lens().filter(|&(_, len)| len >= want);
    let best = fits.min_by_key(|&(at, len)| (len, at));
    let longest = || {
        lens()
            .filter(|&(_, len)| len > 0)
            .max_by_key(|&(at, len)| (len, std::cmp::Reverse(at)))
    };
    best.or_else(longest).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use extant_units::Pblk;

    use super::*;

    fn run(start: u64, len: u64) -> Run {
        Run {
            start: Pblk::new(start),
            len: Blocks::new(len),
        }
    }

    #[test]
    fn the_shortest_run_that_suffices_is_chosen_else_the_longest() {
        let runs = [run(10, 5), run(20, 9), run(40, 7), run(60, 9), run(90, 0)];
        assert_eq!(choose(&runs, 6), Some(2));
        assert_eq!(choose(&runs, 9), Some(1));
        assert_eq!(choose(&runs, 100), Some(1));
        assert_eq!(choose(&runs[4..], 1), None);
    }

    #[test]
    fn a_stretch_of_one_state_needs_one_run() {
        let range = |lblk, len, state| Status {
            lblk: Lblk::new(lblk),
            len,
            state,
        };
        let written = |at| MapState::Written(Pblk::new(at));
        let ranges = [
            range(0, 4, written(100)),
            range(4, 4, written(200)),
            range(8, 2, MapState::Unwritten(Pblk::new(300))),
            range(20, 1, written(400)),
        ];
        assert_eq!(fewest(&ranges), 3);
        assert_eq!(whole_clusters(&ranges, &(0..21), 0), ranges);
        assert_eq!(segments(&ranges), [(0, 10), (20, 21)]);
    }

    #[test]
    fn clusters_move_with_all_of_their_blocks() {
        let range = |lblk: u32, len| Status {
            lblk: Lblk::new(lblk),
            len,
            state: MapState::Written(Pblk::new(u64::from(lblk) % 8 + 800)),
        };
        let moved = |ranges: &[Status], within: Range<u64>| -> Vec<(u32, u32)> {
            let whole = whole_clusters(ranges, &within, 3);
            whole.iter().map(|one| (one.lblk.get(), one.len)).collect()
        };
        // The second cluster has blocks of two ranges.
        let ranges = [range(2, 10), range(13, 11), range(30, 3)];
        assert_eq!(moved(&ranges, 0..33), [(2, 6), (16, 8), (30, 3)]);
        let whole = whole_clusters(&ranges, &(0..33), 3);
        assert_eq!(left_behind(&ranges, &whole), 2);
        // More of the last range is there, and of the first before it.
        assert_eq!(moved(&ranges, 1..40), [(16, 8), (30, 2)]);
        assert_eq!(left_behind(&ranges, &ranges), 0);
        assert_eq!(left_behind(&ranges, &[]), 3);
    }
}
