//! A storm of metadata: threads that create, write, replace, append, move, link, truncate and
//! remove, each in a directory of its own and from a seed of its own, and keep a ledger of what
//! fsync acknowledged.
//!
//! Files outside of the ledger ("noise") carry their content's seed in their name, so that after a
//! crash every byte of theirs can be distinguished from a stale one ([`check_noise`]).

use crate::promise::{Id, Ledger, Version};
use crate::{Result, Rng, bail, content};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Most files a thread keeps, of each sort; bounds the space a storm takes.
const PROMISED: usize = 24;
const NOISE: usize = 60;
/// Largest file.
const LARGEST: u64 = 40_000;

/// State that a storm shares with the test that watches it.
#[derive(Debug, Default)]
pub struct Storm {
    /// The promises.
    pub ledger: Ledger,
    /// Set by the watcher to end the storm.
    pub stop: AtomicBool,
    /// Operations finished so far.
    pub operations: AtomicU64,
    /// Set by the watcher before it kills: from then on errors are the end, not a failure.
    pub doomed: AtomicBool,
}

impl Storm {
    /// Runs `threads` of them below `root` until [`Storm::stop`] is set or the mount dies.
    pub fn rage(&self, root: &Path, threads: u64, seed: u64) -> Result<()> {
        let failures: Vec<String> = std::thread::scope(|s| {
            let all: Vec<_> = (0..threads)
                .map(|t| s.spawn(move || self.thread(root, t, seed)))
                .collect();
            let ends = all
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|_| Err(died())));
            ends.filter_map(|e| e.err())
                .map(|e| e.to_string())
                .collect()
        });
        if failures.is_empty() {
            Ok(())
        } else {
            bail!("storm: {}", failures.join("; "))
        }
    }

    fn thread(&self, root: &Path, number: u64, seed: u64) -> Result<()> {
        let name = PathBuf::from(format!("t{number}-{seed:x}"));
        let mut t = Thread {
            root,
            home: name,
            rng: Rng::new(seed.wrapping_mul(1000).wrapping_add(number)),
            storm: self,
            promised: Vec::new(),
            noise: Vec::new(),
            serial: 0,
        };
        let run = |t: &mut Thread<'_>| -> io::Result<()> {
            fs::create_dir(t.full(""))?;
            while !self.stop.load(Ordering::Relaxed) {
                t.step()?;
                self.operations.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        match run(&mut t) {
            Err(e) if !self.doomed.load(Ordering::SeqCst) => bail!("thread {number}: {e}"),
            _ => Ok(()),
        }
    }
}

fn died() -> crate::Error {
    crate::Error::new("a thread panicked")
}

struct Promised {
    id: Id,
    name: PathBuf,
    version: Version,
}

struct Thread<'a> {
    root: &'a Path,
    home: PathBuf,
    rng: Rng,
    storm: &'a Storm,
    promised: Vec<Promised>,
    noise: Vec<PathBuf>,
    serial: u64,
}

