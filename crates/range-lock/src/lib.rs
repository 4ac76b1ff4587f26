//! Locks on parts of a file: who may change which bytes, in three forms that exclude each other.
//!
//! A [`RangeLock`] belongs to one file. An operation that changes bytes of the file locks them in
//! one of three forms. All three stand below the file's own lock (an inode's), which the caller
//! holds shared or hands over to be looked at ([`FileLock`]).
//!
//! | form | word that publishes it | range | on a conflict | for |
//! |---|---|---|---|---|
//! | record | the I/O tree's count of locked records | any | waits, or refuses | writes, truncation, direct I/O, fills of the cache |
//! | lock slot | one of 1024 words, found by position | within 16 KiB | withdraws | one request of a direct queue |
//! | EOF lock | one word | a byte to infinity | withdraws | an append |
//! | (the file's lock) | its state | everything | waits ([`RangeLock::drain`]) | moving ranges, attributes |
//!
//! A record of a [fill](RangeLock::lock_fill) excludes fills, slots and direct I/O only; every other
//! record and each slot excludes changes too.
//!
//! # Invariants
//! * Two holders of locks on a common byte that exclude each other never overlap in time.
//! * A thread that waits holds its own word, so the words it waits for only become fewer.
//! * A holder of a slot or of the EOF word never waits for a lock of the same file's parts.
//!
//! # Concurrency
//! All forms follow one protocol. [`RangeLock`] has it once: `meets` is steps 2, 3 and 5.
//!
//! 1. **Publish.** The thread writes its own word: it locks a record under the tree's mutex, which
//!    stores the count before it lets go; it exchanges a free slot or the free EOF word by
//!    compare-and-swap; it takes the file's lock.
//! 2. **Fence.** `fence(SeqCst)`. All fences of all threads have one order.
//! 3. **Look.** It reads the words of the other forms that reach into its range:
//!
//!    | holder of | reads records | slots | EOF word | file's lock |
//!    |---|---|---|---|---|
//!    | a record | (met in the tree) | yes | yes, but not for a fill | no: held shared |
//!    | a slot | yes | the others of its line | yes | yes |
//!    | the EOF word | yes | yes | (one word) | yes, unless held shared |
//!    | the file's lock | yes | yes | yes | (one holder) |
//!
//! 4. **Decide.** A holder of a slot or of the EOF word that meets a conflict withdraws its word and
//!    takes another way. A holder of a record or of the file's lock keeps its word and waits until
//!    the words it met are gone, or withdraws if it only tries.
//! 5. **Acquire.** A word that is gone was withdrawn by a release, and is read by an acquire (for the
//!    file's lock: a plain load before `fence(Acquire)`). So what earlier holders did to the range is
//!    visible: bytes, sizes, and the sequence of the map.
//! 6. **Release.** The holder withdraws its word and then reads the count of sleepers; a waiter
//!    counts itself, fences and then reads the word. One of them sees the other ([`sleepers`]).
//!
//! **Why two holders cannot overlap.** Let A and B hold conflicting locks, and let A's fence come first
//! in the order of fences. A wrote its word before its fence, and B reads it after its own, so B sees
//! A's word unless A has withdrawn it. If B sees it, B waits or withdraws; if it was withdrawn, step 5
//! makes all of A's work visible. The interleaving that this excludes is: A publishes, B publishes, A
//! reads B's old word, B reads A's old word, both go on. Without the fences a processor may
//! do just that, as a store may become visible after a later load. The slot table itself comes
//! into being under the same rule: a thread that does not find it fenced before its maker did, so the
//! maker reads that thread's word.
//!
//! **Why no two wait for each other.** A record waits for other records while it holds nothing (the tree
//! grants a range as a whole), and for slots and the EOF word with its record held; a drain waits
//! for all three. Holders of slots and of the EOF word wait for none of them (third invariant).
//!
//! **Why a wait ends.** A slot or EOF word that is published after the waiter's word meets it in
//! step 3 and is withdrawn. It may be seen for a moment, never kept.
//!
//! **Without a lock.** A write that changes cached bytes of a few folios in one step, with all their
//! folio locks held, publishes nothing. It [asks](RangeLock::is_locked) with the folios locked. A
//! holder of a conflicting lock published it before it first locked one of these folios. If it has
//! released a folio that the writer then locked, the folio lock orders its word before the question, and
//! the writer takes another way; if it has touched none yet, the write comes before its operation. Direct
//! requests touch no folio: their holder looks for cached folios after step 3, and a fill of
//! the cache locks a record first.
//!
//! **What tries it.** `tests/interleavings` runs each pair of users under a model checker, together
//! with truncation's sequence, and each again with one step of the table left out ([`Step`]): the
//! checker finds every one of these. It knows one order of memory, so it tries the order of steps
//! and not the fences; those rest on the argument above.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod eof;
mod failpoint;
mod file_lock;
mod guard;
mod range_lock;
mod sleepers;
mod slot_table;
mod sync;

pub use extant_extent_io_tree::{
    ByteRange, ClearProbe, OwnedRangeGuard, RangeGuard, Totals, TreeStats, TreeTuning,
};

#[cfg(extant_shuttle)]
pub use failpoint::Step;
pub use file_lock::{FileLock, HeldExclusively, HeldShared};
pub use guard::{EofGuard, HasRangeLock, SlotGuard};
pub use range_lock::RangeLock;
