//! A mount for writing, calls, and the power goes: after any request, with any of the writes that
//! no flush covers, some of them in part.
//!
//! Of a sound image each state has to be one that the promises allow (`model`), is mounted and
//! written again, and is clean. A damaged one has to keep the contract again, whatever it has
//! become.

mod model;
mod program;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extant::{CheckOptions, Cred, Options, Result, Tuning, Volume};
use extant_testkit::mutate::Kind;
use extant_testkit::{Event, Image, Recorder};

use self::program::Program;
use super::power_cut::{AfterCut, PowerCut};
use super::{Cost, Hostile, is_clean, operations};
use crate::feed::Feed;
use crate::{recipe, seeds};

/// The most cuts of one run.
const CUTS: u8 = 3;
/// Bytes of a longer write that arrive by themselves.
const PIECE: u64 = 1024;
/// Findings of a check of what is damaged already.
const FINDINGS: usize = 100;

static E2FSCK_EVERY: AtomicU64 = AtomicU64::new(0);
static JUDGED: AtomicU64 = AtomicU64::new(0);

/// Has e2fsck judge each `nth` state of a sound image too; none where it is 0.
pub(crate) fn e2fsck_every(nth: u64) {
    E2FSCK_EVERY.store(nth, Ordering::Relaxed);
}

/// The mount of a run.
struct Habits {
    options: &'static str,
    early_sizes: bool,
    tuning: Tuning,
}

impl Habits {
    fn of(flags: recipe::Flags) -> Habits {
        let mut tuning = seeds::tuning();
        // The order of requests is that of the calls.
        tuning.flushers = 0;
        let (options, early_sizes) = match flags.0 >> 6 {
            1 => ("data=journal", false),
            2 => ("nobuffered_iomap,dioread_lock,nodelalloc", true),
            _ => ("", false),
        };
        tuning.commit_each_handle = flags.0 >> 6 == 3;
        Habits {
            options,
            early_sizes,
            tuning,
        }
    }
}

pub(super) fn run(data: &[u8]) -> Cost {
    let all = seeds::all().iter();
    let all: Vec<_> = all
        .filter(|seed| seed.is_written && seed.has(Kind::JournalSuper))
        .collect();
    let Some(prepared) = recipe::prepare(data, &all, &[]) else {
        return Cost::default();
    };
    let base = prepared.image.clone();
    let hostile = Hostile::new(prepared);
    let mut feed = Feed::new(hostile.rest);
    let cuts = 1 + feed.u8() % CUTS;
    let cuts: Vec<PowerCut> = (0..cuts).map(|_| PowerCut::read(&mut feed)).collect();
    let Some(run) = CrashRun::of(&hostile, &mut feed) else {
        return hostile.cost();
    };
    let recorded: usize = run.events.iter().map(bytes_of).sum();
    let mut cost = hostile.cost().beside(2 * base.len() + 2 * recorded);
    for cut in cuts {
        let Some(state) = cut.of(base.clone(), &run.events) else {
            continue;
        };
        let cut = state.cut;
        let judged = run.judge(&hostile, state, feed.rest());
        match judged {
            Ok(more) => cost = cost.or(more),
            Err(why) => panic!("{}, {cut}: {why}", hostile.seed.name),
        }
    }
    cost
}

fn bytes_of(event: &Event) -> usize {
    match event {
        Event::Write { data, .. } => data.len(),
        _ => 0,
    }
}

/// A program that has run.
struct CrashRun<'a> {
    events: Vec<Event>,
    /// Unless the image is damaged in a way that shows at once.
    program: Option<model::Model>,
    options: &'a str,
}

