//! Names: what a call costs in a directory of a thousand and of a hundred thousand files.
//!
//! `create`, `write100` (the first 100 bytes, with open and close), `stat`, `open`, `chmod`, `list`
//! (an entry), `rename` and `unlink`, each by path, one after the other over all files of one
//! directory. `create/1K/2` has two threads, each in a directory of its own. A figure is the time
//! of one call; `processor_ns` among the counters is what the calling thread itself used. Nothing
//! is synced: what the journal does beside the calls is part of what they cost.

use std::time::Instant;

use extant_host::{Error, Result, ensure};

use crate::bed::TestBed;
use crate::case::{Case, Outcome, counted};
use crate::pinned::processor_nanos;
use crate::plan::{Bench, Plan};
use crate::rows::Unit;
use crate::target::Names;
use crate::variant::{Kind, Setup};

/// Sizes of directories; the second takes minutes through some peers, and is left out with
/// `--quick`.
const SIZES: [(&str, u32); 2] = [("1K", 1000), ("100K", 100_000)];
/// What `write100` writes.
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

/// The cases of `plan`.
pub(crate) fn cases(plan: &Plan) -> Vec<Case> {
    let mut all = Vec::new();
    for (index, (word, size)) in SIZES.into_iter().enumerate() {
        if index > 0 && size > plan.most_names {
            continue;
        }
        let size = size.min(plan.most_names);
        for (name, call) in CALLS {
            all.push(case(format!("{name}/{word}"), call, size, 1, index > 0));
        }
        if index == 0 {
            all.push(case(
                format!("create/{word}/2"),
                MetaCall::Create,
                size,
                2,
                false,
            ));
        }
    }
    all
}

fn case(name: String, call: MetaCall, size: u32, threads: u32, large: bool) -> Case {
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
        sample: Box::new(move |bed, _| sample(bed, call, size, threads)),
    }
}

fn sample(bed: &mut TestBed, call: MetaCall, size: u32, threads: u32) -> Result<Outcome> {
    let dirs: Vec<String> = (0..threads)
        .map(|thread| format!("/d{size}-{thread}"))
        .collect();
    for dir in &dirs {
        prepare(bed.names()?, dir, call, size)?;
    }
    let outcome = counted(bed, |bed| {
        let names = bed.names()?;
        let start = Instant::now();
        let nanos = std::thread::scope(|scope| {
            let workers: Vec<_> = dirs
                .iter()
                .map(|dir| scope.spawn(|| processor_nanos(|| run(names, dir, call, size))))
                .collect();
            let join = |worker: std::thread::ScopedJoinHandle<'_, Result<u64>>| {
                worker.join().map_err(|_| Error::new("a thread panicked"))?
            };
            workers.into_iter().map(join).sum::<Result<u64>>()
        })?;
        let took = start.elapsed();
        let calls = u64::from(size) * u64::from(threads);
        Ok(Outcome {
            value: took.as_secs_f64() * 1e9 / f64::from(size * threads),
            calls,
            counters: [("processor_ns".to_owned(), nanos)].into(),
            ..Outcome::default()
        })
    })?;
    for dir in &dirs {
        clean(bed.names()?, dir, call, size)?;
    }
    Ok(outcome)
}

/// The directory as the call finds it. It stays from one case to the next where no call changes it.
fn prepare(names: &dyn Names, dir: &str, call: MetaCall, size: u32) -> Result<()> {
    if call == MetaCall::Create {
        if names.has_dir(dir) {
            each(dir, size, |file| names.unlink(file))?;
            return Ok(());
        }
        return names.make_dir(dir);
    }
    if !names.has_dir(dir) {
        names.make_dir(dir)?;
        each(dir, size, |file| names.create(file))?;
    }
    if call == MetaCall::Write {
        each(dir, size, |file| {
            names.unlink(file)?;
            names.create(file)
        })?;
    }
    Ok(())
}

fn run(names: &dyn Names, dir: &str, call: MetaCall, size: u32) -> Result<()> {
    match call {
        MetaCall::Create => each(dir, size, |file| names.create(file)),
        MetaCall::Write => each(dir, size, |file| names.write(file, &FIRST)),
        MetaCall::Stat => each(dir, size, |file| names.stat(file).map(drop)),
        MetaCall::Open => each(dir, size, |file| names.open(file)),
        MetaCall::Chmod => each(dir, size, |file| names.chmod(file, 0o640)),
        MetaCall::List => {
            let entries = names.list(dir)?;
            // Some listings have the directory and its parent.
            ensure!(
                entries == u64::from(size) || entries == u64::from(size) + 2,
                "{entries} entries of {size}"
            );
            Ok(())
        }
        MetaCall::Rename => each(dir, size, |file| names.rename(file, &renamed(file))),
        MetaCall::Unlink => each(dir, size, |file| names.unlink(file)),
    }
}

/// What the next case does not expect goes.
fn clean(names: &dyn Names, dir: &str, call: MetaCall, size: u32) -> Result<()> {
    match call {
        MetaCall::Rename => each(dir, size, |file| names.rename(&renamed(file), file)),
        MetaCall::Unlink => names.remove_dir(dir),
        _ => Ok(()),
    }
}

fn renamed(file: &str) -> String {
    format!("{file}-with-another-name")
}

fn each(dir: &str, size: u32, mut call: impl FnMut(&str) -> Result<()>) -> Result<()> {
    (0..size).try_for_each(|number| call(&format!("{dir}/file{number}")))
}
