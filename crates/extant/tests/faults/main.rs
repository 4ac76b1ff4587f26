//! Device faults: whichever request of a fixed workload fails, nothing panics or hangs, the error
//! reaches the callers that it concerns and no others, and all acknowledged data is there
//! afterwards.
//!
//! The workload runs once to count its requests. Then it runs once for each request and each mode
//! in which that can fail; on the volumes that few people have, for every third of these, and for
//! all of them in the soak. A run that breaks a rule prints one line with the setup, the request
//! and the mode.

mod direct;
mod flips;
mod judge;
mod lost;
mod policies;
mod ranges;
mod referee;
mod stage;
mod units;
mod workload;
mod world;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use stage::{Mode, Order, Origin, Seen, Stage};
use workload::{Base, SETUPS, Setup, Workload, fixed};
use world::World;

/// e2fsck checks one run of this many.
const E2FSCK_EVERY: usize = 40;
/// One request and mode of so many fails on volumes other than the usual one.
const OTHERS: usize = 6;
/// The longest that one run may take.
const BOUND: Duration = Duration::from_secs(120);

/// One run: the workload under `order`, and the content of the device afterwards.
fn run(
    setup: &Setup,
    work: Workload,
    base: &Base,
    order: Option<Order>,
    e2fsck: bool,
) -> (World, Vec<String>) {
    let log_blocks = base.log_blocks.clone();
    let stage = Stage::new(&base.bytes, base.block_size, log_blocks, order);
    let stage = Arc::new(stage);
    let mut world = World::new(setup, stage.clone(), base.known.clone());
    work(&mut world);
    let mut trouble = std::mem::take(&mut world.referee.complaints);
    let stopped = world.referee.stopped();
    stage.end();
    if e2fsck
        && !stopped
        && let Err(why) = judge::by_e2fsck(&stage)
    {
        trouble.push(format!("e2fsck: {why}"));
    }
    if let Err(why) = judge::judge(setup, &stage, &world) {
        trouble.push(format!("afterwards: {why}"));
    }
    if e2fsck && let Err(why) = judge::by_e2fsck(&stage) {
        trouble.push(format!("e2fsck, after Extant: {why}"));
    }
    (world, trouble)
}

/// The requests of a run without faults.
fn requests(setup: &Setup, work: Workload, base: &Base) -> Vec<Seen> {
    let (world, trouble) = run(setup, work, base, None, true);
    assert!(trouble.is_empty(), "{}: {trouble:#?}", setup.name);
    let seen = world.stage.seen();
    let stranger = seen.iter().find(|seen| seen.by == Origin::Other);
    assert!(stranger.is_none(), "{}: {stranger:?}", setup.name);
    seen
}

/// Every request of a run, in every mode that concerns it; the one that `EXTANT_FAULT` names
/// (`Fail@12`), if it is set.
fn orders(seen: &[Seen]) -> Vec<Order> {
    let only = std::env::var("EXTANT_FAULT").ok();
    (0..)
        .zip(seen)
        .flat_map(|(at, seen)| {
            let modes = Mode::ALL.into_iter();
            modes
                .filter(|mode| mode.concerns(seen.kind, seen.cargo))
                .map(move |mode| Order { at, mode })
        })
        .filter(|order| {
            only.as_ref()
                .is_none_or(|only| *only == format!("{:?}@{}", order.mode, order.at))
        })
        .collect()
}

/// Outcome of one order: the request that it met with the caller's outcome, and the complaints.
struct Report {
    order: Order,
    met: Option<String>,
    complaints: Vec<String>,
}

/// One of every `step`, from number `first` on. One that was asked for by name is in every sample.
fn sample(orders: Vec<Order>, first: usize, step: usize) -> Vec<Order> {
    match orders.len() {
        0 | 1 => orders,
        _ => orders.into_iter().skip(first).step_by(step).collect(),
    }
}

/// A workload on a setup, with the orders that threads take from it one by one.
struct Plan {
    setup: &'static Setup,
    work: Workload,
    base: Base,
    orders: Vec<Order>,
    next: AtomicUsize,
}

impl Plan {
    /// Runs orders until none is left, and sends a report of each.
    fn work_off(&self, reports: &Sender<Report>) {
        judge_panics_here();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(&order) = self.orders.get(number) else {
                return;
            };
            let attempt = std::panic::AssertUnwindSafe(|| {
                let e2fsck = number.is_multiple_of(E2FSCK_EVERY) || self.orders.len() == 1;
                run(self.setup, self.work, &self.base, Some(order), e2fsck)
            });
            let report = match std::panic::catch_unwind(attempt) {
                Ok((world, complaints)) => Report {
                    order,
                    met: met(&world),
                    complaints,
                },
                Err(_) => Report {
                    order,
                    met: None,
                    complaints: vec!["it panicked".into()],
                },
            };
            if reports.send(report).is_err() {
                return;
            }
        }
    }
}

