//! Mount and unmount: from a device to a file system and back.
//!
//! # Responsibility
//! Mount:
//! 1. Reads and checks the superblock, gates its features, and fills open options with its defaults
//!    (`read_superblock.rs`). Takes a volume with multiple mount protection (`mmp.rs`).
//! 2. Finds and replays the journal (`find_journal.rs`), for a read-only mount too, as Linux does.
//!    Reads the superblock again. Fast commits behind the transactions are replayed too
//!    (`fast_commit/`).
//! 3. Reads and checks the group descriptors, sums up the totals, builds the system zones.
//! 4. Opens the journal. Marks the volume as in use, durably and before the first transaction.
//! 5. Finishes orphans, for a read-only mount too (`read_only.rs`), and starts the threads.
//!
//! Unmount writes the data, evicts unlinked inodes, commits, writes everything home, and last the
//! superblock: clean, with its counts. If metadata could not be written, or a flush of the device
//! has ever failed, the superblock keeps saying that the volume needs a replay.
//!
//! # Concurrency
//! Mount runs alone. Unmount runs once, by its first caller; later callers wait for its end and get
//! its result. Callers have ended their operations; an operation that has not ends with an error,
//! or its change may be lost.

mod build_fs;
mod external_journal;
mod fast_commit;
mod fast_commit_source;
mod feature_gate;
mod find_journal;
mod finish_orphans;
mod mount_volume;
mod read_only;
mod read_superblock;
mod replay_log;
#[cfg(test)]
mod tests;
mod unmount;
mod volume_marks;

#[cfg(test)]
pub(crate) use self::build_fs::UPCALLS;
pub(crate) use self::mount_volume::mount;
pub(crate) use self::read_only::{has_orphans, look, needs_writing, put_in_order};
pub(crate) use self::replay_log::replay_fast_commits;
pub(crate) use self::unmount::{ShutdownMode, is_unmounted, shutdown, unmount};
