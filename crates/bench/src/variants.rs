//! All variants. A further variant of the library is a line here.

use extant::BufferedPath;
use extant_blockdev::FileQueues;

use crate::variant::{Kind, OVER_RINGS, Variant, io};

pub(crate) const ALL: &[Variant] = &[
    Variant {
        name: "memcpy",
        kind: Kind::Memcpy,
        about: "copies between two buffers: the limit",
    },
    Variant {
        name: "memset",
        kind: Kind::Memset,
        about: "zeroing a buffer: the limit for holes",
    },
    Variant {
        name: "cipher",
        kind: Kind::Cipher,
        about: "copies in memory and AES-256-XTS of 4 KiB each: the limit of encrypted data",
    },
    Variant {
        name: "iomap",
        kind: Kind::Library(|_| {}),
        about: "the library over a device in memory, as it comes",
    },
    Variant {
        name: "notrim",
        kind: Kind::Library(|tuning| tuning.trim_on_clear = false),
        about: "the same with I/O trees that split and insert where a record could be trimmed",
    },
    Variant {
        name: "noslots",
        kind: Kind::Library(|tuning| tuning.lock_slots = false),
        about: "the same with a record in the I/O tree for every direct request",
    },
    Variant {
        name: "noslots-notrim",
        kind: Kind::Library(|tuning| {
            tuning.lock_slots = false;
            tuning.trim_on_clear = false;
        }),
        about: "the same without trims",
    },
    Variant {
        name: "nofronts",
        kind: Kind::Library(|tuning| tuning.release_fronts = false),
        about: "iomap with long writes that unlock their range at its end, as a whole",
    },
    Variant {
        name: "nojoint",
        kind: Kind::Library(|tuning| tuning.joint_writeback = false),
        about: "iomap with new small files that are written back one by one",
    },
    Variant {
        name: "iomap-order0",
        kind: Kind::Library(|tuning| tuning.max_folio_order = 0),
        about: "iomap with folios of 4 KiB",
    },
    Variant {
        name: "bufferhead",
        kind: Kind::Library(|tuning| tuning.buffered_path = BufferedPath::BufferHead),
        about: "the library on its buffer-head path, large folios, walks that stop",
    },
    Variant {
        name: "bufferhead-fullwalk",
        kind: Kind::Library(|tuning| {
            tuning.buffered_path = BufferedPath::BufferHead;
            tuning.stop_at_range_end = false;
        }),
        about: "the same with walks over the whole folio",
    },
    Variant {
        name: "base",
        kind: Kind::Library(|tuning| {
            tuning.buffered_path = BufferedPath::BufferHead;
            tuning.max_folio_order = 0;
        }),
        about: "the buffer-head path with folios of 4 KiB",
    },
    Variant {
        name: "base-dirty-inode",
        kind: Kind::Library(|tuning| {
            tuning.buffered_path = BufferedPath::BufferHead;
            tuning.max_folio_order = 0;
            tuning.dirty_inode_on_append = true;
        }),
        about: "the same, and every write that makes a file longer stores its inode",
    },
    Variant {
        name: "mount",
        kind: Kind::Mount("transport=dev"),
        about: "extant mount by /dev/fuse, image in RAM",
    },
    Variant {
        name: "mount-uring",
        kind: Kind::Mount(OVER_RINGS),
        about: "extant mount over io_uring, image in RAM",
    },
    Variant {
        name: "kernel-ext4",
        kind: Kind::Linux("ext4"),
        about: "Linux's ext4 on a loop device, no options, image in RAM",
    },
    Variant {
        name: "kernel-xfs",
        kind: Kind::Linux("xfs"),
        about: "Linux's xfs on a loop device, no options, image in RAM",
    },
    Variant {
        name: "fuse2fs",
        kind: Kind::Fuse2fs,
        about: "fuse2fs, no options, image in RAM",
    },
    Variant {
        name: "passthrough",
        kind: Kind::Passthrough,
        about: "libfuse's passthrough_ll over tmpfs, with its strongest caching",
    },
    Variant {
        name: "threads",
        kind: Kind::Device(io(true, FileQueues::Threads)),
        about: "a file past the host's cache, queues of threads that make system calls",
    },
    Variant {
        name: "io_uring",
        kind: Kind::Device(io(true, FileQueues::IoUring)),
        about: "the same, queues of io_uring",
    },
    Variant {
        name: "threads-cached",
        kind: Kind::Device(io(false, FileQueues::Threads)),
        about: "a file through the host's cache, queues of threads that make system calls",
    },
    Variant {
        name: "io_uring-cached",
        kind: Kind::Device(io(false, FileQueues::IoUring)),
        about: "the same, queues of io_uring",
    },
];

/// The names of all variants.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|v| v.name)
}
