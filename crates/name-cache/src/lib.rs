//! A cache of names: what a directory says of a name, read without a lock.
//!
//! [`NameCache`] maps a directory's inode number and a name to an [`Entry`]: the inode that the
//! name leads to, or that the directory does not have it. It holds as many names as its memory has
//! room for, and forgets others. It knows no directories: its user puts in what a directory says,
//! and keeps the rules below.
//!
//! # Invariants
//! * While no thread holds a directory's lock exclusively, each entry of that directory says what
//!   the directory says.
//! * Memory is fixed when the cache is made. The host backs a part of it when a name first falls
//!   there.
//!
//! # Locks
//! [`NameCache::get`] and [`NameCache::holds`] take none. The others take one of a few short locks
//! that only writers of entries take; they are leaves.
//!
//! # Concurrency
//! The user has a lock for each directory: shared to read its entries, exclusive to change them.
//! The rules:
//!
//! 1. **Fill.** [`NameCache::put`] is called with the directory's lock held, shared or
//!    exclusively, with what the directory says under that lock.
//! 2. **Forget.** A change of a name calls [`NameCache::forget`] under the exclusive lock, before
//!    the directory changes. A change of several names, such as a rename, forgets all of them
//!    before it changes the first.
//! 3. **Validate.** A thread that has found an inode's number without the lock takes a reference to
//!    the inode, if it is in memory, and then asks [`NameCache::holds`]. If the answer is no, it
//!    gives the reference back and looks again under the lock.
//!
//! **Why an entry never outlives its name.** An entry comes from a fill (1). From the fill on, the
//! directory says the same until a change takes the exclusive lock, which excludes fills; that
//! change forgets the entry (2) before it changes the directory. This excludes the interleaving "a
//! lookup reads the directory, an unlink removes the name and forgets it, the lookup puts the old
//! answer".
//!
//! **Why a found inode is the one that the name leads to.** A number may be free, and belong to
//! another file, as soon as its last name is removed.
//!
//! 1. A set of entries has a *sequence*, which grows with each change of the set. A reader notes it
//!    before it reads an entry ([`Ticket`]).
//! 2. The removal of the name moves the sequence (rule 2), then changes the directory, and only
//!    then may the number be freed and given to another inode; each step happens before the next,
//!    also from one thread to another, as they meet in locks.
//! 3. Let a reader get a reference to an inode that was made after the removal. The maker has
//!    entered that inode under a lock that the reader takes for its reference. So the new sequence
//!    is visible to the reader from then on, and [`NameCache::holds`] says no.
//! 4. So if it says yes, the inode is the one from before any removal, and a reference keeps its
//!    number from being freed.
//!
//! **Why a reader sees whole entries.** Writers of a set exclude each other by a lock, and mark the
//! sequence as odd while they write.
//!
//! 1. The writer stores the odd sequence, then `fence(Release)`, then the words of the entry, then
//!    the next even sequence with release.
//! 2. The reader loads the sequence with acquire and gives up if it is odd. It then loads the
//!    words, then `fence(Acquire)`, then the sequence again. It uses the words only if both are the
//!    same.
//! 3. Let the reader see a word of a writer. By the pair of fences its second look sees that
//!    writer's odd sequence or a later one, so it differs from the first unless the first was that
//!    writer's even one. Then acquire and release make all words of that writer visible.
//!
//! **Several entries at once.** A reader of a path notes a ticket for each component and asks for
//! all of them at the end. All entries held from the last one's reading to the first question, so
//! the whole path led to the inode in that moment.
//!
//! `tests/interleavings` tries lookups against creation, removal with reuse of the number, and
//! rename. Each model has twins in which one step is left out and that the model checker fails.
#![forbid(unsafe_code)]

mod key;
mod lines;
mod name_cache;
mod step;
mod table;

pub use name_cache::{NameCache, Ticket};
#[cfg(extant_shuttle)]
pub use step::Step;
pub use table::{Entry, Target};
