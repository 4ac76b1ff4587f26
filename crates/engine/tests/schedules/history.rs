//! Histories of calls, and the search for an order of their parts that explains what they returned.
//!
//! A history is linearizable if its parts can be put in an order in which each part of a call lies
//! between the call's begin and its end, and each is possible where it stands. The search goes
//! through the orders by depth, and remembers each pair of parts done and state that led nowhere
//! (Wing and Gong; Lowe). A part that only looks is taken at once where it is possible: no order
//! gains from a delay. Each value is of one call, so values that were seen, and those of the end,
//! tell much of the order beforehand.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

use crate::model::{Part, State, Value};
use crate::program::Op;

/// States after which the search gives up.
const MOST: usize = 20_000;

/// A hash of a state: quick, as a search makes many, and the same in each run.
#[derive(Default)]
struct Quick(u64);

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

/// Sets and maps with that hash.
type Build = BuildHasherDefault<Quick>;

/// A call that has returned.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Its thread: 0 is the one that begins and ends a program.
    pub(crate) thread: usize,
    /// The call; none if all was looked at.
    pub(crate) op: Option<Op>,
    /// It failed: it promises nothing.
    pub(crate) failed: bool,
    /// Its words, and what it returned.
    pub(crate) text: String,
    /// Writes and flushes of the device before it began, and before it returned.
    pub(crate) events: (usize, usize),
    /// Moments of its begin and its end.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// Its steps.
    pub(crate) parts: Vec<Part>,
    /// They are taken in this order.
    pub(crate) ordered: bool,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            thread,
            text,
            begin,
            end,
            ..
        } = self;
        write!(f, "  [{begin:>3}..{end:>3}] thread {thread}: {text}")
    }
}

/// The outcome of a search.
pub(crate) enum Verdict {
    /// There is an order.
    Explained,
    /// There is none. The parts that came next in the order that got furthest.
    Impossible(Vec<String>),
    /// The search gave up.
    Undecided,
}

struct Step<'a> {
    part: &'a Part,
    /// The steps before it.
    after: u128,
    looks: bool,
}

/// Searches for an order that explains `calls`, from `first` on. The calls of thread 0 come before
/// all others, or after them.
pub(crate) fn explain(first: &State, calls: &[Call]) -> Verdict {
    let others = || calls.iter().filter(|call| call.thread > 0);
    let begin = others().map(|call| call.begin).min().unwrap_or(u64::MAX);
    let (before, rest): (Vec<_>, Vec<_>) = calls.iter().partition(|call| call.end < begin);
    let (after, between): (Vec<_>, Vec<_>) = rest.into_iter().partition(|call| call.thread == 0);
    let mut state = first.clone();
    match one_by_one(&mut state, &before) {
        Some(call) => Verdict::Impossible(vec![call.text.clone()]),
        None => search(&state, &between, &after),
    }
}

/// Takes the steps of calls that came one after the other. Returns the first that is impossible.
fn one_by_one<'a>(state: &mut State, calls: &[&'a Call]) -> Option<&'a Call> {
    let possible = |state: &mut State, call: &Call| call.parts.iter().all(|part| state.apply(part));
    calls.iter().find(|call| !possible(state, call)).copied()
}

/// Searches for an order of `calls` after which `after` is possible.
fn search(first: &State, calls: &[&Call], after: &[&Call]) -> Verdict {
    let mut last = None;
    let mut explained = false;
    let walked = walk(first, calls, after, |state| {
        last = one_by_one(&mut state.clone(), after);
        explained = last.is_none();
        explained
    });
    match (walked, last) {
        _ if explained => Verdict::Explained,
        (None, _) => Verdict::Undecided,
        (Some(_), Some(call)) => Verdict::Impossible(vec![call.text.clone()]),
        (Some(missing), None) => Verdict::Impossible(missing),
    }
}

/// All states that orders of `calls` lead to; none if there are too many.
pub(crate) fn outcomes(first: &State, calls: &[&Call]) -> Option<Vec<State>> {
    let mut all: HashSet<State, Build> = HashSet::default();
    walk(first, calls, &[], |state| {
        all.insert(state.clone());
        false
    })?;
    Some(all.into_iter().collect())
}

/// Goes through the orders of `calls` that `after` may follow, and shows `visit` each state at the
/// end of one, until it returns true. Returns the parts that came next in the order that got
/// furthest, or none if there are too many orders.
fn walk(
    first: &State,
    calls: &[&Call],
    after: &[&Call],
    mut visit: impl FnMut(&State) -> bool,
) -> Option<Vec<String>> {
    if calls.iter().map(|call| call.parts.len()).sum::<usize>() >= 128 {
        return None;
    }
    let (mut steps, owners) = steps(calls);
    order_by_values(&mut steps, after);
    let all = (0..steps.len()).fold(0_u128, |mask, step| mask | 1 << step);
    let hashes = Build::default();
    let mut seen: HashSet<(u128, u64), Build> = HashSet::default();
    let mut stack = vec![(0_u128, first.clone())];
    let mut best = 0_u128;
    while let Some((done, state)) = stack.pop() {
        let (done, state) = look(&steps, done, state);
        if done.count_ones() > best.count_ones() {
            best = done;
        }
        if !seen.insert((done, hashes.hash_one(&state))) {
            continue;
        }
        if done == all && visit(&state) {
            break;
        }
        if seen.len() > MOST {
            return None;
        }
        for (number, step) in steps.iter().enumerate().rev() {
            if is_next(step, number, done) {
                let mut next = state.clone();
                if next.apply(step.part) {
                    stack.push((done | 1 << number, next));
                }
            }
        }
    }
    let missing: Vec<_> = (0..steps.len())
        .filter(|step| best & 1 << step == 0)
        .collect();
    // What stands behind these could not come before; none if each stands behind another.
    let is_first = |step: &&usize| steps[**step].after & !best == 0;
    let first: Vec<_> = missing.iter().filter(is_first).copied().collect();
    let shown = if first.is_empty() { missing } else { first };
    let words = shown.into_iter().map(|step| {
        let call = calls[owners[step]];
        format!("{:?} of {}", steps[step].part, call.text)
    });
    Some(words.collect())
}

