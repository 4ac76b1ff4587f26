//! A model check of pushes and runs of gc: the real code, on a store in memory, in all orders of
//! their requests.
//!
//! A call is run again from its start with the answers that it had so far, until it sends a request
//! that has no answer yet. So a state is a value: the store, the time, and for each call its
//! answers. The search takes each step from each state, and meets a state once.
//!
//! # Invariants
//! - Each object that a version names is there, at every moment.
//! - When all has ended, some runs of gc leave nothing that no version names, and no list.

mod actor;
mod settings;
mod shelf;
mod state;

use std::collections::HashMap;

use extant_testkit::Rng;
use state::{Rules, State};

/// The outcome of a search.
#[derive(Debug)]
struct Searched {
    /// States that were met.
    states: usize,
    /// Orders of steps that lead to an end: the paths through the states.
    schedules: f64,
    /// Stores that are left at an end.
    ends: usize,
}

/// Steps through all states behind `first`.
fn search(rules: &Rules, first: State) -> Searched {
    let mut known = HashMap::new();
    let mut ends = HashMap::new();
    let mut trace = Vec::new();
    let schedules = visit(rules, first, &mut known, &mut ends, &mut trace);
    Searched {
        states: known.len(),
        schedules,
        ends: ends.len(),
    }
}

/// The schedules behind `state`. Panics at one that breaks an invariant, with its steps.
fn visit(
    rules: &Rules,
    state: State,
    known: &mut HashMap<u64, f64>,
    ends: &mut HashMap<u64, ()>,
    trace: &mut Vec<String>,
) -> f64 {
    let key = state.key();
    if let Some(&schedules) = known.get(&key) {
        return schedules;
    }
    let steps = state.steps(rules);
    let mut schedules = 0.0;
    for step in &steps {
        trace.push(state.tell(step));
        let next = state.take(rules, step);
        if let Some(missing) = next.broken(rules) {
            panic!("{missing} is gone after\n{}", trace.join("\n"));
        }
        schedules += visit(rules, next, known, ends, trace);
        trace.pop();
    }
    if steps.is_empty() {
        schedules = 1.0;
        if ends.insert(state.shelf.contents_key(), ()).is_none()
            && let Some(left) = state.left_over(rules)
        {
            panic!("{left} is left after\n{}", trace.join("\n"));
        }
    }
    known.insert(key, schedules);
    schedules
}

/// Takes random steps to an end. Panics as `visit` does.
fn walk(rules: &Rules, mut state: State, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut trace = Vec::new();
    let fail = |what: String, trace: &[String]| panic!("seed {seed}: {what}\n{}", trace.join("\n"));
    loop {
        let steps = state.steps(rules);
        if steps.is_empty() {
            break;
        }
        // A call mostly goes on for a while.
        let again = steps.iter().find(|step| state.is_next_of_last(step));
        let step = match again {
            Some(step) if rng.index(8) > 0 => step,
            _ => &steps[rng.index(steps.len())],
        };
        trace.push(state.tell(step));
        state = state.take(rules, step);
        if let Some(missing) = state.broken(rules) {
            fail(format!("{missing} is gone"), &trace);
        }
    }
    if let Some(left) = state.left_over(rules) {
        fail(format!("{left} is left"), &trace);
    }
}
