//! Which code moves a file's buffered data: the only place that chooses.

use extant_disk::inode::InodeFlags;
use extant_iomap::{Control, Miss, Source};
use extant_units::Pos;

use super::iomap_ops::FileOps;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::inode::Inode;
use crate::options::DataMode;
use crate::tuning::BufferedPath;

/// The way for a file's data.
fn choose(ops: &FileOps<'_>) -> BufferedPath {
    eligible(
        ops.fs.tuning.buffered_path,
        ops.fs.options.data(),
        ops.flags,
    )
}

/// The way for the data of `inode`, a regular file.
pub(crate) fn buffered_path(fs: &Fs, inode: &Inode) -> Result<BufferedPath> {
    super::read::check_kind(inode)?;
    Ok(eligible(
        fs.tuning.buffered_path,
        fs.options.data(),
        inode.flags(),
    ))
}

/// What the mount asks for, unless the file cannot have it: whatever is not in plain blocks behind an extent tree needs the
/// per-block way, and so does data that goes through the journal. (Linux also falls back for the feature bits of inline data and
/// verity, whatever the file; here they decide file by file.)
fn eligible(asked: BufferedPath, data: DataMode, flags: InodeFlags) -> BufferedPath {
    let special = InodeFlags::INLINE_DATA
        | InodeFlags::VERITY
        | InodeFlags::ENCRYPT
        | InodeFlags::EA_INODE
        | InodeFlags::DAX;
    let journalled = data == DataMode::Journal;
    if journalled || flags.intersects(special) || !flags.contains(InodeFlags::EXTENTS) {
        return BufferedPath::BufferHead;
    }
    asked
}

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
    let written = match choose(ops) {
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
    if changed && extant_bufferhead::BufferOps::logs_data(ops) {
        // Before whatever makes the range part of the file.
        write_back(ops, Control::integrity(pos, pos.saturating_add(len)))?;
    }
    Ok(changed)
}

/// Writes `control`'s part of what is dirty, and waits for it.
pub(super) fn write_back(ops: &FileOps<'_>, control: Control) -> Result<u64> {
    match choose(ops) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iomap_24_special_files_fall_back() {
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
            (Iomap, InodeFlags::empty(), BufferHead),
            (BufferHead, plain, BufferHead),
        ] {
            let got = eligible(asked, DataMode::Ordered, flags);
            assert_eq!(got, expected, "{asked:?} {flags:?}");
            let journalled = eligible(asked, DataMode::Journal, flags);
            assert_eq!(journalled, BufferHead, "{asked:?} {flags:?}");
        }
    }
}
