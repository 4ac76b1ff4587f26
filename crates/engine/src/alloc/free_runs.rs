//! All free runs of the volume, for callers that choose among them.

use extant_units::Blocks;

use crate::state::alloc::{AllocatorCore, Run};
use crate::types::error::Result;
use crate::volume::Fs;

/// The runs of at least `minimum` usable blocks, in order of their location, across group borders.
/// A snapshot: other threads allocate meanwhile.
///
/// # Errors
/// A bitmap that cannot be read.
pub(crate) fn free_runs(fs: &Fs, minimum: u64) -> Result<Vec<Run>> {
    let core = &fs.alloc.core;
    core.release_all_windows();
    let mut runs = core
        .counted(core.free_runs())
        .inspect_err(|error| fs.fault.report(fs, error))?;
    runs.retain(|run| run.len.get() >= minimum);
    Ok(runs)
}

impl AllocatorCore {
    fn free_runs(&self) -> Result<Vec<Run>> {
        let disk = self.disk();
        let mut runs: Vec<Run> = Vec::new();
        for group in self.layout.all_groups() {
            let mut locked = self.groups.lock(group)?;
            if locked.state.broken || locked.state.desc.free_blocks == 0 {
                continue;
            }
            let map = locked.map(&disk)?;
            let mut at = 0;
            // Each round goes on behind a run.
            while let Some(run) = map.next_run(at..u32::MAX, 1) {
                debug_assert!(at <= run.start && run.start < run.end, "{run:?} from {at}");
                at = run.end;
                join(&mut runs, self.run_of(group, &run));
            }
            drop(locked);
            self.groups.shrink_maps();
        }
        Ok(runs)
    }
}

fn join(runs: &mut Vec<Run>, next: Run) {
    match runs.last_mut() {
        Some(last) if last.start.plus(last.len.get()) == next.start => {
            last.len = Blocks::new(last.len.get() + next.len.get());
        }
        _ => runs.push(next),
    }
}