/// The request that a run's order met, and the outcome that its caller saw.
fn met(world: &World) -> Option<String> {
    let seen = world.stage.fired()?;
    let cargo = match seen.cargo {
        stage::Cargo::Data(_) => "Data".to_owned(),
        other => format!("{other:?}"),
    };
    let outcome = world.referee.outcome.clone().unwrap_or_default();
    Some(format!("{:?} {cargo}: {outcome}", seen.kind))
}

/// Every request of the workload, in every mode that concerns it.
fn every_fault(setup: &'static Setup, work: Workload, threads: usize) {
    every_nth_fault((0, 1), setup, work, threads);
}

/// One of every `step` requests and modes, from number `first` on.
fn every_nth_fault(
    (first, step): (usize, usize),
    setup: &'static Setup,
    work: Workload,
    threads: usize,
) {
    let base = Base::new(setup);
    let seen = requests(setup, work, &base);
    let orders = sample(orders(&seen), first, step);
    let plan = Arc::new(Plan {
        setup,
        work,
        base,
        orders,
        next: AtomicUsize::new(0),
    });
    let (sender, reports) = channel();
    for _ in 0..threads {
        let (plan, sender) = (plan.clone(), sender.clone());
        std::thread::spawn(move || plan.work_off(&sender));
    }
    drop(sender);
    let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
    let (mut runs, mut broken) = (0, 0);
    loop {
        let Report {
            order,
            met,
            complaints,
        } = match reports.recv_timeout(extant_testkit::patience(BOUND)) {
            Ok(report) => report,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                panic!("a run hangs, near {:?}", plan.orders.get(runs))
            }
        };
        runs += 1;
        let what = match met {
            None => "not met".to_owned(),
            Some(met) => format!("{:?}, {met}", order.mode),
        };
        *outcomes.entry(what).or_default() += 1;
        if !complaints.is_empty() {
            broken += 1;
            eprintln!(
                "EXTANT_FAULT={:?}@{} of {}: {:?}: {}",
                order.mode,
                order.at,
                setup.name,
                seen.get(usize::try_from(order.at).unwrap()),
                complaints.join("; ")
            );
        }
    }
    for (what, count) in &outcomes {
        eprintln!("{count:6} {what}");
    }
    let panics = PANICS.lock().unwrap().clone();
    extant_testkit::report(&format!(
        "device faults, {}: {} requests, {runs} runs, {broken} broken, {} panics",
        setup.name,
        seen.len(),
        panics.len()
    ));
    assert!(
        broken == 0 && panics.is_empty(),
        "{broken} runs; {panics:?}"
    );
    assert_eq!(runs, plan.orders.len());
}

/// Panics of the file systems' own threads.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

thread_local! {
    /// A panic of this thread fails its test without this hook.
    static JUDGED: Cell<bool> = const { Cell::new(false) };
}

fn judge_panics_here() {
    JUDGED.set(true);
}

/// From now on panics are noted, except those of this thread and of tests that do not call this.
fn note_panics() {
    static HOOKED: Once = Once::new();
    judge_panics_here();
    HOOKED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let current = std::thread::current();
            // Tests have the main thread, or one that is named by their path.
            let of_a_test = current
                .name()
                .is_some_and(|name| name == "main" || name.contains("::"));
            if !of_a_test
                && !JUDGED.get()
                && let Ok(mut panics) = PANICS.lock()
            {
                panics.push(info.to_string());
            }
            before(info);
        }));
    });
}

#[test]
fn a_fault_at_every_request() {
    note_panics();
    every_fault(&SETUPS[0], fixed, 2);
}

#[test]
fn a_fault_at_every_request_of_other_volumes() {
    note_panics();
    for (nth, setup) in SETUPS[1..].iter().enumerate() {
        every_nth_fault((nth % OTHERS, OTHERS), setup, fixed, 2);
    }
}

/// Range operations: a failed one leaves everything that it does not remove, and the next call is
/// served.
#[test]
fn a_fault_at_every_request_of_range_operations() {
    note_panics();
    for setup in SETUPS
        .iter()
        .filter(|setup| ranges::SETUPS.contains(&setup.name))
    {
        every_fault(setup, ranges::ranges, 2);
    }
}

/// Repeats all of it, on fresh images, for `EXTANT_SECONDS`: a stage of the soak. Without that
/// variable, a fortieth of it, once.
#[test]
fn soak() {
    note_panics();
    let seconds = std::env::var("EXTANT_SECONDS").ok();
    let step = if seconds.is_some() { 1 } else { 41 };
    let seconds = seconds.map_or(0, |seconds| seconds.parse().unwrap());
    let end = std::time::Instant::now() + Duration::from_secs(seconds);
    for setup in SETUPS.iter().cycle() {
        every_nth_fault((0, step), setup, fixed, 3);
        if ranges::SETUPS.contains(&setup.name) {
            every_nth_fault((0, step), setup, ranges::ranges, 3);
        }
        if std::time::Instant::now() >= end {
            return;
        }
    }
}
