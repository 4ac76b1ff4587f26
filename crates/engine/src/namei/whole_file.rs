//! Removing a file together with its last name, under one handle.
//!
//! A file that loses its last name becomes an orphan, and is evicted under a handle of its own: its
//! content may be in use, and may take many transactions to free. Where neither is so, both steps
//! are one. A crash leaves the file with its name, or nothing of it, so no orphan is recorded.
//!
//! # Locks
//! The caller holds the `lock` of the directory and of the file, and the only reference to the
//! file. The file is claimed first, as for an eviction: from then on no thread gets a reference, so
//! nothing of the file changes. Lookups of its name wait for the directory's lock.
//!
//! # Errors
//! Before the name is gone, the file is as it was. After that, as with a failed eviction, what
//! could not be freed stays an orphan, and its number stays taken.

use extant_jbd2::Handle;
use extant_units::Lblk;

use super::eviction;
use super::pending_commit::PendingCommit;
use crate::dir;
use crate::file;
use crate::inode::{self, ExclusiveInode, Inode, InodeRef, path_choice};
use crate::map;
use crate::orphan;
use crate::types::FileKind;
use crate::types::error::Result;
use crate::volume::Fs;
use crate::volume::credits;

/// Removes `name` in `dir`, which leads to `victim`, and the file with it. `None`, with nothing
/// changed, if the file has other names or users, or more than one handle can free.
pub(super) fn remove(
    fs: &Fs,
    dir: ExclusiveInode<'_>,
    name: &[u8],
    victim: &InodeRef,
) -> Result<Option<PendingCommit>> {
    if !is_small(fs, victim) || !fs.inodes.claim(victim) {
        return Ok(None);
    }
    file::evict(fs, victim);
    let begun = start(fs, dir, name, victim).inspect_err(|_| fs.inodes.unclaim(victim));
    let mut h = begun?;
    let now = inode::now();
    dir.update(fs, &mut h, |core| inode::modified(core, now))?;
    let freed = free(fs, &mut h, victim);
    if freed.is_err() {
        victim.update(fs, &mut h, |core| core.links = 0)?;
        orphan::add(fs, &mut h, victim)?;
    }
    eviction::end(fs, victim, freed);
    Ok(Some(PendingCommit::end(fs, h, &[&*dir])))
}

/// Takes the name out of the directory, under a handle for all that follows.
fn start(fs: &Fs, dir: ExclusiveInode<'_>, name: &[u8], victim: &Inode) -> Result<Handle> {
    let names = credits::DIR_REMOVE + 2 * credits::INODE_UPDATE;
    let all = [names, credits::remove(fs), credits::inode_delete(fs)];
    let mut h = fs.start(credits::sum(all))?;
    dir::remove(fs, &mut h, dir, name, victim.ino)?;
    Ok(h)
}

/// Whether one handle frees all of a file that loses its name.
fn is_small(fs: &Fs, victim: &Inode) -> bool {
    let (links, acl, sectors) = {
        let core = victim.core.read();
        (core.links, core.file_acl.get(), core.sectors)
    };
    let regular = victim.kind == FileKind::Regular;
    let one_extent = || regular && map::has_one_extent(victim);
    victim.kind != FileKind::Directory
        && links == 1
        && acl == 0
        && (sectors == 0 || one_extent())
        && !(regular && path_choice::is_data_journalled(fs, victim))
        && !victim.has_dirty_data()
        && !orphan::is_orphan(victim)
}

/// Frees the file's extent, and the file.
fn free(fs: &Fs, h: &mut Handle, victim: &InodeRef) -> Result<()> {
    if victim.core.read().sectors != 0 {
        victim.update(fs, h, |core| core.disk_size = 0)?;
        // The handle has the credits for one extent, so it is not restarted.
        map::remove(fs, h, victim, Lblk::ZERO, 1 << 32)?;
    }
    eviction::free(fs, h, victim)
}
