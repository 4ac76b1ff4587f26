//! The two ways that requests take from the kernel: over rings of io_uring, and by `/dev/fuse`.
//! Each is taken when it is asked for, serves the same, and ends without a hang however the mount
//! ends. `EXTANT_TRANSPORT=uring` runs the other suites over rings.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use extant_testkit::storm::Storm;
use extant_testkit::{
    Cmd, Context, Error, FuseRings, Image, Mount, Need, Result, TempDir, content, ensure, need,
    tools, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::FuseRings,
    Need::Tool("mke2fs"),
];
/// Longer than any of these takes on a busy machine; a hang takes longer.
const BOUND: Duration = Duration::from_secs(60);

const WAYS: [&str; 2] = ["uring", "dev"];

fn mounted(image: &Image, options: &str) -> Result<Mount> {
    Mount::by_extant(&tools::extant()?, image.path(), options)
}

/// The counters of a mount.
fn stats(dir: &Path) -> Result<HashMap<String, u64>> {
    let out = Cmd::new(tools::extant()?).arg("stats").arg(dir).ok()?.out;
    let pairs = out.lines().filter_map(|line| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    });
    Ok(pairs.collect())
}

/// Returns whether rings carry the requests of a mount.
fn is_over_rings(mount: &Mount) -> Result<bool> {
    let stats = stats(mount.dir())?;
    let of = |name: &str| stats.get(name).copied().unwrap_or(0);
    let carries = of("transport_uring") == 1;
    ensure!(
        carries == (of("transport_requests") > 0),
        "transport_uring disagrees with transport_requests"
    );
    Ok(carries)
}

fn signal(mount: &Mount, signal: Signal) -> Result<()> {
    let raw = mount.pid().and_then(|pid| i32::try_from(pid).ok());
    let pid = raw.and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Error::new("no daemon"))?;
    Ok(kill_process(pid, signal)?)
}

#[test]
fn a_transport_is_taken_as_asked_and_as_the_kernel_allows() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    for (on, option, rings) in [
        (true, "transport=uring", true),
        (true, "ro,transport=auto", true),
        (true, "transport=auto", true),
        (true, "ro,transport=dev", false),
        (false, "ro,transport=auto", false),
    ] {
        let switch = FuseRings::set(on)?;
        // `EXTANT_TRANSPORT` does not reach this command.
        let dir = TempDir::new_in(&std::env::temp_dir(), "transport")?;
        let cmd = Cmd::new(tools::extant()?).args(["mount", "-o", option]);
        cmd.arg(image.path()).arg(dir.path()).ok()?;
        drop(switch);
        // The switch matters to mounts that are yet to come.
        if !option.starts_with("ro") {
            fs::write(dir.join("f"), option)?;
        }
        let carried = stats(dir.path())?.get("transport_uring").copied();
        let umount = Cmd::new(tools::extant()?).arg("umount").arg(dir.path());
        umount.ok()?;
        ensure!(
            carried == Some(u64::from(rings)),
            "{option}, switch {on}: {carried:?}"
        );
    }
    let switch = FuseRings::set(false)?;
    let dir = TempDir::new_in(&std::env::temp_dir(), "transport")?;
    let cmd = Cmd::new(tools::extant()?).args(["mount", "-o", "transport=uring"]);
    let o = cmd.arg(image.path()).arg(dir.path()).run()?;
    drop(switch);
    ensure!(
        o.code == Some(1) && o.err.contains("enable_uring"),
        "{}",
        o.describe()
    );
    image.fsck_clean()
}

/// Mounts by a shell after `preparation`, and returns what the command printed, and the transport
/// that carried the requests: 1 for rings. `None` if it did not mount.
fn mounted_after(preparation: &str, image: &Image, option: &str) -> Result<(String, Option<u64>)> {
    let dir = TempDir::new_in(&std::env::temp_dir(), "transport")?;
    let script = format!("{preparation}; exec \"$0\" mount -o {option} \"$1\" \"$2\"");
    let cmd = Cmd::new("sh").arg("-c").arg(script).arg(tools::extant()?);
    let o = cmd.arg(image.path()).arg(dir.path()).run()?;
    if o.code != Some(0) {
        ensure!(!is_mounted(dir.path())?, "{option}: a dead mount");
        return Ok((o.err, None));
    }
    fs::write(dir.join("f"), option)?;
    let carried = stats(dir.path())?.get("transport_uring").copied();
    Cmd::new(tools::extant()?)
        .arg("umount")
        .arg(dir.path())
        .ok()?;
    Ok((o.err, carried))
}

