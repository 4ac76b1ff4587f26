//! Keeping fills of the cache out of ranges that are written directly.

use std::ops::Range;

use extant_iomap::FillGuard;
use extant_lock_order::{Rank, taking};
use extant_range_lock::ByteRange;
use extant_units::Pos;

use crate::state::file::FileData;
use crate::volume::Fs;

/// Keeps direct writes away from what the cache is about to read from the device: all of `wanted`
/// if no thread writes there directly, otherwise what is `needed` of it, which is waited for.
pub(in crate::file) fn lock_fill<'a>(
    fs: &Fs,
    data: &'a FileData,
    wanted: Range<Pos>,
    needed: Option<Range<Pos>>,
) -> Option<FillGuard<'a>> {
    let ranges = &data.ranges;
    let bytes = |range: &Range<Pos>| {
        let bytes = ByteRange::from_len(range.start.get(), range.end.since(range.start));
        debug_assert!(bytes.is_some(), "a fill of no bytes");
        bytes.unwrap_or(ByteRange::ALL)
    };
    let held = taking(Rank::Fill);
    if let Some(guard) = ranges.try_lock_fill(bytes(&wanted)) {
        return Some(FillGuard::new(wanted, (guard, held)));
    }
    let needed = needed?;
    fs.stats.direct_fill_waits.bump();
    let guard = ranges.lock_fill(bytes(&needed));
    Some(FillGuard::new(needed, (guard, held)))
}
