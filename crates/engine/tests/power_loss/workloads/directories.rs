//! Directories that grow, shrink, move and go.

use extant_engine::RenameFlags;

use crate::run::Run;

/// Long names, until directories have an index and its blocks split.
pub(super) fn splitting(run: &mut Run) {
    for round in 0..160 {
        let path = run.create_any(0);
        let long = format!("{path}_{}", "n".repeat(60));
        run.rename(&path, &long);
        if round % 20 == 19 {
            run.fsync(&long);
        }
    }
}

/// Directories of several blocks are emptied in any order, filled again, and removed.
pub(super) fn shrinking(run: &mut Run) {
    for round in 0..3 {
        let dir = format!("d{round}");
        run.mkdir(&dir);
        let name = |nth: u64| format!("{dir}/{nth}_{}", "n".repeat(50));
        for nth in 0..60 {
            run.create(&name(nth), nth % 3 * 700);
            if nth % 15 == 14 {
                run.fsync(&name(nth));
            }
        }
        let mut left = run.paths();
        left.retain(|path| path.starts_with(&format!("{dir}/")));
        let keep = if round == 1 { 5 } else { 0 };
        while left.len() > keep {
            let at = run.rng.index(left.len());
            run.unlink(&left.swap_remove(at));
            if run.rng.chance(8) {
                run.sync();
            }
        }
        if keep == 0 {
            run.rmdir(&dir);
        }
        let path = run.create_any(20_000);
        run.fsync(&path);
    }
}

/// Directories change parents, swap places, replace each other; whiteouts; files that get their
/// first name late.
pub(super) fn moving(run: &mut Run) {
    let mut dirs = vec![run.root().clone()];
    for _ in 0..80 {
        let (from, to) = (run.rng.index(dirs.len()), run.rng.index(dirs.len()));
        let mut name = || format!("m{}", run.rng.below(6)).into_bytes();
        let (old, new) = (name(), name());
        let flags = [0, 0, 1, 2, 4].map(RenameFlags::from_bits_retain)[run.rng.index(5)];
        let what = run.rng.below(8);
        let (volume, cred) = (run.volume(), &run.cred);
        // Most of these have a reason to fail now and then; what counts is that none is half done.
        match what {
            0..=1 => {
                if let Ok(made) = volume.mkdir(&dirs[from], &new, 0o755, cred)
                    && dirs.len() < 6
                {
                    dirs.push(made);
                }
            }
            2 => drop(volume.rmdir(&dirs[from], &old)),
            3 => {
                let unnamed = volume.tmpfile(&dirs[from], 0o600, cred);
                let _ = unnamed.and_then(|file| volume.link(&file, &dirs[to], &new, cred));
            }
            4 => drop(volume.unlink(&dirs[from], &old)),
            _ => drop(volume.rename(&dirs[from], &old, &dirs[to], &new, flags, cred)),
        }
        if run.rng.chance(8) {
            run.sync();
        }
    }
}

/// Blocks of directories are freed while copies of them are in the log, and become data of files
/// that are durable: a replay must leave these alone. The volume is nearly full, so that the
/// allocator has little choice.
pub(super) fn reused_metadata(run: &mut Run) {
    run.fill(160 << 10);
    for round in 0..6 {
        let dir = format!("d{round}");
        run.mkdir(&dir);
        for nth in 0..40 {
            run.create(&format!("{dir}/{nth}_{}", "n".repeat(120)), 0);
        }
        run.sync();
        for nth in 0..40 {
            run.unlink(&format!("{dir}/{nth}_{}", "n".repeat(120)));
        }
        run.rmdir(&dir);
        run.sync();
        let path = format!("data{round}");
        let len = run.room() * 3 / 4;
        run.create(&path, len);
        run.fsync(&path);
        run.unlink(&path);
        run.sync();
    }
}
