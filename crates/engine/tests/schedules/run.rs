//! One schedule: a program on a volume, its history, and what is left on the device.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Once};

use extant_blockdev::BlockDevice;
use extant_check::{CheckOptions, check};
use extant_engine::Verifier;
use extant_sync::{restart, thread};
use extant_testkit::Rng;
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use crate::crash;
use crate::device::StepDevice;
use crate::history::{Call, Verdict, explain};
use crate::model::State;
use crate::program::{FILES, NAMES, Op, Program};
use crate::scheduler::{self, Chooser};
use crate::world::{Outcome, World};

/// Steps after which a schedule counts as one that hangs.
const MOST_STEPS: usize = 2_000_000;
/// Power cuts of a schedule that are judged.
const CUTS: usize = 2;
/// Bytes of a thread's stack.
const STACK: usize = 1 << 20;

/// A schedule that went well.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Count {
    /// Schedules.
    pub(crate) schedules: u64,
    /// Steps at which a thread was chosen.
    pub(crate) steps: u64,
    /// A number that stands for all choices.
    pub(crate) trace: u64,
    /// Requests of the device.
    pub(crate) requests: u64,
    /// Calls.
    pub(crate) calls: u64,
    /// The search for an order gave up.
    pub(crate) undecided: bool,
}

/// The calls so far, by all threads.
#[derive(Default)]
struct Log {
    clock: u64,
    calls: Vec<Call>,
}

/// The log of a program, which threads share.
type Shared = Arc<Mutex<Log>>;

fn tick(log: &Shared) -> u64 {
    let mut log = log.lock().unwrap();
    log.clock += 1;
    log.clock
}

/// Makes a call and writes it down.
fn call(world: &World, log: &Shared, thread: usize, (op, number): (Op, usize)) -> Outcome<()> {
    let begin = tick(log);
    let begun = world.device.events();
    let done = world.call(op, number);
    let ended = world.device.events();
    let done = done.map_err(|why| format!("thread {thread}: {op:?}: {why}"))?;
    let end = tick(log);
    log.lock().unwrap().calls.push(Call {
        thread,
        op: (!done.failed).then_some(op),
        events: (begun, ended),
        text: format!("{op:?} -> {}", done.text),
        begin,
        end,
        parts: done.parts,
        ordered: done.ordered,
    });
    Ok(())
}

/// Looks at everything and writes that down.
fn look(world: &World, log: &Shared, when: &str) -> Outcome<()> {
    for done in world.look(0).map_err(|why| format!("{when}: {why}"))? {
        let begin = tick(log);
        let end = tick(log);
        log.lock().unwrap().calls.push(Call {
            thread: 0,
            op: None,
            events: (usize::MAX, usize::MAX),
            text: format!("{when}: {}", done.text),
            begin,
            end,
            parts: done.parts,
            ordered: done.ordered,
        });
    }
    Ok(())
}

/// Runs the threads of a program to their end.
fn threads(program: &Program, world: &Arc<World>, log: &Shared) -> Outcome<()> {
    let mut number = program.first.len() + 1;
    world.device.fail_read(program.setup.bad_read);
    scheduler::explore(true);
    let threads: Vec<_> = program
        .threads
        .iter()
        .enumerate()
        .map(|(thread, ops)| {
            let ops: Vec<_> = ops.iter().copied().zip(number..).collect();
            number += ops.len();
            let (world, log) = (Arc::clone(world), Arc::clone(log));
            thread::spawn(move || {
                ops.into_iter()
                    .try_for_each(|op| call(&world, &log, thread + 1, op))
            })
        })
        .collect();
    let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
    scheduler::explore(false);
    world.device.fail_read(None);
    for outcome in ended {
        outcome.map_err(|_| "a thread panicked".to_owned())??;
    }
    Ok(())
}

