//! From a workload to its states, and their judgement.

use std::collections::HashSet;
use std::sync::Arc;

use extant_check::{CheckOptions, check};
use extant_engine::Cred;
use extant_failpoint::ActiveFailpoint;
use extant_testkit::Event;
use extant_testkit::crash::{Budget, CrashState, Cut, Explorer};

use crate::linux::ByLinux;
use crate::model::Model;
use crate::ops::{Step, Workload};
use crate::run::{ByExtant, Subject};
use crate::setups::Setup;
use crate::timeline::{Promises, Timeline};
use crate::view::View;

/// Which states of each workload are visited.
pub(crate) const BUDGET: Budget = Budget {
    exhaustive_below: 4,
    samples: 10,
    torn: 1,
    cut_stride: 1,
};

/// A run that was recorded.
pub(crate) struct Recorded {
    pub(crate) base: Arc<Vec<u8>>,
    pub(crate) events: Vec<Event>,
    pub(crate) timeline: Timeline,
    /// States before this event are those of a shorter workload.
    first: usize,
}

/// Runs a workload.
///
/// # Errors
/// A step failed.
pub(crate) fn record<S: Subject>(
    workload: &Workload,
    setup: &'static Setup,
    base: Arc<Vec<u8>>,
    mut subject: S,
    promises: Promises,
) -> Result<Recorded, String> {
    let mut timeline = Timeline::new(Model::start(setup.habits), promises);
    let (mut nth, mut first) = (0, 0);
    for step in &workload.0 {
        let done = match step {
            Step::Do(op) => {
                first = subject.position();
                let change = timeline.begin(*op, first);
                let change = change.ok_or_else(|| format!("{step} cannot run"))?;
                let done = subject.perform(*op, nth, change.as_ref().map(|(_, change)| change));
                nth += 1;
                done
            }
            Step::Persist(persist) => {
                let done = subject.persist(*persist);
                timeline.persisted(*persist, subject.position());
                done
            }
        };
        done.map_err(|error| format!("{step}: {error}"))?;
    }
    // Where nothing was made durable in the end, the unmount writes what there is.
    let last_is_done = matches!(workload.0.last(), Some(Step::Do(_)));
    Ok(Recorded {
        base,
        events: subject.finish(last_is_done)?,
        timeline,
        first,
    })
}

/// Counts of states.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) workloads: u64,
    pub(crate) states: u64,
    /// States that had been judged already.
    pub(crate) equal: u64,
    /// States that e2fsck judged as well.
    pub(crate) e2fsck: u64,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            workloads,
            states,
            equal,
            e2fsck,
        } = self;
        write!(
            f,
            "{workloads} workloads, {states} states ({equal} equal ones left out, {e2fsck} also by \
             e2fsck)"
        )
    }
}

/// A state that was not recovered, or a step that failed.
#[derive(Debug)]
pub(crate) struct Unrecovered {
    /// The state, unless it was a step.
    pub(crate) cut: Option<Cut>,
    pub(crate) why: String,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.workloads += more.workloads;
        self.states += more.states;
        self.equal += more.equal;
        self.e2fsck += more.e2fsck;
    }
}

/// How a workload is explored.
#[derive(Clone, Copy)]
pub(crate) struct Depth {
    pub(crate) failpoint: ActiveFailpoint,
    /// No states with a write that arrived in part: Linux has its superblock repaired then.
    pub(crate) whole: bool,
    /// Only this state.
    pub(crate) only: Option<Cut>,
    /// Every how many states e2fsck judges too; zero is never. Counted from `phase` on.
    pub(crate) e2fsck: u64,
    pub(crate) phase: u64,
}

/// Runs a workload by the engine and judges its states.
///
/// # Errors
/// The first state that is not recovered, and why; or a step that failed.
pub(crate) fn explore(
    workload: &Workload,
    setup: &'static Setup,
    depth: Depth,
) -> Result<Counts, (Unrecovered, Counts)> {
    let base = setup.base();
    let subject = ByExtant::new(setup, &base, depth.failpoint);
    let promises = Promises {
        fdatasync_of_names: true,
    };
    let recorded = record(workload, setup, base, subject, promises);
    let recorded = recorded.map_err(|why| (Unrecovered { cut: None, why }, Counts::default()))?;
    explore_states(&recorded, setup, depth)
}

