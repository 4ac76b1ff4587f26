//! The cache before direct I/O: newer data is written, and before a write the range leaves the
//! cache.

use extant_units::Pos;

use crate::file::mapping::iomap_ops::FileContext;
use crate::file::range_lock::FileRangeGuard;
use crate::file::writeback::writeback_gap_and_range;
use crate::types::error::Result;

/// Writes back what is newer in the cache than on the device in `[start, end)`, which is locked by
/// `held`. The range stays cached.
///
/// # Errors
/// The failure of the write. The data is lost then, which every opener's fsync reports as well.
pub(super) fn write_back_range(
    cx: &FileContext<'_>,
    held: &FileRangeGuard<'_>,
    start: Pos,
    end: Pos,
) -> Result<()> {
    debug_assert!(held.is_of(cx.inode) && start <= end, "{start}..{end}");
    let cached = cx.state.address_space.next(start);
    if cached.is_none_or(|folio| folio.start() >= end) {
        return Ok(());
    }
    let clean = cx.state.address_space.clean_ranges(start, end);
    if !matches!(&*clean, [all] if *all == (start..end)) {
        writeback_gap_and_range(cx, start, end)?;
    }
    Ok(())
}

/// Removes `[start, end)`, whole blocks that are locked by `held`, from the cache. Returns false
/// if the cache holds on to a part.
///
/// # Errors
/// As [`write_back_range`].
pub(super) fn invalidate_range(
    cx: &FileContext<'_>,
    held: &FileRangeGuard<'_>,
    start: Pos,
    end: Pos,
) -> Result<bool> {
    let bs = cx.fs.layout.block_size;
    debug_assert!(held.is_of(cx.inode), "a range of another file");
    debug_assert!(
        start <= end && bs.offset_in_block(start) == 0 && bs.offset_in_block(end) == 0,
        "{start}..{end} are whole blocks"
    );
    let mapping = &cx.state.address_space;
    let cached = mapping.next(start);
    if cached.is_none_or(|folio| folio.start() >= end) || mapping.invalidate(start, end, false) {
        return Ok(true);
    }
    writeback_gap_and_range(cx, start, end)?;
    // Other parts of a folio may be under writeback again by now.
    Ok(mapping.invalidate(start, end, true))
}
