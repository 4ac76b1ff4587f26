//! Switching a file between the data paths, and between kinds of maps, while it is in use.
//!
//! # Locks
//! A switch holds the inode's `lock` and the invalidate lock exclusively, then the mapping's pass.
//! So no write, fill or writeback is under way or goes on by the old path, nothing is dirty, and
//! the cache is empty at the switch. Each operation reads the path under one of these, or looks
//! again with a folio locked.

use std::sync::Arc;

use extant_disk::features::Incompat;
use extant_disk::inode::InodeFlags;
use extant_iomap::WritebackControl;
use extant_pagecache::{InvalidateExclusive, WritebackPass};
use extant_units::Pos;

use crate::config::BufferedPath;
use crate::file::range_lock::{HoldsSize, WholeFile};
use crate::file::writeback::writeback_range;
use crate::file::{file_state, file_state_init::require_regular, lock_whole_file};
use crate::inline_data;
use crate::inode::path_choice::{self, eligible};
use crate::map;
use crate::state::file::DataPath;
use crate::state::inode::Inode;
use crate::types::FileKind;
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// The data path of `inode`.
///
/// # Errors
/// It is no regular file.
pub(crate) fn buffered_path(fs: &Fs, inode: &Inode) -> Result<BufferedPath> {
    require_regular(inode)?;
    Ok(path_choice::current(fs, inode).kind)
}

/// Switches `inode` to another data path. Takes the inode's `lock`.
///
/// # Errors
/// [`Error::NotSupported`] if the file cannot have that path; [`Error::Busy`] if some of it stays
/// in the cache; the failure of writing its data.
pub(crate) fn set_buffered_path(fs: &Fs, inode: &Arc<Inode>, path: BufferedPath) -> Result<()> {
    fs.check_writable()?;
    require_regular(inode)?;
    let whole = lock_whole_file(fs, inode);
    let flags = inode.flags();
    if eligible(path, fs.options.data(), flags) != path {
        return Err(Error::NotSupported("the iomap path for such a file"));
    }
    switch_if_different(
        fs,
        &whole,
        inode,
        DataPath::of_kind(fs, path, flags),
        || Ok(()),
    )
}

/// Sets the file's flag of journalled data to `on`, which `apply` stores, and switches the data
/// path if that changes with the flag.
///
/// # Errors
/// As [`set_buffered_path`], and those of `apply`.
pub(crate) fn set_journalled(
    fs: &Fs,
    whole: &WholeFile<'_>,
    inode: &Arc<Inode>,
    on: bool,
    apply: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let mut flags = inode.flags();
    flags.set(InodeFlags::JOURNAL_DATA, on);
    let to = DataPath::of_kind(fs, path_choice::current(fs, inode).kind, flags);
    switch_if_different(fs, whole, inode, to, apply)
}

/// Switches the path to `to` as [`switch`] does. If the file has that path already, runs `apply`
/// alone.
fn switch_if_different(
    fs: &Fs,
    whole: &WholeFile<'_>,
    inode: &Arc<Inode>,
    to: DataPath,
    apply: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if file_state(fs, inode).data_path.get() == to {
        return apply();
    }
    switch(fs, whole, inode, to, apply)
}

