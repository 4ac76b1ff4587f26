//! The stored record: 128 bytes that every inode has, and the fixed fields behind them.

use core::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first 128 bytes of an inode (`ext4_inode`, Linux's variant of the `osd` unions).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawInode {
    /// Kind and permissions.
    pub mode: U16,
    /// Low half of the owner.
    pub uid_lo: U16,
    /// Low half of the size.
    pub size_lo: U32,
    /// Access time.
    pub atime: U32,
    /// Change time.
    pub ctime: U32,
    /// Modification time.
    pub mtime: U32,
    /// Deletion time, or the next orphan.
    pub dtime: U32,
    /// Low half of the group.
    pub gid_lo: U16,
    /// Hard links.
    pub links: U16,
    /// Low 32 bits of the space used.
    pub blocks_lo: U32,
    /// Flags.
    pub flags: U32,
    /// Low half of the version.
    pub version_lo: U32,
    /// Extent tree root, block map, symlink target or device number.
    pub block: [u8; 60],
    /// Generation.
    pub generation: U32,
    /// Low 32 bits of the extended attribute block.
    pub file_acl_lo: U32,
    /// High half of the size (regular files).
    pub size_hi: U32,
    /// Obsolete fragment address.
    pub obso_faddr: U32,
    /// Bits 32..48 of the space used.
    pub blocks_hi: U16,
    /// Bits 32..48 of the extended attribute block.
    pub file_acl_hi: U16,
    /// High half of the owner.
    pub uid_hi: U16,
    /// High half of the group.
    pub gid_hi: U16,
    /// Low half of the checksum.
    pub checksum_lo: U16,
    /// Unused.
    pub reserved: U16,
}

impl RawInode {
    /// Byte of the record at which `i_block` starts.
    pub const BLOCK_OFFSET: usize = offset_of!(RawInode, block);

    /// The fields of a record; `None` if it is too short.
    pub fn of(record: &[u8]) -> Option<&Self> {
        Self::ref_from_prefix(record).ok().map(|(raw, _)| raw)
    }
}

/// The fixed fields behind byte 128, present as far as `extra_isize` reaches.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct RawInodeExtra {
    /// Bytes used behind byte 128, this field included.
    pub extra_isize: U16,
    /// High half of the checksum.
    pub checksum_hi: U16,
    /// Nanoseconds and epoch of the change time.
    pub ctime_extra: U32,
    /// Nanoseconds and epoch of the modification time.
    pub mtime_extra: U32,
    /// Nanoseconds and epoch of the access time.
    pub atime_extra: U32,
    /// Creation time.
    pub crtime: U32,
    /// Nanoseconds and epoch of the creation time.
    pub crtime_extra: U32,
    /// High half of the version.
    pub version_hi: U32,
    /// Project id.
    pub projid: U32,
}

/// Bytes of the oldest inode, and of the part that every inode has.
pub const GOOD_OLD_SIZE: usize = size_of::<RawInode>();
/// Bytes of the fixed fields behind it.
pub const EXTRA_SIZE: usize = size_of::<RawInodeExtra>();

const _: () = assert!(GOOD_OLD_SIZE == 128);
const _: () = assert!(EXTRA_SIZE == 32);
const _: () = assert!(offset_of!(RawInode, block) == 0x28);
const _: () = assert!(offset_of!(RawInode, generation) == 0x64);
const _: () = assert!(offset_of!(RawInode, checksum_lo) == 0x7c);
const _: () = assert!(offset_of!(RawInodeExtra, checksum_hi) == 0x82 - GOOD_OLD_SIZE);
const _: () = assert!(offset_of!(RawInodeExtra, crtime) == 0x90 - GOOD_OLD_SIZE);
const _: () = assert!(offset_of!(RawInodeExtra, projid) == 0x9c - GOOD_OLD_SIZE);

/// Returns whether the field that ends at `$field` of the extra part lies within `$extra_isize`.
macro_rules! fits {
    ($extra_isize:expr, $field:ident) => {
        core::mem::offset_of!($crate::inode::RawInodeExtra, $field)
            + $crate::inode::raw_inode::size_of_field(|e: &$crate::inode::RawInodeExtra| &e.$field)
            <= usize::from($extra_isize)
    };
}
pub(super) use fits;

/// Bytes of the field that a closure borrows.
pub(super) const fn size_of_field<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}
