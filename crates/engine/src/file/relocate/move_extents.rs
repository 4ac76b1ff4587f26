//! Exchanging blocks with a file of the caller's (`EXT4_IOC_MOVE_EXT`).
//!
//! The first file's content stays; the other shows the same where blocks were exchanged. Linux
//! refuses this for files on its iomap path; here files on both data paths have it.
//! [`crate::file::relocate`] says why that is safe.
//!
//! # Locks
//! The `lock` of both files exclusively for a piece at a time, taken without an order; see
//! [`crate::file::relocate`] for the rest.

use std::ops::Range;
use std::sync::Arc;

use extant_iomap::WritebackControl;
use extant_units::{Lblk, PAGE_SIZE, Pos, exact_u32};

use crate::file::file_state;
use crate::file::relocate::defrag::check_movable;
use crate::file::relocate::{self, End, Piece};
use crate::file::writeback::writeback_range;
use crate::inode::InodeFlags;
use crate::state::inode::Inode;
use crate::types::error::{Error, Result};
use crate::volume::Fs;
use crate::{inode, map};

/// Set-id bits: such a file is no donor.
const SET_ID: u16 = 0o6000;

/// Exchanges the blocks of the bytes `range` of `orig` with those from byte `donor_pos` of `donor`
/// on, as far as both have some; returns how many bytes were exchanged.
///
/// # Errors
/// [`Error::Invalid`]: the same file twice, one that is no regular file, empty, or on another
/// volume; a donor with set-id bits; a range that begins behind the end, is empty, is not of whole
/// blocks, or begins at another place of its page than the donor's. [`Error::NotPermitted`]: an
/// immutable or append-only donor. [`Error::NotSupported`]: no extents, encrypted or journalled
/// data, or `bigalloc`, as in Linux. [`Error::NoAttribute`] ("no data available") if there is
/// nothing from `range` on. The rest as [`relocate::exchange`], with the pieces before exchanged.
pub(crate) fn move_extents(
    fs: &Arc<Fs>,
    orig: &Arc<Inode>,
    donor: &Arc<Inode>,
    range: Range<u64>,
    donor_pos: u64,
) -> Result<u64> {
    fs.check_writable()?;
    check_exchangeable(fs, orig, donor)?;
    let (mut at, end, mut to) = block_ranges(fs, orig, donor, range, donor_pos)?;
    let bs = fs.layout.block_size;
    for inode in [orig, donor] {
        writeback_range(fs, inode, WritebackControl::integrity(Pos::ZERO, Pos::MAX))?;
    }
    if map::last_end(fs, orig)? <= at || map::last_end(fs, donor)? <= to {
        return Err(Error::NoAttribute);
    }
    let mut moved = 0;
    while at < end {
        let result = exchange_piece(fs, (orig, at), (donor, to), end - at);
        let count = match result {
            Ok(Piece::Moved(count)) => {
                moved += u64::from(count) << bs.log2();
                count
            }
            Ok(Piece::Skipped(count)) => count,
            Err(error) if moved == 0 => {
                crate::file::latch_if_corrupt(fs, &error);
                return Err(error);
            }
            // What was exchanged counts; the next call meets the error again.
            Err(_) => break,
        };
        at += u64::from(count);
        to += u64::from(count);
    }
    Ok(moved)
}

fn exchange_piece(
    fs: &Arc<Fs>,
    (orig, at): (&Arc<Inode>, u64),
    (donor, to): (&Arc<Inode>, u64),
    len: u64,
) -> Result<Piece> {
    let lblk = |at| {
        u32::try_from(at)
            .map(Lblk::new)
            .map_err(|_| Error::FileTooBig)
    };
    let most = relocate::MAX_PIECE_BYTES >> fs.layout.block_size.log2();
    let len = exact_u32(len.min(most.max(1)));
    debug_assert!(len > 0, "a piece of no block");
    let both = inode::lock_all(&[orig, donor]);
    crate::file::range_lock::wait_until_unlocked(orig, &both);
    crate::file::range_lock::wait_until_unlocked(donor, &both);
    if orig.is_gone() || donor.is_gone() {
        return Err(Error::Stale);
    }
    check_exchangeable(fs, orig, donor)?;
    let cache = &file_state(fs, donor).address_space;
    let bs = fs.layout.block_size;
    let start = Pos::new(to << bs.log2());
    let end = start.plus(u64::from(len) << bs.log2());
    writeback_range(fs, donor, WritebackControl::integrity(start, end))?;
    let clear = || {
        // Fills that found the old map have made their folios when this is free.
        let _nothing_fills = cache.invalidate_lock().write();
        cache.drop_clean(start, end);
        cache.next(start).is_none_or(|folio| folio.start() >= end)
    };
    if !clear() {
        return Err(Error::Busy);
    }
    let (from, other) = (
        End {
            inode: orig,
            at: lblk(at)?,
        },
        End {
            inode: donor,
            at: lblk(to)?,
        },
    );
    let result = relocate::exchange(fs, from, other, len);
    clear();
    result
}

/// Fails unless these two can exchange blocks.
fn check_exchangeable(fs: &Fs, orig: &Arc<Inode>, donor: &Arc<Inode>) -> Result<()> {
    let same_volume = |inode: &Inode| fs.inodes.is_home_of(inode);
    if Arc::ptr_eq(orig, donor) || !same_volume(orig) || !same_volume(donor) {
        return Err(Error::Invalid);
    }
    let (donor_mode, donor_flags) = {
        let core = donor.core.read();
        (core.mode, core.flags)
    };
    if fs.layout.has_clusters() {
        return Err(Error::NotSupported(
            "exchanging blocks of files whose space is in clusters",
        ));
    }
    check_movable(fs, orig)?;
    if donor_mode & SET_ID != 0 {
        return Err(Error::Invalid);
    }
    if donor_flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
        return Err(Error::NotPermitted);
    }
    check_movable(fs, donor)?;
    if orig.size() == 0 || donor.size() == 0 {
        return Err(Error::Invalid);
    }
    Ok(())
}

/// The range in blocks, its end cut at the ends of both files, and where the donor's begins.
fn block_ranges(
    fs: &Fs,
    orig: &Inode,
    donor: &Inode,
    range: Range<u64>,
    donor_pos: u64,
) -> Result<(u64, u64, u64)> {
    let bs = fs.layout.block_size;
    let page = PAGE_SIZE as u64;
    let aligned = |pos: u64| pos & (bs.bytes_u64() - 1) == 0;
    let in_page = |pos: u64| pos % page;
    if !aligned(range.start) || !aligned(donor_pos) || in_page(range.start) != in_page(donor_pos) {
        return Err(Error::Invalid);
    }
    if !aligned(range.end) && range.end < orig.size() {
        return Err(Error::Invalid);
    }
    let len_of = |inode: &Inode| bs.blocks_for(inode.size()).get();
    let (at, to) = (range.start >> bs.log2(), donor_pos >> bs.log2());
    let end = bs.blocks_for(range.end).get().min(len_of(orig));
    let room = len_of(donor).saturating_sub(to);
    let end = end.min(at.saturating_add(room));
    if at >= end {
        return Err(Error::Invalid);
    }
    Ok((at, end, to))
}
