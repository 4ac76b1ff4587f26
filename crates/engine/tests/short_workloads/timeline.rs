//! Snapshots that a crash may show, from which event until which.
//!
//! The journal orders all changes of names and inodes. So what is there after a crash is the model
//! after some number of operations: at least those that were made durable, at most those that had
//! begun. The content of files follows it with some freedom ([`crate::content`]).

use std::collections::BTreeMap;

use crate::content::Change;
use crate::model::{Id, Model, Touched};
use crate::ops::{Op, Persist};

/// Promises of a file system beyond POSIX.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promises {
    /// fdatasync of a directory makes its names durable.
    pub(crate) fdatasync_of_names: bool,
}

/// States that may be found, from an event on.
pub(crate) struct Phase {
    /// The event.
    from: usize,
    /// The models, by the number of operations done.
    pub(crate) snapshots: Vec<(usize, Model)>,
}

/// The phases of a run.
pub(crate) struct Timeline {
    promises: Promises,
    phases: Vec<Phase>,
    done: usize,
    /// For each object the operations that had last changed it, as fsync and as fdatasync see it.
    last: BTreeMap<Touched, (usize, usize)>,
}

impl Timeline {
    /// Begins with a durable model.
    pub(crate) fn new(model: Model, promises: Promises) -> Self {
        let first = Phase {
            from: 0,
            snapshots: vec![(0, model)],
        };
        Self {
            promises,
            phases: vec![first],
            done: 0,
            last: BTreeMap::new(),
        }
    }

    /// The model as it is now, without a crash.
    pub(crate) fn newest(&self) -> &Model {
        let snapshots = self.phases.last().map(|phase| &phase.snapshots);
        let newest = snapshots.and_then(|snapshots| snapshots.last());
        &newest.expect("there is always a snapshot").1
    }

    /// An operation is about to begin, at event `now`; `None` if it cannot run.
    pub(crate) fn begin(&mut self, op: Op, now: usize) -> Option<Option<(Id, Change)>> {
        let mut next = self.newest().clone();
        let effect = next.apply(op, self.done)?;
        let last = self.phases.last()?;
        let mut snapshots = last.snapshots.clone();
        if let Some((id, change)) = &effect.change {
            let newest = next.nodes.get(id)?.content.clone();
            for (_, model) in &mut snapshots {
                if let Some(node) = model.nodes.get_mut(id) {
                    node.content.overtaken(change, &newest, next.habits);
                }
            }
        }
        self.done += 1;
        snapshots.push((self.done, next));
        for (touched, data) in &effect.touched {
            let last = self.last.entry(*touched).or_default();
            last.0 = self.done;
            if *data {
                last.1 = self.done;
            }
        }
        self.phases.push(Phase {
            from: now,
            snapshots,
        });
        Some(effect.change)
    }

    /// A step that makes something durable has returned, at event `now`.
    pub(crate) fn persisted(&mut self, persist: Persist, now: usize) {
        let object = match persist {
            Persist::Sync => None,
            Persist::Fsync(object) | Persist::Fdatasync(object) => self.newest().object(object),
        };
        let (any, data) = object.map_or((self.done, self.done), |object| {
            self.last.get(&object).copied().unwrap_or_default()
        });
        let least = match (persist, object) {
            (Persist::Fdatasync(_), Some(Touched::Dir(_))) if !self.promises.fdatasync_of_names => {
                0
            }
            (Persist::Fdatasync(_), _) => data,
            _ => any,
        };
        let newest = self.newest().clone();
        let Some(last) = self.phases.last() else {
            return;
        };
        let mut snapshots = last.snapshots.clone();
        snapshots.retain(|(done, _)| *done >= least);
        for (_, model) in &mut snapshots {
            for (id, node) in &mut model.nodes {
                let named = match object {
                    None => true,
                    Some(object) => object == Touched::Node(*id),
                };
                if named && let Some(there) = newest.nodes.get(id) {
                    node.content = there.content.clone();
                    node.content.acknowledge();
                }
            }
        }
        self.phases.push(Phase {
            from: now,
            snapshots,
        });
    }

    /// States that may be found when `completed` events have: its number, and the snapshots.
    pub(crate) fn at(&self, completed: usize) -> (usize, &Phase) {
        let mut phases = self.phases.iter().enumerate().rev();
        let due = phases.find(|(_, phase)| phase.from <= completed);
        due.expect("the first phase is from the beginning on")
    }
}
