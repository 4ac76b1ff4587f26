//! Locks on parts of a file, in three forms that exclude each other.
//!
//! A [`RangeLock`] belongs to one file. An operation that changes bytes of the file locks them in
//! one of three forms. All three stand below the file's own lock (an inode's), which the caller
//! holds shared or hands over to be looked at ([`FileLock`]).
//!
//! | form | word that publishes it | range | on a conflict | for |
//! |---|---|---|---|---|
//! | record | the I/O tree's count of locks | any | waits, or refuses | writes, truncation, fills |
//! | lock slot | one of 1024 words | up to 16 KiB | withdraws | a request of a direct queue |
//! | EOF lock | one word | a byte to infinity | withdraws | an append, a truncation |
//! | (the file's lock) | its state | all | waits ([`drain`](RangeLock::drain)) | moving ranges |
//!
//! A record of a [fill](RangeLock::lock_fill) excludes fills, slots and direct I/O only. Every
//! other record and the EOF lock exclude changes; a slot and a record for direct I/O exclude both.
//!
//! # Invariants
//! * Two holders of locks that exclude each other on a common byte never overlap in time.
//! * A thread that waits keeps its own word published, so the words it waits for only become
//!   fewer.
//! * A holder of a slot or of the EOF word never waits for a lock on a part of the same file, but
//!   for a fill within its range.
//!
//! # Concurrency
//! All forms follow one protocol. `RangeLock::meets` has steps 2, 3 and 5 of it; which form
//! reads which word is `RangeLock::reads`.
//!
//! 1. **Publish.** The thread writes its own word. It locks a record under the tree's mutex, which
//!    stores the count before it is released; it exchanges a free slot or the free EOF word by
//!    compare-and-swap; or it takes the file's lock.
//! 2. **Fence.** `fence(SeqCst)`. All these fences of all threads have one order. (After an
//!    exchange on x86-64 the exchange itself is the fence:
//!    `extant_sync::atomic::fence_after_exchange`.)
//! 3. **Look.** The thread reads the words of the other forms that reach into its range:
//!
//!    | holder of | records | slots | EOF word | file's lock |
//!    |---|---|---|---|---|
//!    | a record | (met in the tree) | yes | yes, unless a fill | no: held shared |
//!    | a slot | yes | the others of its line | yes | yes |
//!    | the EOF word | yes | yes | (one word) | yes, unless held shared |
//!    | the file's lock | yes | yes | yes | (one holder) |
//!
//! 4. **Decide.** The holder of a slot or of the EOF word that meets a conflict withdraws its word
//!    and takes another path. The holder of a record or of the file's lock keeps its word and
//!    waits until the words it met are gone; if it only tries, it withdraws as well.
//! 5. **Acquire.** A word that is gone was withdrawn by a release and is read by an acquire (the
//!    file's lock: by a load before `fence(Acquire)`). So all that earlier holders did to the range
//!    is visible: bytes, sizes, the sequence of the map. The caller reads these after this step.
//! 6. **Release.** The holder withdraws its word and then reads the count of sleepers. A waiter
//!    counts itself, fences and then reads the word. One of them sees the other (`sleepers`).
//!
//! **Why two holders cannot overlap.** Let A and B hold conflicting locks, and let A's fence come
//! first in the order of fences. A wrote its word before its fence, and B reads it after B's own.
//! So B sees A's word unless A has withdrawn it. If B sees it, B waits or withdraws. If A has
//! withdrawn it, step 5 makes all of A's work visible. This excludes the interleaving "A publishes,
//! B publishes, A reads B's old word, B reads A's old word, both go on", which a processor without
//! the fences may show, as a store may become visible after a later load.
//!
//! The slot table comes into being under the same rule: if a thread does not find the table, its
//! fence came before that of the table's maker, so the maker reads that thread's word.
//!
//! **Why no two threads wait for each other.** A record waits for other records while it holds
//! nothing, as the tree grants a range as a whole. It waits for slots and the EOF word with its
//! record held, and a drain waits for all three with the file's lock held. Holders of slots and of
//! the EOF word wait for none of them (third invariant).
//!
//! **Why a wait ends.** A slot or an EOF word that is published after the waiter's word meets that
//! word in step 3 and is withdrawn. The waiter may see it for a moment, and it is never kept.
//!
//! **Without a lock.** A write that changes cached bytes of a few folios in one step, with all
//! their folio locks held, publishes nothing. It [asks](RangeLock::is_locked) once the folios are
//! locked. A holder of a conflicting lock published its word before it locked any of them.
//! If it has released one that the writer locked later, that folio's lock orders the word before
//! the question, and the writer takes another path. If it has locked none of them yet, the
//! write comes before its operation. Direct requests lock no folio: their holder looks for cached
//! folios after step 3, and a fill of the cache locks a record first.
//!
//! **Models.** `tests/interleavings` runs each pair of users under a model checker (`pairs`), the
//! file's lock against each and all (`drain`), and truncation's sequence (`truncation`); and each
//! of them again with one step left out, which the checker has to find. The checker knows one
//! order of memory only. It tries the order of the steps; the fences rest on the argument above.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod eof;
mod eof_guard;
mod file_lock;
mod range_lock;
mod sleepers;
mod slot_table;
mod step;

pub use extant_extent_io_tree::{
    ByteRange, ClearProbe, OwnedRangeGuard, RangeGuard, Totals, TreeStats, TreeTuning,
};

pub use eof_guard::EofGuard;
pub use file_lock::{FileLock, HeldExclusively, HeldShared};
pub use range_lock::{HasRangeLock, RangeLock, SlotGuard};
#[cfg(extant_shuttle)]
pub use step::Step;
