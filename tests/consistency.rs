//! Readers and writers of one file of a mount: with the kernel's cache, past it, and through
//! mappings. Every block carries a generation and a checksum: none stays torn, and none is older
//! than what was written when the reader began.
//!
//! Stores into a mapping are no single step, nor is a copy out of it beside a writer: a block that
//! looks torn is read again, and has to be whole in the end. Mappings are held by helpers in
//! Python, which know nothing but to copy.

use extant_testkit::generations::{Blocks, SIZE};
use extant_testkit::{Context, Error, Image, Need, Result, Rng, Subject};
use extant_testkit::{ensure, need, patience, report};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Loop,
    Need::Tool("mke2fs"),
    Need::Tool("python3"),
];
const BLOCKS: usize = 64;
const MOST: usize = 8;
/// How long a block may look torn while it is being stored to.
const PATIENCE: Duration = Duration::from_secs(20);

/// Copies blocks out of a shared mapping (`r`), and into it (`w`).
const MAPPER: &str = "
import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(f, int(sys.argv[2]))
i, o = sys.stdin.buffer, sys.stdout.buffer
while True:
    head = i.read(17)
    if len(head) < 17: break
    at = int.from_bytes(head[1:9], 'little')
    n = int.from_bytes(head[9:17], 'little')
    if head[0:1] == b'r':
        o.write(m[at:at + n])
    else:
        m[at:at + n] = i.read(n)
        o.write(b'k')
    o.flush()
";

/// A kind of access to the file's bytes.
enum Access {
    Cached(File),
    Direct(File, Vec<u8>),
    Mapped {
        child: Child,
        to: ChildStdin,
        from: ChildStdout,
    },
}

fn open(path: &Path, flags: OFlags) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    Ok(options
        .custom_flags(flags.bits().cast_signed())
        .open(path)?)
}

impl Access {
    fn cached(path: &Path) -> Result<Access> {
        Ok(Access::Cached(open(path, OFlags::empty())?))
    }

    fn direct(path: &Path) -> Result<Access> {
        let memory = vec![0; (MOST + 1) * SIZE];
        Ok(Access::Direct(open(path, OFlags::DIRECT)?, memory))
    }

