//! Range operations: space ahead of data, holes, zeros, ranges taken out and put in.

use extant_engine::FallocateMode::{Allocate, CollapseRange, InsertRange, PunchHole, ZeroRange};

use crate::ledger::SECTOR;
use crate::run::Run;

/// Sectors of a page, or of a block or a cluster where that is larger: what is taken out and put in
/// is a multiple of it.
fn unit(run: &Run) -> u64 {
    run.block_size().max(4096).max(run.cluster_size()) / SECTOR
}

/// Space ahead of data, within the file, at its end and behind it; data that comes into it later.
pub(super) fn allocations(run: &mut Run) {
    let files: Vec<String> = (0..2).map(|_| run.create_any(20 * SECTOR)).collect();
    for round in 0..24 {
        let path = &files[run.rng.index(files.len())];
        let size = run.len(path).div_ceil(SECTOR);
        match run.rng.below(10) {
            0..=3 => {
                let keep_size = run.rng.chance(60);
                let (first, count) = (run.rng.below(size + 40), run.rng.between(1, 80));
                run.fallocate(path, Allocate { keep_size }, first, count);
            }
            4..=6 => {
                let (first, count) = (run.rng.below(size + 20), run.rng.between(1, 24));
                run.overwrite(path, first, count);
            }
            7 => {
                let less = run.rng.below(size + 1);
                run.truncate(path, less * SECTOR);
            }
            _ => {}
        }
        if round % 3 == 2 || run.rng.chance(30) {
            run.fsync(path);
        }
    }
}

/// Holes in data that is durable, that is dirty, and that is both; bytes that come back into them;
/// and free space that is discarded in between.
pub(super) fn punches(run: &mut Run) {
    let files: Vec<String> = (0..2).map(|_| run.create_any(160 * SECTOR)).collect();
    run.fsync(&files[0]);
    for _ in 0..28 {
        let path = &files[run.rng.index(files.len())];
        let (first, count) = (run.rng.below(170), run.rng.between(1, 60));
        match run.rng.below(10) {
            0..=4 => run.fallocate(path, PunchHole, first, count),
            5..=7 => run.overwrite(path, first, count.min(24)),
            _ => run.fsync(path),
        }
        if run.rng.chance(15) {
            run.trim();
        }
        if run.rng.chance(25) {
            run.fsync(path);
        }
    }
}

/// Ranges that become zeros and keep their space, over data, holes and the end of the file.
pub(super) fn zeroed(run: &mut Run) {
    let files: Vec<String> = (0..2).map(|_| run.create_any(120 * SECTOR)).collect();
    run.fsync(&files[1]);
    for _ in 0..28 {
        let path = &files[run.rng.index(files.len())];
        let size = run.len(path).div_ceil(SECTOR);
        let (first, count) = (run.rng.below(size + 10), run.rng.between(1, 60));
        let keep_size = run.rng.chance(50);
        match run.rng.below(10) {
            0..=4 if size < 400 => run.fallocate(path, ZeroRange { keep_size }, first, count),
            5 => run.fallocate(path, PunchHole, first, count),
            6 | 7 => run.overwrite(path, first, count.min(24)),
            _ => run.fsync(path),
        }
        if run.rng.chance(25) {
            run.fsync(path);
        }
    }
}

/// Ranges taken out of files and put in, with data before and behind that is durable or not; and
/// both at once, which changes nothing.
pub(super) fn shifts(run: &mut Run) {
    let unit = unit(run);
    let len = 7 * unit * SECTOR + 1328;
    let files: Vec<String> = (0..2).map(|_| run.create_any(len)).collect();
    run.fsync(&files[0]);
    for _ in 0..12 {
        let path = &files[run.rng.index(files.len())];
        let blocks = run.len(path) / SECTOR / unit;
        if run.rng.chance(70) {
            let first = run.rng.below(blocks * unit + 1);
            let count = run.rng.between(1, 20);
            run.overwrite(path, first, count);
        }
        let (first, count) = (run.rng.below(blocks.max(1)), run.rng.between(1, 3));
        let (at, len) = (first * unit, count * unit);
        match run.rng.below(4) {
            0 | 1 if blocks > first + count + 1 => {
                run.fallocate(path, CollapseRange, at, len);
            }
            2 if blocks > first && blocks < 40 => {
                run.fallocate(path, InsertRange, at, len);
                run.fsync(path);
                // There and back again.
                run.fallocate(path, CollapseRange, at, len);
            }
            _ if blocks > first => run.fallocate(path, InsertRange, at, len),
            _ => run.append(path, unit * SECTOR + 904),
        }
        run.fsync(path);
    }
}

