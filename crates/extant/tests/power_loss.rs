//! Power loss: after a cut at any moment of any workload, the image replays, checks clean, holds everything that
//! was promised, and shows no byte that was not written.
//!
//! Each workload is named and runs once on a recorded device; the crash explorer then visits the states. A failing
//! state prints one line that reproduces it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extant::{CheckOptions, Cred, Node, Options, RenameFlags, SetAttr, Volume, check};
use extant_blockdev::{BlockDevice, MemoryDevice, Recorder};
use extant_testkit::crash::{Budget, CrashState, Cut, Explorer};
use extant_testkit::{Image, Rng};
use extant_units::DevOff;

/// Every how many states the bytes are also given to e2fsck.
const E2FSCK_EVERY: u64 = 400;

/// The bytes of file number `id`: a function of the position, so that any part can be judged.
fn expected(id: u64, pos: u64) -> u8 {
    let mixed = ((id << 32) ^ (pos / 7)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    // Never zero: zeros may stand for what was not written yet.
    u8::try_from(mixed).unwrap_or(1).max(1)
}

fn content(id: u64, len: u64) -> Vec<u8> {
    (0..len).map(|pos| expected(id, pos)).collect()
}

/// What was promised: file `id` stands at `name` with `len` bytes from event `from` until event `until`.
struct Promise {
    name: String,
    id: u64,
    len: u64,
    from: usize,
    until: usize,
}

/// A run of a workload: the volume, and what it promised so far.
struct Run {
    dev: Arc<Recorder<MemoryDevice>>,
    volume: Volume,
    root: Node,
    cred: Cred,
    rng: Rng,
    promises: Vec<Promise>,
    /// Live files in the root: number and length by name.
    files: BTreeMap<String, (u64, u64)>,
    next: u64,
}

impl Run {
    fn position(&self) -> usize {
        self.dev.position()
    }

    /// Whatever was promised about `name` is off: an operation on it begins.
    fn withdraw(&mut self, name: &str) {
        let now = self.position();
        for promise in self
            .promises
            .iter_mut()
            .filter(|p| p.name == name && p.until == usize::MAX)
        {
            promise.until = now;
        }
    }

    fn promise(&mut self, name: &str) {
        let Some(&(id, len)) = self.files.get(name) else {
            return;
        };
        let (name, from) = (name.to_owned(), self.position());
        self.promises.push(Promise {
            name,
            id,
            len,
            from,
            until: usize::MAX,
        });
    }

    fn create(&mut self, len: u64) -> String {
        let id = self.next;
        self.next += 1;
        let name = format!("f{id}");
        let node = self
            .volume
            .create(&self.root, name.as_bytes(), 0o644, &self.cred)
            .unwrap();
        self.volume
            .write(&node, 0, &content(id, len), &self.cred)
            .unwrap();
        self.files.insert(name.clone(), (id, len));
        name
    }

    fn append(&mut self, name: &str, more: u64) {
        self.withdraw(name);
        let &(id, len) = self.files.get(name).unwrap();
        let node = self.volume.lookup(&self.root, name.as_bytes()).unwrap();
        let data: Vec<u8> = (len..len + more).map(|pos| expected(id, pos)).collect();
        assert_eq!(
            self.volume.append(&node, &data, &self.cred).unwrap(),
            (len, data.len())
        );
        self.files.insert(name.to_owned(), (id, len + more));
    }

    fn truncate(&mut self, name: &str, len: u64) {
        self.withdraw(name);
        let &(id, old) = self.files.get(name).unwrap();
        let node = self.volume.lookup(&self.root, name.as_bytes()).unwrap();
        let changes = SetAttr {
            size: Some(len.min(old)),
            ..SetAttr::default()
        };
        self.volume.setattr(&node, &changes, &self.cred).unwrap();
        self.files.insert(name.to_owned(), (id, len.min(old)));
    }

    fn fsync(&mut self, name: &str) {
        let node = self.volume.lookup(&self.root, name.as_bytes()).unwrap();
        self.volume.fsync(&node, false).unwrap();
        self.promise(name);
    }

    fn unlink(&mut self, name: &str) {
        self.withdraw(name);
        self.volume
            .unlink(&self.root, name.as_bytes(), &self.cred)
            .unwrap();
        self.files.remove(name);
    }

    fn rename(&mut self, old: &str, new: &str) {
        self.withdraw(old);
        self.withdraw(new);
        let flags = RenameFlags::empty();
        self.volume
            .rename(
                &self.root,
                old.as_bytes(),
                &self.root,
                new.as_bytes(),
                flags,
                &self.cred,
            )
            .unwrap();
        let file = self.files.remove(old).unwrap();
        self.files.insert(new.to_owned(), file);
    }

    fn any_file(&mut self) -> Option<String> {
        let at = self.rng.index(self.files.len());
        self.files.keys().nth(at).cloned()
    }
}

type Workload = fn(&mut Run);

/// The workloads. A later path or data mode joins by adding a line.
const WORKLOADS: &[(&str, &str, Workload)] = &[
    ("metadata_storm", "-b 1024 -J size=1", metadata_storm),
    ("append_and_sync", "-b 4096", append_and_sync),
    ("rename_over", "-b 1024", rename_over),
    ("truncate_and_extend", "-b 1024", truncate_and_extend),
    (
        "open_and_unlinked",
        "-b 1024 -O orphan_file",
        open_and_unlinked,
    ),
    ("orphan_list", "-b 1024 -O ^orphan_file", open_and_unlinked),
    ("splitting_directories", "-b 1024", splitting_directories),
    ("moving_directories", "-b 1024", moving_directories),
    ("journal_wraps", "-b 1024 -J size=1", journal_wraps),
    (
        "no_checksums",
        "-b 1024 -O ^metadata_csum,^64bit",
        metadata_storm,
    ),
];

fn metadata_storm(run: &mut Run) {
    for step in 0..60 {
        match run.rng.below(10) {
            0..=3 => {
                let len = run.rng.below(9000);
                let name = run.create(len);
                if run.rng.chance(40) {
                    run.fsync(&name);
                }
            }
            4 => {
                let name = format!("d{step}");
                let dir = run
                    .volume
                    .mkdir(&run.root, name.as_bytes(), 0o755, &run.cred)
                    .unwrap();
                run.volume
                    .symlink(&dir, b"link", &[b'x'; 90], &run.cred)
                    .unwrap();
            }
            5 => {
                if let Some(name) = run.any_file() {
                    run.unlink(&name);
                }
            }
            6 => {
                if let (Some(old), Some(new)) = (run.any_file(), run.any_file())
                    && old != new
                {
                    run.rename(&old, &new);
                }
            }
            7 => {
                if let Some(name) = run.any_file() {
                    let more = run.rng.between(1, 5000);
                    run.append(&name, more);
                }
            }
            8 => {
                if let Some(name) = run.any_file() {
                    run.fsync(&name);
                }
            }
            _ => {
                if run.rng.chance(30) {
                    run.volume.sync().unwrap();
                    let names: Vec<String> = run.files.keys().cloned().collect();
                    names.iter().for_each(|name| run.promise(name));
                }
            }
        }
    }
}

fn append_and_sync(run: &mut Run) {
    let name = run.create(100);
    for _ in 0..12 {
        let more = run.rng.between(1, 30_000);
        run.append(&name, more);
        if run.rng.chance(60) {
            run.fsync(&name);
        }
    }
}

fn rename_over(run: &mut Run) {
    let target = run.create(3000);
    run.fsync(&target);
    for _ in 0..10 {
        let len = run.rng.between(1, 8000);
        let fresh = run.create(len);
        run.fsync(&fresh);
        run.rename(&fresh, &target);
        if run.rng.chance(50) {
            run.fsync(&target);
        }
    }
}

fn truncate_and_extend(run: &mut Run) {
    let name = run.create(20_000);
    run.fsync(&name);
    for _ in 0..12 {
        let len = run.files.get(&name).unwrap().1;
        let cut = run.rng.below(len + 1);
        run.truncate(&name, cut);
        if run.rng.chance(40) {
            run.fsync(&name);
        }
        let more = run.rng.between(1, 12_000);
        run.append(&name, more);
        run.fsync(&name);
    }
}

fn open_and_unlinked(run: &mut Run) {
    let mut open = Vec::new();
    for _ in 0..16 {
        let len = run.rng.between(1, 20_000);
        let name = run.create(len);
        if run.rng.chance(70) {
            run.fsync(&name);
        }
        open.push(run.volume.lookup(&run.root, name.as_bytes()).unwrap());
        run.unlink(&name);
        if run.rng.chance(40) {
            let at = run.rng.index(open.len());
            drop(open.swap_remove(at));
        }
        if run.rng.chance(40) {
            let keep = run.create(500);
            run.fsync(&keep);
        }
    }
}

fn splitting_directories(run: &mut Run) {
    for round in 0..160 {
        let name = run.create(0);
        let long = format!("{name}_{}", "n".repeat(60));
        run.rename(&name, &long);
        if round % 20 == 19 {
            run.fsync(&long);
        }
    }
}

/// Directories that change parents, swap places, replace each other; whiteouts; files that get their first name late.
fn moving_directories(run: &mut Run) {
    let name = |rng: &mut Rng| format!("m{}", rng.below(6)).into_bytes();
    let mut dirs = vec![run.root.clone()];
    for _ in 0..80 {
        let (from, to) = (run.rng.index(dirs.len()), run.rng.index(dirs.len()));
        let (old, new) = (name(&mut run.rng), name(&mut run.rng));
        let flags = [0, 0, 1, 2, 4].map(RenameFlags::from_bits_retain)[run.rng.index(5)];
        let (volume, cred) = (&run.volume, &run.cred);
        // Most of these have a reason to fail now and then; what counts is that none is half done.
        match run.rng.below(8) {
            0..=1 => {
                if let Ok(made) = volume.mkdir(&dirs[from], &new, 0o755, cred)
                    && dirs.len() < 6
                {
                    dirs.push(made);
                }
            }
            2 => drop(volume.rmdir(&dirs[from], &old, cred)),
            3 => {
                let unnamed = volume.tmpfile(&dirs[from], 0o600, cred);
                let _ = unnamed.and_then(|file| volume.link(&file, &dirs[to], &new, cred));
            }
            4 => drop(volume.unlink(&dirs[from], &old, cred)),
            _ => drop(volume.rename(&dirs[from], &old, &dirs[to], &new, flags, cred)),
        }
        if run.rng.chance(8) {
            volume.sync().unwrap();
        }
    }
}

fn journal_wraps(run: &mut Run) {
    for _ in 0..120 {
        let len = run.rng.between(1, 3000);
        let name = run.create(len);
        run.fsync(&name);
        if run.files.len() > 20
            && let Some(old) = run.any_file()
        {
            run.unlink(&old);
        }
    }
}

/// Runs a workload on a fresh image whose free space is junk, and returns the bytes before, the events, and the promises.
fn record(
    args: &str,
    workload: Workload,
    seed: u64,
) -> (Vec<u8>, Arc<Recorder<MemoryDevice>>, Vec<Promise>) {
    let image = Image::of_mib(12).args(args).junk().make().unwrap();
    let base = std::fs::read(image.path()).unwrap();
    let dev = Arc::new(Recorder::new(MemoryDevice::from_bytes(&base)));
    let volume = Options::new()
        .write(true)
        .open_volume_on(dev.clone())
        .unwrap();
    let root = volume.root().unwrap();
    let mut run = Run {
        dev: dev.clone(),
        volume,
        root,
        cred: Cred::root(),
        rng: Rng::new(seed),
        promises: Vec::new(),
        files: BTreeMap::new(),
        next: 1,
    };
    workload(&mut run);
    let Run {
        volume,
        root,
        promises,
        ..
    } = run;
    drop(root);
    volume.unmount().unwrap();
    (base, dev, promises)
}

/// Replays a state, checks it, and compares it with the promises.
fn judge(state: &CrashState, promises: &[Promise]) -> Result<(), String> {
    let volume = Options::new()
        .write(true)
        .open_volume_on(state.device.clone())
        .map_err(|error| format!("mount: {error}"))?;
    let root = volume.root().map_err(|error| format!("root: {error}"))?;
    for promise in promises
        .iter()
        .filter(|p| p.from <= state.completed && state.completed < p.until)
    {
        let Promise { name, id, len, .. } = promise;
        let node = volume
            .lookup(&root, name.as_bytes())
            .map_err(|error| format!("{name} was fsynced, but: {error}"))?;
        let mut bytes = vec![0; usize::try_from(*len).unwrap() + 1];
        let read = volume
            .read(&node, 0, &mut bytes)
            .map_err(|error| format!("{name}: {error}"))?;
        if bytes[..read] != content(*id, *len) {
            return Err(format!(
                "{name} was fsynced with {len} bytes, {read} are there or they differ"
            ));
        }
    }
    no_stale_bytes(&volume, &root)?;
    drop(root);
    volume
        .unmount()
        .map_err(|error| format!("unmount: {error}"))?;
    let report = check(
        state.device.clone(),
        &CheckOptions {
            threads: 1,
            ..CheckOptions::default()
        },
    )
    .map_err(|error| format!("check: {error}"))?;
    match report.findings.first().or(report.notes.first()) {
        Some(finding) => Err(format!("check: {finding}")),
        None => Ok(()),
    }
}

/// Every byte of every file is the one that was written there, or zero.
fn no_stale_bytes(volume: &Volume, root: &Node) -> Result<(), String> {
    let mut names = Vec::new();
    volume
        .readdir(root, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        })
        .map_err(|error| format!("readdir: {error}"))?;
    for name in names {
        let text = String::from_utf8_lossy(&name).into_owned();
        if !text.starts_with('f') {
            continue;
        }
        let node = volume
            .lookup(root, &name)
            .map_err(|error| format!("{text}: {error}"))?;
        let mut bytes = vec![0; 1 << 20];
        let read = volume
            .read(&node, 0, &mut bytes)
            .map_err(|error| format!("{text}: {error}"))?;
        // Renamed files keep their content's number: any known number will do, but only one for the whole file.
        let fits = |id: u64| {
            bytes[..read]
                .iter()
                .enumerate()
                .all(|(pos, &byte)| byte == 0 || byte == expected(id, pos as u64))
        };
        if !(1..400).any(fits) {
            return Err(format!("{text} shows bytes that nobody wrote"));
        }
    }
    Ok(())
}

