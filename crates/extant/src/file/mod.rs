//! Regular files: their data between callers, the page cache and the device.

mod truncate;
mod write;

use std::sync::Arc;

use extant_iomap::Stats as IomapStats;
use extant_pagecache::{Config, ErrorCursor, Mapping, PageCache, Readahead};

use crate::cred::Cred;
use crate::error::Result;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::tuning::Tuning;

pub(crate) use extant_iomap::Whence;

/// What all files of a mount share.
pub(crate) struct Files {
    /// The page cache.
    pub(crate) pages: Arc<PageCache>,
    /// Counters of the buffered path.
    pub(crate) stats: IomapStats,
}

impl Files {
    /// The page cache as `tuning` says, with its flushers running.
    pub(crate) fn new(tuning: &Tuning) -> Self {
        let budget = tuning.page_cache_bytes.unwrap_or(512 << 20);
        Self {
            pages: PageCache::new(Config {
                max_order: u32::from(tuning.max_folio_order),
                ..Config::with_budget(budget)
            }),
            stats: IomapStats::default(),
        }
    }
}

/// What one opener of a file has: make one per open file.
pub(crate) struct OpenState {
    readahead: Readahead,
    errors: ErrorCursor,
}

/// Where a write goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteAt {
    /// To this byte.
    Pos(u64),
    /// To the end of the file, wherever that is when the write's turn comes (`O_APPEND`).
    End,
}

/// The state of a new opener of `inode`, a regular file.
pub(crate) fn open(fs: &Arc<Fs>, inode: &Arc<Inode>) -> OpenState {
    let _ = (fs, inode);
    todo!()
}

/// Reads into `buf` from byte `pos`, up to the end of the file; returns the bytes read.
///
/// # Errors
/// [`crate::Error::Io`] if the device fails before anything was read; damage in the map; a shut down file system.
pub(crate) fn read(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    open: &OpenState,
    pos: u64,
    buf: &mut [u8],
) -> Result<usize> {
    let _ = (fs, inode, open, pos, buf);
    todo!()
}

/// The next data or hole at or after byte `pos`.
///
/// # Errors
/// [`crate::Error::NoSuchAddress`] at or past the end, or if no data follows.
pub(crate) fn seek(fs: &Arc<Fs>, inode: &Arc<Inode>, whence: Whence, pos: u64) -> Result<u64> {
    let _ = (fs, inode, whence, pos);
    todo!()
}

/// Makes a file's data, and what is needed to find it again, durable; without `datasync` its times as well. Inodes of other kinds: their
/// metadata.
///
/// # Errors
/// Whatever kept data of this file from the device since `open` last asked (each opener is told once), or the journal's failure.
pub(crate) fn fsync(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    open: Option<&OpenState>,
    datasync: bool,
) -> Result<()> {
    let _ = (fs, inode, open, datasync);
    todo!()
}

/// Writes all dirty data of all files, and waits for it. Commits nothing.
///
/// # Errors
/// The first failure.
pub(crate) fn flush_all(fs: &Arc<Fs>) -> Result<()> {
    let _ = fs;
    todo!()
}

/// Whether the file has data that is not on the device: its inode must stay in memory.
pub(crate) fn has_dirty(inode: &Inode) -> bool {
    let _ = inode;
    false
}

/// Drops the cached pages and the reservations of a file that is going to be deleted.
pub(crate) fn evict(fs: &Fs, inode: &Inode) {
    let _ = (fs, inode);
}

pub(crate) use truncate::truncate;
pub(crate) use write::write;
