//! Mount options, under Linux's names.
//!
//! [`MountOptions::parse`] takes the comma list that `mount -o` takes. It refuses an option by name
//! if it is unknown, has a bad value, or asks for something that this build does not do; nothing is
//! dropped silently. Options whose default the superblock decides stay open until
//! [`MountOptions::resolve`]. `option_table.rs` and `docs/COMPATIBILITY.md` have the whole table,
//! with the effect of each name.

mod option_table;
mod parse;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use extant_blockdev::BlockDevice;
use extant_disk::quota::QuotaKind;
use extant_disk::superblock::{DefaultMountOpts, Superblock};

use crate::config::{BufferedPath, JournalDevice};

/// The effect of a fault (`errors=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorsPolicy {
    /// Record it and go on. The operation that met it fails.
    Continue,
    /// Refuse every later change; reads go on.
    RemountReadOnly,
    /// Shut down: every later operation fails. (Linux stops the machine; a library must not.)
    Panic,
}

/// How file data is ordered against the journal (`data=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataMode {
    /// No stale block is ever visible, and no size precedes its data.
    Ordered,
    /// Old contents of a block may be visible after a crash.
    Writeback,
    /// File data goes through the journal: after a crash, what a write put into a page is there
    /// whole or not at all.
    Journal,
}

/// When reading updates the access time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtimeMode {
    /// When it is older than the last change, or older than a day.
    Relatime,
    /// Always.
    Strictatime,
    /// Never.
    Noatime,
}

/// How the image is read and written (`backend=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// Through the host's page cache: synchronous requests by system calls, queued ones by io_uring
    /// where the kernel has it.
    #[default]
    Auto,
    /// Through the host's page cache, by system calls and threads alone.
    Syscalls,
    /// Past the host's page cache where its file system allows that, queued by io_uring. If the
    /// kernel refuses io_uring, as [`Backend::Syscalls`] past the cache, with a warning.
    IoUring,
}

/// Mount options. [`Default`] is what an empty list gives.
#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own"
)]
pub struct MountOptions {
    read_only: bool,
    /// The list has `rw`, which is the default as well.
    asks_to_write: bool,
    recovering: bool,
    unlogged: bool,
    noload: bool,
    /// Location of the superblock in units of 1 KiB.
    sb: u64,
    data: Option<DataMode>,
    commit: Duration,
    barrier: Option<bool>,
    errors: Option<ErrorsPolicy>,
    data_err_abort: bool,
    grpid: Option<bool>,
    resuid: Option<u32>,
    resgid: Option<u32>,
    minixdf: bool,
    delalloc: Option<bool>,
    discard: Option<bool>,
    auto_da_alloc: bool,
    user_xattr: Option<bool>,
    acl: Option<bool>,
    atime: AtimeMode,
    nodiratime: bool,
    lazytime: bool,
    /// The kinds of quotas whose limits are kept.
    quotas: [bool; 3],
    sync: bool,
    dirsync: bool,
    max_dir_size: Option<u64>,
    buffered_path: Option<BufferedPath>,
    dioread_nolock: bool,
    narrow_ids: bool,
    backend: Backend,
    journal_path: Option<PathBuf>,
    /// The number of the device with the journal, as Linux encodes it in 32 bits.
    journal_number: Option<u32>,
    journal_device: Option<JournalDevice>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            asks_to_write: false,
            recovering: false,
            unlogged: false,
            noload: false,
            sb: 1,
            data: None,
            commit: Duration::from_secs(5),
            barrier: None,
            errors: None,
            data_err_abort: false,
            grpid: None,
            resuid: None,
            resgid: None,
            minixdf: false,
            delalloc: None,
            discard: None,
            auto_da_alloc: true,
            user_xattr: None,
            acl: None,
            atime: AtimeMode::Relatime,
            nodiratime: false,
            lazytime: false,
            quotas: [false; 3],
            sync: false,
            dirsync: false,
            max_dir_size: None,
            buffered_path: None,
            dioread_nolock: true,
            narrow_ids: false,
            backend: Backend::Auto,
            journal_path: None,
            journal_number: None,
            journal_device: None,
        }
    }
}

