//! Rounds of workloads: which ones, on which setup, on how many threads, and what a failure prints.
//!
//! The environment chooses:
//!
//! | variable | meaning |
//! |---|---|
//! | `EXTANT_WORKLOAD` | `SETUP: STEP, STEP, ...`: this one only |
//! | `EXTANT_CUT` | of it one state only, as a failure names it |
//! | `EXTANT_FAILPOINT` | the failpoint to switch on |
//! | `EXTANT_SEED` | chooses the samples |
//! | `EXTANT_OPERATIONS` | a soak has workloads of so many operations only |
//! | `EXTANT_SECONDS` | how long a soak takes |
//! | `EXTANT_THREADS` | threads |
//! | `EXTANT_KEEP_STATE` | where to write the device of a failing state |

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use extant_failpoint::{ActiveFailpoint, Failpoint};
use extant_testkit::{Rng, report};

use crate::explore::{Counts, Depth, explore, explore_linux};
use crate::generate::{random, workloads};
use crate::linux::ByLinux;
use crate::ops::Workload;
use crate::setups::{SETUPS, Setup};

/// A variable of the environment, parsed; a bad value is an error.
pub(crate) fn knob<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    let parsed = text.parse().ok();
    Some(parsed.unwrap_or_else(|| panic!("{name}={text} is not understood")))
}

/// The seed of this run of the tests.
pub(crate) fn seed() -> u64 {
    knob("EXTANT_SEED").unwrap_or(1)
}

/// A workload on a setup.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) setup: &'static Setup,
    pub(crate) workload: Workload,
    pub(crate) failpoint: Option<Failpoint>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setup.name, self.workload)
    }
}

impl Case {
    pub(crate) fn new(setup: &'static Setup, workload: Workload) -> Self {
        Self {
            setup,
            workload,
            failpoint: knob::<String>("EXTANT_FAILPOINT")
                .map(|name| Failpoint::named(&name).expect("the name of a failpoint")),
        }
    }

    /// The case that `EXTANT_WORKLOAD` names.
    pub(crate) fn wanted() -> Option<Self> {
        let text = knob::<String>("EXTANT_WORKLOAD")?;
        let (setup, workload) = text.split_once(": ").expect("a setup and steps");
        let setup = Setup::named(setup).expect("the name of a setup");
        Some(Self::new(setup, workload.parse().expect("steps")))
    }

    /// Runs it and judges its states; every so many are judged by e2fsck too, counted from `phase`.
    ///
    /// # Errors
    /// A state that is not recovered: why, and the line that leads back to it.
    pub(crate) fn run(&self, e2fsck: u64, phase: u64) -> Result<Counts, (String, Counts)> {
        let depth = Depth {
            failpoint: self
                .failpoint
                .map_or(ActiveFailpoint::default(), ActiveFailpoint::only),
            whole: self.setup.name == "linux",
            only: knob("EXTANT_CUT"),
            e2fsck,
            phase,
        };
        let explored = match self.setup.name {
            "linux" => explore_linux(&self.workload, self.setup, depth),
            _ => explore(&self.workload, self.setup, depth),
        };
        explored.map_err(|(failure, counts)| {
            let mut line = format!("EXTANT_WORKLOAD='{self}'");
            if let Some(cut) = failure.cut {
                line = format!("{line} EXTANT_CUT={cut}");
            }
            if let Some(failpoint) = self.failpoint {
                line = format!("{line} EXTANT_FAILPOINT={}", failpoint.name());
            }
            let test = "cargo test -p extant-engine --test short_workloads one_operation";
            let why = format!("{self}: {}\nreproduce: {line} {test}", failure.why);
            (why, counts)
        })
    }
}

/// The workloads of one operation, on setups.
pub(crate) fn of_one_operation<'a>(
    setups: impl IntoIterator<Item = &'a &'static str>,
) -> Vec<Case> {
    let setups = setups.into_iter();
    let setups = setups.map(|name| Setup::named(name).expect("the name of a setup"));
    setups
        .flat_map(|setup| on(setup, workloads(1, setup.habits)))
        .collect()
}

