//! A host of Linux whose writeback fails: data for which a sync returned success is there.
//!
//! # Responsibility
//! Threads write and sync files, data and names, while Linux fails to write some of the image back
//! ([`extant_testkit::failing_host`]). Then the volume is unmounted, or killed, and the host's
//! cache dropped. Everything that a sync acknowledged must be there, and the replayed volume must
//! check clean. `EXTANT_SECONDS` makes it a stage of the soak; `EXTANT_RUNS` and `EXTANT_SEED`
//! choose runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use extant::{CheckOptions, Cred, File, Filesystem, IoBuf, Options, Result, Tuning, check};
use extant_blockdev::MemoryDevice;
use extant_failpoint::{ActiveFailpoint, Failpoint};
use extant_testkit::failing_host::{FailingHost, FullHost, FuseHost};
use extant_testkit::{Image, Need, Watchdog, need};

/// Files that are there from the beginning, and their size.
const NAMES: [&str; 3] = ["/A", "/B", "/C"];
const LEN: usize = 48 << 10;
/// Versions that each thread writes at most.
const VERSIONS: u8 = 40;

/// An image with the files, all ones.
fn base() -> Vec<u8> {
    let args = "-b 4096 -J size=4 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0";
    let image = Image::of_mib(16).args(args).make().unwrap();
    let fs = Filesystem::options().write(true).open(image.path());
    let fs = fs.unwrap();
    for name in NAMES {
        fs.write(name, [1; LEN]).unwrap();
    }
    fs.unmount().unwrap();
    std::fs::read(image.path()).unwrap()
}

fn options(mount: &str, failpoint: ActiveFailpoint) -> Options {
    let mut tuning = Tuning::default();
    tuning.page_cache_bytes = Some(32 << 20);
    tuning.failpoint = failpoint;
    let mut options = Options::new();
    options.write(true).cred(Cred::root()).tuning(tuning);
    options.mount_options(mount);
    options
}

/// Acknowledged versions, and failures.
#[derive(Default)]
struct Ledger {
    /// The version that a sync has acknowledged of each file, or of a name that is new.
    promised: Mutex<BTreeMap<String, u8>>,
    /// Some sync has failed.
    reported: AtomicBool,
    trouble: Mutex<Vec<String>>,
}

impl Ledger {
    /// Notes the result of a sync that began when `reported` was this. Returns whether to go on.
    fn synced(&self, what: &str, version: u8, reported: bool, result: &Result<()>) -> bool {
        match result {
            Ok(()) => {
                if reported {
                    let text = format!("{what}, version {version}: a promise after a failure");
                    self.trouble.lock().unwrap().push(text);
                }
                self.promised.lock().unwrap().insert(what.into(), version);
                true
            }
            Err(_) => {
                self.reported.store(true, Ordering::SeqCst);
                // Asked again, to see the next answer.
                !reported
            }
        }
    }
}

/// One thread's work: number 0 overwrites past the cache, 1 through it, 2 makes files, 3 uses a
/// queue and syncs everything.
fn work(nth: usize, fs: &Filesystem, files: &[File], ledger: &Ledger) {
    for version in 2..VERSIONS {
        let reported = ledger.reported.load(Ordering::SeqCst);
        let new = format!("/n{version}");
        let (what, result) = match nth {
            0 => {
                let wrote = files[0].write_at(&[version; LEN], 0);
                (NAMES[0], wrote.and_then(|_| files[0].sync_data()))
            }
            1 => {
                let wrote = files[1].write_at(&[version; LEN], 0);
                (NAMES[1], wrote.and_then(|_| files[1].sync_all()))
            }
            2 => {
                let made = fs.create(&new).and_then(|file| {
                    file.write_at(&[version; 5000], 0)?;
                    file.sync_all()
                });
                (new.as_str(), made)
            }
            _ => {
                let mut queue = fs.direct_queue(2);
                let buf = IoBuf::copy_of(&[version; LEN]);
                let wrote = queue.write(&files[2], 0, buf, 0);
                let wrote = wrote.and_then(|()| queue.wait(1).remove(0).result);
                let synced = wrote.and_then(|_| match version % 3 {
                    0 => fs.sync(),
                    _ => files[2].sync_data(),
                });
                (NAMES[2], synced)
            }
        };
        if !ledger.synced(what, version, reported, &result) {
            return;
        }
    }
}

/// The outcome of a run.
#[derive(Clone, Copy, Default)]
struct Outcome {
    /// Some call returned a failure.
    reported: bool,
    /// Acknowledged versions that were there.
    kept: usize,
}

