//! The daemon of a mount is confined: what foreign code in it tries is refused, every thread is
//! locked in, and the mount works all the same.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use extant_testkit::inject::{ATTEMPTS, Injected, inject};
use extant_testkit::{
    Cmd, Error, Image, Need, Result, Subject, TempDir, content, ensure, mount, need, patience,
    tools,
};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Loop,
    Need::Tool("mke2fs"),
    Need::Tool("python3"),
];
const BOUND: Duration = Duration::from_secs(30);

/// The counters of a mount.
fn stats(dir: &Path) -> Result<String> {
    Ok(Cmd::new(tools::extant()?).arg("stats").arg(dir).ok()?.out)
}

fn counter(dir: &Path, name: &str) -> Result<u64> {
    let all = stats(dir)?;
    let line = all.lines().find_map(|line| line.strip_prefix(name));
    let value = line.ok_or_else(|| Error::new(format!("no counter {name}")))?;
    Ok(value.trim().parse()?)
}

/// Writes and reads some files, deletes some, and makes all of it durable.
fn use_it(dir: &Path) -> Result<()> {
    for number in 0..8 {
        let path = dir.join(format!("f{number}"));
        let bytes = content::fill(number, 0, 70_000);
        let mut file = File::create(&path)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        ensure!(fs::read(&path)? == bytes, "f{number}");
        if number % 3 == 0 {
            fs::remove_file(path)?;
        }
    }
    Cmd::new("fstrim").arg(dir).ok().map(drop)
}

/// The value of a field in the status of each thread of a process.
fn of_threads(pid: u32, field: &str) -> Result<Vec<String>> {
    let mut values = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(thread?.path().join("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        values.extend(line.map(|line| line.trim().to_owned()));
    }
    Ok(values)
}

/// Targets of a process's descriptors, without the standard streams.
fn descriptors(pid: u32) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let entry = entry?;
        let number: u32 = entry.file_name().to_string_lossy().parse()?;
        if number > 2 {
            all.push(fs::read_link(entry.path())?);
        }
    }
    Ok(all)
}

#[test]
fn every_thread_is_locked_in_and_nothing_foreign_is_open() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(64).make()?;
    // A descriptor that the caller left open is not kept.
    let left = TempDir::new("left")?;
    fs::write(left.join("open"), "x")?;
    let mount = Subject::Extant.mount(image.path(), "")?;
    use_it(mount.dir())?;
    let pid = mount.pid().ok_or_else(|| Error::new("no daemon"))?;
    let zero = "0000000000000000";
    for (field, expected) in [
        ("NoNewPrivs:", "1"),
        ("Seccomp:", "2"),
        ("CapEff:", zero),
        ("CapPrm:", zero),
        ("CapInh:", zero),
        ("CapBnd:", zero),
    ] {
        let values = of_threads(pid, field)?;
        ensure!(values.len() > 8, "{} threads", values.len());
        ensure!(
            values.iter().all(|value| value == expected),
            "{field} {values:?}"
        );
    }
    let over_rings = std::env::var("EXTANT_TRANSPORT").is_ok_and(|way| way == "uring");
    for path in descriptors(pid)? {
        let known = path == image.path()
            || path == Path::new("/dev/fuse")
            || over_rings && path == Path::new("anon_inode:[io_uring]")
            || ["socket:", "anon_inode:[eventfd]", "pipe:", "/memfd:"]
                .iter()
                .any(|kind| path.to_string_lossy().starts_with(kind));
        ensure!(known, "{} is open", path.display());
    }
    for (name, expected) in [
        ("sandbox_seccomp", 1),
        ("sandbox_no_new_privs", 1),
        ("sandbox_capabilities", 0),
    ] {
        let value = counter(mount.dir(), name)?;
        ensure!(value == expected, "{name} {value}");
    }
    mount.unmount()?;
    image.fsck_clean()
}

