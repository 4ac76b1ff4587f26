//! libMicro's `write`, `pwrite` and `writev`: small writes over and over to the same range of a
//! cached file of 10 MiB.
//!
//! The seeds' names: `u1k` is a call of 1 KiB; a `writev` has ten such buffers. The file is filled
//! by 1 MiB writes, as libMicro's `dd` does, which gives folios of 1 MiB, and written at offset 0.
//! Beyond libMicro: in the middle and at the end of a folio, where a walk over what lies before
//! would show, and with a file filled by 4 KiB and by 2 MiB writes.

use extant_host::Result;

use crate::bed::TestBed;
use crate::case::{Case, Outcome, timed};
use crate::plan::{Bench, Plan};
use crate::rows::Unit;
use crate::target::{Call, Data, VECTORS};
use crate::variant::{Kind, Setup};

const MIB: u64 = 1 << 20;
const FILE: u64 = 10 * MIB;

/// A case's parameters.
#[derive(Clone, Copy)]
struct WriteShape {
    call: Call,
    size: usize,
    prefill: u64,
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    let sizes = [
        ("u1k", 1usize << 10),
        ("u10k", 10 << 10),
        ("u100k", 100 << 10),
    ];
    for (suffix, size) in sizes {
        all.push(case(
            format!("write_{suffix}"),
            shape(Call::Write(0), size, MIB),
        ));
    }
    for (suffix, size) in sizes {
        all.push(case(
            format!("pwrite_{suffix}"),
            shape(Call::Pwrite(0), size, MIB),
        ));
    }
    for (suffix, size) in &sizes[..2] {
        all.push(case(
            format!("writev_{suffix}"),
            shape(Call::Writev(0), *size, MIB),
        ));
    }
    for (suffix, size) in &sizes[..2] {
        let middle = Call::Pwrite(MIB / 2);
        let end = Call::Pwrite(MIB - *size as u64);
        all.push(case(
            format!("pwrite_{suffix}/middle"),
            shape(middle, *size, MIB),
        ));
        all.push(case(format!("pwrite_{suffix}/end"), shape(end, *size, MIB)));
    }
    let small = shape(Call::Pwrite(0), 1 << 10, 4 << 10);
    all.push(case("pwrite_u1k/prefill4K".into(), small));
    // Folios of 2 MiB, where walks over records are longest: each of libMicro's cases at three
    // places of one.
    for (suffix, size) in sizes {
        for (spot, at) in spots(size) {
            for (word, call) in [("write", Call::Write(at)), ("pwrite", Call::Pwrite(at))] {
                let name = format!("{word}_{suffix}/prefill2M/{spot}");
                all.push(case(name, shape(call, size, 2 * MIB)));
            }
        }
    }
    for (suffix, size) in &sizes[..2] {
        for (spot, at) in spots(size * VECTORS) {
            let name = format!("writev_{suffix}/prefill2M/{spot}");
            all.push(case(name, shape(Call::Writev(at), *size, 2 * MIB)));
        }
    }
    all
}

/// Position of a write of `size` bytes in a folio of 2 MiB.
fn spots(size: usize) -> [(&'static str, u64); 3] {
    [
        ("start", 0),
        ("middle", MIB),
        ("end", 2 * MIB - size as u64),
    ]
}

fn shape(call: Call, size: usize, prefill: u64) -> WriteShape {
    WriteShape {
        call,
        size,
        prefill,
    }
}

fn case(name: String, shape: WriteShape) -> Case {
    Case {
        bench: Bench::Overwrite,
        name,
        unit: Unit::Nanoseconds,
        setup: Setup::Cache,
        fits: |kind| !matches!(kind, Kind::Memset),
        sample: Box::new(move |bed, plan| sample(shape, bed, plan)),
    }
}

fn sample(shape: WriteShape, bed: &mut TestBed, plan: &Plan) -> Result<Outcome> {
    let name = format!("over-{}", shape.prefill);
    bed.file(&name, |file| fill(file, shape.prefill))?;
    let bytes = vec![7; shape.size];
    // As many calls as the time allows: some of the compared take a thousand times longer than
    // others.
    let mut count = 1;
    let count = loop {
        let file = bed.file(&name, |_| Ok(()))?;
        let took = file.calls(shape.call, &bytes, count)?;
        if took >= plan.calls / 4 || count >= 1 << 24 {
            let per_call = took.as_secs_f64() / f64::from(u32::try_from(count)?);
            break whole(plan.calls.as_secs_f64() / per_call.max(1e-9)).max(1);
        }
        count *= 4;
    };
    let vectors = if matches!(shape.call, Call::Writev(_)) {
        VECTORS
    } else {
        1
    };
    timed(bed, |bed| {
        let took = bed
            .file(&name, |_| Ok(()))?
            .calls(shape.call, &bytes, count)?;
        Ok(Outcome {
            value: took.as_secs_f64() * 1e9 / f64::from(u32::try_from(count)?),
            calls: count,
            bytes: count * (shape.size * vectors) as u64,
            ..Outcome::default()
        })
    })
}

/// A whole number of calls.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what fits"
)]
fn whole(calls: f64) -> u64 {
    calls.clamp(1.0, f64::from(1 << 24)) as u64
}

fn fill(file: &mut dyn Data, by: u64) -> Result<()> {
    let chunk = vec![1; usize::try_from(by)?];
    for pos in (0..FILE).step_by(usize::try_from(by)?) {
        file.pwrite(&chunk, pos)?;
    }
    file.sync()
}