impl Thread<'_> {
    fn full(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.join(&self.home).join(name)
    }

    fn relative(&self, name: &Path) -> PathBuf {
        self.home.join(name)
    }

    fn fresh(&mut self, prefix: &str) -> PathBuf {
        self.serial += 1;
        let pad = "p".repeat(self.rng.index(40));
        PathBuf::from(format!("{prefix}{}{pad}", self.serial))
    }

    fn step(&mut self) -> io::Result<()> {
        match self.rng.below(100) {
            0..=17 => self.promise_new(),
            18..=27 => self.replace(),
            28..=37 => self.append(),
            38..=43 => self.move_promised(),
            44..=48 => self.drop_promised(),
            49..=66 => self.make_noise(),
            67..=74 => self.change_noise(),
            75..=84 => self.remove_noise(),
            85..=90 => self.subtree(),
            91..=93 => self.crowd(),
            94..=96 => self.links(),
            _ => self.unlink_open(),
        }
    }

    /// A new file, written, fsynced, promised.
    fn promise_new(&mut self) -> io::Result<()> {
        if self.promised.len() >= PROMISED {
            return self.drop_promised();
        }
        let name = self.fresh("k");
        let version = self.new_version();
        let f = File::create(self.full(&name))?;
        write_version(&f, version)?;
        f.sync_all()?;
        let id = self.storm.ledger.durable(&self.relative(&name), version);
        self.promised.push(Promised { id, name, version });
        Ok(())
    }

    fn new_version(&mut self) -> Version {
        Version::exact(self.rng.next_u64(), self.rng.between(1, LARGEST))
    }

    fn pick(&mut self) -> Option<usize> {
        let n = self.promised.len();
        (n > 0).then(|| self.rng.index(n))
    }

    /// Replaces a promised file the safe way: write beside it, fsync, rename over it.
    fn replace(&mut self) -> io::Result<()> {
        let Some(at) = self.pick() else {
            return self.promise_new();
        };
        let version = self.new_version();
        let temp = self.fresh("tmp");
        let f = File::create(self.full(&temp))?;
        write_version(&f, version)?;
        f.sync_all()?;
        let (from, sync) = (self.full(&temp), self.rng.chance(50));
        let home = self.full("");
        let Some(k) = self.promised.get_mut(at) else {
            return Ok(());
        };
        self.storm.ledger.may_become(k.id, version);
        k.version = version;
        fs::rename(from, home.join(&k.name))?;
        if sync {
            File::open(home)?.sync_all()?;
            self.storm.ledger.became(k.id, version);
        }
        Ok(())
    }

    fn append(&mut self) -> io::Result<()> {
        let Some(at) = self.pick() else {
            return self.promise_new();
        };
        let more = self.rng.between(1, 6000);
        let home = self.full("");
        let Some(k) = self.promised.get_mut(at) else {
            return Ok(());
        };
        let (old, max) = (k.version, k.version.len + more);
        self.storm.ledger.may_become(k.id, Version { max, ..old });
        let f = OpenOptions::new().append(true).open(home.join(&k.name))?;
        let bytes = content::fill(old.seed, old.len, usize::try_from(more).unwrap_or(0));
        io::Write::write_all(&mut &f, &bytes)?;
        if more.is_multiple_of(2) {
            f.sync_all()?
        } else {
            f.sync_data()?
        }
        k.version = Version::exact(old.seed, max);
        self.storm.ledger.became(k.id, k.version);
        Ok(())
    }

    fn move_promised(&mut self) -> io::Result<()> {
        let Some(at) = self.pick() else { return Ok(()) };
        let new = self.fresh("moved");
        let place = self.relative(&new);
        let home = self.full("");
        let Some(k) = self.promised.get_mut(at) else {
            return Ok(());
        };
        self.storm.ledger.may_move(k.id, &place);
        fs::rename(home.join(&k.name), home.join(&new))?;
        k.name = new;
        Ok(())
    }

    fn drop_promised(&mut self) -> io::Result<()> {
        let Some(at) = self.pick() else { return Ok(()) };
        let k = self.promised.swap_remove(at);
        self.storm.ledger.release(k.id);
        fs::remove_file(self.full(&k.name))
    }

    fn make_noise(&mut self) -> io::Result<()> {
        if self.noise.len() >= NOISE {
            return self.remove_noise();
        }
        let seed = self.rng.next_u64();
        let name = self.fresh(&format!("n-{seed:016x}-"));
        let f = File::create(self.full(&name))?;
        self.scribble(&f, seed)?;
        if self.rng.chance(20) {
            let value = content::fill(seed, 0, self.rng.index(300));
            rustix::fs::fsetxattr(&f, "user.noise", &value, rustix::fs::XattrFlags::empty())?;
        }
        self.noise.push(name);
        Ok(())
    }

    /// Writes somewhere, holes before and between.
    fn scribble(&mut self, f: &File, seed: u64) -> io::Result<()> {
        for _ in 0..self.rng.between(1, 4) {
            let pos = self.rng.below(LARGEST);
            let len = usize::try_from(self.rng.between(1, 9000)).unwrap_or(0);
            f.write_all_at(&content::fill(seed, pos, len), pos)?;
        }
        Ok(())
    }

    fn change_noise(&mut self) -> io::Result<()> {
        if self.noise.is_empty() {
            return Ok(());
        }
        let at = self.rng.index(self.noise.len());
        let Some(name) = self.noise.get(at).cloned() else {
            return Ok(());
        };
        let f = OpenOptions::new().write(true).open(self.full(&name))?;
        if self.rng.chance(40) {
            f.set_len(self.rng.below(LARGEST * 2))?;
        } else if let Some(seed) = seed_of(&name) {
            self.scribble(&f, seed)?;
        }
        if self.rng.chance(10) {
            f.sync_all()
        } else {
            Ok(())
        }
    }

    fn remove_noise(&mut self) -> io::Result<()> {
        if self.noise.is_empty() {
            return Ok(());
        }
        let name = self.noise.swap_remove(self.rng.index(self.noise.len()));
        fs::remove_file(self.full(name))
    }

    /// Makes a small tree, moves it, removes it.
    fn subtree(&mut self) -> io::Result<()> {
        let top = self.fresh("d");
        let path = self.full(&top);
        fs::create_dir_all(path.join("a/b/c"))?;
        for i in 0..self.rng.between(1, 12) {
            let seed = self.rng.next_u64();
            let len = self.rng.index(5000);
            fs::write(
                path.join(format!("a/b/n-{seed:016x}-{i}")),
                content::fill(seed, 0, len),
            )?;
        }
        let moved = self.fresh("e");
        let moved = self.full(moved);
        fs::rename(path.join("a"), &moved)?;
        fs::remove_dir_all(moved)?;
        fs::remove_dir(path)
    }

    /// Fills a directory until it splits, then empties it.
    fn crowd(&mut self) -> io::Result<()> {
        let dir = self.fresh("crowd");
        let dir = self.full(dir);
        fs::create_dir(&dir)?;
        let n = self.rng.between(40, 160);
        for i in 0..n {
            File::create(dir.join(format!("{i:03}{}", "y".repeat(60))))?;
        }
        for i in (0..n).step_by(2) {
            fs::rename(
                dir.join(format!("{i:03}{}", "y".repeat(60))),
                dir.join(format!("z{i}")),
            )?;
        }
        fs::remove_dir_all(dir)
    }

    fn links(&mut self) -> io::Result<()> {
        let (a, b, c) = (self.fresh("l"), self.fresh("l"), self.fresh("l"));
        let (a, b, c) = (self.full(a), self.full(b), self.full(c));
        symlink("s".repeat(self.rng.index(200) + 1), &a)?;
        fs::write(&b, b"")?;
        fs::hard_link(&b, &c)?;
        fs::rename(&a, &b)?;
        fs::remove_file(c)?;
        fs::remove_file(b)
    }

    /// An orphan: unlinked while open, written, then closed.
    fn unlink_open(&mut self) -> io::Result<()> {
        let name = self.fresh("o");
        let path = self.full(name);
        let f = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        f.write_all_at(&content::fill(5, 0, 9000), 0)?;
        fs::remove_file(path)?;
        f.write_all_at(&content::fill(5, 9000, 3000), 9000)?;
        let mut back = vec![0; 12_000];
        f.read_exact_at(&mut back, 0)?;
        match content::first_wrong(5, 0, &back) {
            None => Ok(()),
            Some(at) => Err(io::Error::other(format!(
                "unlinked open file: wrong byte at {at}"
            ))),
        }
    }
}