/// The same of a run by Linux's ext4: its states, recovered by the engine and e2fsck.
///
/// # Errors
/// As [`explore`].
pub(crate) fn explore_linux(
    workload: &Workload,
    setup: &'static Setup,
    depth: Depth,
) -> Result<Counts, (Unrecovered, Counts)> {
    let base = setup.base();
    let promises = Promises {
        fdatasync_of_names: false,
    };
    let subject = ByLinux::new(setup, &base).map_err(|error| error.to_string());
    let recorded = subject.and_then(|subject| record(workload, setup, base, subject, promises));
    let failed = |why| (Unrecovered { cut: None, why }, Counts::default());
    explore_states(&recorded.map_err(failed)?, setup, depth)
}

/// Judges the states of a run.
///
/// # Errors
/// As [`explore`].
pub(crate) fn explore_states(
    recorded: &Recorded,
    setup: &'static Setup,
    depth: Depth,
) -> Result<Counts, (Unrecovered, Counts)> {
    let base = recorded.base.to_vec();
    let mut explorer = Explorer::new(base, recorded.events.clone(), 1, BUDGET);
    explorer = explorer.from_event(recorded.first + 1);
    if let Some(cut) = depth.only {
        explorer = explorer.only(cut);
    }
    let mut seen = HashSet::new();
    let mut counts = Counts {
        workloads: 1,
        ..Counts::default()
    };
    let explored = explorer.run(|state| {
        let (phase, due) = recorded.timeline.at(state.completed);
        if depth.whole && state.cut.tears() {
            return Ok(());
        }
        if !seen.insert((state.fingerprint(), phase)) {
            counts.equal += 1;
            return Ok(());
        }
        counts.states += 1;
        let by_e2fsck = depth.e2fsck != 0
            && setup.is_for_e2fsck()
            && !state.cut.tears()
            && (counts.states + depth.phase).is_multiple_of(depth.e2fsck);
        if by_e2fsck {
            counts.e2fsck += 1;
            let image = state.image().map_err(|error| error.to_string())?;
            image.fsck_replay().map_err(|error| error.to_string())?;
            image.fsck_clean().map_err(|error| error.to_string())?;
        }
        let keep = std::env::var_os("EXTANT_KEEP_STATE").filter(|_| depth.only.is_some());
        if let Some(path) = keep {
            let bytes = state.bytes().map_err(|error| error.to_string())?;
            std::fs::write(path, bytes).map_err(|error| error.to_string())?;
        }
        judge(&state, setup, &due.snapshots)
    });
    match explored {
        Ok(_) => Ok(counts),
        Err(failure) => {
            let cut = Some(failure.cut);
            let why = failure.why;
            Err((Unrecovered { cut, why }, counts))
        }
    }
}

/// Mounts the state, finds one of the snapshots, writes, unmounts, and finds the volume clean.
fn judge(state: &CrashState, setup: &Setup, snapshots: &[(usize, Model)]) -> Result<(), String> {
    let volume = setup.options().open_on(state.device.clone());
    let volume = volume.map_err(|error| format!("mount: {error}"))?;
    let view = View::of(&volume)?;
    let mut why = Vec::new();
    let found = snapshots.iter().any(|(done, model)| {
        let mismatch = view.mismatch(model);
        why.extend(mismatch.iter().map(|why| format!("after {done}: {why}")));
        mismatch.is_none()
    });
    if !found {
        return Err(why.join("; or "));
    }
    let write = || {
        let (root, cred) = (volume.root()?, Cred::root());
        let file = volume.create(&root, b"next", 0o644, &cred)?;
        volume.append(&file, &[1; 5000], &cred)?;
        volume.fsync(&file, false)
    };
    write().map_err(|error| format!("the next mount writes: {error}"))?;
    volume
        .unmount()
        .map_err(|error| format!("unmount: {error}"))?;
    drop(volume);
    let options = CheckOptions {
        threads: 1,
        max_findings: 10,
        replay_bytes: None,
        journal: None,
        progress: None,
    };
    let report = check(state.device.clone(), &options);
    let report = report.map_err(|error| format!("check: {error}"))?;
    match report.findings.first().or(report.notes.first()) {
        Some(finding) => Err(format!("check: {finding}")),
        None => Ok(()),
    }
}
