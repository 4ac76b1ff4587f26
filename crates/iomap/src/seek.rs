//! Finding data and holes.

use extant_units::Pos;

use crate::iter::{Stopped, apply};
use crate::map::IomapKind;
use crate::ops::{IomapOp, IomapOps, Outcome};

/// What to look for.
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
        let end = at.plus(len);
        let hit = match (map.kind, whence) {
            (IomapKind::Unwritten(_), _) => {
                let cached = whence == Whence::Data;
                ops.address_space().seek_cached(at, end, cached)
            }
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