/// A machine without rings, or where not all of their threads can be started, is served without
/// them by `auto`, and `uring` says why it does not.
#[test]
fn what_rings_lack_is_no_end_of_a_mount() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    let _switched = FuseRings::set(true)?;
    // Both are enough for a mount by `/dev/fuse`, and less than the rings of one processor take.
    let mut preparations = vec![(String::from("ulimit -n 40"), "open files")];
    let group = PidsGroup::make()?;
    if let Some(PidsGroup(group)) = &group {
        let enter = format!("echo $$ > {}", group.join("cgroup.procs").display());
        mounted_after(&enter, &image, "transport=dev")?;
        let peak = fs::read_to_string(group.join("pids.peak"))?;
        let few = peak.trim().parse::<u64>()? + 2;
        fs::write(group.join("pids.max"), few.to_string())?;
        preparations.push((enter, "unavailable"));
    }
    let alone = || group.iter().for_each(PidsGroup::wait_until_empty);
    for (preparation, reason) in preparations {
        alone();
        let (err, carried) = mounted_after(&preparation, &image, "transport=auto")?;
        ensure!(carried == Some(0), "{preparation}: {carried:?} {err}");
        alone();
        let (err, carried) = mounted_after(&preparation, &image, "transport=uring")?;
        ensure!(
            carried.is_none() && err.contains(reason),
            "{preparation}: {carried:?} {err}"
        );
    }
    // A soft limit alone is raised.
    let (err, carried) = mounted_after("ulimit -S -n 64", &image, "transport=uring")?;
    ensure!(carried == Some(1), "{carried:?} {err}");
    image.fsck_clean()
}

/// A control group that counts its threads, and may limit them; removed when dropped.
struct PidsGroup(PathBuf);

impl PidsGroup {
    /// `None` where the host gives no such groups.
    fn make() -> Result<Option<PidsGroup>> {
        for root in ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"] {
            let dir = Path::new(root).join(format!("extant-transport-{}", std::process::id()));
            if fs::create_dir(&dir).is_err() {
                continue;
            }
            let group = PidsGroup(dir);
            if group.0.join("pids.peak").exists() {
                return Ok(Some(group));
            }
        }
        eprintln!("SKIPPED: few threads: the host has no control group for that");
        Ok(None)
    }

    /// The daemon that was unmounted last may be about to end.
    fn wait_until_empty(&self) {
        let threads = self.0.join("pids.current");
        wait_until("the group is empty", || {
            fs::read_to_string(&threads).is_ok_and(|threads| threads.trim() == "0")
        });
    }
}

impl Drop for PidsGroup {
    fn drop(&mut self) {
        wait_until("the group is gone", || fs::remove_dir(&self.0).is_ok());
    }
}

/// Every kind of request that carries data, names or attributes, over both ways.
#[test]
fn both_serve_the_same() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for way in WAYS {
        let image = Image::of_mib(128).args("-b 4096").make()?;
        let mount = mounted(&image, &format!("transport={way}"))?;
        // Larger than one request, in pieces that end within pages.
        let bytes = content::fill(7, 0, 5_000_123);
        fs::write(mount.join("large"), &bytes)?;
        let name = "n".repeat(255);
        fs::write(mount.join(&name), b"small")?;
        fs::create_dir(mount.join("d"))?;
        for number in 0..600 {
            fs::write(mount.join(format!("d/{number:0200}")), b"")?;
        }
        let target = "t".repeat(4000);
        std::os::unix::fs::symlink(&target, mount.join("link"))?;
        let value = content::fill(3, 0, 3000);
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(mount.join(&name), "user.x", &value, flags)?;
        // No more writers than may wait for space at once over rings.
        storm(&mount, 2)?;
        ensure!(is_over_rings(&mount)? == (way == "uring"), "{way}");
        mount.unmount()?;
        image.fsck_clean()?;

        let mount = mounted(&image, &format!("ro,transport={way}"))?;
        ensure!(fs::read(mount.join("large"))? == bytes, "{way}: large");
        ensure!(fs::read(mount.join(&name))? == b"small", "{way}: small");
        ensure!(fs::read_dir(mount.join("d"))?.count() == 600, "{way}: d");
        let link = fs::read_link(mount.join("link"))?;
        ensure!(link == Path::new(&target), "{way}: link");
        let mut found = vec![0; 4096];
        let len = rustix::fs::getxattr(mount.join(&name), "user.x", &mut found)?;
        ensure!(found.get(..len) == Some(&value), "{way}: attribute");
        let missing = fs::symlink_metadata(mount.join("none"));
        ensure!(missing.is_err(), "{way}: a name that is not there");
        ensure!(is_over_rings(&mount)? == (way == "uring"), "{way}");
        mount.unmount()?;
    }
    Ok(())
}