/// All of a schedule, within an execution of the model checker.
fn execute(program: &Program, seed: u64, log: &Shared) -> Outcome<Count> {
    restart();
    let world = Arc::new(World::new(&program.setup)?);
    let armed = world.device.events();
    for op in program.first.iter().copied().zip(1..) {
        call(&world, log, 0, op)?;
    }
    threads(program, &world, log)?;
    look(&world, log, "at the end")?;
    world.volume.wait_for_background_work();
    let mut verifier = Verifier::default();
    let verified = world.volume.verify(&mut verifier, false);
    verified.map_err(|why| format!("the state in memory: {why}"))?;
    call(&world, log, 0, (Op::Sync, 0))?;
    world.volume.drop_caches();
    look(&world, log, "from the device")?;
    world
        .volume
        .unmount()
        .map_err(|error| format!("unmount: {error}"))?;
    let count = Count {
        schedules: 1,
        steps: scheduler::steps(),
        trace: scheduler::trace(),
        requests: world.device.requests(),
        calls: log.lock().unwrap().calls.len() as u64,
        undecided: false,
    };
    world.device.leave_alone();
    judge_image(world.device.clone())?;
    if let Some(cuts) = program.setup.cuts {
        let mut rng = Rng::new(cuts ^ seed);
        for _ in 0..CUTS {
            let events = world.device.moment(&mut rng, armed);
            let device = Arc::new(world.device.after_cut(events, &mut rng));
            judge_cut(program, &world, log, events, device)
                .map_err(|why| format!("after a power cut at {events}: {why}"))?;
        }
    }
    Ok(count)
}

/// Judges what is left on a device after a power cut.
fn judge_cut(
    program: &Program,
    world: &World,
    log: &Shared,
    events: usize,
    device: Arc<StepDevice>,
) -> Outcome<()> {
    let found = world.survivors(&program.setup, &device)?;
    device.leave_alone();
    judge_image(device)?;
    let calls = log.lock().unwrap().calls.clone();
    let cut = crash::Cut {
        first: &State::new(FILES, NAMES),
        synced: program.setup.synced,
        calls: &calls,
        events,
    };
    crash::judge(&cut, &found)
}

/// The check of what an unmount left.
fn judge_image(device: Arc<dyn BlockDevice>) -> Outcome<()> {
    let options = CheckOptions {
        threads: 1,
        ..CheckOptions::default()
    };
    let report = check(device, &options).map_err(|error| format!("check: {error}"))?;
    match report.findings.first() {
        None => Ok(()),
        Some(_) => {
            let all: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
            Err(format!("check: {}", all.join("; ")))
        }
    }
}

thread_local! {
    /// The first panic of the schedule that runs.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    /// A schedule runs.
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Keeps the panics of schedules, and lets all others be printed.
fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !RUNNING.get() {
                return others(info);
            }
            PANIC.with_borrow_mut(|first| {
                first.get_or_insert_with(|| info.to_string());
            });
        }));
    });
}

/// Runs a program under the scheduler of `seed`.
///
/// # Errors
/// The reason, with the history.
pub(crate) fn run(program: &Program, seed: u64) -> Result<Count, String> {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
    config.silence_warnings = true;
    config
        .ungraceful_shutdown_config
        .immediately_return_on_panic = true;
    keep_panics();
    PANIC.take();
    RUNNING.set(true);
    let log = Shared::default();
    let outcome = Arc::new(Mutex::new(None));
    let runner = Runner::new(Chooser::new(seed, program.steps), config);
    let inner = (program.clone(), Arc::clone(&log), Arc::clone(&outcome));
    let ran = catch_unwind(AssertUnwindSafe(move || {
        runner.run(move || {
            let (program, log, outcome) = &inner;
            let done = execute(program, seed, log);
            *outcome.lock().unwrap() = Some(done);
        })
    }));
    RUNNING.set(false);
    let ended = outcome
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .take();
    let ended = match (ran, ended) {
        (Ok(_), Some(ended)) => ended,
        _ => Err(PANIC.take().unwrap_or_else(|| "no outcome".to_owned())),
    };
    let log = log
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut count = ended.map_err(|why| told(&why, &log.calls))?;
    match explain(&State::new(FILES, NAMES), &log.calls) {
        Verdict::Explained => {}
        Verdict::Undecided => count.undecided = true,
        Verdict::Impossible(missing) => {
            let why = format!("no order explains {}", missing.join(", nor "));
            return Err(told(&why, &log.calls));
        }
    }
    Ok(count)
}

fn told(why: &str, calls: &[Call]) -> String {
    let mut calls = calls.to_vec();
    calls.sort_by_key(|call| call.begin);
    // What a program's end shows of files that it did not touch says nothing.
    let lines = calls
        .iter()
        .filter(|call| call.thread > 0 || !call.text.ends_with(": []"));
    let lines: Vec<_> = lines.map(ToString::to_string).collect();
    format!("{why}\n{}", lines.join("\n"))
}
