//! `extant-bench device`: a file of the host as a block device, through its cache and past it, by threads and by io_uring.
//!
//! 4 KiB at random places of a file that is written whole first: synchronous calls, and queues of 1, 16 and 64 requests. A figure is
//! throughput; beside it stands the processor time that a request cost this process, the kernel's workers included. Variants
//! run in turns, there and back again.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use extant_bench::rows::{Rows, Unit};
use extant_blockdev::{
    BlockDevice, FileDevice, FileIo, FileQueues, IoBuf, IoOp, IoRequest, OpenMode, open_queue,
};
use extant_testkit::{Need, Result, Rng, ensure};
use extant_units::DevOff;
use rustix::time::{ClockId, clock_gettime};

/// Bytes of a request.
const CHUNK: u64 = 4096;
/// What the file's first bytes are.
const FILL: u8 = 1;
const MIB: u64 = 1 << 20;

const VARIANTS: [(&str, FileIo); 4] = [
    ("threads", variant(true, FileQueues::Threads)),
    ("io_uring", variant(true, FileQueues::IoUring)),
    ("threads-cached", variant(false, FileQueues::Threads)),
    ("io_uring-cached", variant(false, FileQueues::IoUring)),
];

const fn variant(direct: bool, queues: FileQueues) -> FileIo {
    FileIo { direct, queues }
}

/// What to run.
pub(crate) struct Plan {
    dir: PathBuf,
    len: u64,
    runs: u32,
    sample: Duration,
    json: Option<PathBuf>,
}

impl Plan {
    /// Reads the command line; `None` if it is wrong.
    pub(crate) fn parse(args: &[String]) -> Option<Plan> {
        let mut plan = Plan {
            dir: std::env::temp_dir(),
            len: 256 * MIB,
            runs: 5,
            sample: Duration::from_millis(700),
            json: None,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => {
                    plan.len = 16 * MIB;
                    plan.runs = 1;
                    plan.sample = Duration::from_millis(20);
                }
                "--runs" => plan.runs = args.next()?.parse().ok().filter(|&runs| runs > 0)?,
                "--dir" => plan.dir = args.next()?.into(),
                "--json" => plan.json = Some(args.next()?.into()),
                _ => return None,
            }
        }
        Some(plan)
    }
}

/// Measures, and prints a table.
pub(crate) fn run(plan: &Plan) -> Result<()> {
    let image = Scratch::new(&plan.dir, plan.len)?;
    let mut rows = Rows::default();
    let mut variants: Vec<(&str, FileIo)> = VARIANTS.to_vec();
    if let Some(why) = Need::IoUring.missing() {
        rows.missing(why);
        variants.retain(|(_, io)| io.queues == FileQueues::Threads);
    }
    let past = FileDevice::open_with(&image.0, OpenMode::ReadWrite, FileIo::IO_URING)?;
    if past.direct_alignment().is_none() {
        let dir = plan.dir.display();
        rows.missing(format!("{dir} cannot be gone past the cache"));
        variants.retain(|(_, io)| !io.direct);
    }
    drop(past);
    for round in 0..plan.runs {
        eprintln!("round {} of {}", round + 1, plan.runs);
        for (word, op) in [("write", IoOp::Write), ("read", IoOp::Read)] {
            for depth in [0, 1, 16, 64] {
                let how = match depth {
                    0 => "calls".to_owned(),
                    depth => format!("{depth}"),
                };
                let case = format!("device/{word}/4K/{how}");
                let mut order = variants.clone();
                if round % 2 == 1 {
                    order.reverse();
                }
                for (name, io) in order {
                    let device = FileDevice::open_with(&image.0, OpenMode::ReadWrite, io)?;
                    let sample = sample(Arc::new(device), op, depth, plan)?;
                    rows.add(&case, Unit::MibPerSecond, name, sample.throughput);
                    let cost = format!("{case}/cpu");
                    rows.add(&cost, Unit::Nanoseconds, name, sample.cost);
                }
            }
        }
    }
    print!("{}", rows.table());
    if let Some(path) = &plan.json {
        std::fs::write(path, format!("{:#}\n", rows.json("device")))?;
    }
    Ok(())
}

struct Sample {
    /// MiB/s.
    throughput: f64,
    /// Nanoseconds of processor time per request.
    cost: f64,
}

fn sample(device: Arc<dyn BlockDevice>, op: IoOp, depth: usize, plan: &Plan) -> Result<Sample> {
    let mut rng = Rng::new(plan.len);
    let mut place = || DevOff::new(rng.below(plan.len / CHUNK) * CHUNK);
    let len = usize::try_from(CHUNK)?;
    let mut requests = 0u32;
    let before = processor_time();
    let start = Instant::now();
    if depth == 0 {
        let mut buf = IoBuf::zeroed(len);
        buf.fill(FILL);
        while start.elapsed() < plan.sample {
            match op {
                IoOp::Read => device.read_at(place(), &mut buf)?,
                _ => device.write_at(place(), &buf)?,
            }
            requests += 1;
        }
    } else {
        let mut queue = open_queue(&device, depth);
        let mut done = Vec::new();
        for tag in 0..depth as u64 {
            let mut buf = queue.buffer(len);
            buf.fill(FILL);
            let offset = place();
            let request = IoRequest {
                op,
                offset,
                buf,
                tag,
            };
            ensure!(queue.submit(request).is_ok(), "a queue is full early");
        }
        while start.elapsed() < plan.sample {
            queue.reap(1, &mut done);
            for completion in done.drain(..) {
                completion.result?;
                requests += 1;
                let request = IoRequest {
                    op,
                    offset: place(),
                    buf: completion.buf,
                    tag: completion.tag,
                };
                ensure!(queue.submit(request).is_ok(), "a queue is full early");
            }
        }
        queue.drain(&mut done);
        requests += u32::try_from(done.len())?;
        for completion in done {
            completion.result?;
            ensure!(completion.buf.first() == Some(&FILL), "wrong bytes");
        }
    }
    let took = start.elapsed();
    let cost = processor_time().saturating_sub(before);
    Ok(Sample {
        throughput: f64::from(requests) / 256.0 / took.as_secs_f64(),
        cost: cost.as_secs_f64() * 1e9 / f64::from(requests.max(1)),
    })
}

/// What this process has used, all its threads and the kernel's for it.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// A file that is gone with its owner.
struct Scratch(PathBuf);

impl Scratch {
    fn new(dir: &Path, len: u64) -> Result<Scratch> {
        let scratch = Scratch(dir.join(format!("extant-bench-{}", std::process::id())));
        let mut file = File::create(&scratch.0)?;
        let piece = vec![FILL; 1 << 20];
        for _ in 0..len / MIB {
            file.write_all(&piece)?;
        }
        file.sync_all()?;
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