/// Cases that Linux's ext4 runs as a control: of the workloads of one operation each `stride`-th.
pub(crate) fn control(stride: usize) -> Vec<Case> {
    let setup = Setup::of_linux();
    let cases = on(setup, workloads(1, setup.habits));
    let runs = |case: &Case| ByLinux::can_run(&case.workload);
    cases.filter(runs).step_by(stride).collect()
}

/// A sample of `count` of the workloads of two operations, on one setup after the other.
pub(crate) fn sample_of_two(seed: u64, count: usize) -> Vec<Case> {
    let mut rng = Rng::new(seed);
    let mut cases = Vec::new();
    for nth in 0..count {
        let setup = &SETUPS[nth % SETUPS.len()];
        cases.push(Case::new(setup, random(&mut rng, 2, setup.habits)));
    }
    cases
}

fn on(setup: &'static Setup, workloads: Vec<Workload>) -> impl Iterator<Item = Case> {
    workloads
        .into_iter()
        .map(move |workload| Case::new(setup, workload))
}

/// All workloads of one operation on all setups; then all of two on the first setup, in an order by
/// seed, each followed by a random one of three on one of the setups; then those of three without
/// an end.
pub(crate) fn endless(seed: u64) -> impl Iterator<Item = Case> {
    let only = knob::<usize>("EXTANT_OPERATIONS");
    let mut rng = Rng::new(seed);
    let mut twos = match only {
        None | Some(2) => workloads(2, SETUPS[0].habits),
        Some(_) => Vec::new(),
    };
    for nth in (1..twos.len()).rev() {
        twos.swap(nth, rng.index(nth + 1));
    }
    let ones = match only {
        None | Some(1) => of_one_operation(SETUPS.iter().map(|setup| &setup.name)),
        Some(_) => Vec::new(),
    };
    let mut threes_are_due = false;
    let others = std::iter::from_fn(move || {
        if !threes_are_due || only == Some(2) {
            threes_are_due = true;
            if let Some(workload) = twos.pop() {
                return Some(Case::new(&SETUPS[0], workload));
            }
        }
        if only.is_some_and(|only| only < 3) {
            return None;
        }
        threes_are_due = false;
        let setup = &SETUPS[rng.index(SETUPS.len())];
        Some(Case::new(setup, random(&mut rng, 3, setup.habits)))
    });
    ones.into_iter().chain(others)
}

/// Explores cases on all cores until there are none left or the time is up, and reports counts.
/// With a limit, findings are printed as they come and the rest is explored all the same.
///
/// # Panics
/// If a state of any of them is not recovered.
pub(crate) fn explore_all(
    name: &str,
    cases: impl Iterator<Item = Case> + Send,
    e2fsck: u64,
    limit: Option<Duration>,
) -> Counts {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = knob("EXTANT_THREADS").unwrap_or(cores);
    let begun = Instant::now();
    let cases = Mutex::new((0, cases));
    let (counts, failures) = (Mutex::new(Counts::default()), Mutex::new(Vec::new()));
    let full = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !full.load(Ordering::Relaxed)
                    && limit.is_none_or(|limit| begun.elapsed() < limit)
                {
                    let (nth, case) = {
                        let mut cases = cases.lock().unwrap();
                        cases.0 += 1;
                        (cases.0, cases.1.next())
                    };
                    let Some(case) = case else {
                        break;
                    };
                    let more = match case.run(e2fsck, nth) {
                        Ok(more) => more,
                        Err((why, more)) => {
                            println!("{why}");
                            let mut failures = failures.lock().unwrap();
                            failures.push(why);
                            full.store(failures.len() >= 50, Ordering::Relaxed);
                            more
                        }
                    };
                    let mut counts = counts.lock().unwrap();
                    *counts += more;
                    if limit.is_some() && counts.workloads.is_multiple_of(5000) {
                        // A soak that is killed has said how far it got.
                        println!("{counts}");
                    }
                }
            });
        }
    });
    let counts = counts.into_inner().unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    report(&format!(
        "short workloads, {name}: {counts}, {seconds:.0} s on {threads} threads"
    ));
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} workloads fail, the first is\n{}",
        failures.len(),
        failures[0]
    );
    counts
}

/// Time of a soak.
pub(crate) fn soak_time() -> Duration {
    Duration::from_secs(knob("EXTANT_SECONDS").unwrap_or(1))
}
