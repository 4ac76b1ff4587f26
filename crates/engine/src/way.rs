//! The data path of a file: over ranges or with a record per block, and whether its data goes
//! through the journal.
//!
//! A file's data path is chosen when its data is first used ([`eligible`] is the one table of which
//! file can have which), and stays until it is switched on purpose (`file/change_way.rs`). Every
//! operation reads it once, when it starts. Writeback, which may have waited for its pass, reads it
//! again after that.

use std::sync::atomic::{AtomicU8, Ordering};

use extant_disk::inode::InodeFlags;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::fs::Fs;
use crate::inode::Inode;
use crate::options::DataMode;
use crate::tuning::BufferedPath;
use crate::types::FileKind;

/// The data path of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Way {
    /// The code that moves the data.
    pub(crate) path: BufferedPath,
    /// Whether the data goes through the journal; only on the buffer-head path.
    pub(crate) logs: bool,
}

impl Way {
    /// The data path of a regular file with `flags` whose data is first used.
    pub(crate) fn of(fs: &Fs, flags: InodeFlags) -> Self {
        let path = eligible(fs.tuning.buffered_path, fs.options.data(), flags);
        Self::on(fs, path, flags)
    }

    /// The same for a given machinery.
    pub(crate) fn on(fs: &Fs, path: BufferedPath, flags: InodeFlags) -> Self {
        let asked =
            fs.options.data() == DataMode::Journal || flags.contains(InodeFlags::JOURNAL_DATA);
        let can = path == BufferedPath::BufferHead && fs.journal.has_log();
        Self {
            path,
            logs: asked && can,
        }
    }
}

/// The machinery that the mount asks for, unless the file cannot have it. A file whose data is not
/// in plain blocks behind an extent tree needs the buffer-head path, and so does data that goes
/// through the journal. (Linux also falls back for the feature bits of inline data and verity,
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

/// A file's data path, as it is now.
pub(crate) struct WayCell {
    bits: AtomicU8,
    kept: RwLock<()>,
}

const BUFFER_HEAD: u8 = 1;
const LOGS: u8 = 2;

impl WayCell {
    pub(crate) fn new(way: Way) -> Self {
        Self {
            bits: AtomicU8::new(Self::encode(way)),
            kept: RwLock::new(()),
        }
    }

    /// Keeps the data path: for writeback, from before it asks for the pass to its end. The two
    /// paths lock folios and start handles in different orders, so passes of both must not meet in
    /// one file.
    pub(crate) fn keep(&self) -> RwLockReadGuard<'_, ()> {
        self.kept.read()
    }

    /// Waits until no writeback keeps the data path.
    pub(crate) fn release(&self) -> RwLockWriteGuard<'_, ()> {
        self.kept.write()
    }

    #[inline]
    pub(crate) fn get(&self) -> Way {
        let bits = self.bits.load(Ordering::Acquire);
        let path = if bits & BUFFER_HEAD != 0 {
            BufferedPath::BufferHead
        } else {
            BufferedPath::Iomap
        };
        Way {
            path,
            logs: bits & LOGS != 0,
        }
    }

    pub(crate) fn set(&self, way: Way) {
        self.bits.store(Self::encode(way), Ordering::Release);
    }

    fn encode(way: Way) -> u8 {
        let path = match way.path {
            BufferedPath::Iomap => 0,
            BufferedPath::BufferHead => BUFFER_HEAD,
        };
        path | if way.logs { LOGS } else { 0 }
    }
}

/// The data path of `inode`, in use already or not.
pub(crate) fn now(fs: &Fs, inode: &Inode) -> Way {
    match inode.data.get() {
        Some(data) => data.way(),
        None => Way::of(fs, inode.flags()),
    }
}

/// Whether `inode`'s data goes through the journal.
pub(crate) fn logs_data(fs: &Fs, inode: &Inode) -> bool {
    inode.kind == FileKind::Regular && now(fs, inode).logs
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

    #[test]
    fn a_cell_keeps_every_way() {
        for path in [BufferedPath::Iomap, BufferedPath::BufferHead] {
            for logs in [false, true] {
                let way = Way { path, logs };
                assert_eq!(WayCell::new(way).get(), way);
            }
        }
    }
}
