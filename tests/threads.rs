//! Eight threads that create, write, rename, read and unlink in one mount: nothing lost, nothing
//! mixed up, e2fsck clean.

use extant_testkit::storm::{Storm, check_noise};
use extant_testkit::{
    Error, Image, Need, Result, Rng, Subject, Tree, content, ensure, need, report, tree::Compare,
};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")];
const THREADS: u64 = 8;

/// Seconds in `make test`; `EXTANT_SECONDS` asks for the full minute or more.
fn duration() -> Duration {
    let asked = std::env::var("EXTANT_SECONDS")
        .ok()
        .and_then(|s| s.parse().ok());
    Duration::from_secs(asked.unwrap_or(8))
}

/// Each thread owns its names in directories shared by all, and knows what each must hold.
#[test]
fn eight_threads_in_shared_directories_lose_nothing() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(512).junk().make()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    for d in 0..4 {
        fs::create_dir(mount.join(format!("shared{d}")))?;
    }
    let end = Instant::now() + duration();
    let root = mount.dir();
    let ends: Vec<Result<Owner>> = std::thread::scope(|s| {
        let all: Vec<_> = (0..THREADS)
            .map(|t| s.spawn(move || Owner::live(t, root, end)))
            .collect();
        all.into_iter()
            .map(|t| {
                t.join()
                    .unwrap_or_else(|_| Err(Error::new("a thread panicked")))
            })
            .collect()
    });
    let owners = ends.into_iter().collect::<Result<Vec<_>>>()?;
    let names: usize = owners.iter().map(|o| o.files.len()).sum();
    let operations: u64 = owners.iter().map(|o| o.operations).sum();
    for o in &owners {
        o.check_all()?;
    }
    let listed = Tree::take(mount.dir())?.without("lost+found");
    ensure!(
        listed.len() == names + 5,
        "{} entries listed, {} made",
        listed.len(),
        names + 5
    );
    mount.unmount()?;
    image.fsck_clean()?;
    let linux = Subject::Ext4.mount(image.path(), "ro")?;
    let by_linux = Tree::take(linux.dir())?.without("lost+found");
    listed.expect_equal(&by_linux, Compare::default())?;
    report(&format!(
        "eight threads: {operations} operations, {names} files left and right"
    ));
    ensure!(operations > THREADS * 100, "only {operations} operations");
    Ok(())
}

/// Files that one thread has made: name to (content seed, length).
struct Owner {
    number: u64,
    root: PathBuf,
    rng: Rng,
    files: BTreeMap<PathBuf, (u64, usize)>,
    serial: u64,
    operations: u64,
}

impl Owner {
    fn live(number: u64, root: &Path, end: Instant) -> Result<Owner> {
        let mut o = Owner {
            number,
            root: root.to_path_buf(),
            rng: Rng::new(number + 77),
            files: BTreeMap::new(),
            serial: 0,
            operations: 0,
        };
        // On a slow machine longer than that: there has to be something to judge.
        while Instant::now() < end || o.operations <= 100 {
            o.step()?;
            o.operations += 1;
        }
        Ok(o)
    }

    fn step(&mut self) -> Result<()> {
        match self.rng.below(10) {
            0..=3 if self.files.len() < 400 => self.create(),
            4 | 5 => self.rename(),
            6..=8 => self.read_one(),
            _ => self.unlink(),
        }
    }

    fn fresh(&mut self) -> PathBuf {
        self.serial += 1;
        let dir = self.rng.below(4);
        PathBuf::from(format!("shared{dir}/t{}-{}", self.number, self.serial))
    }

    fn any(&mut self) -> Option<(PathBuf, (u64, usize))> {
        let n = self.files.len();
        let at = if n == 0 {
            return None;
        } else {
            self.rng.index(n)
        };
        self.files.iter().nth(at).map(|(p, c)| (p.clone(), *c))
    }

    fn create(&mut self) -> Result<()> {
        let (name, seed, len) = (self.fresh(), self.rng.next_u64(), self.rng.index(30_000));
        fs::write(self.root.join(&name), content::fill(seed, 0, len))?;
        if self.rng.chance(5) {
            File::open(self.root.join(&name))?.sync_all()?;
        }
        self.files.insert(name, (seed, len));
        Ok(())
    }

    /// To a fresh name, or over a file of its own.
    fn rename(&mut self) -> Result<()> {
        let Some((from, what)) = self.any() else {
            return Ok(());
        };
        let over = if self.rng.chance(40) {
            self.any().map(|(p, _)| p)
        } else {
            None
        };
        let to = over.unwrap_or_else(|| self.fresh());
        fs::rename(self.root.join(&from), self.root.join(&to))?;
        self.files.remove(&from);
        self.files.insert(to, what);
        Ok(())
    }

    fn read_one(&mut self) -> Result<()> {
        let Some((name, what)) = self.any() else {
            return Ok(());
        };
        self.check(&name, what)
    }

    fn unlink(&mut self) -> Result<()> {
        let Some((name, _)) = self.any() else {
            return Ok(());
        };
        fs::remove_file(self.root.join(&name))?;
        self.files.remove(&name);
        ensure!(
            !self.root.join(&name).exists(),
            "{} is still there",
            name.display()
        );
        Ok(())
    }

    fn check(&self, name: &Path, (seed, len): (u64, usize)) -> Result<()> {
        let path = self.root.join(name);
        let bytes = fs::read(&path).map_err(|e| Error::new(format!("{}: {e}", path.display())))?;
        ensure!(
            bytes.len() == len,
            "{}: {} bytes, not {len}",
            name.display(),
            bytes.len()
        );
        let wrong = content::first_wrong(seed, 0, &bytes);
        ensure!(
            wrong.is_none(),
            "{}: wrong byte at {wrong:?}",
            name.display()
        );
        Ok(())
    }

    fn check_all(&self) -> Result<()> {
        self.files
            .iter()
            .try_for_each(|(name, what)| self.check(name, *what))
    }
}

/// The storm with every kind of operation, ended in peace: all it promised is there.
#[test]
fn a_storm_in_peace_keeps_every_promise() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(128).args("-b 1024 -J size=2").junk().make()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    let storm = Storm::default();
    std::thread::scope(|s| {
        let raging = s.spawn(|| storm.rage(mount.dir(), THREADS, 4242));
        std::thread::sleep(duration() / 4);
        storm.stop.store(true, Ordering::SeqCst);
        raging.join().map_err(|_| Error::new("storm panicked"))?
    })?;
    storm.ledger.check(mount.dir())?;
    check_noise(mount.dir())?;
    let before = Tree::take(mount.dir())?;
    mount.unmount()?;
    image.fsck_clean()?;
    let linux = Subject::Ext4.mount(image.path(), "ro")?;
    before.expect_equal(&Tree::take(linux.dir())?, Compare::default())?;
    let whole = storm.ledger.check(linux.dir())?;
    report(&format!(
        "storm of eight threads: {} operations, {whole} promises kept",
        storm.operations.load(Ordering::Relaxed)
    ));
    Ok(())
}
