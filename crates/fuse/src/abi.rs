//! The FUSE protocol's wire format: what the kernel writes to and expects from `/dev/fuse`.
//!
//! Numbers are in the host's byte order. Every structure is plain data of known layout; sizes are
//! asserted. Only what this front end speaks is here. The protocol's version is 7; minor versions
//! from 31 (Linux 5.4) are understood, and what a newer kernel adds to the end of a structure is
//! ignored.

use std::mem::size_of;

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Major version spoken.
pub(crate) const MAJOR: u32 = 7;
/// Newest minor version whose structures are spoken.
pub(crate) const MINOR: u32 = 42;
/// Oldest minor version that is accepted.
pub(crate) const MINOR_OLDEST: u32 = 31;

/// The node number of the root directory.
pub(crate) const ROOT_ID: u64 = 1;

/// Operation codes.
pub(crate) mod op {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;

    /// One more than the largest code that has a counter of its own.
    pub(crate) const COUNT: usize = 53;

    /// The name of an operation, as its counter shows it.
    pub(crate) fn name(code: usize) -> &'static str {
        const NAMES: [&str; COUNT] = [
            "other",
            "lookup",
            "forget",
            "getattr",
            "setattr",
            "readlink",
            "symlink",
            "",
            "mknod",
            "mkdir",
            "unlink",
            "rmdir",
            "rename",
            "link",
            "open",
            "read",
            "write",
            "statfs",
            "release",
            "",
            "fsync",
            "setxattr",
            "getxattr",
            "listxattr",
            "removexattr",
            "flush",
            "init",
            "opendir",
            "readdir",
            "releasedir",
            "fsyncdir",
            "getlk",
            "setlk",
            "setlkw",
            "access",
            "create",
            "interrupt",
            "bmap",
            "destroy",
            "ioctl",
            "poll",
            "notify_reply",
            "batch_forget",
            "fallocate",
            "readdirplus",
            "rename2",
            "lseek",
            "copy_file_range",
            "setupmapping",
            "removemapping",
            "syncfs",
            "tmpfile",
            "statx",
        ];
        NAMES.get(code).copied().unwrap_or("other")
    }
}

bitflags! {
    /// What kernel and file system agree on in INIT.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct InitFlags: u64 {
        const ASYNC_READ = 1;
        const ATOMIC_O_TRUNC = 1 << 3;
        const EXPORT_SUPPORT = 1 << 4;
        const BIG_WRITES = 1 << 5;
        const DONT_MASK = 1 << 6;
        const HAS_IOCTL_DIR = 1 << 11;
        const AUTO_INVAL_DATA = 1 << 12;
        const DO_READDIRPLUS = 1 << 13;
        const READDIRPLUS_AUTO = 1 << 14;
        const ASYNC_DIO = 1 << 15;
        const WRITEBACK_CACHE = 1 << 16;
        const NO_OPEN_SUPPORT = 1 << 17;
        const PARALLEL_DIROPS = 1 << 18;
        const POSIX_ACL = 1 << 20;
        const MAX_PAGES = 1 << 22;
        const CACHE_SYMLINKS = 1 << 23;
        const NO_OPENDIR_SUPPORT = 1 << 24;
        const EXPLICIT_INVAL_DATA = 1 << 25;
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        const SETXATTR_EXT = 1 << 29;
        const INIT_EXT = 1 << 30;
        const OVER_IO_URING = 1 << 41;
    }
}

bitflags! {
    /// Which fields of [`SetattrIn`] count.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct SetattrValid: u32 {
        const MODE = 1;
        const UID = 1 << 1;
        const GID = 1 << 2;
        const SIZE = 1 << 3;
        const ATIME = 1 << 4;
        const MTIME = 1 << 5;
        const FH = 1 << 6;
        const ATIME_NOW = 1 << 7;
        const MTIME_NOW = 1 << 8;
        const LOCKOWNER = 1 << 9;
        const CTIME = 1 << 10;
        const KILL_SUIDGID = 1 << 11;
    }
}

/// `WRITE` flag: written back from the kernel's page cache, not by a process.
pub(crate) const WRITE_CACHE: u32 = 1;
/// `WRITE` flag: clear the set-id bits.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `SETXATTR` flag: setting the access ACL clears the set-group-id bit.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1;
/// `FSYNC` flag: data only.
pub(crate) const FSYNC_FDATASYNC: u32 = 1;
/// `IOCTL` flag: the arguments are not described by the command number.
pub(crate) const IOCTL_UNRESTRICTED: u32 = 1 << 1;
/// Open reply: keep the cached pages.
pub(crate) const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// Open reply: keep the cached entries of the directory.
pub(crate) const FOPEN_CACHE_DIR: u32 = 1 << 3;
/// Notification: drop an inode's cached attributes, and pages.
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;
/// Notification: drop inodes that are not in use. Since Linux 6.18.
pub(crate) const NOTIFY_PRUNE: i32 = 9;
/// `GETATTR` flag: it carries a handle.
pub(crate) const GETATTR_FH: u32 = 1;

