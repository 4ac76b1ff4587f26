//! The data path of a file: over ranges or with a record per block, and whether its data goes
//! through the journal.
//!
//! A file's data path is chosen when its data is first used ([`eligible`] is the one table of which
//! file can have which), and stays until it is switched on purpose (`file/switch_path.rs`). Every
//! operation reads it once, when it starts; writeback once it has its pass.

use extant_disk::inode::InodeFlags;

use crate::config::{BufferedPath, DataMode};
use crate::state::file::DataPath;
use crate::state::inode::Inode;
use crate::types::FileKind;
use crate::volume::Fs;

impl DataPath {
    /// The data path of a regular file with `flags` whose data is first used.
    pub(crate) fn chosen_for(fs: &Fs, flags: InodeFlags) -> Self {
        let path = eligible(fs.tuning.buffered_path, fs.options.data(), flags);
        Self::of_kind(fs, path, flags)
    }

    /// The data path of such a file with the kind `path`. Data goes through the journal only where
    /// it still would in an inode that is loaded anew: otherwise that one would read past what the
    /// log has of the file.
    pub(crate) fn of_kind(fs: &Fs, path: BufferedPath, flags: InodeFlags) -> Self {
        let asked =
            fs.options.data() == DataMode::Journal || flags.contains(InodeFlags::JOURNAL_DATA);
        let lasts = eligible(fs.tuning.buffered_path, fs.options.data(), flags) == path;
        // As on Linux, what is encrypted does not go through the journal.
        let can = path == BufferedPath::BufferHead
            && fs.journal.has_log()
            && !flags.contains(InodeFlags::ENCRYPT);
        Self {
            kind: path,
            journalled: asked && lasts && can,
        }
    }
}

/// The kind of data path that the mount asks for, unless the file cannot have it. A file whose data
/// is not in plain blocks behind an extent tree needs the buffer-head path, and so does data that
/// goes through the journal. (Linux also falls back for the feature bits of inline data and verity,
/// whatever the file; here each file decides.)
pub(crate) fn eligible(asked: BufferedPath, data: DataMode, flags: InodeFlags) -> BufferedPath {
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

/// The data path of `inode`, in use already or not.
pub(crate) fn current(fs: &Fs, inode: &Inode) -> DataPath {
    match inode.file_state.get() {
        Some(data) => data.data_path(),
        None => DataPath::chosen_for(fs, inode.flags()),
    }
}

/// Returns whether `inode`'s data goes through the journal.
pub(crate) fn is_data_journalled(fs: &Fs, inode: &Inode) -> bool {
    inode.kind == FileKind::Regular && current(fs, inode).journalled
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