#[test]
fn without_a_sandbox_the_counters_say_so() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(64).make()?;
    let mount = Subject::Extant.mount(image.path(), "nosandbox")?;
    use_it(mount.dir())?;
    let pid = mount.pid().ok_or_else(|| Error::new("no daemon"))?;
    ensure!(counter(mount.dir(), "sandbox_seccomp")? == 0, "a filter");
    ensure!(counter(mount.dir(), "sandbox_capabilities")? > 0, "none");
    let (name, number, arguments, _) = ATTEMPTS[0];
    let done = inject(pid, number, arguments)?;
    ensure!(
        matches!(done, Injected::Returned(3..)),
        "{name}: {done:?}: the attempts are no attempts"
    );
    mount.unmount()?;
    image.fsck_clean()
}

/// The readers of `image` while it is mounted with `options` and unmounted: the kind of filter that
/// confines each, and its name.
fn readers(image: &Image, options: &str) -> Result<Vec<String>> {
    let script = tools::workspace().join("tests/readers.py");
    let mut watch = Command::new("python3")
        .arg(script)
        .arg(image.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let said = watch.stdout.take().ok_or_else(|| Error::new("no output"))?;
    let mut lines = BufReader::new(said).lines();
    ensure!(
        lines.next().transpose()? == Some("ready".into()),
        "no watch"
    );
    let mount = Subject::Extant.mount(image.path(), options)?;
    fs::read_dir(mount.dir())?.for_each(drop);
    mount.unmount()?;
    drop(watch.stdin.take());
    let readers = lines.collect::<std::io::Result<_>>()?;
    ensure!(watch.wait()?.success(), "the watch failed");
    Ok(readers)
}

#[test]
fn nothing_of_an_image_is_read_before_confinement() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (options, dirty) in [("", false), ("", true), ("ro", false), ("ro", true)] {
        let image = Image::of_mib(32).make()?;
        if dirty {
            let mount = Subject::Extant.mount(image.path(), "")?;
            fs::write(mount.join("f"), "kept")?;
            File::open(mount.join("f"))?.sync_all()?;
            mount.crash()?;
            ensure!(image.needs_recovery()?, "the journal is empty");
        }
        let found = readers(&image, options)?;
        let confined = |line: &String| line.starts_with("2 ");
        ensure!(
            found.len() > 1 && found.iter().all(confined),
            "{options:?}, dirty {dirty}: {found:?}"
        );
        ensure!(!image.needs_recovery()?, "{options:?}: not recovered");
        image.fsck_clean()?;
    }
    // The watch sees those that are not.
    let image = Image::of_mib(32).make()?;
    let found = readers(&image, "nosandbox")?;
    ensure!(found.iter().any(|line| line.starts_with("0 ")), "{found:?}");
    Ok(())
}

/// Tries all that foreign code would, in the daemons of mounts with these options.
fn attempts_are_refused(options: &str) -> Result<()> {
    for (name, number, arguments, expected) in ATTEMPTS {
        let image = Image::of_mib(16).make()?;
        let mount = Subject::Extant.mount(image.path(), options)?;
        fs::write(mount.join("f"), "kept")?;
        File::open(mount.join("f"))?.sync_all()?;
        let pid = mount.pid().ok_or_else(|| Error::new("no daemon"))?;
        let outcome = inject(pid, number, arguments)?;
        ensure!(outcome == expected, "{options}: {name}: {outcome:?}");
        if expected == Injected::Ended(31) {
            // It is seen: by what waits for the daemon, and in the kernel's log.
            let o = mount.ended(BOUND)?;
            ensure!(o.code.is_none(), "{name}: {}", o.describe());
        } else {
            use_it(mount.dir())?;
            mount.unmount()?;
        }
        let again = Subject::Extant.mount(image.path(), "")?;
        ensure!(fs::read(again.join("f"))? == b"kept", "{name}: lost");
        again.unmount()?;
        image.fsck_clean()?;
    }
    Ok(())
}

