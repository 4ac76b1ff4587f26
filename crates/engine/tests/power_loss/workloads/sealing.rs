//! Files whose content is fixed by fs-verity.

use crate::ledger::SECTOR;
use crate::run::{Run, SEALED};

/// Files are written, sealed and removed, now and then made durable. Their names end with their
/// length.
pub(super) fn sealed(run: &mut Run) {
    let mut paths = Vec::new();
    for step in 0..7 {
        let begun = run.rng.between(1, 240);
        // A hole, in some.
        let hole = run.rng.chance(30).then(|| run.rng.below(160));
        let sectors = hole.map_or(begun, |hole| begun + hole + 8);
        let path = format!("{SEALED}{step}-{}", sectors * SECTOR);
        run.create(&path, begun * SECTOR);
        if let Some(hole) = hole {
            run.overwrite(&path, begun + hole, 8);
        }
        if run.rng.chance(50) {
            run.fsync(&path);
        }
        run.seal(&path);
        if run.rng.chance(40) {
            run.fsync(&path);
        }
        paths.push(path);
        if step > 1 && run.rng.chance(40) {
            drop(run.unlink(&paths.remove(0)));
        }
        let more = run.rng.below(9000);
        run.create_any(more);
    }
    run.sync();
}
