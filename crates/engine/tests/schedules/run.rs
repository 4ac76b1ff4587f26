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
use crate::world::{FAILED_WRITE, Outcome, STOPPED, World};

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
    /// A failed write was told: what it lost is not there.
    pub(crate) lost: bool,
}

/// The calls so far, by all threads.
#[derive(Default)]
struct Log {
    clock: u64,
    calls: Vec<Call>,
}

/// The log of a program, which threads share.
type Shared = Arc<Mutex<Log>>;

/// A program that has run.
struct Ran<'a> {
    program: &'a Program,
    world: &'a World,
    log: &'a Shared,
}

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
        op: Some(op),
        failed: done.failed,
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
            failed: false,
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
    world.device.fail_write(program.setup.bad_write);
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
    world.device.fail_write(None);
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
    world.fill_late(&program.setup)?;
    threads(program, &world, log)?;
    if !is_told(log) {
        look(&world, log, "at the end")?;
    }
    world.volume.wait_for_background_work();
    let verify = || {
        let mut verifier = Verifier::default();
        let verified = world.volume.verify(&mut verifier, false);
        verified.map_err(|why| format!("the state in memory: {why}"))
    };
    let is_sound = world.device.write_failed().is_none();
    if is_sound {
        verify()?;
    }
    call(&world, log, 0, (Op::Sync, 0))?;
    let lost = is_told(log);
    if !is_sound && !lost {
        verify()?;
    }
    if !lost {
        world.volume.drop_caches();
        look(&world, log, "from the device")?;
    }
    let unmounted = world.volume.unmount();
    let count = Count {
        schedules: 1,
        steps: scheduler::steps(),
        trace: scheduler::trace(),
        requests: world.device.requests(),
        calls: log.lock().unwrap().calls.len() as u64,
        undecided: false,
        lost,
    };
    world.device.leave_alone();
    let ran = Ran {
        program,
        world: &world,
        log,
    };
    if lost {
        judge_loss(&ran)?;
        return Ok(count);
    }
    unmounted.map_err(|error| format!("unmount: {error}"))?;
    judge_image(world.device.clone())?;
    if let Some(cuts) = program.setup.cuts {
        let mut rng = Rng::new(cuts ^ seed);
        for _ in 0..CUTS {
            let events = world.device.moment(&mut rng, armed);
            let device = Arc::new(world.device.after_cut(events, &mut rng));
            judge_cut(&ran, (events, events), device)
                .map_err(|why| format!("after a power cut at {events}: {why}"))?;
        }
    }
    Ok(count)
}

/// Returns whether a call has told of a write that failed.
fn is_told(log: &Shared) -> bool {
    let tells = |call: &Call| call.text.ends_with(FAILED_WRITE) || call.text.ends_with(STOPPED);
    log.lock().unwrap().calls.iter().any(tells)
}

/// Judges what is there after a failed write of which a call has told: what a sync covered before,
/// and nothing that no call gave. Each fsync of a file that loses data tells of it once.
fn judge_loss(ran: &Ran<'_>) -> Outcome<()> {
    let Ran {
        program,
        world,
        log,
    } = *ran;
    let calls = log.lock().unwrap().calls.clone();
    let is_stopped = calls.iter().any(|call| call.text.ends_with(STOPPED));
    for file in 0..FILES {
        let is_sync =
            |call: &&Call| matches!(call.op, Some(Op::Fsync(of, _) | Op::Evict(of)) if of == file);
        let tells = |call: &&Call| is_sync(call) && call.text.ends_with(FAILED_WRITE);
        if !is_stopped && calls.iter().filter(tells).count() > 1 {
            return Err(format!("a failed write is told twice to file {file}"));
        }
    }
    // There new blocks are written ones, and the size moves first, as in Linux.
    if program.moves_size_first() && program.setup.options.contains("dioread_lock") {
        return judge_mount(program, world);
    }
    let failed_at = world.device.write_failed().unwrap_or(0);
    let device = Arc::new(world.device.copy());
    judge_cut(ran, (usize::MAX - 1, failed_at), device)
        .map_err(|why| format!("after a failed write at {failed_at}: {why}"))
}

/// Judges that a volume that lost data can be mounted, and is clean after that.
fn judge_mount(program: &Program, world: &World) -> Outcome<()> {
    let device = Arc::new(world.device.copy());
    world.survivors(&program.setup, &device).map(drop)?;
    device.leave_alone();
    judge_image(device)
}

/// Judges what is left on a device after a power cut, before which there were as many `events`; a
/// sync counts if it returned within the first `counted` of them.
fn judge_cut(
    ran: &Ran<'_>,
    (events, counted): (usize, usize),
    device: Arc<StepDevice>,
) -> Outcome<()> {
    let Ran {
        program,
        world,
        log,
    } = *ran;
    let found = world.survivors(&program.setup, &device)?;
    device.leave_alone();
    judge_image(device)?;
    let calls = log.lock().unwrap().calls.clone();
    let cut = crash::Cut {
        first: &State::new(FILES, NAMES),
        synced: program.setup.synced,
        size_first: program.moves_size_first(),
        calls: &calls,
        events,
        counted,
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
    if count.lost {
        return Ok(count);
    }
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
