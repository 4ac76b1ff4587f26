//! Retries after "no space".
//!
//! A request that finds no space is repeated here, or by a caller that asks its [`Retries`] before
//! each further attempt. Before that, what is free and cannot be handed out comes back: windows, a
//! run that is being trimmed, blocks that wait for a commit. An operation that holds no lock
//! between its attempts is repeated as a whole: before that, files that wait for eviction give up
//! theirs.
//!
//! Other threads take blocks as well, so no number of attempts is sure to be enough; the constants
//! here are the only limits. Reserved blocks have the higher one: without them accepted data is
//! lost.
//!
//! # Locks
//! The caller has no handle, as a commit may be waited for.

use std::sync::Arc;
use std::time::Duration;

use crate::state::alloc::space_counts::is_refused;
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// Retries of one request so far. One that has come further begins anew.
#[derive(Default)]
pub(crate) struct Retries(u32);

/// Retries of a request that claims its blocks.
const RETRIES: u32 = 4;
/// Retries of an allocation of reserved blocks. They are free: commits bring them back, but other
/// threads free and take blocks meanwhile.
const RESERVED_RETRIES: u32 = 100;
/// Of these, how many pause where no commit can help.
const PAUSES: u32 = 25;
const PAUSE: Duration = Duration::from_millis(1);
/// How long an operation waits before each further attempt while files wait for eviction.
const WAITS: [Duration; RETRIES as usize] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(20),
];

/// Runs `operation`, which takes its locks itself. Runs it again while it finds no space, or quotas
/// refuse it, and some may come back: unlinked files that wait for eviction hold some. Eviction
/// needs that the caller holds no lock, and waits for a flusher that writes the file.
///
/// # Errors
/// Those of the last attempt.
pub(crate) fn retry_unlocked<R>(fs: &Arc<Fs>, operation: impl FnMut() -> Result<R>) -> Result<R> {
    retry_unlocked_while(fs, operation, |result| {
        result.as_ref().is_err_and(Error::is_lack_of_room)
    })
}

/// As [`retry_unlocked`], where `lacks_space` says whether a result lacks space.
///
/// # Errors
/// Those of the last attempt.
pub(crate) fn retry_unlocked_while<R>(
    fs: &Arc<Fs>,
    mut operation: impl FnMut() -> Result<R>,
    lacks_space: impl Fn(&Result<R>) -> bool,
) -> Result<R> {
    let mut result = operation();
    let mut retries = Retries::default();
    for wait in WAITS {
        if !lacks_space(&result) {
            break;
        }
        let more_may_come = fs.inodes.has_unlinked();
        if more_may_come {
            extant_sync::thread::sleep(wait);
        }
        fs.reap_all();
        if matches!(result, Err(Error::OverQuota)) {
            // No commit makes more of a quota.
            return if more_may_come { operation() } else { result };
        }
        let frees = retries.should_retry_alloc(fs, &Error::NoSpace);
        // The evictions just done may be enough without a commit: one more attempt in any case.
        result = operation();
        if !more_may_come && !frees {
            break;
        }
    }
    result
}

/// Runs `find`, which starts its handle itself, and runs it again while it finds no space and
/// [`Retries::should_retry_alloc`].
///
/// # Errors
/// Those of the last attempt.
pub(crate) fn retry<R>(fs: &Fs, find: impl FnMut() -> Result<R>) -> Result<R> {
    repeat(find, |retries, error| retries.should_retry_alloc(fs, error))
}

/// As [`retry`], for blocks that were reserved.
///
/// # Errors
/// Those of the last attempt.
pub(crate) fn retry_reserved<R>(fs: &Fs, find: impl FnMut() -> Result<R>) -> Result<R> {
    repeat(find, |retries, error| {
        retries.should_retry_reserved(fs, error)
    })
}

fn repeat<R>(
    mut find: impl FnMut() -> Result<R>,
    makes_room: impl Fn(&mut Retries, &Error) -> bool,
) -> Result<R> {
    let mut retries = Retries::default();
    loop {
        match find() {
            Err(error) if makes_room(&mut retries, &error) => {}
            other => return other,
        }
    }
}

impl Retries {
    /// After `error`, without a handle: returns whether to retry, which counts as a retry (compare
    /// `ext4_should_retry_alloc`). Only after [`Error::NoSpace`], and up to [`RETRIES`]. Commits if
    /// that returns freed blocks; otherwise looks whether there is space now. No commit helps a
    /// claim that was refused for the sake of what is dirty above: blocks that wait for one count
    /// as free.
    pub(crate) fn should_retry_alloc(&mut self, fs: &Fs, error: &Error) -> bool {
        let freed = || (!is_refused()).then(|| free_by_commit(fs)).flatten();
        matches!(error, Error::NoSpace)
            && self.next() < RETRIES
            && freed().unwrap_or_else(|| fs.alloc.counts.has_room())
    }

    /// As [`Retries::should_retry_alloc`], for blocks that were reserved. They exist, and what a
    /// window, a trim or a commit has of them is back before the next attempt. That one may still
    /// miss them where other threads move blocks meanwhile, so this gives up only after many.
    pub(crate) fn should_retry_reserved(&mut self, fs: &Fs, error: &Error) -> bool {
        if !matches!(error, Error::NoSpace) {
            return false;
        }
        let before = self.next();
        before < RESERVED_RETRIES
            && free_by_commit(fs).unwrap_or_else(|| {
                if before > RETRIES {
                    extant_sync::thread::sleep(PAUSE);
                }
                before < PAUSES
            })
    }

    /// Counts a retry; returns the number of those before it.
    fn next(&mut self) -> u32 {
        let before = self.0;
        self.0 += 1;
        before
    }
}

/// Gives up all windows, also those that other threads have checked out, waits for a run that is
/// being trimmed, and commits if freed blocks wait for that. Returns whether there is room now;
/// `None` if no commit was needed.
fn free_by_commit(fs: &Fs) -> Option<bool> {
    fs.journal.assert_no_handle();
    let core = &fs.alloc.core;
    core.drain_windows();
    let trimmed = core.trimming.wait();
    if core.pending.is_empty() {
        return trimmed.then_some(true);
    }
    fs.stats.space_commits.bump();
    Some(fs.journal.force_commit().is_ok())
}

#[cfg(test)]
mod tests {
    use extant_testkit::Image;

    use super::*;
    use crate::test_support::test_mount::TestFs;

    #[test]
    fn an_operation_is_repeated_while_that_may_find_space() {
        let image = Image::of_mib(8).make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let tries = |error: fn() -> Error| {
            let mut tries = 0;
            let ended = retry_unlocked::<()>(&fs, || {
                tries += 1;
                Err(error())
            });
            assert_eq!(ended.unwrap_err().errno(), error().errno());
            tries
        };
        // There is space, which other threads may have taken meanwhile: to the limit.
        assert_eq!(tries(|| Error::NoSpace), 1 + WAITS.len());
        // There is none: once more, as evictions may have brought some.
        let all = fs.alloc.counts.available_to_users();
        let mut all = crate::alloc::reserve(&fs, &fs.root(), all, false).unwrap();
        let without_space = tries(|| Error::NoSpace);
        all.give_back(all.blocks());
        assert_eq!(without_space, 2);
        assert_eq!(tries(|| Error::Exists), 1);
        let mut refused = 3;
        let done = retry_unlocked(&fs, || {
            refused -= 1;
            (refused == 0).then_some(7).ok_or(Error::NoSpace)
        });
        assert_eq!((done.unwrap(), refused), (7, 0));
    }
}
