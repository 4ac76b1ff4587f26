//! The cache before direct I/O: what it has newer than the device is written, and before a write it lets go of the range.

use extant_iomap::Control;
use extant_units::Pos;

use crate::error::Result;
use crate::file::iomap_ops::FileOps;
use crate::file::writeback::write_dirty;

/// Writes whatever of `[start, end)` is newer in the cache than on the device. The range is locked.
///
/// # Errors
/// What kept it from being written; it is lost then, which every opener's fsync tells as well.
pub(super) fn clean(ops: &FileOps<'_>, start: Pos, end: Pos) -> Result<()> {
    let cached = ops.data.mapping.next(start);
    if cached.is_none_or(|folio| folio.start() >= end) {
        return Ok(());
    }
    let clean = ops.data.mapping.clean_ranges(start, end);
    if !matches!(&*clean, [all] if *all == (start..end)) {
        write_dirty(ops, Control::integrity(start, end))?;
    }
    Ok(())
}

/// Has nothing of `[start, end)`, whole blocks, in the cache any more; false if the cache holds on to it. The range is locked.
///
/// # Errors
/// As [`clean`].
pub(super) fn clear(ops: &FileOps<'_>, start: Pos, end: Pos) -> Result<bool> {
    let mapping = &ops.data.mapping;
    let cached = mapping.next(start);
    if cached.is_none_or(|folio| folio.start() >= end) || mapping.invalidate(start, end, false) {
        return Ok(true);
    }
    write_dirty(ops, Control::integrity(start, end))?;
    // Other parts of a folio may be on their way again by now.
    Ok(mapping.invalidate(start, end, true))
}
