//! The file, and the threads that write and read its blocks.

use std::ops::AddAssign;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use extant::{DirectQueue, File, Filesystem, IoBuf};
use extant_testkit::Rng;
use extant_testkit::generations::{Blocks, SIZE};

/// The blocks of the file, and of one operation at most.
const BLOCKS: usize = 96;
const MOST: usize = 12;

/// The fewest operations of a thread, however slow the machine is.
const LEAST: u32 = 20;

/// The outcome of a run.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Totals {
    pub(crate) writes: u64,
    pub(crate) reads: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.writes += other.writes;
        self.reads += other.reads;
    }
}

/// The state that all threads share.
pub(crate) struct Shared {
    blocks: Blocks,
    stop: AtomicBool,
    failed: Mutex<Option<String>>,
}

fn open(fs: &Filesystem, direct: bool) -> File {
    let mut options = fs.open_options();
    options.read(true).write(true).create(true).direct(direct);
    options.open("/blocks").unwrap()
}

/// The blocks of an operation.
fn range(rng: &mut Rng) -> (usize, usize) {
    let first = rng.index(BLOCKS);
    (first, (first + 1 + rng.index(MOST)).min(BLOCKS))
}

impl Shared {
    pub(crate) fn new(fs: &Filesystem) -> Self {
        let blocks = Blocks::new(BLOCKS);
        open(fs, true).write_at(&blocks.first_bytes(), 0).unwrap();
        Self {
            blocks,
            stop: AtomicBool::new(false),
            failed: Mutex::default(),
        }
    }

    /// Judges the bytes that a reader found.
    fn saw(&self, reader: &str, first: usize, least: &[u64], bytes: &[u8]) {
        match self.blocks.judge(first, least, bytes) {
            Ok(generations) => self.blocks.seen(first, &generations),
            Err(why) => {
                let mut failed = self.failed.lock().unwrap();
                failed.get_or_insert(format!("{reader}: {why}"));
                self.stop.store(true, Ordering::SeqCst);
            }
        }
    }

    /// While no other thread runs: every block has its last generation.
    pub(crate) fn check_all(&self, fs: &Filesystem) {
        let checked = self.blocks.check_all(&fs.read("/blocks").unwrap());
        assert_eq!(checked, Ok(()));
    }
}

/// One thread's work.
struct Actor<'a> {
    fs: &'a Filesystem,
    shared: &'a Shared,
    rng: Rng,
    totals: Totals,
}

/// The operation that a thread repeats.
type Act = fn(&mut Actor<'_>, &mut Tools);

/// The threads of a run.
const CAST: [Act; 9] = [
    |actor, tools| actor.write(&tools.cached),
    |actor, tools| actor.write(&tools.direct),
    |actor, tools| actor.write(&tools.direct),
    |actor, tools| actor.write_in_flight(tools),
    |actor, tools| actor.edit(&tools.cached),
    |actor, tools| actor.read("buffered reader", &tools.cached),
    |actor, tools| actor.read("direct reader", &tools.direct),
    |actor, tools| actor.view(&tools.cached),
    |actor, tools| actor.disturb(tools),
];

/// The state of one thread.
struct Tools {
    cached: File,
    direct: File,
    queue: DirectQueue,
}

/// Runs all threads for a while.
pub(crate) fn rage(fs: &Filesystem, shared: &Shared, seed: u64, time: Duration) -> Totals {
    let end = Instant::now() + time;
    let mut rng = Rng::new(seed);
    let mut all = Totals::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = CAST
            .iter()
            .map(|act| {
                let rng = rng.fork();
                scope.spawn(move || {
                    let mut tools = Tools {
                        cached: open(fs, false),
                        direct: open(fs, true),
                        queue: fs.direct_queue(4),
                    };
                    let totals = Totals::default();
                    let mut actor = Actor {
                        fs,
                        shared,
                        rng,
                        totals,
                    };
                    let mut acts = 0;
                    while (Instant::now() < end || acts < LEAST)
                        && !shared.stop.load(Ordering::SeqCst)
                    {
                        act(&mut actor, &mut tools);
                        acts += 1;
                    }
                    actor.totals
                })
            })
            .collect();
        for thread in threads {
            all += thread.join().unwrap();
        }
    });
    if let Some(why) = &*shared.failed.lock().unwrap() {
        panic!("EXTANT_SEED={seed}: {why}");
    }
    all
}

