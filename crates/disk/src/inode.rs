//! Inodes: the record in the inode table, decoded and encoded.
//!
//! [`InodeFormat`] carries what the superblock says about every inode (record size, units, checksum
//! seed); [`InodeCore`] is one inode, decoded. Fields behind byte 128 exist only as far as the
//! inode's own `extra_isize` reaches. Decoding verifies the checksum, the bounds of `extra_isize`
//! and the sign of the size; what needs the rest of the file system (links, block numbers, kinds)
//! is the caller's to judge. Encoding writes the known fields into the old record and leaves every
//! byte that it does not know as it was.

mod checksum;
mod codec;
mod flags;
mod raw_inode;
#[cfg(test)]
mod tests;
mod time;
mod value_users;

use extant_units::{BlockSize, Ino, Pblk};

use crate::csum::Crc32c;

pub use flags::InodeFlags;
use raw_inode::fits;
pub use raw_inode::{EXTRA_SIZE, GOOD_OLD_SIZE, RawInode, RawInodeExtra};
pub use time::InodeTime;

/// Bytes of `i_block`: an extent root, a block map, a short symlink target or a device number.
pub const BLOCK_AREA: usize = 60;

/// Damage of an inode record.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum InodeError {
    /// The slice is not one record.
    #[error("inode record of {found} bytes where {expected} were expected")]
    RecordSize {
        /// Bytes given.
        found: usize,
        /// `s_inode_size`.
        expected: usize,
    },
    /// The stored checksum is not that of the bytes.
    #[error("bad inode checksum {stored:#010x}, computed {computed:#010x}")]
    Checksum {
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// `i_extra_isize` reaches past the record or is no multiple of four.
    #[error("bad extra inode size {found}")]
    ExtraSize {
        /// As stored.
        found: u16,
    },
    /// A size of 2^63 bytes or more.
    #[error("bad inode size {found:#x}")]
    Size {
        /// As stored.
        found: u64,
    },
    /// The inode uses more space than the format can record.
    #[error("{sectors} sectors do not fit the inode's block count")]
    TooManyBlocks {
        /// In units of 512 bytes.
        sectors: u64,
    },
    /// The xattr area does not fill the record.
    #[error("in-inode attributes of {found} bytes where {expected} were expected")]
    XattrArea {
        /// Bytes given.
        found: usize,
        /// Bytes from the end of the fixed fields to the end of the record.
        expected: usize,
    },
}

/// Format of every inode, as the superblock says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeFormat {
    /// Bytes of a record (`s_inode_size`): a power of two from 128 to the block size.
    pub inode_size: u16,
    /// The block size.
    pub block_size: BlockSize,
    /// The `huge_file` feature: 48 bits of space used.
    pub huge_file: bool,
    /// The `64bit` feature: 48 bits of attribute block number.
    pub wide_blocks: bool,
    /// The `large_dir` feature: sizes of all inodes have 64 bits, not those of files only.
    pub large_dir: bool,
    /// The checksum seed of the file system, with `metadata_csum`.
    pub csum_seed: Option<Crc32c>,
}

impl InodeFormat {
    /// Bytes of a record.
    #[inline]
    pub const fn record_size(&self) -> usize {
        self.inode_size as usize
    }

    /// Returns whether records have fields behind byte 128 at all.
    #[inline]
    pub const fn is_large(&self) -> bool {
        self.record_size() > GOOD_OLD_SIZE
    }

    /// Bytes of a record behind byte 128; zero in the oldest format.
    const fn extra_room(&self) -> u16 {
        debug_assert!(
            self.inode_size >= 128,
            "the superblock's check refuses less"
        );
        self.inode_size.saturating_sub(128)
    }

    /// The largest `extra_isize` that this crate fills and the record holds.
    pub const fn known_extra_size(&self) -> u16 {
        let room = self.extra_room();
        if room < 32 { room } else { 32 }
    }

    /// The seed of all checksums that are keyed by an inode: directory blocks, extent blocks and
    /// the inode itself. `None` without `metadata_csum`.
    pub fn inode_seed(&self, ino: Ino, generation: u32) -> Option<Crc32c> {
        self.csum_seed.map(|seed| {
            // Both as one number of 64 bits, the first one low.
            let both = u64::from(generation) << 32 | u64::from(ino.get());
            seed.feed(&both.to_le_bytes())
        })
    }
}

/// One inode, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InodeCore {
    /// Kind and permissions (`i_mode`).
    pub mode: u16,
    /// Hard links as stored; 1 for a directory with too many subdirectories to count.
    pub links: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project.
    pub projid: u32,
    /// Flags. `HUGE_FILE` is the codec's: set and cleared by encoding.
    pub flags: InodeFlags,
    /// Size on disk in bytes (`i_disksize`), below 2^63.
    pub disk_size: u64,
    /// Space used, in units of 512 bytes.
    pub sectors: u64,
    /// Access time.
    pub atime: InodeTime,
    /// Change time.
    pub ctime: InodeTime,
    /// Modification time.
    pub mtime: InodeTime,
    /// Creation time; `None` where the inode has no room for it.
    pub crtime: Option<InodeTime>,
    /// Deletion time, or the next inode on the orphan list.
    pub dtime: u32,
    /// Changes with every change of the inode (`i_version`); the high half is kept only where there
    /// is room.
    pub version: u64,
    /// Changes each time the inode number is used again.
    pub generation: u32,
    /// The extended attribute block; zero for none.
    pub file_acl: Pblk,
    /// Extent root, block map, short symlink target or device number.
    pub i_block: [u8; BLOCK_AREA],
    /// Bytes of fixed fields behind byte 128; zero exactly when records are 128 bytes.
    pub extra_isize: u16,
    /// The rest of the record, behind the fixed fields: in-inode extended attributes. Empty in
    /// records of 128 bytes.
    pub xattrs: Box<[u8]>,
}

impl InodeCore {
    /// An inode with nothing in it: all fields zero, fixed fields of `extra_isize` bytes (cut to
    /// what the record holds), no attributes, creation time at zero if it has room.
    pub fn blank(format: &InodeFormat, extra_isize: u16) -> Self {
        let room = format.extra_room();
        let extra_isize = if room == 0 {
            0
        } else {
            // The field itself and the checksum are always there in a large record.
            (extra_isize & !3).clamp(4, room)
        };
        Self {
            mode: 0,
            links: 0,
            uid: 0,
            gid: 0,
            projid: 0,
            flags: InodeFlags::empty(),
            disk_size: 0,
            sectors: 0,
            atime: InodeTime::default(),
            ctime: InodeTime::default(),
            mtime: InodeTime::default(),
            crtime: fits!(extra_isize, crtime).then(InodeTime::default),
            dtime: 0,
            version: 0,
            generation: 0,
            file_acl: Pblk::ZERO,
            i_block: [0; BLOCK_AREA],
            extra_isize,
            xattrs: vec![0; usize::from(room - extra_isize)].into_boxed_slice(),
        }
    }

    /// Returns whether the access, change and modification times have nanoseconds and reach past
    /// 2038.
    pub fn has_wide_times(&self) -> bool {
        fits!(self.extra_isize, atime_extra)
    }

    /// Returns whether there is room for a project id.
    pub fn has_project(&self) -> bool {
        fits!(self.extra_isize, projid)
    }

    /// The permission bits with set-id and sticky bits.
    #[inline]
    pub const fn perm(&self) -> u16 {
        self.mode & 0o7777
    }
}
