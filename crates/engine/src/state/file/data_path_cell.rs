//! Which data path a file's data takes now. `path_choice` chooses it.

use extant_sync::atomic::{AtomicU8, Ordering};

use crate::config::BufferedPath;

/// The data path of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DataPath {
    /// The code that moves the data: the iomap or the buffer-head path.
    pub(crate) kind: BufferedPath,
    /// The data goes through the journal; only on the buffer-head path.
    pub(crate) journalled: bool,
}

impl DataPath {
    /// Returns whether folios are locked inside of a handle: on the buffer-head path.
    pub(crate) fn folios_in_handle(self) -> bool {
        self.kind == BufferedPath::BufferHead
    }
}

/// A file's data path, as it is now.
///
/// It changes under the inode's `lock` and the invalidate lock, held exclusively, with the file's
/// writeback pass and an empty cache. An operation that holds one of these reads it once.
pub(crate) struct DataPathCell(AtomicU8);

const BUFFER_HEAD: u8 = 1;
const JOURNALLED: u8 = 2;

impl DataPathCell {
    pub(crate) fn new(data_path: DataPath) -> Self {
        Self(AtomicU8::new(Self::encode(data_path)))
    }

    #[inline]
    pub(crate) fn get(&self) -> DataPath {
        let bits = self.0.load(Ordering::Acquire);
        let path = if bits & BUFFER_HEAD != 0 {
            BufferedPath::BufferHead
        } else {
            BufferedPath::Iomap
        };
        DataPath {
            kind: path,
            journalled: bits & JOURNALLED != 0,
        }
    }

    pub(crate) fn set(&self, data_path: DataPath) {
        debug_assert!(
            !data_path.journalled || data_path.kind == BufferedPath::BufferHead,
            "{data_path:?}"
        );
        self.0.store(Self::encode(data_path), Ordering::Release);
    }

    fn encode(data_path: DataPath) -> u8 {
        let path = match data_path.kind {
            BufferedPath::Iomap => 0,
            BufferedPath::BufferHead => BUFFER_HEAD,
        };
        path | if data_path.journalled { JOURNALLED } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_keeps_every_way() {
        for path in [BufferedPath::Iomap, BufferedPath::BufferHead] {
            for journalled in [false, true] {
                let data_path = DataPath {
                    kind: path,
                    journalled,
                };
                assert_eq!(DataPathCell::new(data_path).get(), data_path);
            }
        }
    }
}