/// Ranges copied from file to file and within one: data that is durable and that is not, holes, and
/// behind the end.
pub(super) fn copies(run: &mut Run) {
    let files: Vec<String> = (0..3).map(|_| run.create_any(96 * SECTOR)).collect();
    run.fsync(&files[0]);
    for _ in 0..24 {
        let (from, to) = (run.rng.index(files.len()), run.rng.index(files.len()));
        let (path, to_path) = (&files[from], &files[to]);
        let (len, to_len) = (run.len(path) / SECTOR, run.len(to_path) / SECTOR);
        match run.rng.below(10) {
            0..=4 => {
                let first = run.rng.below(len);
                let count = run.rng.between(1, 48).min(len - first);
                // The first sector says which file it is.
                let to_first = run.rng.between(1, to_len + 12);
                let overlap = from == to && first.abs_diff(to_first) < count;
                if !overlap && to_first + count < 300 {
                    run.copy((path, first), (to_path, to_first), count);
                }
            }
            5 | 6 => {
                let (first, count) = (run.rng.between(1, len), run.rng.between(8, 24));
                run.fallocate(path, PunchHole, first, count);
            }
            7 | 8 => {
                let (first, count) = (run.rng.below(len), run.rng.between(1, 16));
                run.overwrite(path, first, count);
            }
            _ => run.fsync(to_path),
        }
        if run.rng.chance(25) {
            run.fsync(&files[to]);
        }
    }
}

/// Threads change ranges of files of their own while others fsync theirs, so that commits come at
/// any moment.
pub(super) fn beside_fsyncs(run: &mut Run) {
    let rngs: Vec<_> = (0..3).map(|_| run.rng.fork()).collect();
    let run = &*run;
    let unit = unit(run);
    std::thread::scope(|scope| {
        for (thread, mut rng) in (0..).zip(rngs) {
            scope.spawn(move || {
                let path = format!("t{thread}");
                run.create(&path, 12 * unit * SECTOR);
                run.fsync(&path);
                for _ in 0..10 {
                    let blocks = run.len(&path) / SECTOR / unit;
                    let (first, count) = (rng.below(blocks.max(2) - 1), rng.between(1, 2));
                    let (at, len) = (first * unit, count * unit);
                    match rng.below(6) {
                        0 => run.fallocate(&path, PunchHole, at + 3, len),
                        1 => run.fallocate(&path, ZeroRange { keep_size: false }, at + 1, len),
                        2 => run.fallocate(&path, Allocate { keep_size: true }, at + 90, len),
                        3 if blocks > 8 => {
                            run.fallocate(&path, CollapseRange, at.min(unit), len);
                        }
                        4 if blocks < 30 => run.fallocate(&path, InsertRange, at, len),
                        _ => {}
                    }
                    run.fsync(&path);
                    run.overwrite(&path, rng.below(80), rng.between(1, 16));
                    if rng.chance(60) {
                        run.fsync(&path);
                    }
                }
            });
        }
    });
}

/// Files in many pieces are put together, between writes to them that are promised or not.
pub(super) fn defragmented(run: &mut Run) {
    let unit = unit(run);
    let files: Vec<String> = (0..2).map(|_| run.create_any(15 * unit * SECTOR)).collect();
    for round in 0..4 {
        for path in &files {
            for _ in 0..8 {
                // Holes that are written later lie elsewhere.
                let first = run.rng.below(14) * unit;
                run.fallocate(path, PunchHole, first, unit);
                run.overwrite(path, first, unit);
                if run.rng.chance(40) {
                    run.fsync(path);
                }
            }
        }
        let path = &files[round % 2];
        run.defragment(path);
        let first = run.rng.below(100);
        run.overwrite(path, first, 12);
        if run.rng.chance(50) {
            run.fsync(path);
        }
    }
}