impl MountOptions {
    /// Fills the options that were left to the superblock.
    pub(crate) fn resolve(&mut self, sb: &Superblock) {
        let defaults = sb.default_mount_opts();
        let on = |bit| defaults.contains(bit);
        let raw = sb.raw();
        self.grpid.get_or_insert(on(DefaultMountOpts::BSDGROUPS));
        self.barrier.get_or_insert(!on(DefaultMountOpts::NOBARRIER));
        self.discard.get_or_insert(on(DefaultMountOpts::DISCARD));
        self.delalloc
            .get_or_insert(!on(DefaultMountOpts::NODELALLOC));
        // Linux has had these two on by default for long, whatever the superblock says.
        self.user_xattr.get_or_insert(true);
        self.acl.get_or_insert(true);
        self.resuid.get_or_insert(u32::from(raw.def_resuid.get()));
        self.resgid.get_or_insert(u32::from(raw.def_resgid.get()));
        let writeback = DefaultMountOpts::JMODE_DATA | DefaultMountOpts::JMODE_ORDERED;
        if self.data.is_none() {
            self.data = Some(if on(writeback) {
                DataMode::Writeback
            } else if on(DefaultMountOpts::JMODE_DATA) {
                DataMode::Journal
            } else {
                DataMode::Ordered
            });
        }
        // mke2fs writes "continue" when nothing was chosen. A fault then makes the volume read-only
        // all the same, unless the mount asks for errors=continue itself.
        self.errors.get_or_insert(match raw.errors.get() {
            3 => ErrorsPolicy::Panic,
            _ => ErrorsPolicy::RemountReadOnly,
        });
    }

    /// Makes the mount refuse changes.
    pub fn set_read_only(&mut self) {
        self.read_only = true;
    }

    /// Returns whether the mount refuses changes (`ro`, or features that may only be read).
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Returns whether the list asks for a mount that may write (`rw`): then one that cannot is
    /// refused.
    pub(crate) fn asks_to_write(&self) -> bool {
        self.asks_to_write
    }

    /// For a mount that only recovers the volume: it may change the volume, and does not count as a
    /// mount.
    pub(crate) fn set_recovering(&mut self) {
        self.read_only = false;
        self.recovering = true;
    }

    /// For a mount of a private copy: transactions have no log. The blocks of the journal belong to
    /// no file all the same.
    pub(crate) fn set_unlogged(&mut self) {
        self.unlogged = true;
    }

    pub(crate) fn unlogged(&self) -> bool {
        self.unlogged
    }

    pub(crate) fn recovering(&self) -> bool {
        self.recovering
    }

    /// The path of the device with the journal (`journal_path=`).
    pub fn journal_path(&self) -> Option<&Path> {
        self.journal_path.as_deref()
    }

    /// Major and minor number of the device with the journal (`journal_dev=`).
    pub(crate) fn journal_number(&self) -> Option<(u32, u32)> {
        let of = |number: u32| (number >> 8 & 0xFFF, number & 0xFF | number >> 12 & 0xF_FF00);
        self.journal_number.map(of)
    }

    /// Returns whether owners are read and stored as 16 bits (`nouid32`). The mount of a private
    /// copy, which replays what a log has, keeps all of them.
    pub(crate) fn narrow_ids(&self) -> bool {
        self.narrow_ids && !self.unlogged
    }

    /// Gives the device with the journal.
    pub(crate) fn set_journal_device(&mut self, device: Arc<dyn BlockDevice>) {
        self.journal_device = Some(JournalDevice(device));
    }

    /// The device with the journal, if it is another one.
    pub(crate) fn journal_device(&self) -> Option<&Arc<dyn BlockDevice>> {
        self.journal_device.as_ref().map(|device| &device.0)
    }

    /// Returns whether the journal is ignored (`noload`).
    pub fn noload(&self) -> bool {
        self.noload
    }

