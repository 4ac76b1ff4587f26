//! Finding data and holes.

use extant_units::Pos;

use crate::iter::{Step, Stopped, apply};
use crate::map::IomapKind;
use crate::ops::{IomapOp, IomapOps};

/// What to look for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whence {
    /// The next byte that may be other than zero.
    Data,
    /// The next byte of a hole; the end of the file counts as one.
    Hole,
}

/// The first byte at or after `pos` that is what `whence` says; `None` if `pos` is at or past the end of the file, or no data follows.
/// Promised space is data. A hole is a hole even if it is cached. Unwritten space is data where the cache has it.
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
    let whole = size - pos.get();
    apply(ops, IomapOp::Report, pos, whole, |map, at, len| {
        let end = at.saturating_add(len);
        let hit = match (&map.kind, whence) {
            (IomapKind::Hole, Whence::Hole) => Some(at),
            (IomapKind::Hole, Whence::Data) => None,
            (IomapKind::Unwritten(_), _) => {
                ops.address_space()
                    .seek_cached(at, end, whence == Whence::Data)
            }
            (IomapKind::Delalloc | IomapKind::Mapped(_) | IomapKind::Inline(_), Whence::Data) => {
                Some(at)
            }
            (IomapKind::Delalloc | IomapKind::Mapped(_) | IomapKind::Inline(_), Whence::Hole) => {
                None
            }
        };
        found = hit;
        // Processing nothing ends the search.
        Ok(Step {
            done: if hit.is_some() { 0 } else { len },
            ..Step::default()
        })
    })
    .map_err(|stopped: Stopped<O::Error>| stopped.error)?;
    if found.is_none() && whence == Whence::Hole {
        found = Some(Pos::new(size));
    }
    Ok(found)
}
