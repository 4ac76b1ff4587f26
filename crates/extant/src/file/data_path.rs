//! Which code moves a file's buffered data: the only place where the paths part. Which file takes which is `way.rs`'s.

use extant_disk::inode::InodeFlags;
use extant_iomap::{Control, Miss, Source};
use extant_units::Pos;

use super::iomap_ops::FileOps;
use crate::error::{Error, Result};
use crate::tuning::BufferedPath;

/// Fails for files whose contents are not what their blocks hold.
fn check_contents(flags: InodeFlags) -> Result<()> {
    let what = if flags.contains(InodeFlags::INLINE_DATA) {
        "files with inline data"
    } else if flags.contains(InodeFlags::ENCRYPT) {
        "encrypted files"
    } else if flags.contains(InodeFlags::VERITY) {
        "files with verity"
    } else {
        return Ok(());
    };
    Err(Error::NotSupported(what))
}

/// Buffered read.
pub(super) fn read(
    ops: &FileOps<'_>,
    on_miss: Miss<'_>,
    pos: Pos,
    buf: &mut [u8],
) -> Result<usize> {
    check_contents(ops.flags)?;
    // Both ways find cached blocks alike, and fill the cache by ranges: the records hear of it.
    match extant_iomap::read(ops, on_miss, pos, buf) {
        Ok(done) => Ok(done),
        Err(stopped) => partial(stopped.done, stopped.error),
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
    check_contents(ops.flags)?;
    let written = match ops.way.path {
        BufferedPath::Iomap => extant_iomap::write(ops, pos, len, source),
        BufferedPath::BufferHead => extant_bufferhead::write(ops, pos, len, source),
    };
    match written {
        Ok(done) => Ok(done),
        Err(stopped) => partial(stopped.done, stopped.error),
    }
}

/// Zeroes a range that has data; says whether anything changed.
pub(super) fn zero_range(ops: &FileOps<'_>, pos: Pos, len: u64) -> Result<bool> {
    check_contents(ops.flags)?;
    let changed = extant_iomap::zero_range(ops, pos, len).map_err(|stopped| stopped.error)?;
    if changed && ops.way.logs {
        // Before whatever makes the range part of the file.
        write_back(ops, Control::integrity(pos, pos.saturating_add(len)))?;
    }
    Ok(changed)
}

/// Writes `control`'s part of what is dirty, and waits for it.
pub(super) fn write_back(ops: &FileOps<'_>, control: Control) -> Result<u64> {
    match ops.way.path {
        BufferedPath::Iomap => extant_iomap::write_back(ops, control),
        BufferedPath::BufferHead => extant_bufferhead::write_back(ops, control),
    }
}

/// Some bytes done are a success; the error will be met again by whoever goes on.
fn partial(done: u64, error: Error) -> Result<usize> {
    match usize::try_from(done) {
        Ok(done) if done > 0 => Ok(done),
        _ => Err(error),
    }
}
