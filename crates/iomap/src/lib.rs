//! Buffered file I/O over mappings of byte ranges: Linux's iomap.
//!
//! A file system describes ranges of a file by [`Iomap`]s, as long as it can make them, through
//! [`IomapOps`]. On that basis this crate moves bytes between callers, the page cache and the
//! device. It knows no on-disk format and no journal. `docs/IOMAP.md` is the guide to an
//! implementation; the example `preallocated` is a small one.
//!
//! # Invariants
//! * [`IomapOps::begin`] answers with one mapping that covers at least the first byte asked for. No
//!   lock or handle of the file system outlives the call. [`IomapOps::end`] follows every `begin`,
//!   with the bytes that were processed.
//! * A mapping can grow stale between the two. A write therefore locks the folio *first*, then asks
//!   [`IomapOps::is_valid`], and maps the rest again if the mapping is stale (J17).
//! * A failed write to the device converts nothing and moves no size (J19).
//!
//! # Locks
//! Writers of a file are excluded from each other by the caller, which locks the byte range that a
//! write changes, up to infinity if the size changes. [`try_overwrite`] alone needs no such lock.
//! Readers take none. A fill takes the invalidate lock shared, and before it a [`FillGuard`] of its
//! range if the file is written directly. Writeback takes folio locks only, in ascending order,
//! with one pass per file at a time; a [`JointWrite`] only tries them. The file system may start
//! handles inside of [`WritebackOps`] and [`IomapOps`] calls. The caller has no handle open when it
//! calls this crate.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod buffers;
mod counters;
mod fill;
mod fill_guard;
mod fill_lock;
mod ioend;
mod iter;
mod joint;
mod map;
mod ops;
mod read;
mod seek;
mod view;
mod write;
mod writeback;
mod zero;

pub use buffers::{Payload, Scatter, Source, SourceTail, Target};
pub use counters::{IomapCounters, IomapStats};
pub use fill_guard::FillGuard;
pub use ioend::{Ioend, IoendKind};
pub use iter::{Stopped, apply};
pub use joint::JointWrite;
pub use map::{Iomap, IomapKind};
pub use ops::{DeviceFault, DeviceRequest, IomapOp, IomapOps, Outcome, WritebackOps};
pub use read::{Miss, hole_at, read};
pub use seek::{Whence, seek};
pub use view::{MAX_VIEW, ReadView, edit, view};
pub use write::{try_extend, try_overwrite, usable_after_short_copy, write};
pub use writeback::{WritebackControl, write_back, write_ioend};
pub use zero::zero_range;