impl CrashRun<'static> {
    /// Mounts and calls. `None` if it is not mounted.
    fn of(hostile: &Hostile<'_>, feed: &mut Feed<'_>) -> Option<Self> {
        let habits = Habits::of(hostile.flags);
        let device = Arc::new(Recorder::in_pieces(hostile.disk.clone(), PIECE));
        let mounted = Options::new()
            .write(true)
            .mount_options(habits.options)
            .mount_options(hostile.flags.errors())
            .tuning(habits.tuning)
            .open_volume_on(device.clone());
        let volume = match mounted {
            Ok(volume) => volume,
            Err(error) => {
                assert!(!hostile.is_sound(), "{}: {error}", hostile.seed.name);
                return None;
            }
        };
        let ends = feed.u8() & 1 == 0;
        let now = || device.position();
        let model = match Program::new(&volume, &now, habits.early_sizes) {
            Ok(mut program) => {
                program.run(feed);
                Some(program.model)
            }
            Err(error) => {
                assert!(!hostile.is_sound(), "{}: {error}", hostile.seed.name);
                None
            }
        };
        // Whether it is unmounted or not, the power goes at some time.
        if ends {
            let ended = volume.unmount();
            assert!(ended.is_ok() || !hostile.is_sound(), "unmount: {ended:?}");
        }
        let events = device.events();
        if !ends {
            let _ = volume.shutdown(false);
        }
        Some(CrashRun {
            events,
            program: model,
            options: habits.options,
        })
    }
}

impl CrashRun<'_> {
    /// Looks at the device that a cut has left.
    fn judge(
        &self,
        hostile: &Hostile<'_>,
        state: AfterCut,
        rest: &[u8],
    ) -> std::result::Result<Cost, String> {
        let is_whole = !state.cut.tears();
        let completed = state.completed;
        // The fast commits of a seed are odd for e2fsck from the beginning.
        if hostile.is_sound() && is_whole && !hostile.seed.has(Kind::FastCommit) {
            by_e2fsck(&state.bytes)?;
        }
        let after = hostile.again(state.bytes);
        if !hostile.is_sound() {
            after.look_at(rest);
            return Ok(after.cost());
        }
        if is_whole {
            let report = extant::check(after.disk.clone(), &options());
            if !is_clean(&report) {
                return Err(format!("check before the replay: {report:?}"));
            }
        }
        let volume = Options::new()
            .write(true)
            .mount_options(self.options)
            .tuning(seeds::tuning())
            .open_volume_on(after.disk.clone())
            .map_err(|error| format!("mount: {error}"))?;
        if let Some(model) = &self.program
            && completed >= model.begun()
        {
            let found = program::files(&volume).map_err(|error| format!("files: {error}"))?;
            model.judge(completed, &found)?;
        }
        write(&volume).map_err(|error| format!("the next mount writes: {error}"))?;
        volume
            .unmount()
            .map_err(|error| format!("unmount: {error}"))?;
        let report = extant::check(after.disk.clone(), &options());
        match is_clean(&report) {
            true => Ok(after.cost()),
            false => Err(format!("check: {report:?}")),
        }
    }
}

impl Hostile<'_> {
    /// Mounts what a cut has left of a damaged image, works on it, and checks it: each comes to an
    /// end.
    fn look_at(&self, rest: &[u8]) {
        if let Some(volume) = self.mount(true) {
            let _ = operations::operate(&volume, &mut Feed::new(rest));
            let _ = volume.unmount();
        }
        let _ = extant::check(self.disk.clone(), &options());
    }
}

fn options() -> CheckOptions<'static> {
    CheckOptions {
        threads: 1,
        max_findings: FINDINGS,
        ..CheckOptions::default()
    }
}

/// The next mount writes, where it has space.
fn write(volume: &Volume) -> Result<()> {
    let (root, cred) = (volume.root()?, Cred::root());
    let file = volume.create(&root, b"next", 0o644, &cred)?;
    volume.append(&file, &[1; 3000], &cred)?;
    volume.fsync(&file, false)
}

/// e2fsck replays one state of some, and has nothing to say then.
fn by_e2fsck(bytes: &[u8]) -> std::result::Result<(), String> {
    let every = E2FSCK_EVERY.load(Ordering::Relaxed);
    let number = JUDGED.fetch_add(1, Ordering::Relaxed);
    if number.checked_rem(every) != Some(0) {
        return Ok(());
    }
    let judged = || {
        let image = Image::of_bytes(bytes)?;
        image.fsck_replay()?;
        image.fsck_clean()
    };
    judged().map_err(|error| format!("e2fsck: {error}"))
}
