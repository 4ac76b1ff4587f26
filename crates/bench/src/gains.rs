//! What the seeds measured, to stand beside what is measured here.
//!
//! Theirs is Linux on a RAM disk (threads 001 and 003: a server with 400 GB, files of 40 GB), with
//! small folios as the base. Signs and shapes are to be compared, not figures.

/// A case, and the gain over the base in hundredths: of large folios on the buffer-head path, and
/// of the iomap path.
pub(crate) const SEEDS: [(&str, i32, i32); 24] = [
    ("read/hole/4K", 29, 32),
    ("read/hole/64K", 57, 60),
    ("read/hole/1M", 60, 67),
    ("read/ram/4K", 11, 19),
    ("read/ram/64K", 20, 32),
    ("read/ram/1M", 24, 36),
    ("write/cache/new/4K", 2, 5),
    ("write/cache/new/64K", 77, 144),
    ("write/cache/new/1M", 82, 167),
    ("write/cache/overwrite/4K", 1, 5),
    ("write/cache/overwrite/64K", 83, 125),
    ("write/cache/overwrite/1M", 82, 137),
    ("write/ram/new+writeback/4K", 2, -3),
    ("write/ram/new+writeback/64K", 81, 138),
    ("write/ram/new+writeback/1M", 94, 164),
    ("write/ram/new+sync/4K", -1, 29),
    ("write/ram/new+sync/64K", 6, 51),
    ("write/ram/new+sync/1M", 58, 75),
    ("write/ram/overwrite+writeback/4K", 7, 8),
    ("write/ram/overwrite+writeback/64K", 95, 127),
    ("write/ram/overwrite+writeback/1M", 87, 139),
    ("write/ram/overwrite+sync/4K", 0, 3),
    ("write/ram/overwrite+sync/64K", 68, 86),
    ("write/ram/overwrite+sync/1M", 58, 85),
];