/// Declares wire structures with their sizes.
macro_rules! wire {
    ($($(#[$meta:meta])* $name:ident = $size:literal { $($field:ident: $ty:ty),* $(,)? })*) => { $(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        pub(crate) struct $name { $(pub(crate) $field: $ty),* }
        const _: () = assert!(size_of::<$name>() == $size);
    )* };
}

wire! {
    /// Before every request.
    InHeader = 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    /// Before every reply.
    OutHeader = 16 { len: u32, error: i32, unique: u64 }
    /// `INIT`, as far as it goes back to 7.31.
    InitIn = 16 { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    /// Reply to `INIT`.
    InitOut = 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16,
        map_alignment: u16, flags2: u32, max_stack_depth: u32, request_timeout: u16,
        unused: [u16; 11],
    }
    /// Attributes.
    AttrWire = 88 {
        ino: u64, size: u64, blocks: u64, atime: i64, mtime: i64, ctime: i64, atimensec: u32,
        mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32,
        blksize: u32, flags: u32,
    }
    /// Reply that names a node.
    EntryOut = 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: AttrWire,
    }
    /// Reply with attributes.
    AttrOut = 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: AttrWire }
    /// Reply to `OPEN`, and the second part of the one to `CREATE`.
    OpenOut = 16 { fh: u64, open_flags: u32, backing_id: u32 }
    ForgetIn = 8 { nlookup: u64 }
    ForgetOne = 16 { nodeid: u64, nlookup: u64 }
    BatchForgetIn = 8 { count: u32, dummy: u32 }
    MknodIn = 16 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn = 8 { mode: u32, umask: u32 }
    RenameIn = 8 { newdir: u64 }
    Rename2In = 16 { newdir: u64, flags: u32, padding: u32 }
    LinkIn = 8 { oldnodeid: u64 }
    SetattrIn = 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: i64, mtime: i64,
        ctime: i64, atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32,
        uid: u32, gid: u32, unused5: u32,
    }
    AccessIn = 8 { mask: u32, padding: u32 }
    GetattrIn = 16 { getattr_flags: u32, dummy: u32, fh: u64 }
    ReleaseIn = 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    OpenIn = 8 { flags: u32, open_flags: u32 }
    CreateIn = 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    ReadIn = 40 {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteIn = 40 {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteOut = 8 { size: u32, padding: u32 }
    StatfsOut = 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32, padding: u32, spare: [u32; 6],
    }
    FsyncIn = 16 { fh: u64, fsync_flags: u32, padding: u32 }
    /// `SETXATTR` without `SETXATTR_EXT`.
    SetxattrShortIn = 8 { size: u32, flags: u32 }
    SetxattrIn = 16 { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    GetxattrIn = 8 { size: u32, padding: u32 }
    GetxattrOut = 8 { size: u32, padding: u32 }
    IoctlIn = 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    IoctlOut = 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    FallocateIn = 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    CopyFileRangeIn = 56 {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    InterruptIn = 8 { unique: u64 }
    LseekIn = 24 { fh: u64, offset: u64, whence: u32, padding: u32 }
    LseekOut = 8 { offset: u64 }
    /// Before the name of a directory entry.
    DirentHead = 24 { ino: u64, off: u64, namelen: u32, kind: u32 }
    StatxIn = 24 { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    StatxTime = 16 { secs: i64, nanos: u32, reserved: i32 }
    StatxOut = 288 {
        attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2],
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16,
        spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: StatxTime,
        btime: StatxTime, ctime: StatxTime, mtime: StatxTime, rdev_major: u32, rdev_minor: u32,
        dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    /// In a ring's entry, behind the headers: how much payload the kernel put there, and what it
    /// takes back.
    RingInOut = 32 { flags: u64, commit_id: u64, payload_len: u32, padding: u32, reserved: u64 }
    /// A command to a queue, in the submission ring.
    RingCommand = 24 { flags: u64, commit_id: u64, queue: u16, padding: [u8; 6] }
    /// Before the node numbers.
    PruneOut = 16 { count: u32, padding: u32, spare: u64 }
    InvalInodeOut = 24 { nodeid: u64, offset: i64, len: i64 }
}

/// `IORING_OP_URING_CMD` of `/dev/fuse`: makes an entry known, and waits for a request.
pub(crate) const RING_REGISTER: u32 = 1;
/// The same: answers a request, and waits for the next.
pub(crate) const RING_COMMIT_AND_FETCH: u32 = 2;
/// Bytes for a request's or a reply's header in a ring's entry, and for the fixed part of the
/// request behind it.
pub(crate) const RING_HEADER: usize = 128;

/// Bytes of request buffer that the kernel insists on besides the data of a `WRITE`.
pub(crate) const REQUEST_OVERHEAD: usize = 4096;
/// Bytes of a reply's header.
pub(crate) const OUT_HEADER: usize = size_of::<OutHeader>();