impl Actor<'_> {
    fn write(&mut self, file: &File) {
        let (first, end) = range(&mut self.rng);
        let locked = self.shared.blocks.lock(first, end);
        let bytes = &locked.bytes;
        // In one call or in two.
        let cut = if end - first == 1 || self.rng.chance(70) {
            bytes.len()
        } else {
            SIZE * (1 + self.rng.index(end - first - 1))
        };
        let pos = (first * SIZE) as u64;
        assert_eq!(file.write_at(&bytes[..cut], pos).unwrap(), cut);
        let rest = &bytes[cut..];
        assert_eq!(file.write_at(rest, pos + cut as u64).unwrap(), rest.len());
        locked.written();
        self.totals.writes += (end - first) as u64;
    }

    fn write_in_flight(&mut self, tools: &mut Tools) {
        let (first, end) = range(&mut self.rng);
        let locked = self.shared.blocks.lock(first, end);
        let per = 1 + self.rng.index(3);
        for (piece, bytes) in locked.bytes.chunks(per * SIZE).enumerate() {
            let pos = ((first + piece * per) * SIZE) as u64;
            let buf = IoBuf::copy_of(bytes);
            tools.queue.write(&tools.direct, pos, buf, 0).unwrap();
        }
        for over in tools.queue.wait(usize::MAX) {
            assert_eq!(over.result.unwrap(), over.buf.len());
        }
        locked.written();
        self.totals.writes += (end - first) as u64;
    }

    /// Changes a block where it lies in the cache.
    fn edit(&mut self, file: &File) {
        let (first, _) = range(&mut self.rng);
        let locked = self.shared.blocks.lock(first, first + 1);
        let pos = (first * SIZE) as u64;
        let change = |at: u64, into: &mut [u8]| {
            let from = usize::try_from(at - pos).unwrap();
            into.copy_from_slice(&locked.bytes[from..from + into.len()]);
        };
        let done = file.edit(pos..pos + SIZE as u64, change).unwrap();
        assert_eq!(done, SIZE as u64);
        locked.written();
        self.totals.writes += 1;
    }

    fn read(&mut self, reader: &str, file: &File) {
        let (first, end) = range(&mut self.rng);
        let least = self.shared.blocks.least(first, end);
        let mut bytes = vec![0; (end - first) * SIZE];
        let done = file.read_at(&mut bytes, (first * SIZE) as u64).unwrap();
        assert_eq!(done, bytes.len());
        self.shared.saw(reader, first, &least, &bytes);
        self.totals.reads += (end - first) as u64;
    }

    fn view(&mut self, file: &File) {
        let (first, end) = range(&mut self.rng);
        let least = self.shared.blocks.least(first, end);
        let range = (first * SIZE) as u64..(end * SIZE) as u64;
        let view = file.view(range).unwrap();
        let bytes: Vec<u8> = view.chunks().flatten().copied().collect();
        self.shared.saw("viewer", first, &least, &bytes);
        self.totals.reads += (end - first) as u64;
    }

    /// Drops the cache, makes the file durable, and extends and truncates the file behind the
    /// blocks.
    fn disturb(&mut self, tools: &mut Tools) {
        let end = (BLOCKS * SIZE) as u64;
        let more = self.rng.below(40_000);
        match self.rng.below(6) {
            0 => tools.cached.sync_data().unwrap(),
            1 => tools.cached.set_len(end + more).unwrap(),
            2 => {
                tools.direct.write_at(&[9; 3000], end + more).unwrap();
            }
            3 => tools.cached.allocate(0..end + more + 1).unwrap(),
            _ => self.fs.volume().drop_caches(),
        }
        std::thread::sleep(Duration::from_micros(300));
    }
}