fn write_version(f: &File, v: Version) -> io::Result<()> {
    f.write_all_at(
        &content::fill(v.seed, 0, usize::try_from(v.len).unwrap_or(0)),
        0,
    )
}

fn seed_of(name: &Path) -> Option<u64> {
    let name = name.file_name()?.to_str()?;
    u64::from_str_radix(name.strip_prefix("n-")?.get(..16)?, 16).ok()
}

/// Looks at every noise file below `root`: each byte is its own or zero, none is stale. The number
/// of files looked at.
pub fn check_noise(root: &Path) -> Result<usize> {
    let mut count = 0;
    let mut todo = vec![root.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for e in fs::read_dir(&dir)? {
            let e = e?;
            let kind = e.file_type()?;
            if kind.is_dir() {
                todo.push(e.path());
            } else if let (true, Some(seed)) = (kind.is_file(), seed_of(&e.path())) {
                let bytes = fs::read(e.path())?;
                if let Some(at) = content::first_foreign(seed, 0, &bytes) {
                    let found = usize::try_from(at).ok().and_then(|i| bytes.get(i));
                    bail!(
                        "{}: foreign byte {found:02x?} at {at} of {}",
                        e.path().display(),
                        bytes.len()
                    );
                }
                count += 1;
            }
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests;
