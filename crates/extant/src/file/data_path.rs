//! Which code moves a file's buffered data: the only place that chooses.

use extant_disk::inode::InodeFlags;
use extant_iomap::{Miss, Source};
use extant_units::Pos;

use super::iomap_ops::FileOps;
use crate::error::{Error, Result};
use crate::tuning::BufferedPath;

const NOT_BUILT: Error = Error::NotSupported("the buffer-head path is not built yet");

/// The way for a file's data.
fn choose(ops: &FileOps<'_>) -> BufferedPath {
    eligible(ops.fs.tuning.buffered_path, ops.flags)
}

/// What the mount asks for, unless the file cannot have it: contents that are no plain blocks need the
/// per-block way. (So would `data=journal`, which no mount accepts yet.)
fn eligible(asked: BufferedPath, flags: InodeFlags) -> BufferedPath {
    let special = InodeFlags::INLINE_DATA
        | InodeFlags::VERITY
        | InodeFlags::ENCRYPT
        | InodeFlags::EA_INODE
        | InodeFlags::DAX;
    if flags.intersects(special) {
        return BufferedPath::BufferHead;
    }
    asked
}

/// Buffered read.
pub(super) fn read(
    ops: &FileOps<'_>,
    on_miss: Miss<'_>,
    pos: Pos,
    buf: &mut [u8],
) -> Result<usize> {
    match choose(ops) {
        BufferedPath::Iomap => match extant_iomap::read(ops, on_miss, pos, buf) {
            Ok(done) => Ok(done),
            Err(stopped) => partial(stopped.done, stopped.error),
        },
        BufferedPath::BufferHead => Err(NOT_BUILT),
    }
}

/// Buffered write.
pub(super) fn write(
    ops: &FileOps<'_>,
    pos: Pos,
    len: usize,
    source: &mut impl Source,
) -> Result<usize> {
    // A block map of the older kind is readable, but does not grow.
    if !ops.flags.contains(InodeFlags::EXTENTS) {
        return Err(Error::NotSupported("writing to files without extents"));
    }
    match choose(ops) {
        BufferedPath::Iomap => match extant_iomap::write(ops, pos, len, source) {
            Ok(done) => Ok(done),
            Err(stopped) => partial(stopped.done, stopped.error),
        },
        BufferedPath::BufferHead => Err(NOT_BUILT),
    }
}

/// Zeroes a range that has data; says whether anything changed.
pub(super) fn zero_range(ops: &FileOps<'_>, pos: Pos, len: u64) -> Result<bool> {
    match choose(ops) {
        BufferedPath::Iomap => {
            extant_iomap::zero_range(ops, pos, len).map_err(|stopped| stopped.error)
        }
        BufferedPath::BufferHead => Err(NOT_BUILT),
    }
}

/// Some bytes done are a success; the error will be met again by whoever goes on.
fn partial(done: u64, error: Error) -> Result<usize> {
    match usize::try_from(done) {
        Ok(done) if done > 0 => Ok(done),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_files_fall_back() {
        use BufferedPath::{BufferHead, Iomap};
        let plain = InodeFlags::EXTENTS;
        for (asked, flags, expected) in [
            (Iomap, plain, Iomap),
            (Iomap, plain | InodeFlags::VERITY, BufferHead),
            (Iomap, plain | InodeFlags::ENCRYPT, BufferHead),
            (Iomap, InodeFlags::INLINE_DATA, BufferHead),
            (Iomap, plain | InodeFlags::EA_INODE, BufferHead),
            (Iomap, plain | InodeFlags::DAX, BufferHead),
            // The per-file journal flag has no effect on this path.
            (Iomap, plain | InodeFlags::JOURNAL_DATA, Iomap),
            // Neither has an older block map, which can be read.
            (Iomap, InodeFlags::empty(), Iomap),
            (BufferHead, plain, BufferHead),
        ] {
            assert_eq!(eligible(asked, flags), expected, "{asked:?} {flags:?}");
        }
    }
}