    /// The byte offset of the superblock to use (`sb=`, given in units of 1 KiB).
    pub fn superblock_offset(&self) -> Option<u64> {
        self.sb.checked_mul(1024)
    }

    /// `data=`
    pub fn data(&self) -> DataMode {
        self.data.unwrap_or(DataMode::Ordered)
    }

    /// `commit=`: the age at which a transaction is committed.
    pub fn commit(&self) -> Duration {
        self.commit
    }

    /// `barrier`: whether the device's cache is flushed where order matters.
    pub fn barrier(&self) -> bool {
        self.barrier.unwrap_or(true)
    }

    /// `errors=`
    pub fn errors(&self) -> ErrorsPolicy {
        self.errors.unwrap_or(ErrorsPolicy::RemountReadOnly)
    }

    /// `data_err=abort`: a failed write of file data is a fault.
    pub fn data_err_abort(&self) -> bool {
        self.data_err_abort
    }

    /// `grpid`: new inodes take their directory's group.
    pub fn grpid(&self) -> bool {
        self.grpid.unwrap_or(false)
    }

    /// `resuid=`: the user that may use reserved blocks.
    pub fn resuid(&self) -> u32 {
        self.resuid.unwrap_or(0)
    }

    /// `resgid=`: the group that may use reserved blocks; 0 for none.
    pub fn resgid(&self) -> u32 {
        self.resgid.unwrap_or(0)
    }

    /// `minixdf`: statfs counts the format's own blocks.
    pub fn minixdf(&self) -> bool {
        self.minixdf
    }

    /// `delalloc`
    pub fn delalloc(&self) -> bool {
        self.delalloc.unwrap_or(true)
    }

    /// `discard`: the device is told of freed blocks.
    pub fn discard(&self) -> bool {
        self.discard.unwrap_or(false)
    }

    /// `auto_da_alloc`: replace-via-rename and replace-via-truncate allocate at once.
    pub fn auto_da_alloc(&self) -> bool {
        self.auto_da_alloc
    }

    /// `user_xattr`
    pub fn user_xattr(&self) -> bool {
        self.user_xattr.unwrap_or(true)
    }

    /// `acl`
    pub fn acl(&self) -> bool {
        self.acl.unwrap_or(true)
    }

    /// When reading updates the access time.
    pub fn atime(&self) -> AtimeMode {
        self.atime
    }

    /// `nodiratime`: reading a directory never does.
    pub fn nodiratime(&self) -> bool {
        self.nodiratime
    }

    /// Returns whether limits of this kind are kept (`usrquota`, `grpquota`, `prjquota`).
    pub fn keeps_quota(&self, kind: QuotaKind) -> bool {
        self.quotas[kind.index()]
    }

    /// `lazytime`: times alone do not make an inode's change durable.
    pub fn lazytime(&self) -> bool {
        self.lazytime
    }

    /// `sync`: every change is durable before its call returns.
    pub fn sync(&self) -> bool {
        self.sync
    }

    /// `dirsync`: every change of a directory is.
    pub fn dirsync(&self) -> bool {
        self.dirsync || self.sync
    }

    /// `max_dir_size_kb=`, in bytes: a directory does not grow past it.
    pub fn max_dir_size(&self) -> Option<u64> {
        self.max_dir_size
    }

    /// `dioread_nolock`: the buffer-head path allocates unwritten space and converts it after the
    /// data has been written. Otherwise (`dioread_lock`) it allocates written space, and
    /// [`MountOptions::data`] says how the data is ordered. The iomap path always allocates
    /// unwritten space.
    pub fn dioread_nolock(&self) -> bool {
        self.dioread_nolock
    }

    /// `buffered_iomap` and `nobuffered_iomap`, if given.
    pub fn buffered_path(&self) -> Option<BufferedPath> {
        self.buffered_path
    }

    /// `backend=`: how the image is read and written, if it is a file or a block device of the
    /// host.
    pub fn backend(&self) -> Backend {
        self.backend
    }
}
