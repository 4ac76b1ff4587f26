//! Files that change or lose their names.

use crate::run::Run;

/// Files lose their name while they are open, are written to all the same, and are deleted at the
/// last close.
pub(super) fn open_and_unlinked(run: &mut Run) {
    let mut open = Vec::new();
    for _ in 0..16 {
        let len = run.rng.between(1, 20_000);
        let path = run.create_any(len);
        if run.rng.chance(70) {
            run.fsync(&path);
        }
        open.push(run.unlink(&path));
        if run.rng.chance(30) {
            let (node, id) = &open[run.rng.index(open.len())];
            run.append_to(node, *id, 5000);
            run.volume().fsync(node, false).unwrap();
        }
        if run.rng.chance(40) {
            let at = run.rng.index(open.len());
            drop(open.swap_remove(at));
        }
        if run.rng.chance(40) {
            let keep = run.create_any(500);
            run.fsync(&keep);
        }
    }
}

/// A file is replaced by renaming a durable one over it: there is always one of the two, whole.
pub(super) fn rename_over(run: &mut Run) {
    let target = run.create_any(3000);
    run.fsync(&target);
    for _ in 0..10 {
        let len = run.rng.between(1, 8000);
        let fresh = run.create_any(len);
        run.fsync(&fresh);
        run.rename(&fresh, &target);
        if run.rng.chance(50) {
            run.fsync(&target);
        }
    }
}

/// Durable files move between directories and go on growing: each is at its old place or its new
/// one.
pub(super) fn rename_after_fsync(run: &mut Run) {
    run.mkdir("here");
    run.mkdir("there");
    for nth in 0..6 {
        let len = run.rng.between(1, 6000);
        run.create(&format!("here/f{nth}"), len);
        run.fsync(&format!("here/f{nth}"));
    }
    for _ in 0..30 {
        let Some(old) = run.any_file() else { return };
        let name = old.split('/').next_back().unwrap_or_default();
        let dir = ["here", "there"][run.rng.index(2)];
        let new = format!("{dir}/{name}{}", ["", "x"][run.rng.index(2)]);
        if new != old {
            run.rename(&old, &new);
        }
        match run.rng.below(6) {
            0 | 1 => run.fsync(&new),
            2 => {
                let more = run.rng.between(1, 3000);
                run.append(&new, more);
            }
            3 => run.sync(),
            _ => {}
        }
    }
}
