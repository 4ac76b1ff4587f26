//! Names: what a call costs in a directory of a thousand and of a hundred thousand files.
//!
//! `create`, `write100` (the first 100 bytes, with open and close), `stat`, `open`, `chmod`, `list`
//! (an entry), `rename` and `unlink`, each by path, one after the other over all files of one
//! directory. A figure is the time of one call; `processor_ns` among the counters is what the
//! calling threads themselves used. Nothing is synced: what the journal does beside the calls is
//! part of what they cost. `create/.../longest` is the longest single call of a run, such as one
//! that waits for a commit or for room in the log.
//!
//! `create`, `stat` and `unlink` by 1, 2 and 4 threads (`create/threads/2`), each in a directory of
//! its own of 10,000 files: the time of all divided by all calls, so half of it with two threads is
//! what two processors have to give. `together`: both threads in one directory.

use std::ops::Range;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use extant_host::{Error, Result, ensure};

use crate::bed::TestBed;
use crate::case::{Case, Outcome, counted};
use crate::feature::{FOLDER, Feature};
use crate::pinned::processor_nanos;
use crate::plan::{Bench, Plan};
use crate::rows::Unit;
use crate::target::Names;
use crate::variant::{Kind, Setup};

/// Sizes of directories; the second takes minutes through some peers, and is left out with
/// `--quick`.
const SIZES: [(&str, u32); 2] = [("1K", 1000), ("100K", 100_000)];
/// Files of a directory where threads are compared, unless the plan wants fewer.
const THREADS_SIZE: u32 = 10_000;
/// Bytes that `write100` writes.
const FIRST: [u8; 100] = [b'x'; 100];

/// A kind of call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MetaCall {
    Create,
    Write,
    Stat,
    Open,
    Chmod,
    List,
    Rename,
    Unlink,
}

impl MetaCall {
    /// Returns whether it is measured with several threads.
    fn has_threads(self) -> bool {
        matches!(self, MetaCall::Create | MetaCall::Stat | MetaCall::Unlink)
    }
}

const CALLS: [(&str, MetaCall); 8] = [
    ("create", MetaCall::Create),
    ("write100", MetaCall::Write),
    ("stat", MetaCall::Stat),
    ("open", MetaCall::Open),
    ("chmod", MetaCall::Chmod),
    ("list", MetaCall::List),
    ("rename", MetaCall::Rename),
    ("unlink", MetaCall::Unlink),
];

/// A call, how often it is made, and by how many threads.
#[derive(Clone, Copy)]
struct NameLoad {
    call: MetaCall,
    /// Files of each thread.
    size: u32,
    threads: u32,
    /// All threads in one directory.
    together: bool,
    /// The folder of the directories; empty for the root.
    below: &'static str,
}

/// Of one thread: when it began and ended, its processor time in nanoseconds, its longest call.
type ThreadSample = (Instant, Instant, u64, Duration);

impl NameLoad {
    /// One thread.
    fn of(call: MetaCall, size: u32) -> NameLoad {
        NameLoad {
            call,
            size,
            threads: 1,
            together: false,
            below: "",
        }
    }

    /// The directories, and how many files each has.
    fn dirs(self) -> Vec<(String, u32)> {
        let NameLoad {
            size,
            threads,
            below,
            ..
        } = self;
        if self.together {
            return vec![(format!("{below}/t{size}-{threads}"), size * threads)];
        }
        let own = |thread| (format!("{below}/d{size}-{thread}"), size);
        (0..threads).map(own).collect()
    }

    /// The part of one thread: its directory, and which files of it.
    fn part(self, dirs: &[(String, u32)], thread: u32) -> (&str, Range<u32>) {
        let own = dirs.get(extant_units::index(thread.into()));
        match (own, dirs) {
            (Some((dir, files)), _) if !self.together => (dir, 0..*files),
            (_, [(dir, _), ..]) => (dir, thread * self.size..(thread + 1) * self.size),
            _ => ("/", 0..0),
        }
    }
}

/// The cases of `plan`.
pub(crate) fn cases(plan: &Plan) -> Vec<Case> {
    let mut all = Vec::new();
    for (index, (word, size)) in SIZES.into_iter().enumerate() {
        if index > 0 && size > plan.most_names {
            continue;
        }
        let size = size.min(plan.most_names);
        for (name, call) in CALLS {
            all.push(case(
                format!("{name}/{word}"),
                NameLoad::of(call, size),
                index > 0,
            ));
        }
    }
    let size = THREADS_SIZE.min(plan.most_names);
    for (name, call) in CALLS.into_iter().filter(|(_, call)| call.has_threads()) {
        for threads in [1, 2, 4] {
            let load = NameLoad {
                threads,
                ..NameLoad::of(call, size)
            };
            all.push(case(format!("{name}/threads/{threads}"), load, true));
        }
    }
    let load = NameLoad {
        threads: 2,
        together: true,
        ..NameLoad::of(MetaCall::Create, size)
    };
    all.push(case("create/threads/2/together".to_owned(), load, true));
    all
}

/// Cases for a volume with this feature.
pub(crate) fn feature_cases(feature: Feature, plan: &Plan) -> Vec<Case> {
    let calls = [
        ("create", MetaCall::Create),
        ("stat", MetaCall::Stat),
        ("unlink", MetaCall::Unlink),
    ];
    let of_call = |(name, call)| {
        let load = NameLoad {
            below: FOLDER,
            ..NameLoad::of(call, THREADS_SIZE.min(plan.most_names))
        };
        Case {
            bench: Bench::Features,
            setup: Setup::Feature(feature),
            ..case(format!("{}/{name}", feature.name()), load, true)
        }
    };
    calls.into_iter().map(of_call).collect()
}

