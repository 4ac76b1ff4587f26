//! fio's `psync` runs of the seeds, scaled: sequential reads and writes of one file by 4 KiB,
//! 64 KiB and 1 MiB.
//!
//! `read/hole` reads a file without blocks, `read/ram` one that is not cached, from a device in
//! RAM; `read/cache` one that is. `write/cache` writes with so much memory that nothing is written
//! back by itself, to a new file or over an old one that is not cached. `write/ram` is written with
//! an fsync after each write, or with writeback at work until all of it is on the device, so that
//! every variant writes the same bytes; `stream` ends likewise, and has room for all of it in the
//! cache. `writeback/null` times an fsync of a file written 1 MiB at a time, on a device that
//! forgets the data: what everything above the device costs. `disk` is an image in a file, past the
//! host's cache, and `disk-cached` the same through it.

use std::time::{Duration, Instant};

use extant_host::{Error, Result};

use crate::bed::TestBed;
use crate::case::{Case, Outcome, timed};
use crate::plan::{Bench, Plan};
use crate::rows::Unit;
use crate::target::Data;
use crate::variant::{Kind, Setup};

const MIB: usize = 1 << 20;
const SIZES: [(&str, usize); 3] = [("4K", 4 << 10), ("64K", 64 << 10), ("1M", MIB)];

/// The source of the bytes that a read finds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadFrom {
    Hole,
    Device,
    Cache,
}

/// When written data has to be on the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Durable {
    /// Never within the sample.
    Never,
    /// After each write.
    Each,
    /// At the end of the sample.
    AtEnd,
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (word, from) in [
        ("hole", ReadFrom::Hole),
        ("ram", ReadFrom::Device),
        ("cache", ReadFrom::Cache),
    ] {
        for (size_word, size) in SIZES {
            all.push(Case {
                fits: match from {
                    ReadFrom::Hole => |kind| !matches!(kind, Kind::Memcpy),
                    ReadFrom::Device | ReadFrom::Cache => |kind| !matches!(kind, Kind::Memset),
                },
                ..case(
                    format!("read/{word}/{size_word}"),
                    Setup::Cache,
                    move |bed, plan| read(bed, plan, from, size),
                )
            });
        }
    }
    for (word, setup, new, durable) in [
        ("write/cache/new", Setup::Cache, true, Durable::Never),
        ("write/cache/overwrite", Setup::Cache, false, Durable::Never),
        (
            "write/ram/new+writeback",
            Setup::Writeback,
            true,
            Durable::AtEnd,
        ),
        ("write/ram/new+sync", Setup::Writeback, true, Durable::Each),
        (
            "write/ram/overwrite+writeback",
            Setup::Writeback,
            false,
            Durable::AtEnd,
        ),
        (
            "write/ram/overwrite+sync",
            Setup::Writeback,
            false,
            Durable::Each,
        ),
        ("stream/write+fsync", Setup::Cache, true, Durable::AtEnd),
    ] {
        let sizes = match durable {
            Durable::AtEnd if setup == Setup::Cache => &SIZES[1..],
            _ => &SIZES[..],
        };
        for (size_word, size) in sizes.iter().copied() {
            all.push(case(
                format!("{word}/{size_word}"),
                setup,
                move |bed, plan| write(bed, plan, new, durable, size),
            ));
        }
    }
    all.push(case("writeback/null/1M".into(), Setup::Null, writeback));
    all
}

/// Cases that are measured at the seeds' size.
const LARGE: [&str; 11] = [
    "read/ram/64K",
    "read/ram/1M",
    "write/cache/new/64K",
    "write/cache/new/1M",
    "write/cache/overwrite/1M",
    "write/ram/new+writeback/1M",
    "write/ram/overwrite+writeback/1M",
    "write/ram/new+sync/1M",
    "write/ram/overwrite+sync/64K",
    "write/ram/overwrite+sync/1M",
    "stream/write+fsync/1M",
];

/// Cases for files of the seeds' size.
pub(crate) fn large_cases() -> Vec<Case> {
    let mut all = cases();
    all.retain(|case| LARGE.contains(&case.name.as_str()));
    for case in &mut all {
        case.bench = Bench::Large;
        case.name = format!("large/{}", case.name);
    }
    all
}

