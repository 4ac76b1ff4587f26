//! File data: appends, overwrites, holes, truncations, and the fsyncs that wait for them.

use crate::ledger::SECTOR;
use crate::run::Run;

/// Two files grow by odd amounts; what makes one durable commits the other's metadata as well, and
/// not its data.
pub(super) fn appends(run: &mut Run) {
    let files = [run.create_any(100), run.create_any(200)];
    for _ in 0..16 {
        for path in &files {
            let more = run.rng.between(1, 20_000);
            run.append(path, more);
        }
        if run.rng.chance(70) {
            let path = &files[run.rng.index(2)];
            run.fsync(path);
        }
    }
}

/// Blocks of files that stay as large as they are get new contents, one or many at a time.
pub(super) fn overwrites(run: &mut Run) {
    let files: Vec<String> = (0..3).map(|_| run.create_any(60 * SECTOR)).collect();
    run.sync();
    for _ in 0..40 {
        let path = &files[run.rng.index(files.len())];
        let first = run.rng.below(60);
        let count = run.rng.between(1, 60 - first);
        run.overwrite(path, first, count);
        if run.rng.chance(40) {
            run.fsync(path);
        }
    }
}

/// Writes as a kernel that writes back: long pieces past the cache, among writes that go through
/// it.
pub(super) fn handed_over(run: &mut Run) {
    let files: Vec<String> = (0..2).map(|_| run.create_any(0)).collect();
    for _ in 0..16 {
        let path = &files[run.rng.index(files.len())];
        let size = run.len(path) / SECTOR;
        let first = run.rng.below(size + 40) / 8 * 8;
        let count = run.rng.between(256, 400);
        match run.rng.below(10) {
            0..=6 => run.hand_over(path, first, count),
            7 => run.overwrite(path, first, 5),
            8 => {
                let less = run.rng.below(size + 1);
                run.truncate(path, less * SECTOR);
            }
            _ => {}
        }
        if run.rng.chance(40) {
            run.fsync(path);
        }
    }
}

/// Writes into holes, past the end, and sizes that grow without data: what was not written reads as
/// zero.
pub(super) fn holes(run: &mut Run) {
    let files: Vec<String> = (0..3).map(|_| run.create_any(0)).collect();
    for path in &files {
        run.truncate(path, 200 * SECTOR);
        run.fsync(path);
    }
    for _ in 0..40 {
        let path = &files[run.rng.index(files.len())];
        let size = run.len(path) / SECTOR;
        match run.rng.below(10) {
            0..=5 => {
                let first = run.rng.below(size + 20);
                let count = run.rng.between(1, 24);
                run.overwrite(path, first, count);
            }
            6 => {
                let less = run.rng.below(size + 1);
                run.truncate(path, less * SECTOR);
            }
            7 => {
                let more = size + run.rng.below(60);
                run.truncate(path, more * SECTOR);
            }
            _ => run.fsync(path),
        }
    }
}

/// A file is cut anywhere and grows again.
pub(super) fn truncations(run: &mut Run) {
    let path = run.create_any(20_000);
    run.fsync(&path);
    for _ in 0..12 {
        let cut = run.rng.below(run.len(&path) + 1);
        run.truncate(&path, cut);
        if run.rng.chance(40) {
            run.fsync(&path);
        }
        let more = run.rng.between(1, 12_000);
        run.append(&path, more);
        run.fsync(&path);
    }
}

/// Threads append to, overwrite, fill and fsync files of their own at the same time, so that
/// commits are shared and happen at any moment of the others' writeback.
pub(super) fn grouped_fsyncs(run: &mut Run) {
    let rngs: Vec<_> = (0..4).map(|_| run.rng.fork()).collect();
    let run = &*run;
    std::thread::scope(|scope| {
        for (thread, mut rng) in (0..).zip(rngs) {
            scope.spawn(move || {
                let path = format!("t{thread}");
                run.create(&path, 10 * SECTOR);
                let holes = format!("h{thread}");
                run.create(&holes, 0);
                run.truncate(&holes, 800 * SECTOR);
                run.fsync(&holes);
                for _ in 0..12 {
                    if rng.chance(50) {
                        run.append(&path, rng.between(1, 20) * SECTOR);
                    } else {
                        let first = rng.below(8);
                        run.overwrite(&path, first, rng.between(1, 2));
                    }
                    run.fsync(&path);
                    run.overwrite(&holes, rng.below(780), rng.between(1, 20));
                    if rng.chance(60) {
                        run.fsync(&holes);
                    }
                }
            });
        }
    });
}