/// Changes of names by some threads, for a moment.
fn storm(mount: &Mount, threads: u64) -> Result<()> {
    let storm = Storm::default();
    std::thread::scope(|scope| {
        let raging = scope.spawn(|| storm.rage(mount.dir(), threads, 5));
        let before = || storm.operations.load(Ordering::Relaxed) < 400;
        while before() && !raging.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        storm.stop.store(true, Ordering::Relaxed);
        raging.join().map_err(|_| Error::new("panicked"))?
    })
}

fn is_mounted(dir: &Path) -> Result<bool> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let dir = dir.display().to_string();
    Ok(table
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(&dir)))
}

/// Writers and readers that work while `during` ends the mount. None of them waits for ever.
fn callers(mount: &Mount, during: impl FnOnce() -> Result<()>) -> Result<()> {
    const CALLERS: usize = 6;
    let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // Where the mount is gone, its directory takes files too.
    let gone = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..CALLERS {
            let path = mount.join(format!("c{number}"));
            let (begun, ended, gone) = (&begun, &ended, &gone);
            scope.spawn(move || {
                let mut rounds = 0_u32;
                let round = || -> std::io::Result<()> {
                    let mut file = File::create(&path)?;
                    file.write_all(&[7; 70_000])?;
                    if number % 2 == 0 {
                        file.sync_all()?;
                    }
                    let mut back = [0; 100];
                    file.set_len(50_000)?;
                    drop(file);
                    File::open(&path)?.read_exact_at(&mut back, 40_000)?;
                    fs::remove_file(&path)
                };
                while round().is_ok() && !gone.load(Ordering::Relaxed) {
                    rounds += 1;
                    if rounds == 2 {
                        begun.fetch_add(1, Ordering::Relaxed);
                    }
                }
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        wait_until("the callers work", || {
            begun.load(Ordering::Relaxed) == CALLERS
        });
        let outcome = during();
        wait_until("the callers have errors, or the mount is gone", || {
            let all = ended.load(Ordering::Relaxed) == CALLERS;
            all || !is_mounted(mount.dir()).unwrap_or(true)
        });
        gone.store(true, Ordering::Relaxed);
        wait_until("the callers have their errors", || {
            ended.load(Ordering::Relaxed) == CALLERS
        });
        outcome
    })
}

#[test]
fn a_killed_daemon_leaves_no_caller_waiting() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for way in WAYS {
        let image = Image::of_mib(64).make()?;
        let mount = mounted(&image, &format!("transport={way}"))?;
        callers(&mount, || signal(&mount, Signal::KILL))?;
        mount.crash()?;
        image.fsck_replay()?;
    }
    Ok(())
}

#[test]
fn a_daemon_that_is_asked_to_end_does_so_with_requests_in_flight() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for way in WAYS {
        let image = Image::of_mib(64).make()?;
        let mount = mounted(&image, &format!("transport={way}"))?;
        callers(&mount, || signal(&mount, Signal::TERM))?;
        let o = mount.ended(BOUND)?;
        ensure!(o.code.is_some(), "{way}: {}", o.describe());
        image.fsck_clean()?;
    }
    Ok(())
}

/// Aborts the connection by the kernel's own file for that.
fn abort(mount: &Mount) -> Result<()> {
    let connections = TempDir::new_in(&std::env::temp_dir(), "connections")?;
    let dir = connections.path();
    Cmd::new("mount")
        .args(["-t", "fusectl", "fusectl"])
        .arg(dir)
        .ok()?;
    // The device's number, without a request that a mount under load would answer late.
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let at = mount.dir().display().to_string();
    let number = table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        (fields.get(4) == Some(&at.as_str())).then(|| fields.get(2)?.split_once(':'))?
    });
    let done = match number {
        Some((_, minor)) => fs::write(dir.join(minor).join("abort"), "1").map_err(Error::from),
        None => Err(Error::new("the mount is not in the table")),
    };
    Cmd::new("umount").arg(dir).ok()?;
    done
}