/// Adds what values tell about the order, unless cells move: the step that gave a cell what `after`
/// shows there comes after all others that change the cell; a step that saw a value comes after the
/// one that gave it, and before the cell's last change if that gave another value.
fn order_by_values(steps: &mut [Step<'_>], after: &[&Call]) {
    let moves = |step: &Step<'_>| {
        matches!(
            step.part,
            Part::Collapse(..) | Part::Insert(..) | Part::Load(..)
        )
    };
    if steps.iter().any(moves) {
        return;
    }
    let mut last: HashMap<_, _, Build> = HashMap::default();
    for (file, cell, value) in after.iter().flat_map(|call| shown(&call.parts)) {
        last.entry((file, cell)).or_insert(value);
    }
    for (&(file, cell), &value) in &last {
        let Some(giver) = giver(steps, file, cell, value) else {
            continue;
        };
        for number in 0..steps.len() {
            if number != giver && steps[number].part.gives(file, cell).is_some() {
                steps[giver].after |= 1 << number;
            }
        }
    }
    for number in 0..steps.len() {
        for (file, cell, value) in shown(std::slice::from_ref(steps[number].part)) {
            let begins = |step: &Step<'_>| step.part.begins_to_give(file, cell) == Some(value);
            if let Some(first) = steps.iter().position(begins) {
                steps[number].after |= 1 << first;
            }
            let end = last.get(&(file, cell)).filter(|end| **end != value);
            if let Some(end) = end.and_then(|end| giver(steps, file, cell, *end)) {
                steps[end].after |= 1 << number;
            }
        }
    }
}

/// The cells that parts have seen, and their values, if these are no zeros.
fn shown(parts: &[Part]) -> Vec<(usize, usize, Value)> {
    let mut cells = Vec::new();
    for part in parts {
        if let Part::Show(file, at, values) = part {
            let values = (*at..).zip(values).filter(|(_, value)| **value != 0);
            cells.extend(values.map(|(cell, value)| (*file, cell, *value)));
        }
    }
    cells
}

/// The step that gives a cell a value.
fn giver(steps: &[Step<'_>], file: usize, cell: usize, value: Value) -> Option<usize> {
    let gives = |step: &Step<'_>| step.part.gives(file, cell) == Some(Some(value));
    steps.iter().position(gives)
}

fn is_next(step: &Step<'_>, number: usize, done: u128) -> bool {
    done & (1 << number) == 0 && step.after & !done == 0
}

/// Takes all steps that look at the state as it is.
fn look(steps: &[Step<'_>], mut done: u128, state: State) -> (u128, State) {
    loop {
        let before = done;
        for (number, step) in steps.iter().enumerate() {
            if step.looks && is_next(step, number, done) {
                let mut after = state.clone();
                if after.apply(step.part) && after == state {
                    done |= 1 << number;
                }
            }
        }
        if done == before {
            return (done, state);
        }
    }
}

/// The steps of all calls, and the call of each.
fn steps<'a>(calls: &[&'a Call]) -> (Vec<Step<'a>>, Vec<usize>) {
    let mut owners = Vec::new();
    let mut masks = Vec::new();
    for (number, call) in calls.iter().enumerate() {
        let from = owners.len();
        owners.extend(call.parts.iter().map(|_| number));
        masks.push((from..owners.len()).fold(0_u128, |mask, step| mask | 1 << step));
    }
    let mut steps = Vec::new();
    for call in calls {
        let earlier = calls
            .iter()
            .zip(&masks)
            .filter(|(other, _)| other.end < call.begin);
        let before = earlier.fold(0, |all, (_, mask)| all | mask);
        let from = steps.len();
        for part in &call.parts {
            let own = (from..steps.len()).fold(0_u128, |mask, step| mask | 1 << step);
            steps.push(Step {
                part,
                after: before | if call.ordered { own } else { 0 },
                looks: matches!(
                    part,
                    Part::Show(..)
                        | Part::End(..)
                        | Part::Size(..)
                        | Part::Data(..)
                        | Part::Name(..)
                        | Part::Links(..)
                        | Part::Attr(..)
                        | Part::Free(..)
                        | Part::Barred(..)
                        | Part::SomeBarred
                ),
            });
        }
    }
    (steps, owners)
}
