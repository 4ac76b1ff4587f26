//! Functions that the page cache and the journal call to have a file's data written.
//!
//! The page cache and the journal hold a `CachedFile`. It has weak references, so they do not keep
//! the file and the file system in memory.

use std::any::Any;
use std::sync::{Arc, Weak};

use extant_iomap::WritebackControl;
use extant_jbd2::OrderedData;
use extant_pagecache::{Writeback, WritebackReason};
use extant_units::{Pos, Tid};

use crate::file::error_reporting::latch_if_corrupt;
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::mapping::ordered_data;
use crate::file::writeback::joint_writeback;
use crate::file::writeback::writeback_range;
use crate::state::file::FileCallbacks;
use crate::state::inode::Inode;
use crate::volume::Fs;

/// A file of a file system, as long as both are there.
struct CachedFile {
    fs: Weak<Fs>,
    inode: Weak<Inode>,
}

/// The callbacks of `inode`, a regular file.
pub(crate) fn callbacks(fs: &Fs, inode: &Arc<Inode>) -> FileCallbacks {
    let file = Arc::new(CachedFile {
        fs: fs.this.clone(),
        inode: Arc::downgrade(inode),
    });
    FileCallbacks {
        writeback: Arc::clone(&file) as Arc<dyn Writeback>,
        ordered: file,
    }
}

impl CachedFile {
    fn upgrade(&self) -> Option<(Arc<Fs>, Arc<Inode>)> {
        Some((self.fs.upgrade()?, self.inode.upgrade()?))
    }
}

impl Writeback for CachedFile {
    fn write_back(self: Arc<Self>, reason: WritebackReason, max_bytes: u64) {
        let Some((fs, inode)) = self.upgrade() else {
            return;
        };
        // Otherwise the eviction of the inode has begun, which drops dirty data.
        if let Some(inode) = fs.inodes.grab(&inode) {
            write_one(&fs, &inode, reason, max_bytes);
        }
    }

    fn write_back_all(&self, files: &[Arc<dyn Writeback>], reason: WritebackReason) {
        let Some(fs) = self.fs.upgrade() else {
            return;
        };
        let inode_of = |file: &Arc<dyn Writeback>| {
            let file: &dyn Any = &**file;
            file.downcast_ref::<CachedFile>()?.inode.upgrade()
        };
        let inodes = files.iter().filter_map(inode_of).collect();
        for inode in joint_writeback::write(&fs, inodes) {
            if let Some(inode) = fs.inodes.grab(&inode) {
                write_one(&fs, &inode, reason, u64::MAX);
            }
        }
    }
}

/// Writes about `max_bytes` of what is dirty of `inode`.
fn write_one(fs: &Fs, inode: &Arc<Inode>, reason: WritebackReason, max_bytes: u64) {
    let control = match reason {
        WritebackReason::Sync => WritebackControl::integrity(Pos::ZERO, Pos::MAX),
        WritebackReason::Background | WritebackReason::Expired => {
            WritebackControl::background(max_bytes)
        }
    };
    if let Err(error) = writeback_range(fs, inode, control) {
        tracing::warn!(ino = inode.ino.get(), %error, "writeback failed");
        latch_if_corrupt(fs, &error);
    }
}

impl OrderedData for CachedFile {
    fn write_and_wait(&self, tid: Tid) {
        if let Some((fs, inode)) = self.upgrade() {
            // Counted: it stays in memory while its data is on its way, so that no second inode
            // reads the device before. `None`: its eviction has begun.
            let _counted = fs.inodes.grab(&inode);
            ordered_data::submit_and_wait_ordered(&FileContext::new(&fs, &inode), tid);
        }
    }
}
