//! How many requests the kernel sends to a FUSE daemon per operation, counted from outside: strace
//! sees every reply that the daemon writes to `/dev/fuse`.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use extant_host::{Cmd, Error, Mount, Result, TempDir, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::plan::Plan;
use crate::rows::{Rows, Unit};
use crate::target::Host;
use crate::variant::Variant;

const OPERATIONS: u32 = 200;

/// An operation on the `i`th name below a directory.
type Operation = fn(&Path, u32) -> std::io::Result<()>;

const KINDS: &[(&str, Operation)] = &[
    ("requests/create", |d, i| {
        File::create(d.join(format!("f{i}"))).map(drop)
    }),
    ("requests/create+write", |d, i| {
        File::create(d.join(format!("w{i}")))?.write_all(b"x")
    }),
    ("requests/stat", |d, i| {
        fs::symlink_metadata(d.join(format!("w{i}"))).map(drop)
    }),
    ("requests/stat-missing", |d, i| {
        let _ = fs::symlink_metadata(d.join(format!("none{}", i % 20)));
        Ok(())
    }),
    ("requests/open-read-close", |d, i| {
        let mut s = Vec::new();
        File::open(d.join(format!("w{i}")))?
            .read_to_end(&mut s)
            .map(drop)
    }),
    ("requests/unlink", |d, i| {
        fs::remove_file(d.join(format!("f{i}")))
    }),
];

/// The names of the rows.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(name, _)| *name)
}

/// Counts all kinds on a fresh mount of `variant`.
pub(super) fn count(variant: &Variant, plan: &Plan, rows: &mut Rows) -> Result<()> {
    if !KINDS.iter().any(|(name, _)| plan.wants(name)) {
        return Ok(());
    }
    let host = Host::over(variant.fresh(plan, 256)?)?;
    let mount = host.mount();
    let dir = mount.join("d");
    fs::create_dir(&dir)?;
    fs::write(dir.join("first"), b"")?;
    for (name, operation) in KINDS {
        let requests = replies(mount, || {
            (0..OPERATIONS).try_for_each(|i| operation(&dir, i))?;
            Ok(())
        })?;
        let each = f64::from(requests) / f64::from(OPERATIONS);
        if plan.wants(name) {
            rows.add(name, Unit::RoundTrips, variant.name, each);
        }
    }
    host.unmount()?.check()
}

/// Replies the daemon writes while `work` runs.
fn replies(mount: &Mount, work: impl FnOnce() -> Result<()>) -> Result<u32> {
    let pid = mount
        .pid()
        .ok_or_else(|| Error::new("no daemon to watch"))?;
    let dir = TempDir::new("strace")?;
    let log = dir.join("log");
    let mut strace = Cmd::new("strace")
        .args([
            "-f",
            "-qq",
            "-P",
            "/dev/fuse",
            "-e",
            "trace=write,writev",
            "-o",
        ])
        .arg(&log)
        .args(["-p", &pid.to_string()])
        .spawn()?;
    attached(pid)?;
    let done = work();
    // Late replies (releases, forgets) belong to the work as well.
    std::thread::sleep(Duration::from_millis(300));
    let raw = i32::try_from(strace.pid()).ok().and_then(Pid::from_raw);
    if let Some(p) = raw {
        kill_process(p, Signal::INT)?;
    }
    strace.wait(Duration::from_secs(10))?;
    done?;
    let text = fs::read_to_string(&log)?;
    let written = |l: &&str| l.contains(" write(") || l.contains(" writev(");
    Ok(u32::try_from(text.lines().filter(written).count())?)
}

/// Waits until every thread of `pid` is traced.
fn attached(pid: u32) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))?;
        let all = tasks.flatten().all(|t| {
            let status = fs::read_to_string(t.path().join("status")).unwrap_or_default();
            status
                .lines()
                .any(|l| l.starts_with("TracerPid:") && !l.ends_with("\t0"))
        });
        if all {
            return Ok(());
        }
        ensure!(Instant::now() < end, "strace did not attach");
        std::thread::sleep(Duration::from_millis(5));
    }
}
