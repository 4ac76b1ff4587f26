//! What an operation that found no space tries before it fails.

use std::sync::Arc;
use std::time::Duration;

use crate::alloc;
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// How long an operation without space waits before each further try while files wait for eviction.
const PAUSES: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(20),
];

/// Runs `operation`, which takes its locks itself. Runs it again while it returns
/// [`Error::NoSpace`] and space may come back: unlinked files that wait for eviction hold some.
/// Eviction needs that the caller holds no lock, and waits for a flusher that writes the file.
///
/// # Errors
/// The operation's.
pub(super) fn retry<R>(fs: &Arc<Fs>, operation: impl FnMut() -> Result<R>) -> Result<R> {
    retry_while(fs, operation, |result| {
        matches!(result, Err(Error::NoSpace))
    })
}

/// As [`retry`], where `lacks_space` says whether a result lacks space.
///
/// # Errors
/// The last attempt's.
pub(super) fn retry_while<R>(
    fs: &Arc<Fs>,
    mut operation: impl FnMut() -> Result<R>,
    lacks_space: impl Fn(&Result<R>) -> bool,
) -> Result<R> {
    let mut result = operation();
    for pause in PAUSES {
        if !lacks_space(&result) {
            break;
        }
        std::thread::sleep(pause);
        let more_may_come = fs.inodes.has_unlinked();
        fs.reap_all();
        alloc::commit_frees_space(fs, 0);
        result = operation();
        if !more_may_come {
            break;
        }
    }
    result
}