#[test]
fn foreign_code_in_the_daemon_of_a_file_is_refused() -> Result<()> {
    if !need(NEEDS) || cfg!(not(target_arch = "x86_64")) {
        return Ok(());
    }
    attempts_are_refused("backend=syscalls")
}

#[test]
fn foreign_code_in_a_daemon_with_io_uring_is_refused() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::IoUring]) || cfg!(not(target_arch = "x86_64")) {
        return Ok(());
    }
    attempts_are_refused("backend=io_uring")
}

#[test]
fn foreign_code_in_a_daemon_with_requests_over_rings_is_refused() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::FuseRings]) || cfg!(not(target_arch = "x86_64")) {
        return Ok(());
    }
    attempts_are_refused("transport=uring")
}

#[test]
fn a_daemon_in_the_background_ends_with_its_keeper() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(32).make()?;
    let mount = mount::in_background(image.path(), "memory=32M")?;
    use_it(mount.dir())?;
    let dir = mount.dir().to_string_lossy().into_owned();
    ensure!(processes_of(&dir)?.len() == 2, "{:?}", processes_of(&dir)?);
    for pid in processes_of(&dir)? {
        let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()))?;
        ensure!(name.trim() == "extant", "{pid:?} is called {name}");
    }
    // Signals to all of a service's processes end the daemon first.
    for pid in processes_of(&dir)? {
        match kill_process(pid, Signal::TERM) {
            // The second of them may have ended with the first.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let end = std::time::Instant::now() + patience(BOUND);
    while !processes_of(&dir)?.is_empty() {
        ensure!(std::time::Instant::now() < end, "{:?}", processes_of(&dir)?);
        std::thread::sleep(Duration::from_millis(10));
    }
    ensure!(!image.needs_recovery()?, "the journal was left dirty");
    drop(mount);
    image.fsck_clean()
}

/// The processes of the mount on `dir`.
fn processes_of(dir: &str) -> Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let raw = entry.file_name().to_string_lossy().parse().ok();
        let Some(pid) = raw.and_then(Pid::from_raw) else {
            continue;
        };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
        if words.contains(&b"mount".as_slice()) && words.contains(&dir.as_bytes()) {
            found.push(pid);
        }
    }
    Ok(found)
}

#[test]
fn an_unclean_image_is_recovered_by_a_confined_read_only_mount() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(32).make()?;
    let mount = Subject::Extant.mount(image.path(), "")?;
    fs::write(mount.join("f"), "kept")?;
    File::open(mount.join("f"))?.sync_all()?;
    mount.crash()?;
    ensure!(image.needs_recovery()?, "the journal is empty");
    let mount = Subject::Extant.mount(image.path(), "ro")?;
    ensure!(fs::read(mount.join("f"))? == b"kept", "lost");
    ensure!(fs::write(mount.join("g"), "").is_err(), "it was written");
    ensure!(counter(mount.dir(), "sandbox_seccomp")? == 1, "unconfined");
    mount.unmount()?;
    ensure!(!image.needs_recovery()?, "the journal was left dirty");
    image.fsck_clean()
}

#[test]
fn memory_bounds_the_caches() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(256).make()?;
    let refused = Cmd::new(tools::extant()?)
        .args(["mount", "-o", "memory=1M"])
        .args([image.path(), Path::new("/")])
        .run()?;
    let named = refused.err.contains("memory=1M") && refused.err.contains("16 MiB");
    ensure!(refused.code == Some(1) && named, "{}", refused.describe());
    let mount = Subject::Extant.mount(image.path(), "memory=24M,nowriteback_cache")?;
    let bytes = content::fill(1, 0, 60_000);
    for number in 0..1000 {
        fs::write(mount.join(format!("f{number}")), &bytes)?;
    }
    let held = counter(mount.dir(), "page_cache_held_bytes")?;
    ensure!(held <= 24 << 20, "{held} bytes are held");
    mount.unmount()?;
    image.fsck_clean()
}
