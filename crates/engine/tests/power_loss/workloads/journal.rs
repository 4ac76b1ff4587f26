//! The journal's ends: it wraps, it is full, it is emptied; everything is made durable at once.

use crate::run::Run;

/// Many small commits go round a small log.
pub(super) fn wraps(run: &mut Run) {
    for _ in 0..120 {
        let len = run.rng.between(1, 3000);
        let path = run.create_any(len);
        run.fsync(&path);
        if run.paths().len() > 20
            && let Some(old) = run.any_file()
        {
            run.unlink(&old);
        }
    }
}

/// Transactions as large as a small log lets them be: nothing asks for a commit but the lack of
/// room.
pub(super) fn full(run: &mut Run) {
    // What is left of all rounds takes half of the volume at most, however large a block is.
    let files = (run.room() / run.cluster_size() / 10).min(150);
    for round in 0..4 {
        let dir = format!("d{round}");
        run.mkdir(&dir);
        for nth in 0..files {
            let path = format!("{dir}/{nth}_{}", "n".repeat(100));
            run.create(&path, nth % 2 * 600);
            run.set_attr(&path, "user.a", Some(400 * round + nth + 200));
        }
        let path = run.create_any(5000);
        run.fsync(&path);
        for nth in (0..files).step_by(3) {
            run.unlink(&format!("{dir}/{nth}_{}", "n".repeat(100)));
        }
    }
}

/// Only whole syncs make anything durable: what was made is there then, and what was removed is
/// not.
pub(super) fn whole_sync(run: &mut Run) {
    for _ in 0..10 {
        for _ in 0..run.rng.between(1, 8) {
            let len = run.rng.below(12_000);
            run.create_any(len);
        }
        for _ in 0..run.rng.below(5) {
            if let Some(path) = run.any_file() {
                match run.rng.below(3) {
                    0 => drop(run.unlink(&path)),
                    1 => run.append(&path, 2000),
                    _ => run.rename(&path, &format!("{path}r")),
                }
            }
        }
        run.sync();
    }
}

/// Unmounts and mounts in between: the log is emptied, and begun again where the last mount left
/// it.
pub(super) fn remounts(run: &mut Run) {
    for _ in 0..6 {
        for _ in 0..5 {
            let len = run.rng.below(9000);
            let path = run.create_any(len);
            if run.rng.chance(40) {
                run.fsync(&path);
            }
            if let Some(path) = run.any_file()
                && run.rng.chance(40)
            {
                run.unlink(&path);
            }
        }
        run.remount();
        if let Some(path) = run.any_file() {
            run.append(&path, 3000);
        }
    }
}

/// The file system stops where it is and is mounted again: recovery is cut short, too. What was not
/// made durable until then may be there or not; nothing is done to it later.
pub(super) fn recoveries(run: &mut Run) {
    for _ in 0..3 {
        let mut open = Vec::new();
        for _ in 0..6 {
            let len = run.rng.below(9000);
            let path = run.create_any(len);
            if run.rng.chance(60) {
                run.fsync(&path);
            }
            if run.rng.chance(30) {
                open.push(run.unlink(&path));
            }
        }
        run.crash(open);
    }
}
