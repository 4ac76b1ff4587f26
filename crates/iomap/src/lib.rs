//! Buffered file I/O over range mappings.
//!
//! A file system describes ranges of a file by [`Iomap`]s, as long as it can make them, through
//! [`IomapOps`]; this crate moves bytes between callers, the page cache and the device on that basis. It knows no on-disk
//! format and no journal.
//!
//! # The contract
//! [`IomapOps::begin`] answers with one mapping that covers at least the first byte asked for. No lock or
//! handle of the file system outlives the call. The work is done; [`IomapOps::end`] always follows, with the bytes really processed.
//! A mapping can grow stale between the two: writes therefore lock the folio *first* and then ask
//! [`IomapOps::is_valid`], and map the rest again if it is not.
//!
//! # Locks
//! Callers hold what protects the file's size and content order (a file lock, later a range lock) around writes,
//! and nothing around reads. Reads take the invalidate lock shared when they fill the cache, and before it a [`FillGuard`] of what they read
//! if the file is written past the cache. Writeback takes folio
//! locks only, in ascending order, with one pass per mapping at a time; the file system may start handles inside of
//! [`WritebackOps`] and [`IomapOps`] calls. No handle may be open when this crate is called.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod fill;
mod hold;
mod ioend;
mod iter;
mod map;
mod ops;
mod read;
mod seek;
mod stats;
mod vectored;
mod view;
mod write;
mod writeback;
mod zero;

pub(crate) use extant_units::index;

pub use hold::{FillGuard, Keeper};
pub use ioend::{Ioend, IoendKind};
pub use iter::{Step, Stopped, apply};
pub use map::{Iomap, IomapFlags, IomapKind};
pub use ops::{DeviceFault, IomapOp, IomapOps, Outcome, WritebackOps};
pub use read::{Miss, Target, read};
pub use seek::{Whence, seek};
pub use stats::{IomapCounters, IomapStats};
pub use vectored::{Payload, Scatter};
pub use view::{MAX_VIEW, ReadView, edit, view};
pub use write::{Source, extend, overwrite, usable_after_short_copy, write};
pub use writeback::{WritebackControl, write_back};
pub use zero::{truncate_page, zero_range};
