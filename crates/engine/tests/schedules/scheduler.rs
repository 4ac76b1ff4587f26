//! The scheduler: which thread makes the next step follows from a seed.
//!
//! Three kinds, as the seed says: any thread at each step; a thread goes on for a while; the thread
//! with the highest priority, with a few moments at which a priority changes (PCT: Burckhardt et
//! al.). A program's first schedule shows how many steps there are to draw them from. Before the
//! threads of a program begin, and after they have ended, a thread goes on until it waits.
//!
//! A thread in a timed wait is chosen now and then: its time is up. When no other can run, it is.
//! The number of steps that the others make meanwhile is drawn for each schedule, from two to some
//! hundred.

use std::cell::Cell;
use std::collections::HashMap;

use extant_sync::sleeping;
use extant_testkit::Rng;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

thread_local! {
    static EXPLORING: Cell<bool> = const { Cell::new(false) };
    static STEPS: Cell<u64> = const { Cell::new(0) };
    static TRACE: Cell<u64> = const { Cell::new(0) };
}

/// Lets the seed choose from now on, or no longer.
pub(crate) fn explore(yes: bool) {
    EXPLORING.set(yes);
}

/// Steps so far at which the seed chose between threads.
pub(crate) fn steps() -> u64 {
    STEPS.get()
}

/// A number that stands for all choices so far.
pub(crate) fn trace() -> u64 {
    TRACE.get()
}

/// In so many steps a timed wait may end: short waits beside slow threads, and long ones.
const TIMED: [u64; 4] = [2, 40, 40, 400];
/// Steps within which priorities change.
const LONGEST: u64 = 4000;

enum Kind {
    /// The thread goes on so many times in a hundred.
    Random(u64),
    /// Priorities, and the steps at which the running thread gets the lowest one.
    Priorities(HashMap<TaskId, u64>, Vec<u64>),
}

/// The scheduler of one schedule.
pub(crate) struct Chooser {
    rng: Rng,
    kind: Kind,
    begun: bool,
    lowest: u64,
    /// In so many steps a timed wait may end.
    timed: u64,
}

impl Chooser {
    /// The scheduler of `seed`, for a program that has about so many steps; zero if that is not
    /// known.
    pub(crate) fn new(seed: u64, steps: u64) -> Self {
        EXPLORING.set(false);
        STEPS.set(0);
        TRACE.set(0);
        let mut rng = Rng::new(seed);
        let kind = if seed.is_multiple_of(4) {
            let stays = [0, 50, 90, 98];
            Kind::Random(stays[rng.index(stays.len())])
        } else {
            let changes = changes(&mut rng, steps);
            Kind::Priorities(HashMap::new(), changes)
        };
        let timed = TIMED[rng.index(TIMED.len())];
        Self {
            rng,
            kind,
            begun: false,
            lowest: u64::MAX / 2,
            timed,
        }
    }

    fn choose(&mut self, from: &[TaskId], current: Option<TaskId>, yields: bool) -> TaskId {
        if let [only] = from {
            return *only;
        }
        let step = STEPS.get();
        STEPS.set(step + 1);
        let rng = &mut self.rng;
        match &mut self.kind {
            Kind::Random(stays) => {
                let goes_on = current.filter(|task| from.contains(task) && !yields);
                match goes_on {
                    Some(task) if rng.chance(*stays) => task,
                    _ => from[rng.index(from.len())],
                }
            }
            Kind::Priorities(priorities, changes) => {
                if let Some(current) = current.filter(|_| yields || changes.contains(&step)) {
                    self.lowest -= 1;
                    priorities.insert(current, self.lowest);
                }
                let mut priority = |task: &TaskId| {
                    *priorities
                        .entry(*task)
                        .or_insert_with(|| u64::MAX - rng.below(1 << 40))
                };
                from.iter()
                    .copied()
                    .max_by_key(|task| priority(task))
                    .unwrap()
            }
        }
    }
}

/// The steps at which priorities change, of about `steps`. In half of the schedules any steps; in
/// the others the distances between them are of any order of magnitude: a fast path has few steps,
/// and what runs beside it many.
fn changes(rng: &mut Rng, steps: u64) -> Vec<u64> {
    let within = match steps {
        0 => LONGEST >> rng.below(6),
        known => known,
    };
    let count = rng.between(1, 4);
    if rng.chance(50) {
        return (0..count).map(|_| rng.below(within)).collect();
    }
    let magnitudes = u64::from(within.ilog2()) + 1;
    let mut at = 0;
    (0..count)
        .map(|_| {
            let magnitude = rng.below(magnitudes);
            at += rng.below(2 << magnitude);
            at
        })
        .collect()
}

/// Notes a choice.
fn note(chosen: TaskId) -> TaskId {
    let word = usize::from(chosen) as u64;
    TRACE.set(
        (TRACE.get() ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23),
    );
    chosen
}

impl Scheduler for Chooser {
    fn new_execution(&mut self) -> Option<Schedule> {
        (!std::mem::replace(&mut self.begun, true)).then(|| Schedule::new(0))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        yields: bool,
    ) -> Option<TaskId> {
        if let [only] = runnable {
            return Some(note(only.id()));
        }
        let all: Vec<TaskId> = runnable.iter().map(|task| task.id()).collect();
        let awake: Vec<TaskId> = all
            .iter()
            .copied()
            .filter(|task| !sleeping(*task))
            .collect();
        let exploring = EXPLORING.get();
        let ends_a_wait = exploring && self.rng.below(self.timed) == 0;
        let from = if awake.is_empty() || ends_a_wait {
            &all
        } else {
            &awake
        };
        let chosen = if exploring {
            self.choose(from, current, yields)
        } else {
            let goes_on = current.filter(|task| from.contains(task) && !yields);
            goes_on.unwrap_or_else(|| from[self.rng.index(from.len())])
        };
        Some(note(chosen))
    }

    fn next_u64(&mut self) -> u64 {
        self.rng.next_u64()
    }
}
