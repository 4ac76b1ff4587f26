//! Workloads of so many operations: those that can run, one of each two that mirror each other.

use std::collections::BTreeSet;

use extant_testkit::Rng;

use crate::content::Habits;
use crate::model::{Model, Touched};
use crate::ops::{Op, Persist, Step, Workload};

/// Every workload of `count` operations. After the last operation
/// something is made durable, or nothing; likewise after those before it, but only what they had
/// changed.
pub(crate) fn workloads(count: usize, habits: Habits) -> Vec<Workload> {
    let mut all = Vec::new();
    let mut steps = Vec::new();
    extend(&Model::start(habits), count, 0, &mut steps, &mut all);
    all.retain(Workload::is_first_of_its_kind);
    all
}

/// Objects that the steps since the last one that made something durable had changed.
fn changed(model: &Model, op: Op, nth: usize) -> Option<(Model, BTreeSet<Touched>)> {
    let mut next = model.clone();
    let effect = next.apply(op, nth)?;
    let mut touched: BTreeSet<Touched> = effect.touched.iter().map(|(object, _)| *object).collect();
    touched.extend(effect.change.map(|(id, _)| Touched::Node(id)));
    Some((next, touched))
}

fn extend(model: &Model, left: usize, nth: usize, steps: &mut Vec<Step>, all: &mut Vec<Workload>) {
    for op in Op::all() {
        let Some((next, touched)) = changed(model, op, nth) else {
            continue;
        };
        steps.push(Step::Do(op));
        if left == 1 {
            all.push(Workload(steps.clone()));
        } else {
            extend(&next, left - 1, nth + 1, steps, all);
        }
        for (persist, object) in next.persists() {
            let wanted = left == 1 || object.is_none_or(|object| touched.contains(&object));
            if !wanted {
                continue;
            }
            steps.push(Step::Persist(persist));
            if left == 1 {
                all.push(Workload(steps.clone()));
            } else {
                extend(&next, left - 1, nth + 1, steps, all);
            }
            steps.pop();
        }
        steps.pop();
    }
}

/// A random workload of `count` operations: one of those that [`workloads`] has, or the mirror
/// image of one.
pub(crate) fn random(rng: &mut Rng, count: usize, habits: Habits) -> Workload {
    let (mut model, mut steps) = (Model::start(habits), Vec::new());
    let ops: Vec<Op> = Op::all().collect();
    let mut done = 0;
    while done < count {
        let op = ops[rng.index(ops.len())];
        let Some((next, touched)) = changed(&model, op, done) else {
            continue;
        };
        (model, done) = (next, done + 1);
        steps.push(Step::Do(op));
        let persists = model.persists().into_iter();
        let wanted: Vec<_> = persists
            .filter(|(_, object)| {
                done == count || object.is_none_or(|object| touched.contains(&object))
            })
            .collect();
        let chosen = rng.index(wanted.len() + 1);
        steps.extend(
            wanted
                .get(chosen)
                .map(|(persist, _)| Step::Persist(*persist)),
        );
    }
    Workload(steps)
}

#[test]
fn every_kind_of_operation_is_among_them() {
    let habits = Habits {
        block: 1024,
        early_sizes: false,
    };
    let ones = workloads(1, habits);
    for op in Op::all() {
        let mut model = Model::start(habits);
        let runs = model.apply(op, 0).is_some();
        let begins = |workload: &&Workload| {
            let mirrored = Step::Do(op).mirrored();
            workload.0[0] == Step::Do(op) || workload.0[0] == mirrored
        };
        assert_eq!(
            ones.iter().any(|workload| begins(&workload)),
            runs,
            "{op:?}"
        );
    }
    let fsyncs =
        |workload: &&Workload| matches!(workload.0.last(), Some(Step::Persist(Persist::Fsync(_))));
    let count = ones.iter().filter(fsyncs).count();
    assert!(count > 100, "{count} of {}", ones.len());
}
