//! Exchanging the inodes of two directory entries.

use super::known_names;
use super::links::{add_subdir, drop_subdir};
use super::name_checks::check_room_for_subdir;
use super::parent_and_name::{ParentAndName, check_move};
use super::pending_commit::PendingCommit;
use crate::dir;
use crate::inode::{self, Inode};
use crate::types::FileKind;
use crate::types::error::Result;
use crate::volume::Fs;
use crate::volume::credits;

/// Makes each of two entries lead to the other's inode. All directories involved are locked; the
/// inodes differ.
pub(super) fn swap(
    fs: &Fs,
    (old, source): (ParentAndName<'_>, &Inode),
    (new, target): (ParentAndName<'_>, &Inode),
) -> Result<PendingCommit> {
    check_move(fs, old, source, new.dir)?;
    check_move(fs, new, target, old.dir)?;
    let across = old.dir.ino != new.dir.ino;
    let up = source.kind == FileKind::Directory;
    let down = target.kind == FileKind::Directory;
    // A directory for a file: one parent gains a subdirectory, the other loses one.
    if across && up != down {
        check_room_for_subdir(fs, if up { new.dir } else { old.dir })?;
    }

    let mut h = fs.start(2 * credits::DIR_REMOVE + 2 + 4 * credits::INODE_UPDATE)?;
    let now = inode::now();
    // Both, before one changes: no lookup finds an inode by both names.
    known_names::forget(fs, old.dir, old.name);
    known_names::forget(fs, new.dir, new.name);
    for (place, is, becomes) in [(old, source, target), (new, target, source)] {
        let to = (becomes.ino, becomes.kind);
        dir::retarget(fs, &mut h, place.dir, place.name, is.ino, to)?;
        known_names::enter(fs, place.dir, place.name, becomes);
        is.update(fs, &mut h, |core| inode::changed(core, now))?;
    }
    for (moved, directory, parent) in [(source, up, new.dir), (target, down, old.dir)] {
        if across && directory {
            dir::set_parent(fs, &mut h, moved, parent.ino)?;
        }
    }
    for (dir, loses, gains) in [(old.dir, up, down), (new.dir, down, up)] {
        dir.update(fs, &mut h, |core| {
            inode::modified(core, now);
            match (loses, gains) {
                (true, false) if across => drop_subdir(core),
                (false, true) if across => add_subdir(core),
                _ => {}
            }
        })?;
    }
    Ok(PendingCommit::end(fs, h, &[old.dir, new.dir]))
}