#[test]
fn an_aborted_connection_ends_the_daemon_and_closes_the_image() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for way in WAYS {
        let image = Image::of_mib(64).make()?;
        let mount = mounted(&image, &format!("transport={way}"))?;
        callers(&mount, || abort(&mount))?;
        let o = mount.ended(BOUND)?;
        ensure!(o.code == Some(0), "{way}: {}", o.describe());
        image.fsck_clean()?;
        ensure!(
            !image.needs_recovery()?,
            "{way}: the journal was left dirty"
        );
    }
    Ok(())
}

/// More writers than may wait at once, while what they may have dirtied could exceed the room:
/// there is space for all.
#[test]
fn writers_that_cannot_wait_are_not_refused_while_there_is_space() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(400).make()?;
    let mount = mounted(&image, "transport=uring,memory=16M")?;
    ensure!(is_over_rings(&mount)?, "no rings");
    std::thread::scope(|scope| -> Result<()> {
        let writers: Vec<_> = (0..24)
            .map(|number| {
                let path = mount.join(format!("w{number}"));
                scope.spawn(move || -> Result<()> {
                    let file = File::create(path)?;
                    for at in (0..6 << 20).step_by(256 << 10) {
                        file.write_all_at(&content::fill(number, at, 256 << 10), at)?;
                    }
                    Ok(())
                })
            })
            .collect();
        let mut ends = writers.into_iter().map(std::thread::ScopedJoinHandle::join);
        ends.try_for_each(|end| end.map_err(|_| Error::new("panicked"))?)
    })?;
    mount.unmount()?;
    image.fsck_clean()
}

/// More writers than a ring's workers wait at once for space that is about to end: each of them
/// keeps an entry, and the pages that the kernel writes back find others.
#[test]
fn many_writers_fill_a_volume_and_each_is_told() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    const WRITERS: u64 = 24;
    for way in WAYS {
        let image = Image::of_mib(48).args("-m 0").make()?;
        let mount = mounted(&image, &format!("transport={way}"))?;
        let kept = content::fill(WRITERS, 0, 60_000);
        fs::write(mount.join("kept"), &kept)?;
        File::open(mount.join("kept"))?.sync_all()?;
        let full = AtomicUsize::new(0);
        let taken: Result<Vec<Option<u64>>> = std::thread::scope(|scope| {
            let open = |number| File::create(mount.join(format!("w{number}")));
            let files: std::io::Result<Vec<_>> = (0..WRITERS).map(open).collect();
            let writers: Vec<_> = (0..)
                .zip(files?)
                .map(|(number, file)| {
                    let full = &full;
                    scope.spawn(move || -> Result<Option<u64>> {
                        let mut len = 0;
                        while len < 16 << 20 {
                            let bytes = content::fill(number, len, 60_000);
                            match file.write_at(&bytes, len) {
                                Ok(written) => len += written as u64,
                                Err(e) if e.kind() == std::io::ErrorKind::StorageFull => {
                                    full.fetch_add(1, Ordering::Relaxed);
                                    break;
                                }
                                Err(e) => return Err(e.into()),
                            }
                        }
                        // Told of what the kernel could not write back, which all of them may be
                        // where writeback comes late.
                        Ok(file.sync_all().is_ok().then_some(len))
                    })
                })
                .collect();
            let ends = writers.into_iter();
            ends.map(|w| w.join().map_err(|_| Error::new("panicked"))?)
                .collect()
        });
        let taken = taken.context(|| way)?;
        ensure!(full.into_inner() > 0, "{way}: no writer was told");
        mount.unmount()?;
        image.fsck_clean()?;
        let mount = mounted(&image, "ro")?;
        ensure!(
            fs::read(mount.join("kept"))? == kept,
            "{way}: what was durable"
        );
        for (number, len) in (0..).zip(taken) {
            let Some(len) = len else {
                continue;
            };
            let bytes = fs::read(mount.join(format!("w{number}")))?;
            let wrong = content::first_wrong(number, 0, &bytes);
            ensure!(
                bytes.len() as u64 == len && wrong.is_none(),
                "{way}: w{number} has {} of {len} bytes, wrong at {wrong:?}",
                bytes.len()
            );
        }
        mount.unmount()?;
    }
    Ok(())
}