/// Gives `inode` an extent tree in place of a block map, and switches its data to the path that
/// such a file has. Does nothing for a file with extents. Takes the inode's `lock`.
///
/// # Errors
/// [`Error::NotSupported`] where the volume has no extents, for inodes that have no map, and for a
/// map that is too large for the journal; [`Error::NoSpace`]; [`Error::Busy`] as in
/// [`set_buffered_path`]; damage. Nothing has changed then.
pub(crate) fn convert_to_extents(fs: &Fs, inode: &Arc<Inode>) -> Result<()> {
    fs.check_writable()?;
    if !fs.layout.features.has_incompat(Incompat::EXTENTS) {
        return Err(Error::NotSupported("extents on a volume without them"));
    }
    let whole = lock_whole_file(fs, inode);
    inode.check_changeable(true)?;
    let flags = inode.flags();
    if flags.contains(InodeFlags::EXTENTS) {
        return Ok(());
    }
    match inode.kind {
        FileKind::Regular if flags.contains(InodeFlags::INLINE_DATA) => {
            leave_inode(fs, &whole, inode, false)
        }
        _ if flags.contains(InodeFlags::INLINE_DATA) => Err(Error::NotSupported(
            "extents for a directory inside of its inode",
        )),
        FileKind::Directory => map::to_extents(fs, inode).map(drop),
        FileKind::Regular => {
            let to = DataPath::chosen_for(fs, flags | InodeFlags::EXTENTS);
            switch(fs, &whole, inode, to, || {
                map::to_extents(fs, inode).map(drop)
            })
        }
        _ => Err(Error::NotSupported("extents for such an inode")),
    }
}

/// Moves the data of a file from inside of its inode to a block. Does nothing if it is there.
///
/// # Errors
/// [`crate::Error::NoSpace`]; damage; a failure of the device. Nothing has changed then.
pub(in crate::file) fn leave_inode(
    fs: &Fs,
    whole: &WholeFile<'_>,
    inode: &Arc<Inode>,
    privileged: bool,
) -> Result<()> {
    if inode.is_gone() {
        return Err(Error::Stale);
    }
    if !inline_data::is_inline(inode) {
        return Ok(());
    }
    let to = DataPath::chosen_for(fs, inline_data::flags_outside(fs, inode));
    switch(fs, whole, inode, to, || {
        inline_data::move_to_block(fs, inode, privileged)
    })
}

/// Writes dirty data back, empties the cache, runs `apply` (which stores the change of the inode)
/// and sets the path to `to`. No write is under way in a part of the file, nor can one begin, which
/// `whole` proves.
pub(in crate::file) fn switch(
    fs: &Fs,
    whole: &WholeFile<'_>,
    inode: &Arc<Inode>,
    to: DataPath,
    apply: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let file = file_state(fs, inode);
    let no_fills = file.address_space.invalidate_lock().write();
    let _no_writeback = empty_cache(fs, whole, inode, &no_fills)?;
    apply()?;
    file.data_path.set(to);
    file.address_space
        .set_folios_in_handle(to.folios_in_handle());
    Ok(())
}

/// Writes dirty data back and empties the cache: what is read next comes from the device. Returns
/// the writeback pass.
///
/// # Errors
/// [`Error::Busy`] if some of the file stays in the cache; the failure of writing its data.
pub(in crate::file) fn empty_cache<'a>(
    fs: &Fs,
    whole: &WholeFile<'_>,
    inode: &'a Arc<Inode>,
    _no_fills: &InvalidateExclusive<'_>,
) -> Result<WritebackPass<'a>> {
    assert!(whole.is_of(inode), "inode {} is not held", inode.ino);
    let file = file_state(fs, inode);
    writeback_range(fs, inode, WritebackControl::integrity(Pos::ZERO, Pos::MAX))?;
    if file.ordered.is_waited_for() {
        // A commit that takes folio locks must not meet the other path, which holds folio locks
        // while it starts a handle.
        fs.journal.sync_all()?;
    }
    if file.data_path.get().journalled && !inline_data::is_inline(inode) {
        // Later frees would not be revoked, so nothing of the file may be left in the log.
        fs.journal.force_commit()?;
        fs.journal.checkpoint_all()?;
    }
    let no_writeback = file.address_space.writeback_pass();
    file.address_space.drop_clean(Pos::ZERO, Pos::MAX);
    if !file.address_space.is_empty() || file.ordered.is_waited_for() {
        // An overwrite on the folio fast path was still under way.
        return Err(Error::Busy);
    }
    Ok(no_writeback)
}