fn case(name: String, load: NameLoad, large: bool) -> Case {
    Case {
        bench: Bench::Meta,
        name,
        unit: Unit::Nanoseconds,
        setup: Setup::Names,
        fits: if large {
            // One file after the other takes fuse2fs longer the more there are.
            |kind| !matches!(kind, Kind::Memcpy | Kind::Memset | Kind::Fuse2fs)
        } else {
            |kind| !matches!(kind, Kind::Memcpy | Kind::Memset)
        },
        sample: Box::new(move |bed, _| sample(bed, load)),
    }
}

fn sample(bed: &mut TestBed, load: NameLoad) -> Result<Outcome> {
    let NameLoad { call, threads, .. } = load;
    let dirs = load.dirs();
    for (dir, files) in &dirs {
        prepare(bed.names()?, dir, call, *files)?;
    }
    let outcome = counted(bed, |bed| {
        let names = bed.names()?;
        let ready = Barrier::new(extant_units::index(threads.into()));
        let samples = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|thread| {
                    let (dir, files) = load.part(&dirs, thread);
                    let ready = &ready;
                    scope.spawn(move || {
                        let mut longest = Duration::ZERO;
                        ready.wait();
                        let start = Instant::now();
                        let nanos = processor_nanos(|| {
                            longest = run(names, dir, call, files)?;
                            Ok::<_, Error>(())
                        })?;
                        Ok::<_, Error>((start, Instant::now(), nanos, longest))
                    })
                })
                .collect();
            let join = |worker: std::thread::ScopedJoinHandle<'_, Result<ThreadSample>>| {
                worker.join().map_err(|_| Error::new("a thread panicked"))?
            };
            workers.into_iter().map(join).collect::<Result<Vec<_>>>()
        })?;
        // By the clocks of the workers: this thread may come late.
        let begun = samples.iter().map(|(start, ..)| *start).min();
        let ended = samples.iter().map(|(_, end, ..)| *end).max();
        let took = begun.zip(ended).map(|(begun, ended)| ended - begun);
        let took = took.unwrap_or_default();
        let nanos = samples.iter().map(|(_, _, nanos, _)| nanos).sum();
        let longest = samples.iter().map(|(.., longest)| *longest).max();
        let beside = longest.filter(|longest| !longest.is_zero());
        let beside = beside.map(|longest| ("longest", Unit::Nanoseconds, in_nanos(longest)));
        let calls = load.size * threads;
        Ok(Outcome {
            value: in_nanos(took) / f64::from(calls),
            calls: calls.into(),
            counters: [("processor_ns".to_owned(), nanos)].into(),
            beside: beside.into_iter().collect(),
            ..Outcome::default()
        })
    })?;
    for (dir, files) in &dirs {
        clean(bed.names()?, dir, call, *files)?;
    }
    Ok(outcome)
}

fn in_nanos(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

/// The directory as the call finds it. It stays from one case to the next where no call changes it.
fn prepare(names: &dyn Names, dir: &str, call: MetaCall, size: u32) -> Result<()> {
    if call == MetaCall::Create {
        if names.has_dir(dir) {
            each(dir, 0..size, |file| names.unlink(file))?;
            return Ok(());
        }
        return names.make_dir(dir);
    }
    if !names.has_dir(dir) {
        names.make_dir(dir)?;
        each(dir, 0..size, |file| names.create(file))?;
    }
    if call == MetaCall::Write {
        each(dir, 0..size, |file| {
            names.unlink(file)?;
            names.create(file)
        })?;
    }
    Ok(())
}

/// Returns the time of the longest single call, of those that are timed one by one.
fn run(names: &dyn Names, dir: &str, call: MetaCall, files: Range<u32>) -> Result<Duration> {
    let mut longest = Duration::ZERO;
    match call {
        MetaCall::Create => {
            let mut last = Instant::now();
            each(dir, files, |file| {
                names.create(file)?;
                let now = Instant::now();
                longest = longest.max(now - last);
                last = now;
                Ok(())
            })?;
        }
        MetaCall::Write => each(dir, files, |file| names.write(file, &FIRST))?,
        MetaCall::Stat => each(dir, files, |file| names.stat(file).map(drop))?,
        MetaCall::Open => each(dir, files, |file| names.open(file))?,
        MetaCall::Chmod => each(dir, files, |file| names.chmod(file, 0o640))?,
        MetaCall::List => {
            let entries = names.list(dir)?;
            // Some listings have the directory and its parent.
            let expected = u64::from(files.end);
            ensure!(
                entries == expected || entries == expected + 2,
                "{entries} entries of {expected}"
            );
        }
        MetaCall::Rename => each(dir, files, |file| names.rename(file, &renamed(file)))?,
        MetaCall::Unlink => each(dir, files, |file| names.unlink(file))?,
    }
    Ok(longest)
}

/// Removes what the next case does not expect.
fn clean(names: &dyn Names, dir: &str, call: MetaCall, size: u32) -> Result<()> {
    match call {
        MetaCall::Rename => each(dir, 0..size, |file| names.rename(&renamed(file), file)),
        MetaCall::Unlink => names.remove_dir(dir),
        _ => Ok(()),
    }
}

fn renamed(file: &str) -> String {
    format!("{file}-with-another-name")
}

fn each(dir: &str, files: Range<u32>, mut call: impl FnMut(&str) -> Result<()>) -> Result<()> {
    let mut files = files;
    files.try_for_each(|number| call(&format!("{dir}/file{number}")))
}
