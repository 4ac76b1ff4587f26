//! What an inode stores on disk, decoded.

use crate::api::Timestamp;
use extant_units::Pblk;

/// Everything about an inode that is stored in the inode table. Guarded by [`super::Inode::core`]; changed only
/// through [`super::Inode::update`], which encodes it under a handle while the lock is held, so that the newest
/// state is always the one in the journal.
#[derive(Clone, Debug)]
pub(crate) struct InodeCore {
    /// File type and permission bits.
    pub(crate) mode: u16,
    /// Owner.
    pub(crate) uid: u32,
    /// Group.
    pub(crate) gid: u32,
    /// Link count; 1 may mean "too many to count" for directories.
    pub(crate) links: u16,
    /// `i_disksize`: the size that the journal may persist, at most [`super::Inode::size`].
    pub(crate) disk_size: u64,
    /// Blocks in units of 512 bytes, whatever the on-disk unit.
    pub(crate) sectors: u64,
    /// chattr flags and internal ones (`i_flags`).
    pub(crate) flags: u32,
    /// Last access.
    pub(crate) atime: Timestamp,
    /// Last change of content.
    pub(crate) mtime: Timestamp,
    /// Last change of the inode.
    pub(crate) ctime: Timestamp,
    /// Creation, if the inode is large enough to store it.
    pub(crate) crtime: Option<Timestamp>,
    /// Time of deletion, or the next inode in the orphan list.
    pub(crate) dtime: u32,
    /// Extent root, block pointers, short symlink target or device number.
    pub(crate) i_block: [u8; 60],
    /// External block of extended attributes; zero for none.
    pub(crate) file_acl: Pblk,
    /// Change counter.
    pub(crate) version: u64,
    /// Project id.
    pub(crate) project: u32,
    /// Bytes of the fixed part beyond 128; zero in small inodes.
    pub(crate) extra_isize: u16,
    /// Everything behind the fixed part: attributes inside of the inode.
    pub(crate) tail: Box<[u8]>,
}
