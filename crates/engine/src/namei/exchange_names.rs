//! Exchanging the inodes of two directory entries. No fast commit tells it: its replay would remove
//! a name before it adds the other, and delete an inode.

use super::links::{add_subdir, drop_subdir};
use super::lookup_name::{Named, ParentAndName};
use super::name_checks::check_room_for_subdir;
use super::{ancestry, known_names};
use crate::inode::ExclusiveGuards;
use crate::state::inode::Inode;
use crate::types::FileKind;
use crate::types::error::Result;
use crate::volume::{Fs, PendingCommit, all_or_abort, credits};
use crate::{dir, inode};

/// Makes each of two entries lead to the other's inode. `locked` has all directories involved; the
/// inodes differ.
pub(super) fn swap(
    fs: &Fs,
    locked: &ExclusiveGuards<'_>,
    old: Named<'_>,
    new: Named<'_>,
) -> Result<PendingCommit> {
    let (source, target) = (old.inode, new.inode);
    let (old, new) = (old.at, new.at);
    debug_assert_ne!(
        source.ino, target.ino,
        "an inode is not exchanged with itself"
    );
    ancestry::check_move(fs, locked, old, source, new.dir)?;
    ancestry::check_move(fs, locked, new, target, old.dir)?;
    let across = old.dir.ino != new.dir.ino;
    let up = source.kind == FileKind::Directory;
    let down = target.kind == FileKind::Directory;
    // A directory for a file: one parent gains a subdirectory, the other loses one.
    if across && up != down {
        let gains = locked.of(if up { new.dir } else { old.dir });
        check_room_for_subdir(fs, gains.shared())?;
    }

    let entries = [
        (old, source, target, up, new.dir),
        (new, target, source, down, old.dir),
    ];
    // Found and held before the first change, which reads none of them then.
    let find = |place: ParentAndName<'_>, is: &Inode| {
        dir::find_entry(fs, locked.of(place.dir), place.name, is.ino)
    };
    let found = [find(old, source)?, find(new, target)?];
    let mut held = Vec::new();
    for (place, is, _, directory, _) in &entries {
        let parent = across && *directory;
        let parent = parent.then(|| dir::hold_parent(fs, locked.of(is).shared()));
        let records = (is.hold_record(fs)?, place.dir.hold_record(fs)?);
        held.push((parent.transpose()?, records));
    }

    let mut h = fs.start(2 * credits::DIR_REMOVE + 2 + 4 * credits::INODE_UPDATE)?;
    h.set_untold();
    let now = inode::now();
    // Both, before one changes: no lookup finds an inode by both names.
    dir::forget(fs, locked.of(old.dir), old.name);
    dir::forget(fs, locked.of(new.dir), new.name);
    all_or_abort(&mut h, |h| {
        for ((place, is, becomes, directory, parent), entry) in entries.iter().zip(&found) {
            let dir = locked.of(place.dir);
            dir::retarget(fs, h, dir, (place.name, entry), (becomes.ino, becomes.kind))?;
            known_names::enter(fs, dir.shared(), place.name, becomes);
            is.update(fs, h, |core| inode::changed(core, now))?;
            if across && *directory {
                dir::set_parent(fs, h, locked.of(is), parent.ino)?;
            }
        }
        for (dir, loses, gains) in [(old.dir, up, down), (new.dir, down, up)] {
            dir.update(fs, h, |core| {
                inode::modified(core, now);
                match (loses, gains) {
                    (true, false) if across => drop_subdir(core),
                    (false, true) if across => add_subdir(core),
                    _ => {}
                }
            })?;
        }
        Ok(())
    })?;
    Ok(PendingCommit::end(fs, h, &[old.dir, new.dir]))
}
