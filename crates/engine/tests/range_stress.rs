//! Range operations that race with writers, readers, views, fsync and truncation in one file.
//!
//! The file is made of units of 16 bytes that vouch for themselves wherever they are: all that
//! writers write, and all that range operations cut, begins and ends with one. Whatever a reader
//! sees is units and zeros.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use extant_blockdev::MemoryDevice;
use extant_check::{CheckOptions, check};
use extant_engine::FallocateMode::{Allocate, CollapseRange, InsertRange, PunchHole, ZeroRange};
use extant_engine::{
    BufferedPath, Cred, Error, Node, SetAttr, Tuning, Verifier, Volume, VolumeOptions,
};
use extant_testkit::{Fault, FaultyDevice, Image, Request, RequestKind, Rng, report};

const UNIT: u64 = 16;
/// Positions are drawn below this, and the file grows to twice as much.
const SPAN: u64 = 600_000;
/// Unit by which maps move: a multiple of every block size.
const BLOCK: u64 = 4096;
/// Operations of each thread between two looks at everything, and how often that is done;
/// `EXTANT_OPS` asks for more operations in all.
const OPERATIONS: u64 = 40;
const ROUNDS: u64 = 8;

/// A unit with that number.
fn unit(number: u64) -> [u8; 16] {
    let mut unit = [0; 16];
    let number = number | 1 << 63;
    unit[..8].copy_from_slice(&number.to_le_bytes());
    let sum = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ number;
    unit[8..].copy_from_slice(&sum.to_le_bytes());
    unit
}

/// The first unit of `bytes` that is neither one nor zeros. What the end of the file cuts off is
/// not looked at.
fn first_wrong(bytes: &[u8]) -> Option<usize> {
    bytes.chunks_exact(16).position(|got| {
        let number = u64::from_le_bytes(got[..8].try_into().unwrap());
        got != [0; 16] && got != unit(number & !(1 << 63))
    })
}

struct Stage {
    volume: Volume,
    file: Node,
    numbers: AtomicU64,
}

impl Stage {
    fn pos(rng: &mut Rng) -> u64 {
        rng.below(SPAN) / UNIT * UNIT
    }

    fn len(rng: &mut Rng) -> u64 {
        let most = [200, 5000, 40_000][rng.index(3)];
        rng.between(1, most).next_multiple_of(UNIT)
    }

    fn data(&self, len: u64) -> Vec<u8> {
        let first = self.numbers.fetch_add(len, Ordering::Relaxed);
        (first..first + len / UNIT).flat_map(unit).collect()
    }

    fn size(&self) -> u64 {
        self.volume.getattr(&self.file).unwrap().size
    }

    fn write(&self, rng: &mut Rng) {
        let (pos, data) = (Self::pos(rng), self.data(Self::len(rng)));
        let (volume, cred) = (&self.volume, Cred::root());
        let done = match rng.below(8) {
            // Where the end is only the file system knows; it is kept whole by moving by whole
            // units.
            0 if self.size() < 2 * SPAN => volume.append(&self.file, &data, &cred).unwrap().1,
            1 => {
                let done = volume.edit(&self.file, pos, data.len(), &cred, |at, bytes| {
                    let from = usize::try_from(at - pos).unwrap();
                    bytes.copy_from_slice(&data[from..from + bytes.len()]);
                });
                assert_eq!(done.unwrap() % 16, 0);
                return;
            }
            _ => volume.write(&self.file, pos, &data, &cred).unwrap(),
        };
        assert_eq!(done, data.len());
    }

    fn read(&self, rng: &mut Rng) {
        let (pos, len) = (Self::pos(rng), Self::len(rng));
        let mut buf = vec![0; usize::try_from(len).unwrap()];
        let seen = if rng.chance(30) {
            let view = self.volume.view(&self.file, pos, buf.len()).unwrap();
            std::thread::yield_now();
            view.chunks().flatten().copied().collect()
        } else {
            let done = self.volume.read(&self.file, pos, &mut buf).unwrap();
            buf[..done].to_vec()
        };
        let wrong = first_wrong(&seen);
        assert_eq!(wrong, None, "unit {wrong:?} from {pos} on: {:02x?}", {
            let at = wrong.unwrap_or(0) * 16;
            &seen[at..seen.len().min(at + 16)]
        });
    }

    fn range(&self, rng: &mut Rng) {
        let (mut pos, mut len) = (Self::pos(rng), Self::len(rng));
        let keep_size = rng.chance(50);
        let mode = match rng.below(8) {
            0 | 1 => PunchHole,
            2 | 3 => ZeroRange { keep_size },
            4 => Allocate { keep_size },
            5 | 6 => CollapseRange,
            _ if self.size() < 2 * SPAN => InsertRange,
            _ => CollapseRange,
        };
        if let CollapseRange | InsertRange = mode {
            (pos, len) = (
                pos / BLOCK * BLOCK / 2 / BLOCK * BLOCK,
                len.next_multiple_of(BLOCK),
            );
        }
        let cred = Cred::root();
        match self.volume.fallocate(&self.file, mode, pos, len, &cred) {
            // The end of the file came too near.
            Ok(()) | Err(Error::Invalid) => {}
            Err(error) => panic!("{mode:?} {pos}+{len}: {error}"),
        }
    }

