//! Changing the way of a file's data while the file is in use, and its map with it.
//!
//! # Locks
//! A change holds the inode's `lock` and the invalidate lock exclusively, then the way (`DataPathCell::keep`), and the mapping's pass: no write,
//! no fill and no writeback is under way, none of them goes on by the old way, nothing is dirty, and the cache is empty when the way changes.

use std::sync::Arc;

use extant_disk::features::Incompat;
use extant_disk::inode::InodeFlags;
use extant_iomap::WritebackControl;
use extant_units::Pos;

use super::writeback::write_range;
use super::{data, lock, read::check_kind};
use crate::config::BufferedPath;
use crate::inode::Inode;
use crate::inode::path_choice::{self, DataPath, eligible};
use crate::map;
use crate::types::FileKind;
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// How often a change writes what mappings go on dirtying, before it gives up.
const ATTEMPTS: u32 = 8;

/// Which code moves the data of `inode`.
///
/// # Errors
/// It is no regular file.
pub(crate) fn buffered_path(fs: &Fs, inode: &Inode) -> Result<BufferedPath> {
    check_kind(inode)?;
    Ok(path_choice::current(fs, inode).machinery)
}

/// Moves `inode`'s data to another path. Takes the inode's `lock`.
///
/// # Errors
/// [`Error::NotSupported`] if the file cannot have that path; [`Error::Busy`] if it goes on being dirtied through mappings;
/// what keeps its data from being written.
pub(crate) fn set_buffered_path(fs: &Fs, inode: &Arc<Inode>, path: BufferedPath) -> Result<()> {
    fs.check_writable()?;
    check_kind(inode)?;
    let _no_writes = lock(fs, inode);
    let flags = inode.flags();
    if eligible(path, fs.options.data(), flags) != path {
        return Err(Error::NotSupported("the range path for such a file"));
    }
    change(fs, inode, DataPath::on(fs, path, flags), || Ok(()))
}

/// The file's flag of journalled data becomes `on`, by `store`. Where it is on the range path that changes nothing else. The
/// inode's `lock` is held exclusively.
///
/// # Errors
/// As [`set_buffered_path`], and those of `store`.
pub(crate) fn set_journalled(
    fs: &Fs,
    inode: &Arc<Inode>,
    on: bool,
    store: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let mut flags = inode.flags();
    flags.set(InodeFlags::JOURNAL_DATA, on);
    let to = DataPath::on(fs, path_choice::current(fs, inode).machinery, flags);
    change(fs, inode, to, store)
}

/// Drains, writes, empties the cache, and lets the way change together with what `store` does.
fn change(
    fs: &Fs,
    inode: &Arc<Inode>,
    to: DataPath,
    store: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if data(fs, inode).data_path.get() == to {
        return store();
    }
    drained(fs, inode, to, store)
}

/// Gives `inode` an extent tree instead of a block map; its data goes over to the path that such a file has. Nothing to do where it has
/// one. Takes the inode's `lock`.
///
/// # Errors
/// [`Error::NotSupported`] where the volume has no extents, for inodes that have no map, and for a map that is too large for the
/// journal; [`Error::NoSpace`]; [`Error::Busy`] as in [`set_buffered_path`]; damage. Nothing has changed then.
pub(crate) fn convert_to_extents(fs: &Fs, inode: &Arc<Inode>) -> Result<()> {
    fs.check_writable()?;
    if !fs.layout.features.has_incompat(Incompat::EXTENTS) {
        return Err(Error::NotSupported("extents on a volume without them"));
    }
    let _excluded = lock(fs, inode);
    inode.check_changeable(true)?;
    let flags = inode.flags();
    if flags.contains(InodeFlags::EXTENTS) {
        return Ok(());
    }
    match inode.kind {
        FileKind::Directory => map::to_extents(fs, inode).map(drop),
        FileKind::Regular if !flags.contains(InodeFlags::INLINE_DATA) => {
            let to = DataPath::of(fs, flags | InodeFlags::EXTENTS);
            drained(fs, inode, to, || map::to_extents(fs, inode).map(drop))
        }
        _ => Err(Error::NotSupported("extents for such an inode")),
    }
}

/// Drains, writes, empties the cache, and lets the way become `to` together with what `store` does. The inode's `lock` is held.
fn drained(
    fs: &Fs,
    inode: &Arc<Inode>,
    to: DataPath,
    store: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let file = data(fs, inode);
    let from = file.data_path.get();
    for _ in 0..ATTEMPTS {
        write_range(fs, inode, WritebackControl::integrity(Pos::ZERO, Pos::MAX))?;
        if file.ordered.is_waited_for() {
            // A commit that takes folio locks must not meet the other path, which holds them over the start of a handle.
            fs.journal.sync_all()?;
        }
        if from.journalled {
            // Later frees would not be revoked: nothing of the file may be left in the log.
            fs.journal.force_commit()?;
            fs.journal.checkpoint_all()?;
        }
        let _nothing_fills = file.address_space.invalidate_lock().write();
        let _nobody_goes_on = file.data_path.release();
        let _nothing_writes = file.address_space.writeback_pass();
        file.address_space.drop_clean(Pos::ZERO, Pos::MAX);
        if file.address_space.dirty_bytes() != 0 || file.ordered.is_waited_for() {
            // An overwrite that needs no lock of the file was still under way, or a mapping was stored to.
            continue;
        }
        store()?;
        file.data_path.set(to);
        // Loaded anew, such a file would take another way, past what the log has of it.
        inode.keep(to.journalled && !DataPath::of(fs, inode.flags()).journalled);
        return Ok(());
    }
    Err(Error::Busy)
}