/// One run.
fn run(
    mut host: Box<dyn FailingHost>,
    seed: u64,
    failpoint: ActiveFailpoint,
) -> std::result::Result<Outcome, String> {
    let mounts = [
        "",
        "backend=syscalls",
        "errors=continue",
        "nobuffered_iomap",
    ];
    let options = options(mounts[usize::try_from(seed % 4).unwrap()], failpoint);
    let fs = options.open(host.file());
    let fs = fs.map_err(|error| format!("open: {error}"))?;
    let open = |nth: usize| {
        let mut how = fs.open_options();
        how.read(true).write(true).direct(nth != 1);
        how.open(NAMES[nth])
    };
    let files: Vec<File> = (0..3).map(|nth| open(nth).unwrap()).collect();
    host.fail(seed).map_err(|error| error.to_string())?;
    let ledger = Ledger::default();
    std::thread::scope(|s| {
        for nth in 0..4 {
            let (fs, files, ledger) = (&fs, &files, &ledger);
            s.spawn(move || work(nth, fs, files, ledger));
        }
    });
    drop(files);
    let mut reported = ledger.reported.load(Ordering::SeqCst);
    if seed.is_multiple_of(3) {
        // As after a kill.
        let _ = fs.volume().shutdown(false);
        drop(fs);
    } else {
        let ended = fs.unmount();
        if reported && ended.is_ok() {
            return Err("the unmount said nothing".into());
        }
        reported |= ended.is_err();
    }
    let spares = host.spares(1);
    let left = host.end().map_err(|error| error.to_string())?;
    let promised = ledger.promised.into_inner().unwrap();
    let trouble = ledger.trouble.into_inner().unwrap();
    if let Some(what) = trouble.first() {
        return Err(what.clone());
    }
    let kept = promised.len();
    judge(&left, promised, spares)?;
    Ok(Outcome { reported, kept })
}

/// Returns whether all acknowledged versions are there, on a volume that is replayed and checks
/// clean.
fn judge(
    left: &[u8],
    promised: BTreeMap<String, u8>,
    spares: bool,
) -> std::result::Result<(), String> {
    let memory = Arc::new(MemoryDevice::from_bytes(left));
    let fs = options("", ActiveFailpoint::default()).open_device(memory.clone());
    let fs = fs.map_err(|error| format!("mount: {error}"))?;
    for name in NAMES.iter().filter(|_| spares) {
        let bytes = fs.read(name).map_err(|error| format!("{name}: {error}"))?;
        if bytes.iter().any(|byte| !(1..VERSIONS).contains(byte)) {
            return Err(format!("{name} shows what was not written"));
        }
    }
    for (name, version) in promised {
        let bytes = fs.read(&name).map_err(|error| format!("{name}: {error}"))?;
        let len = if NAMES.contains(&name.as_str()) {
            LEN
        } else {
            5000
        };
        let least = bytes.iter().min().copied().unwrap_or_default();
        if bytes.len() != len || least < version {
            let runs = bytes.chunk_by(|a, b| a == b);
            let runs: Vec<(usize, u8)> = runs.map(|run| (run.len(), run[0])).collect();
            return Err(format!(
                "{name} was promised version {version}: (bytes, version) {runs:?}"
            ));
        }
    }
    fs.unmount().map_err(|error| format!("unmount: {error}"))?;
    let report = check(memory, &CheckOptions::default());
    let report = report.map_err(|error| format!("check: {error}"))?;
    match report.findings.first() {
        Some(finding) => Err(format!("check: {finding}")),
        None => Ok(()),
    }
}

fn number(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().unwrap())
}

/// As many runs as are asked for, or `short`.
fn runs(host: &str, short: u64, make: impl Fn(&[u8]) -> Box<dyn FailingHost>) {
    let base = base();
    let seconds = number("EXTANT_SECONDS").map(Duration::from_secs);
    let count = number("EXTANT_RUNS").or(seconds.map(|_| u64::MAX));
    let (count, first) = (count.unwrap_or(short), number("EXTANT_SEED").unwrap_or(1));
    let begun = Instant::now();
    let (mut done, mut reported, mut kept) = (0, 0, 0);
    while done < count && seconds.is_none_or(|limit| begun.elapsed() < limit) {
        let _limit = Watchdog::new(Duration::from_secs(120));
        let seed = first + done;
        let outcome = run(make(&base), seed, ActiveFailpoint::default());
        let outcome = outcome.unwrap_or_else(|why| panic!("EXTANT_SEED={seed}: {why}"));
        done += 1;
        reported += u64::from(outcome.reported);
        kept += outcome.kept;
    }
    extant_testkit::report(&format!(
        "failing host, {host}: {done} runs, {reported} with lost writes, {kept} promises kept"
    ));
    assert!(
        reported * 4 >= done,
        "too few of {done} runs lost writes: {reported}"
    );
}

#[test]
fn a_host_that_fails_some_writes() {
    if need(&[Need::Root, Need::Fuse]) {
        runs("FUSE", 12, |base| {
            Box::new(FuseHost::new(base.to_vec()).unwrap())
        });
    }
}

#[test]
fn a_forgotten_flush_failure_is_found() {
    if !need(&[Need::Root, Need::Fuse]) {
        return;
    }
    let (base, failpoint) = (
        base(),
        ActiveFailpoint::only(Failpoint::FlushFailureForgotten),
    );
    let mut found = (0..20).filter_map(|seed| {
        let _limit = Watchdog::new(Duration::from_secs(120));
        let host = FuseHost::new(base.clone()).unwrap();
        run(Box::new(host), seed, failpoint).err()
    });
    let found: Vec<String> = found.by_ref().take(3).collect();
    assert!(!found.is_empty());
    extant_testkit::report(&format!("failpoint, on a FUSE host: {found:?}"));
}

#[test]
fn a_host_without_space() {
    let tool = Need::Tool("filefrag");
    if need(&[Need::Root, Need::Loop, tool]) {
        runs("full tmpfs", 3, |base| {
            Box::new(FullHost::new(base).unwrap())
        });
    }
}
