//! Finding data and holes.
//!
//! # Concurrency
//! Data in unwritten space is in the cache until writeback has converted its blocks, and may leave
//! it then. So where the map shows unwritten space, the cache is looked at and then the map again:
//! data that was not cached any more is in that second mapping. Were the cache looked at last, data
//! that leaves it in between would be a hole. The model `looks_beside_writeback_and_drops` tries
//! both.

use extant_units::Pos;

use crate::fill::look_up;
use crate::iter::{Stopped, apply};
use crate::map::IomapKind;
use crate::ops::{IomapOp, IomapOps, Outcome};

/// The target of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whence {
    /// The next byte that may be other than zero.
    Data,
    /// The next byte of a hole; the end of the file counts as one.
    Hole,
}

/// The first byte at or after `pos` that is what `whence` says; `None` if `pos` is at or past the
/// end of the file, or no data follows. Reserved space is data. A hole is a hole even if it is
/// cached. Unwritten space is data where the cache has it.
///
/// # Errors
/// The first error of the file system.
pub fn seek<O: IomapOps + ?Sized>(
    ops: &O,
    whence: Whence,
    pos: Pos,
) -> Result<Option<Pos>, O::Error> {
    let size = ops.size();
    if pos.get() >= size {
        return Ok(None);
    }
    let mut found = None;
    let rest = size - pos.get();
    apply(ops, IomapOp::Report, pos, rest, |map, at, len| {
        let (mut map, mut cached) = (*map, None);
        if let IomapKind::Unwritten(_) = map.kind {
            let end = at.plus(len);
            let wanted = whence == Whence::Data;
            cached = ops.address_space().seek_cached(at, end, wanted);
            map = look_up(ops, at, end).map_err(Stopped::after(0))?;
        }
        let len = map.clamp(at, len);
        let hit = match (map.kind, whence) {
            (IomapKind::Unwritten(_), _) => cached.filter(|&found| found < at.plus(len)),
            (IomapKind::Hole, Whence::Hole)
            | (IomapKind::Delalloc | IomapKind::Mapped(_), Whence::Data) => Some(at),
            (IomapKind::Hole, Whence::Data)
            | (IomapKind::Delalloc | IomapKind::Mapped(_), Whence::Hole) => None,
        };
        found = hit;
        // Processing nothing ends the search.
        Ok(Outcome::done(if hit.is_some() { 0 } else { len }))
    })
    .map_err(|stopped: Stopped<O::Error>| stopped.error)?;
    if found.is_none() && whence == Whence::Hole {
        found = Some(Pos::new(size));
    }
    Ok(found)
}
