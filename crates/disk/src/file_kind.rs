//! Kind of an inode: as its mode says, and as directory entries repeat it.

use crate::dirent::FileType;

/// Kind of an inode. Fixed when the inode is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A block device node.
    BlockDevice,
    /// A character device node.
    CharDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl FileKind {
    /// The bits of `i_mode` that hold the kind (`S_IFMT`).
    pub const MASK: u16 = 0o170_000;

    /// The kind that the upper four bits of a mode (`S_IFMT`) stand for; `None` if they stand for
    /// none.
    #[must_use]
    pub const fn from_mode(mode: u16) -> Option<FileKind> {
        Some(match mode & Self::MASK {
            0o100_000 => FileKind::Regular,
            0o040_000 => FileKind::Directory,
            0o120_000 => FileKind::Symlink,
            0o060_000 => FileKind::BlockDevice,
            0o020_000 => FileKind::CharDevice,
            0o010_000 => FileKind::Fifo,
            0o140_000 => FileKind::Socket,
            _ => return None,
        })
    }

    /// Returns whether it is a directory.
    #[must_use]
    pub const fn is_dir(self) -> bool {
        matches!(self, FileKind::Directory)
    }

    /// Returns whether it is a regular file.
    #[must_use]
    pub const fn is_file(self) -> bool {
        matches!(self, FileKind::Regular)
    }

    /// Returns whether it is a symbolic link.
    #[must_use]
    pub const fn is_symlink(self) -> bool {
        matches!(self, FileKind::Symlink)
    }

    /// Returns whether it is a block device node.
    #[must_use]
    pub const fn is_block_device(self) -> bool {
        matches!(self, FileKind::BlockDevice)
    }

    /// Returns whether it is a character device node.
    #[must_use]
    pub const fn is_char_device(self) -> bool {
        matches!(self, FileKind::CharDevice)
    }

    /// Returns whether it is a named pipe.
    #[must_use]
    pub const fn is_fifo(self) -> bool {
        matches!(self, FileKind::Fifo)
    }

    /// Returns whether it is a socket.
    #[must_use]
    pub const fn is_socket(self) -> bool {
        matches!(self, FileKind::Socket)
    }

    /// The `S_IFMT` bits of this kind.
    #[must_use]
    pub const fn mode_bits(self) -> u16 {
        match self {
            FileKind::Regular => 0o100_000,
            FileKind::Directory => 0o040_000,
            FileKind::Symlink => 0o120_000,
            FileKind::BlockDevice => 0o060_000,
            FileKind::CharDevice => 0o020_000,
            FileKind::Fifo => 0o010_000,
            FileKind::Socket => 0o140_000,
        }
    }

    /// The kind that a directory entry stores; `None` if it stores none.
    #[must_use]
    pub const fn from_file_type(file_type: FileType) -> Option<FileKind> {
        Some(match file_type {
            FileType::Unknown => return None,
            FileType::Regular => FileKind::Regular,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Symlink,
            FileType::BlockDevice => FileKind::BlockDevice,
            FileType::CharDevice => FileKind::CharDevice,
            FileType::Fifo => FileKind::Fifo,
            FileType::Socket => FileKind::Socket,
        })
    }

    /// How directory entries store this kind.
    #[must_use]
    pub const fn file_type(self) -> FileType {
        match self {
            FileKind::Regular => FileType::Regular,
            FileKind::Directory => FileType::Directory,
            FileKind::Symlink => FileType::Symlink,
            FileKind::BlockDevice => FileType::BlockDevice,
            FileKind::CharDevice => FileType::CharDevice,
            FileKind::Fifo => FileType::Fifo,
            FileKind::Socket => FileType::Socket,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_and_entry_tell_the_same_kind() {
        let kinds = (0..16).filter_map(|bits: u16| FileKind::from_mode(bits << 12));
        let all: Vec<FileKind> = kinds.collect();
        assert_eq!(all.len(), 7);
        for kind in all {
            assert_eq!(FileKind::from_mode(kind.mode_bits() | 0o7777), Some(kind));
            assert_eq!(FileKind::from_file_type(kind.file_type()), Some(kind));
        }
        assert_eq!(FileKind::from_file_type(FileType::Unknown), None);
    }
}
