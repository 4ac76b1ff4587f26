//! An inode in memory.

use std::sync::Weak;
use std::sync::atomic::{AtomicU32, AtomicU64};

use extant_units::Ino;
use parking_lot::RwLock;

use super::InodeCore;
use crate::api::FileKind;
use crate::fs::Fs;
use crate::map::ExtentStatus;

/// An inode in memory. The fields stand in lock order; see `docs/LOCKING.md`.
pub(crate) struct Inode {
    /// Number.
    pub(crate) ino: Ino,
    /// Generation: with the number it seeds the checksums of everything the inode owns.
    pub(crate) generation: u32,
    /// Type.
    pub(crate) kind: FileKind,
    /// The file system, for work that starts at the inode (writeback, deletion).
    pub(crate) fs: Weak<Fs>,
    /// Directories: entries (read: look up, list; write: change). Files: size changes and truncation.
    pub(crate) lock: RwLock<()>,
    /// Cached pages against the block map: shared to fill the cache, exclusive to cut the file.
    pub(crate) invalidate: RwLock<()>,
    /// Extended attributes.
    pub(crate) xattr_lock: RwLock<()>,
    /// The extent tree (`i_data_sem`): read to walk, write to change.
    pub(crate) map_lock: RwLock<()>,
    /// What is known of the map, delayed ranges included.
    pub(crate) extents: ExtentStatus,
    /// What is stored on disk.
    pub(crate) core: RwLock<InodeCore>,
    /// `i_size`: raised before the folio that carries the new bytes is unlocked. Written under `lock`.
    pub(crate) size: AtomicU64,
    /// The last transaction that changed the inode.
    pub(crate) sync_tid: AtomicU32,
    /// The last transaction that fdatasync must wait for.
    pub(crate) datasync_tid: AtomicU32,
}