    fn mapped(path: &Path) -> Result<Access> {
        let mut child = Command::new("python3")
            .args(["-c", MAPPER])
            .arg(path)
            .arg((BLOCKS * SIZE).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let ends = child.stdin.take().zip(child.stdout.take());
        let (to, from) = ends.ok_or_else(|| Error::new("no pipes"))?;
        Ok(Access::Mapped { child, to, from })
    }

    /// Stores into a mapping can be seen half done.
    fn is_mapped(&self) -> bool {
        matches!(self, Access::Mapped { .. })
    }

    fn write(&mut self, pos: u64, bytes: &[u8]) -> Result<()> {
        match self {
            Access::Cached(file) => file.write_all_at(bytes, pos)?,
            Access::Direct(file, memory) => {
                let skip = memory.as_ptr().align_offset(SIZE);
                let aligned = &mut memory[skip..skip + bytes.len()];
                aligned.copy_from_slice(bytes);
                file.write_all_at(aligned, pos)?;
            }
            Access::Mapped { to, from, .. } => {
                to.write_all(&head(b'w', pos, bytes.len()))?;
                to.write_all(bytes)?;
                to.flush()?;
                from.read_exact(&mut [0])?;
            }
        }
        Ok(())
    }

    fn read(&mut self, pos: u64, bytes: &mut [u8]) -> Result<()> {
        match self {
            Access::Cached(file) => file.read_exact_at(bytes, pos)?,
            Access::Direct(file, memory) => {
                let skip = memory.as_ptr().align_offset(SIZE);
                let aligned = &mut memory[skip..skip + bytes.len()];
                file.read_exact_at(aligned, pos)?;
                bytes.copy_from_slice(aligned);
            }
            Access::Mapped { to, from, .. } => {
                to.write_all(&head(b'r', pos, bytes.len()))?;
                to.flush()?;
                from.read_exact(bytes)?;
            }
        }
        Ok(())
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        if let Access::Mapped { child, .. } = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn head(what: u8, pos: u64, len: usize) -> Vec<u8> {
    [&[what][..], &pos.to_le_bytes(), &(len as u64).to_le_bytes()].concat()
}

/// State that all threads know.
struct Shared {
    blocks: Blocks,
    stop: AtomicBool,
    writes: AtomicU64,
    reads: AtomicU64,
    /// Reads that looked torn at first.
    torn: AtomicU64,
}

impl Shared {
    /// Returns whether the least has happened that must, however slow the machine is.
    fn has_done_enough(&self) -> bool {
        [&self.writes, &self.reads]
            .iter()
            .all(|done| done.load(Ordering::Relaxed) > 20)
    }
}

/// A thread's life.
type Life = fn(&Shared, Access, Rng) -> Result<()>;
/// Its access to the file.
type Opening = fn(&Path) -> Result<Access>;

const CAST: [(&str, Opening, Life); 7] = [
    ("buffered writer", Access::cached, write),
    ("direct writer", Access::direct, write),
    ("mapped writer", Access::mapped, write),
    ("buffered reader", Access::cached, read),
    ("direct reader", Access::direct, read),
    ("mapped reader", Access::mapped, read),
    ("disturber", Access::cached, disturb),
];

fn range(rng: &mut Rng) -> (usize, usize) {
    let first = rng.index(BLOCKS);
    (first, (first + 1 + rng.index(MOST)).min(BLOCKS))
}

fn write(shared: &Shared, mut access: Access, mut rng: Rng) -> Result<()> {
    while !shared.stop.load(Ordering::SeqCst) {
        let (first, end) = range(&mut rng);
        let end = if access.is_mapped() { first + 1 } else { end };
        let locked = shared.blocks.lock(first, end);
        access.write((first * SIZE) as u64, &locked.bytes)?;
        locked.written();
        shared
            .writes
            .fetch_add((end - first) as u64, Ordering::Relaxed);
    }
    Ok(())
}

fn read(shared: &Shared, mut access: Access, mut rng: Rng) -> Result<()> {
    // A reader need not find what others saw of a write in progress, but finds what it saw before.
    let mut seen = vec![0; BLOCKS];
    while !shared.stop.load(Ordering::SeqCst) {
        let (first, end) = range(&mut rng);
        let mut bytes = vec![0; (end - first) * SIZE];
        let until = Instant::now() + patience(PATIENCE);
        let generations = loop {
            let least = shared.blocks.least(first, end);
            let own = least.iter().zip(&seen[first..end]);
            let least: Vec<u64> = own.map(|(written, seen)| *written.max(seen)).collect();
            access.read((first * SIZE) as u64, &mut bytes)?;
            match shared.blocks.judge(first, &least, &bytes) {
                Ok(generations) => break generations,
                Err(why) => {
                    let torn = why.contains("torn") && Instant::now() < until;
                    ensure!(torn, "{why}");
                    shared.torn.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        seen[first..end].copy_from_slice(&generations);
        shared
            .reads
            .fetch_add((end - first) as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Has pages written and dropped.
fn disturb(shared: &Shared, access: Access, mut rng: Rng) -> Result<()> {
    let Access::Cached(file) = &access else {
        return Ok(());
    };
    while !shared.stop.load(Ordering::SeqCst) {
        if rng.chance(50) {
            file.sync_data()?;
        } else {
            rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn duration() -> Duration {
    let asked = std::env::var("EXTANT_SECONDS").ok();
    Duration::from_secs(asked.and_then(|s| s.parse().ok()).unwrap_or(6))
}

#[test]
fn buffered_direct_and_mapped_agree_about_every_block() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let seed = std::env::var("EXTANT_SEED").ok();
    let seed: u64 = seed.and_then(|s| s.parse().ok()).unwrap_or(1);
    let rounds = ["", "nowriteback_cache", "nobuffered_iomap"];
    let time = duration() / u32::try_from(rounds.len())?;
    for (round, options) in (seed..).zip(rounds) {
        let image = Image::of_mib(32).junk().make()?;
        let mount = Subject::under_test().mount(image.path(), options)?;
        let path = mount.join("blocks");
        let shared = Shared {
            blocks: Blocks::new(BLOCKS),
            stop: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            torn: AtomicU64::new(0),
        };
        std::fs::write(&path, shared.blocks.first_bytes())?;
        let mut rng = Rng::new(round);
        let ends: Vec<Result<()>> = std::thread::scope(|scope| {
            let threads: Vec<_> = CAST
                .iter()
                .map(|(name, opening, life)| {
                    let (rng, shared, path) = (rng.fork(), &shared, &path);
                    scope.spawn(move || {
                        let end = opening(path).and_then(|access| life(shared, access, rng));
                        // A thread that ends early has failed: the others need not go on.
                        shared.stop.store(true, Ordering::SeqCst);
                        end.context(|| *name)
                    })
                })
                .collect();
            let end = Instant::now() + time;
            while (Instant::now() < end || !shared.has_done_enough())
                && !shared.stop.load(Ordering::SeqCst)
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            shared.stop.store(true, Ordering::SeqCst);
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
                let end = thread.join();
                end.unwrap_or_else(|_| Err(Error::new("a thread panicked")))
            };
            threads.into_iter().map(join).collect()
        });
        ends.into_iter().collect::<Result<()>>()?;
        let check = |bytes: Vec<u8>| shared.blocks.check_all(&bytes).map_err(Error::new);
        check(std::fs::read(&path)?)?;
        mount.unmount()?;
        image.fsck_clean()?;
        let linux = Subject::Ext4.mount(image.path(), "ro")?;
        check(std::fs::read(linux.join("blocks"))?)?;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (writes, reads) = (count(&shared.writes), count(&shared.reads));
        report(&format!(
            "one file of a mount ({options}): {writes} writes, {reads} reads of blocks, \
             {} looked at again",
            count(&shared.torn)
        ));
    }
    Ok(())
}
