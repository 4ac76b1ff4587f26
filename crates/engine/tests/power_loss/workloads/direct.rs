//! Direct I/O, alone and among writes that go through the cache.

use crate::ledger::SECTOR;
use crate::run::Run;

/// Files that stay as large as they are get new contents past the cache: whole blocks and parts of
/// blocks, one piece or many in flight, with older contents in the cache or without.
pub(super) fn overwrites(run: &mut Run) {
    let files: Vec<String> = (0..3).map(|_| run.create_any(96 * SECTOR)).collect();
    run.sync();
    for _ in 0..32 {
        let path = &files[run.rng.index(files.len())];
        let first = run.rng.below(90);
        let count = run.rng.between(1, 96 - first);
        match run.rng.below(8) {
            0 => run.overwrite(path, first, count),
            1 | 2 => {
                let start = run.rng.below(4) * 8;
                run.overwrite_in_flight(path, &[(start, 8), (start + 8, 16), (start + 40, 24)]);
            }
            3 => run.overwrite_direct(path, first / 8 * 8, 8),
            _ => run.overwrite_direct(path, first, count),
        }
        if run.rng.chance(40) {
            run.fsync(path);
        }
    }
}

/// Files grow past the cache, at their ends, behind them, and in holes, while the cache has changes
/// of its own that no writeback has seen.
pub(super) fn growth(run: &mut Run) {
    let files: Vec<String> = (0..3).map(|_| run.create_any(0)).collect();
    run.truncate(&files[0], 160 * SECTOR);
    run.sync();
    for _ in 0..36 {
        let path = &files[run.rng.index(files.len())];
        let size = run.len(path) / SECTOR;
        // What is left out becomes a hole of whole sectors.
        let gap = if run.len(path).is_multiple_of(SECTOR) {
            20
        } else {
            1
        };
        let aligned = run.rng.chance(50);
        let (mut first, mut count) = (run.rng.below(size + gap), run.rng.between(1, 40));
        if aligned {
            (first, count) = (first / 8 * 8, count.next_multiple_of(8));
        }
        match run.rng.below(12) {
            0..=3 => run.overwrite_direct(path, first, count),
            4 | 5 => run.append_direct(path, count * SECTOR - u64::from(aligned)),
            6 => run.append(path, count * SECTOR),
            7 => run.overwrite(path, first, count),
            // Of requests in flight that make the file longer the later may come first, and leave
            // zeros before them.
            8 if first + 48 + count <= size => {
                run.overwrite_in_flight(path, &[(first, count), (first + 48, count)])
            }
            9 => {
                let less = run.rng.below(size + 1);
                run.truncate(path, less * SECTOR);
            }
            _ => run.fsync(path),
        }
    }
}
