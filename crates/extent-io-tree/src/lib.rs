//! Byte ranges of a file with state bits, some of which are locks that can be waited for.
//!
//! An [`IoTree`] belongs to one file. Its records say which bytes are locked, dirty or
//! reserved; a range without a record has no bits. Threads that [lock](IoTree::lock) disjoint
//! ranges run in parallel.
//!
//! Ranges have inclusive ends ([`ByteRange`]), so one may reach to infinity. Records are
//! disjoint, never without bits, and merge with equal neighbours unless locked
//! ([`Bits::LOCKS`]). A record that is cut in two keeps its right part; the left one is new.
//!
//! Each tree has one short lock, inside of which no memory comes from the allocator in the long
//! run: records and waiters are recycled, and room is made before the lock is taken. An empty
//! tree has none. Clearing all bits of a part of a record trims the record in place
//! ([`TreeTuning::trim_on_clear`]).
//!
//! Nothing is known here of files, folios or devices; the owner's accounts belong to its
//! [`Hooks`].
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod bits;
mod changeset;
mod guard;
mod hooks;
mod locking;
mod ops;
mod probe;
mod range;
mod record;
mod records;
mod report;
mod state;
mod stats;
mod step;
mod tree;
mod waiters;

pub use bits::Bits;
pub use changeset::Changeset;
pub use guard::{OwnedRangeGuard, RangeGuard};
pub use hooks::{Hooks, NoHooks};
pub use probe::{ClearProbe, probed};
pub use range::ByteRange;
pub use stats::{Totals, TreeStats};
#[cfg(extant_shuttle)]
pub use step::Step;
pub use tree::{IoTree, TreeTuning};
