//! A file of the host as a device, with no file system: past the host's cache and through it, by
//! threads and by io_uring.
//!
//! 4 KiB anywhere in a file that is written whole first: synchronous calls, and queues of 1, 16 and
//! 64 requests. A figure is the throughput. Beside it stands the processor time that a request cost
//! this process, the kernel's workers for it included (`cpu`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use extant_blockdev::{BlockDevice, Completion, IoBuf, IoOp, IoQueue, IoRequest, open_queue};
use extant_host::{Result, Rng, ensure};
use extant_units::DevOff;

use crate::bed::TestBed;
use crate::case::{Case, Outcome, counted};
use crate::pinned::processor_time_of_all;
use crate::plan::{Bench, Plan};
use crate::rows::Unit;
use crate::variant::Setup;

/// Bytes of a request.
const CHUNK: u64 = 4096;
/// Contents of the file.
const FILL: u8 = 1;

/// The cases: words, the operation, and requests in flight; 0 for calls that are waited for.
pub(crate) fn cases() -> Vec<Case> {
    let ops = [("write", IoOp::Write), ("read", IoOp::Read)];
    let depths = [("calls", 0), ("1", 1), ("16", 16), ("64", 64)];
    let all = ops
        .into_iter()
        .flat_map(|op| depths.map(|depth| (op, depth)));
    let case = |((word, op), (how, depth))| Case {
        bench: Bench::Device,
        name: format!("device/{word}/4K/{how}"),
        unit: Unit::MibPerSecond,
        setup: Setup::Disk,
        fits: |kind| kind.is_device(),
        sample: Box::new(move |bed, plan| sample(op, depth, bed, plan)),
    };
    all.map(case).collect()
}

fn sample(op: IoOp, depth: usize, bed: &mut TestBed, plan: &Plan) -> Result<Outcome> {
    let device = bed.device()?;
    counted(bed, |_| {
        let before = processor_time_of_all();
        let start = Instant::now();
        let requests = match depth {
            0 => calls(&*device, op, plan)?,
            depth => queued(&device, op, depth, plan)?,
        };
        let took = start.elapsed();
        let cost = processor_time_of_all().saturating_sub(before);
        let bytes = requests * CHUNK;
        Ok(Outcome {
            beside: vec![("cpu", Unit::Nanoseconds, per_request(cost, requests))],
            ..Outcome::throughput(requests, bytes, took)
        })
    })
}

#[allow(
    clippy::cast_precision_loss,
    reason = "fewer requests than a mantissa has steps"
)]
fn per_request(cost: Duration, requests: u64) -> f64 {
    cost.as_secs_f64() * 1e9 / requests.max(1) as f64
}

/// Position of the next request.
struct Offsets {
    rng: Rng,
    chunks: u64,
}

impl Offsets {
    fn of(plan: &Plan) -> Offsets {
        Offsets {
            rng: Rng::new(plan.stream_bytes),
            chunks: plan.stream_bytes / CHUNK,
        }
    }

    fn next(&mut self) -> DevOff {
        DevOff::new(self.rng.below(self.chunks) * CHUNK)
    }
}

/// Calls that are waited for; returns how many there were.
fn calls(device: &dyn BlockDevice, op: IoOp, plan: &Plan) -> Result<u64> {
    let mut offsets = Offsets::of(plan);
    let mut buf = IoBuf::zeroed(usize::try_from(CHUNK)?);
    buf.fill(FILL);
    let (start, mut requests) = (Instant::now(), 0);
    while start.elapsed() < plan.sample {
        match op {
            IoOp::Read => device.read_at(offsets.next(), &mut buf)?,
            _ => device.write_at(offsets.next(), &buf)?,
        }
        requests += 1;
    }
    ensure!(buf.first() == Some(&FILL), "wrong bytes");
    Ok(requests)
}

/// Requests of which `depth` are in flight; returns how many ended.
fn queued(device: &Arc<dyn BlockDevice>, op: IoOp, depth: usize, plan: &Plan) -> Result<u64> {
    let mut offsets = Offsets::of(plan);
    let mut queue = open_queue(device, depth);
    for tag in 0..depth as u64 {
        let mut buf = queue.buffer(usize::try_from(CHUNK)?);
        buf.fill(FILL);
        submit(&mut *queue, op, offsets.next(), buf, tag)?;
    }
    let (start, mut requests, mut done) = (Instant::now(), 0, Vec::new());
    while start.elapsed() < plan.sample {
        queue.reap(1, &mut done);
        for completion in done.drain(..) {
            let Completion { tag, buf, result } = completion;
            result?;
            requests += 1;
            submit(&mut *queue, op, offsets.next(), buf, tag)?;
        }
    }
    queue.drain(&mut done);
    for completion in done {
        completion.result?;
        requests += 1;
        ensure!(completion.buf.first() == Some(&FILL), "wrong bytes");
    }
    Ok(requests)
}

fn submit(queue: &mut dyn IoQueue, op: IoOp, offset: DevOff, buf: IoBuf, tag: u64) -> Result<()> {
    let request = IoRequest {
        op,
        offset,
        buf,
        tag,
    };
    ensure!(queue.submit(request).is_ok(), "a queue is full early");
    Ok(())
}