/// The seeds' rows of a disk: the image in a file, past the host's cache and through it.
pub(crate) fn disk_cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (word, setup) in [("disk", Setup::Disk), ("disk-cached", Setup::DiskCached)] {
        // Through the cache of the host the sizes between show nothing more.
        let sizes = if setup == Setup::Disk {
            &SIZES[..]
        } else {
            &SIZES[1..]
        };
        for (size_word, size) in sizes.iter().copied() {
            let name = format!("read/{word}/{size_word}");
            let read =
                move |bed: &mut TestBed, plan: &Plan| read(bed, plan, ReadFrom::Device, size);
            all.push(case(name, setup, read));
        }
        for (what, new, durable) in [
            ("new+writeback", true, Durable::AtEnd),
            ("new+sync", true, Durable::Each),
            ("overwrite+writeback", false, Durable::AtEnd),
            ("overwrite+sync", false, Durable::Each),
        ] {
            for (size_word, size) in sizes.iter().copied() {
                let name = format!("write/{word}/{what}/{size_word}");
                let write =
                    move |bed: &mut TestBed, plan: &Plan| write(bed, plan, new, durable, size);
                all.push(case(name, setup, write));
            }
        }
    }
    for case in &mut all {
        case.bench = Bench::Disk;
    }
    all
}

fn case(
    name: String,
    setup: Setup,
    sample: impl Fn(&mut TestBed, &Plan) -> Result<Outcome> + 'static,
) -> Case {
    Case {
        bench: Bench::Psync,
        name,
        unit: Unit::MibPerSecond,
        setup,
        fits: |kind| !matches!(kind, Kind::Memset),
        sample: Box::new(sample),
    }
}

/// A file of the plan's size, written and durable.
fn lay_out(file: &mut dyn Data, plan: &Plan) -> Result<()> {
    file.stream_out(&vec![5; MIB], plan.stream_bytes, false, Duration::MAX)?;
    file.sync()
}

fn read(bed: &mut TestBed, plan: &Plan, from: ReadFrom, size: usize) -> Result<Outcome> {
    let len = plan.stream_bytes;
    let name = if from == ReadFrom::Hole {
        "hole"
    } else {
        "data"
    };
    let file = bed.file(name, |file| match from {
        ReadFrom::Hole => file.set_len(len),
        ReadFrom::Device | ReadFrom::Cache => lay_out(file, plan),
    })?;
    // Written once before, so that its pages are there.
    let mut chunk = vec![9; size.max(MIB)];
    file.cool()?;
    if from == ReadFrom::Cache {
        file.stream_in(&mut chunk, len, Duration::MAX)?;
    }
    let chunk = chunk
        .get_mut(..size)
        .ok_or_else(|| Error::new("no chunk"))?;
    timed(bed, |bed| {
        let done = bed
            .file(name, |_| Ok(()))?
            .stream_in(chunk, len, plan.stream_limit(false))?;
        Ok(Outcome::throughput(done.0 / size as u64, done.0, done.1))
    })
}

fn write(
    bed: &mut TestBed,
    plan: &Plan,
    new: bool,
    durable: Durable,
    size: usize,
) -> Result<Outcome> {
    let chunk = vec![6; size];
    let name = if new { "new" } else { "data" };
    if new {
        bed.fresh(name)?;
    } else {
        bed.file(name, |file| lay_out(file, plan))?.cool()?;
    }
    let each = durable == Durable::Each;
    let outcome = timed(bed, |bed| {
        let file = bed.file(name, |_| Ok(()))?;
        let limit = plan.stream_limit(each);
        let (bytes, mut time) = file.stream_out(&chunk, plan.stream_bytes, each, limit)?;
        if durable == Durable::AtEnd {
            let start = Instant::now();
            file.sync()?;
            time += start.elapsed();
        }
        Ok(Outcome::throughput(bytes / size as u64, bytes, time))
    })?;
    // Nothing of it may be written while another variant is measured.
    if new {
        bed.clear(name)?;
    } else {
        bed.file(name, |_| Ok(()))?.sync()?;
    }
    Ok(outcome)
}

fn writeback(bed: &mut TestBed, plan: &Plan) -> Result<Outcome> {
    let chunk = vec![6; MIB];
    let file = bed.fresh("new")?;
    let (bytes, _) = file.stream_out(&chunk, plan.stream_bytes, false, Duration::MAX)?;
    let outcome = timed(bed, |bed| {
        let start = Instant::now();
        bed.file("new", |_| Ok(()))?.sync()?;
        Ok(Outcome::throughput(1, bytes, start.elapsed()))
    })?;
    bed.clear("new")?;
    Ok(outcome)
}
