//! Inode flags (`i_flags`).

use bitflags::bitflags;

bitflags! {
    /// `i_flags`. Unknown bits are kept.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InodeFlags: u32 {
        /// Secure deletion (stored, not acted on).
        const SECRM = 0x0000_0001;
        /// Undeletable (stored, not acted on).
        const UNRM = 0x0000_0002;
        /// Compressed (stored, not acted on).
        const COMPR = 0x0000_0004;
        /// Writes are synchronous.
        const SYNC = 0x0000_0008;
        /// Nothing about the inode may change.
        const IMMUTABLE = 0x0000_0010;
        /// Content may only be appended to; names in a directory only added.
        const APPEND = 0x0000_0020;
        /// Not to be dumped.
        const NODUMP = 0x0000_0040;
        /// Access times are not kept.
        const NOATIME = 0x0000_0080;
        /// Do not compress.
        const NOCOMPR = 0x0000_0400;
        /// Encrypted.
        const ENCRYPT = 0x0000_0800;
        /// A directory with a hash tree.
        const INDEX = 0x0000_1000;
        /// AFS directory.
        const IMAGIC = 0x0000_2000;
        /// Content goes through the journal.
        const JOURNAL_DATA = 0x0000_4000;
        /// No tail merging.
        const NOTAIL = 0x0000_8000;
        /// Directory changes are synchronous.
        const DIRSYNC = 0x0001_0000;
        /// Top of a directory hierarchy: its children are spread over the groups.
        const TOPDIR = 0x0002_0000;
        /// `i_blocks` counts file system blocks instead of 512-byte units.
        const HUGE_FILE = 0x0004_0000;
        /// `i_block` holds an extent tree.
        const EXTENTS = 0x0008_0000;
        /// fs-verity.
        const VERITY = 0x0010_0000;
        /// The content is the value of a large extended attribute.
        const EA_INODE = 0x0020_0000;
        /// Blocks past the end of the file (obsolete).
        const EOFBLOCKS = 0x0040_0000;
        /// Direct access.
        const DAX = 0x0200_0000;
        /// Content inside of the inode.
        const INLINE_DATA = 0x1000_0000;
        /// Children take over the project id.
        const PROJINHERIT = 0x2000_0000;
        /// Case-insensitive directory.
        const CASEFOLD = 0x4000_0000;
        /// Reserved.
        const RESERVED = 0x8000_0000;

        const _ = !0;
    }
}
