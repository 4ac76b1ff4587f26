//! The promise of a full volume: with the kernel's writeback cache, `write(2)` fails in time.
//!
//! # Responsibility
//! The kernel takes writes into its cache without asking for space; a page that finds none when it
//! is written back is lost, and only fsync and close say so. But before a write the kernel asks for
//! a file's attributes, with the handle, if those that it has are out of date, and an error in the
//! answer becomes the error of the write. That GETATTR is the *question* of the write.
//!
//! ```text
//!                    room < bound + margin, or an operation waits for space
//!         Ample  ---------------------------------------------------------->  Short
//!   attributes last:    <------------------------------------------------   attributes do not
//!   no write asks           room >= bound + 2 * margin                      last: each write asks
//! ```
//!
//! *bound* is what those pages take in blocks that the kernel holds dirty of this mount at most
//! (`mount/tuning.rs`), *room* what the engine can still give. `admission` decides: one type, whose
//! changes all go through one step.
//! A question passes if what may be dirty, and one write more, fit into the room. Otherwise it is
//! *parked* (`parking`) until the kernel has written everything back (`drainer`), and is decided
//! then. A drain that fails means ENOSPC. An operation that takes space by name leaves what may be
//! dirty free (`DirtyBound`), and is parked alike. The server's `gate` and `takers` connect these
//! with the requests.
//!
//! When space becomes short all open files are *armed*: the kernel is told that it does not know
//! their attributes. What was written unasked by then fits, as it is within the bound.
//!
//! # Concurrency
//! A parked request keeps no worker, so all are free for the WRITEs that a drain waits for. None of
//! these waits for space: so a writer that the kernel holds back at its bound goes on as soon as
//! the storage answers, and may be killed meanwhile. One thread drains and answers; an interrupted
//! request leaves with EINTR at once.

pub(crate) mod admission;
pub(crate) mod drainer;
pub(crate) mod parking;
#[cfg(test)]
mod sequences;
pub(crate) mod shared;
pub(crate) mod shown_blocks;