/// The state after e2fsck's own replay is clean for e2fsck.
fn e2fsck(state: &CrashState) -> Result<(), String> {
    let mut bytes = vec![0; usize::try_from(state.device.len()).unwrap()];
    state
        .device
        .read_at(DevOff::ZERO, &mut bytes)
        .map_err(|error| error.to_string())?;
    if let Ok(path) = std::env::var("EXTANT_KEEP_STATE") {
        std::fs::write(path, &bytes).map_err(|error| error.to_string())?;
    }
    let image = Image::of_bytes(&bytes).map_err(|error| error.to_string())?;
    image.fsck_replay().map_err(|error| error.to_string())?;
    image.fsck_clean().map_err(|error| error.to_string())
}

fn budget() -> Budget {
    match std::env::var("EXTANT_SOAK") {
        Ok(_) => Budget::LONG,
        Err(_) => Budget::SHORT,
    }
}

#[test]
fn every_cut_of_every_workload_is_recovered() {
    let seed = std::env::var("EXTANT_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let visited = AtomicU64::new(0);
    let only = std::env::var("EXTANT_WORKLOAD").ok();
    let every = std::env::var("EXTANT_E2FSCK_EVERY")
        .ok()
        .and_then(|every| every.parse().ok());
    let every = every.unwrap_or(E2FSCK_EVERY);
    std::thread::scope(|scope| {
        let workers: Vec<_> = WORKLOADS
            .iter()
            .filter(|(name, ..)| only.as_deref().is_none_or(|only| only == *name))
            .map(|(name, args, workload)| {
                let visited = &visited;
                scope.spawn(move || {
                    let (base, dev, promises) = record(args, *workload, seed);
                    let explorer = Explorer::new(base, dev.events(), seed, budget());
                    let totals = explorer.run(name, |state| {
                        // A torn superblock is beyond e2fsck, though not beyond us.
                        let torn = matches!(state.cut, Cut::Torn { .. });
                        if visited
                            .fetch_add(1, Ordering::Relaxed)
                            .is_multiple_of(every)
                            && !torn
                        {
                            e2fsck(&state)?;
                        }
                        judge(&state, &promises)
                    });
                    let totals = totals.unwrap_or_else(|why| panic!("{why}"));
                    let promised = promises.len();
                    extant_testkit::report(&format!(
                        "power loss, {name}: {totals:?}, {promised} promises"
                    ));
                    totals.all()
                })
            })
            .collect();
        for worker in workers {
            assert!(worker.join().unwrap() > 50);
        }
    });
}