    /// All threads, each with its operations.
    fn race(&self, seed: u64) {
        let kinds: [fn(&Stage, &mut Rng); 8] = [
            Stage::write,
            Stage::write,
            Stage::write,
            Stage::read,
            Stage::read,
            Stage::range,
            Stage::range,
            Stage::others,
        ];
        std::thread::scope(|scope| {
            for (number, kind) in (0..).zip(kinds) {
                scope.spawn(move || {
                    let mut rng = Rng::new(seed * 10 + number);
                    (0..OPERATIONS).for_each(|_| kind(self, &mut rng));
                });
            }
        });
    }

    /// Nothing runs: memory is in order, and what is cached is what the device has. Returns the
    /// file's bytes.
    fn look(&self, verifier: &mut Verifier, what: &str) -> Vec<u8> {
        let volume = &self.volume;
        let sound = volume.verify(verifier, false);
        sound.unwrap_or_else(|why| panic!("{what}: {why}"));
        let before = all(volume, &self.file);
        assert_eq!(first_wrong(&before), None, "{what}");
        volume.sync().unwrap();
        let sound = volume.verify(verifier, true);
        sound.unwrap_or_else(|why| panic!("{what}, synced: {why}"));
        volume.drop_caches();
        let now = all(volume, &self.file);
        assert!(now == before, "{what}: other bytes on the device");
        now
    }

    fn others(&self, rng: &mut Rng) {
        match rng.below(6) {
            0 | 1 => self.volume.fsync(&self.file, rng.chance(50)).unwrap(),
            2 => self.volume.drop_caches(),
            3 => {
                let to = SetAttr {
                    size: Some(Self::pos(rng) + SPAN / 4),
                    ..SetAttr::default()
                };
                self.volume.setattr(&self.file, &to, &Cred::root()).unwrap();
            }
            4 => {
                let (from, to) = ((&self.file, Self::pos(rng)), (&self.file, Self::pos(rng)));
                let done = self
                    .volume
                    .copy_range(from, to, Self::len(rng), &Cred::root());
                assert!(matches!(done, Ok(_) | Err(Error::Invalid)), "{done:?}");
            }
            _ => self.read(rng),
        }
    }
}

fn storm(args: &str, path: BufferedPath, options: &str, seed: u64) {
    let made = Image::of_mib(24).args(args).junk().make().unwrap();
    let memory = Arc::new(MemoryDevice::from_bytes(
        &std::fs::read(made.path()).unwrap(),
    ));
    // Reads take long enough for the map to change meanwhile.
    let plan = |request: Request<'_>| match request.kind {
        RequestKind::Read => Fault::Delay(Duration::from_micros(100)),
        _ => Fault::Pass,
    };
    let dev = Arc::new(FaultyDevice::new(memory.clone(), plan));
    let mut tuning = Tuning::default();
    tuning.page_cache_bytes = Some(32 << 20);
    tuning.buffered_path = path;
    let mut how = VolumeOptions::new();
    how.write(true).mount_options(options).tuning(tuning);
    let volume = how.open_on(dev.clone()).unwrap();
    let root = volume.root().unwrap();
    let file = volume.create(&root, b"file", 0o644, &Cred::root()).unwrap();
    let stage = Stage {
        volume,
        file,
        numbers: AtomicU64::new(1),
    };
    let asked = std::env::var("EXTANT_OPS").ok();
    let asked = asked.and_then(|text| text.parse::<u64>().ok());
    let rounds = asked.map_or(ROUNDS, |asked| asked.div_ceil(OPERATIONS));
    let what = format!("{args} {path:?} {options}");
    let mut verifier = Verifier::default();
    let mut last = Vec::new();
    for round in 0..rounds {
        stage.race(seed * 1000 + round);
        last = stage.look(&mut verifier, &format!("{what}, round {round}"));
    }
    let Stage { volume, file, .. } = stage;
    drop((file, root));
    volume.unmount().unwrap();
    let found = check(memory.clone(), &CheckOptions::default())
        .unwrap()
        .findings;
    assert!(found.is_empty(), "{what}: {found:?}");
    let volume = how.open_on(memory).unwrap();
    let file = volume.lookup(&volume.root().unwrap(), b"file").unwrap();
    assert!(
        all(&volume, &file) == last,
        "{what}: other bytes after a mount"
    );
    report(&format!(
        "range operations beside others, {what}: {rounds} times {OPERATIONS} of each of 8 threads"
    ));
}

/// The bytes of a file.
fn all(volume: &Volume, file: &Node) -> Vec<u8> {
    let size = volume.getattr(file).unwrap().size;
    let mut bytes = vec![0; usize::try_from(size).unwrap()];
    assert_eq!(volume.read(file, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

#[test]
fn range_operations_race_with_everything() {
    let seed = std::env::var("EXTANT_SEED").ok();
    let seed: u64 = seed.and_then(|text| text.parse().ok()).unwrap_or(1);
    let seed = seed % 1_000_000 * 10;
    storm("-b 1024", BufferedPath::Iomap, "", seed);
    storm("-b 4096", BufferedPath::Iomap, "", seed + 1);
    storm("-b 1024", BufferedPath::BufferHead, "", seed + 2);
    storm(
        "-b 4096",
        BufferedPath::BufferHead,
        "dioread_lock",
        seed + 3,
    );
    storm(
        "-b 1024",
        BufferedPath::BufferHead,
        "data=journal",
        seed + 4,
    );
    // Larger than a page.
    storm("-b 16384", BufferedPath::Iomap, "", seed + 5);
    storm("-b 8192", BufferedPath::BufferHead, "", seed + 6);
}
