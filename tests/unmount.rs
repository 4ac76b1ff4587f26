//! An unmount that has returned: the image is closed and marked clean, after each kind of unmount;
//! and what holds a mount does not hold the unmount for ever.

use extant_testkit::apart::apart;
use extant_testkit::cmd::{Output, Running};
use extant_testkit::{Cmd, Error, Image, Mount, Need, Result, Stop, Subject, TempDir};
use extant_testkit::{ensure, need, patience, tools, wait_until};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::mount::{MountFlags, mount as attach};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Tool("mke2fs")];
/// Longer than any of these takes on a busy machine; a hang takes longer.
const BOUND: Duration = Duration::from_secs(60);

/// Returns whether the superblock, as it is in the image at this moment, says that the journal is
/// to be replayed.
fn is_marked(image: &Path) -> Result<bool> {
    let mut bits = [0; 4];
    File::open(image)?.read_exact_at(&mut bits, 1024 + 0x60)?;
    Ok(u32::from_le_bytes(bits) & 0x4 != 0)
}

fn terminate(mount: &Mount) -> Result<()> {
    let raw = mount.pid().and_then(|pid| i32::try_from(pid).ok());
    let pid = raw.and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Error::new("no daemon"))?;
    Ok(kill_process(pid, Signal::TERM)?)
}

/// Unmounts `dir` by `program`. Linux may hold the last file of a finished process for a moment.
fn umount(program: &Path, dir: &Path) -> Result<Output> {
    let end = Instant::now() + patience(BOUND);
    loop {
        let mut cmd = Cmd::new(program).limit(BOUND);
        if program.ends_with("extant") {
            cmd = cmd.arg("umount");
        }
        let o = cmd.arg(dir).run()?;
        if !o.err.contains("busy") || Instant::now() >= end {
            return Ok(o);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A file system with something to write home.
fn mounted(image: &Path) -> Result<Mount> {
    let mount = Subject::Extant.mount(image, "")?;
    for number in 0..6_u8 {
        let name = format!("f{number}");
        fs::write(mount.join(name), vec![number; 40_000])?;
    }
    fs::remove_file(mount.join("f0"))?;
    Ok(mount)
}

/// One mount and its end, by unmount kind `kind`; the daemon's exit status is 0.
fn one_end(kind: usize, helper: &Path) -> Result<()> {
    let image = Image::of_mib(16).make()?;
    let mount = mounted(image.path())?;
    ensure!(is_marked(image.path())?, "not marked while mounted");
    let bin = tools::extant()?;
    let clean = |o: Output| -> Result<()> {
        let marked = is_marked(image.path())?;
        ensure!(
            o.code == Some(0) && !marked,
            "kind {kind}: {}",
            o.describe()
        );
        Ok(())
    };
    match kind % 5 {
        0 => clean(umount(&bin, mount.dir())?)?,
        1 => clean(umount(helper, mount.dir())?)?,
        2 => {
            let beside = TempDir::new_in(&std::env::temp_dir(), "bind")?;
            Cmd::new("mount")
                .arg("--bind")
                .args([mount.dir(), beside.path()])
                .ok()?;
            // At once: each of the two may be the last.
            std::thread::scope(|scope| {
                let first = scope.spawn(|| umount(&bin, mount.dir()));
                umount(&bin, beside.path())?;
                first.join().map_err(|_| Error::new("panicked"))?
            })?;
        }
        3 => terminate(&mount)?,
        _ => {
            let mut held = File::create(mount.join("held"))?;
            held.write_all(&[7; 300_000])?;
            terminate(&mount)?;
            clean(mount.ended(BOUND)?)?;
            let linux = Subject::Extant.mount(image.path(), "ro")?;
            let kept = fs::read(linux.join("held"))? == vec![7; 300_000];
            ensure!(kept, "dirty pages of an open file were lost");
            linux.unmount()?;
            return Ok(());
        }
    }
    clean(mount.ended(BOUND)?)?;
    if kind < 5 {
        image.fsck_clean()?;
    }
    Ok(())
}

#[test]
fn many_at_once_are_clean_when_their_unmounts_return() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let links = TempDir::new("helper")?;
    let helper = links.join("umount.fuse.extant");
    std::os::unix::fs::symlink(tools::extant()?, &helper)?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..5)
            .map(|first| {
                let helper = &helper;
                // In each thread another kind at a time, so that device numbers go from one mount
                // to the next.
                scope.spawn(move || (0..6).try_for_each(|round| one_end(first + round * 6, helper)))
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            let joined = thread.join();
            joined.map_err(|_| Error::new("a thread panicked"))?
        })
    })
}

#[test]
fn one_of_two_mount_points_is_unmounted_at_once() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    let mount = mounted(image.path())?;
    let beside = TempDir::new_in(&std::env::temp_dir(), "bind")?;
    Cmd::new("mount")
        .arg("--bind")
        .args([mount.dir(), beside.path()])
        .ok()?;
    let bin = tools::extant()?;
    let o = umount(&bin, beside.path())?;
    let reported = o.err.contains("mounted on") && o.err.contains(&*mount.dir().to_string_lossy());
    ensure!(o.code == Some(0) && reported, "{}", o.describe());
    // As umount(8)'s helper it is as silent as that is on every file system.
    let helper = beside.join("umount.fuse.extant");
    std::os::unix::fs::symlink(&bin, &helper)?;
    let bound = mount.join("bound");
    fs::create_dir(&bound)?;
    let bind = Cmd::new("mount").arg("--bind");
    bind.args([mount.dir(), bound.as_path()]).ok()?;
    let o = Cmd::new(&helper).arg(&bound).run()?;
    let is_silent = o.out.is_empty() && o.err.is_empty();
    ensure!(o.code == Some(0) && is_silent, "{}", o.describe());
    ensure!(fs::read(mount.join("f1"))?.len() == 40_000, "it is gone");
    mount.unmount()?;
    ensure!(!is_marked(image.path())?, "marked after the last unmount");
    Ok(())
}

#[test]
fn several_directories_and_what_keeps_one_busy() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let images = [Image::of_mib(16).make()?, Image::of_mib(16).make()?];
    let [busy, free] = [mounted(images[0].path())?, mounted(images[1].path())?];
    let mut user = Cmd::new("sleep").arg("60").dir(busy.dir()).spawn()?;
    let o = Cmd::new(tools::extant()?)
        .arg("umount")
        .args([busy.dir(), free.dir()])
        .run()?;
    let reported = o.err.contains(&format!("sleep ({})", user.pid()));
    user.kill()?;
    ensure!(o.code == Some(1) && reported, "{}", o.describe());
    ensure!(!is_marked(images[1].path())?, "the second was left");
    free.ended(BOUND)?;
    busy.unmount()?;
    Ok(())
}

/// A mount namespace of its own that holds some mounts of this one, until its file goes.
struct Namespace {
    process: Running,
    dir: TempDir,
}

impl Namespace {
    fn holding(mounts: &[&Mount]) -> Result<Namespace> {
        let dir = TempDir::new("namespace")?;
        let hold = dir.join("hold");
        File::create(&hold)?;
        let script = r#": > "$0/ready"; while [ -e "$0/hold" ]; do sleep 0.02; done"#;
        let mounts: Vec<&Path> = mounts.iter().map(|mount| mount.dir()).collect();
        let process = apart(&mounts)
            .args(["sh", "-c", script])
            .arg(dir.path())
            .spawn()?;
        wait_until("the namespace", || dir.join("ready").exists());
        Ok(Namespace { process, dir })
    }

    fn end(mut self) -> Result<()> {
        fs::remove_file(self.dir.join("hold"))?;
        self.process.wait(BOUND)?;
        Ok(())
    }
}

#[test]
fn a_mount_held_by_another_namespace_is_reported_and_ended_by_a_signal() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("unshare")]) {
        return Ok(());
    }
    let images = [Image::of_mib(16).make()?, Image::of_mib(16).make()?];
    let [unmounted, signalled] = [mounted(images[0].path())?, mounted(images[1].path())?];
    let holder = Namespace::holding(&[&unmounted, &signalled])?;
    let o = umount(&tools::extant()?, unmounted.dir())?;
    // The holder is found at once, not waited for.
    let reported = o.code == Some(1) && o.err.contains("another mount namespace (of s");
    ensure!(reported, "{}", o.describe());
    ensure!(is_marked(images[0].path())?, "closed, though held");
    terminate(&signalled)?;
    let o = signalled.ended(BOUND)?;
    let clean = !is_marked(images[1].path())?;
    ensure!(o.code == Some(0) && clean, "{}", o.describe());
    holder.end()?;
    let o = unmounted.ended(BOUND)?;
    let clean = !is_marked(images[0].path())?;
    ensure!(o.code == Some(0) && clean, "{}", o.describe());
    images.iter().try_for_each(Image::fsck_clean)
}

#[test]
fn a_signal_ends_a_mount_under_writers() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(64).make()?;
    let mount = mounted(image.path())?;
    let stop = AtomicBool::new(false);
    let output = std::thread::scope(|scope| -> Result<Output> {
        for number in 0..4 {
            let path = mount.join(format!("writer{number}"));
            let stop = &stop;
            scope.spawn(move || {
                let Ok(file) = File::create(path) else { return };
                let piece = [number; 65536];
                for at in (0_u64..).map(|piece| piece % 100 * 65536) {
                    let written = file.write_all_at(&piece, at);
                    if written.is_err() || stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        let _stop = Stop::at_end(&stop);
        let len = || fs::metadata(mount.join("writer3")).map_or(0, |m| m.len());
        wait_until("the writers start", || len() >= 65536);
        terminate(&mount)?;
        mount.ended(BOUND)
    })?;
    let clean = !is_marked(image.path())?;
    ensure!(output.code == Some(0) && clean, "{}", output.describe());
    image.fsck_clean()
}

/// A volume whose directory `long` is one of 64 MiB: a look-up in it goes through 65,536 empty
/// blocks.
fn with_long_directory() -> Result<Image> {
    const BLOCKS: usize = 65536;
    let image = Image::of_mib(96).args("-b 1024 -O ^metadata_csum").make()?;
    let mount = Subject::Extant.mount(image.path(), "")?;
    let path = mount.join("long");
    let mut file = File::create(&path)?;
    let entry = |ino: u32, len: u16, name: &[u8]| {
        let mut bytes = ino.to_le_bytes().to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend([u8::try_from(name.len()).unwrap_or(0), 2]);
        bytes.extend(name);
        bytes
    };
    let ino = u32::try_from(std::os::unix::fs::MetadataExt::ino(&file.metadata()?))?;
    let mut first = entry(ino, 12, b".");
    first.resize(12, 0);
    first.extend(entry(2, 1012, b".."));
    first.resize(1024, 0);
    let mut empty = entry(0, 1024, b"");
    empty.resize(1024, 0);
    file.write_all(&first)?;
    let empty = empty.repeat(255);
    for _ in 0..BLOCKS / 256 {
        file.write_all(&empty)?;
    }
    drop(file);
    mount.unmount()?;
    image.debugfs_write("set_inode_field long mode 040755")?;
    image.debugfs_write("set_inode_field long links_count 2")?;
    Ok(image)
}

#[test]
fn a_long_search_ends_with_its_callers_signal() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("bash"), Need::Tool("debugfs")]) {
        return Ok(());
    }
    let image = with_long_directory()?;
    let mount = Subject::Extant.mount(image.path(), "ro")?;
    let end = Instant::now() + patience(BOUND);
    for number in 0.. {
        // A search may be over before the signal comes. The kernel remembers missing names.
        let said = signalled_search(&mount.join(format!("long/{number}")), end)?;
        if said.err.contains("Interrupted") {
            break;
        }
        let missing = said.err.contains("No such file");
        ensure!(missing && Instant::now() < end, "{}", said.describe());
    }
    mount.unmount()?;
    Ok(())
}

/// Has a process enter `dir`, and signals it until it ends. Returns what it said.
fn signalled_search(dir: &Path, end: Instant) -> Result<Output> {
    let flags = TempDir::new("flags")?;
    let ready = flags.join("ready");
    let mut caller = Cmd::new("bash")
        .args(["-c", r#"trap : USR1; : > "$0"; cd "$1""#])
        .args([ready.as_path(), dir])
        .spawn()?;
    let raw = i32::try_from(caller.pid()).ok().and_then(Pid::from_raw);
    let pid = raw.ok_or_else(|| Error::new("no caller"))?;
    loop {
        if let Some(output) = caller.poll()? {
            return Ok(output);
        }
        ensure!(Instant::now() < end, "the caller does not end");
        if ready.exists() {
            kill_process(pid, Signal::USR1)?;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_signal_ends_a_mount_under_long_searches() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("debugfs")]) {
        return Ok(());
    }
    let image = with_long_directory()?;
    let mount = Subject::Extant.mount(image.path(), "")?;
    let searched = AtomicUsize::new(0);
    let output = std::thread::scope(|scope| -> Result<Output> {
        for thread in 0..8 {
            let (searched, long) = (&searched, mount.join("long"));
            scope.spawn(move || {
                // Until the mount is gone from under it; the kernel remembers missing names.
                for name in 0.. {
                    match fs::metadata(long.join(format!("{thread}-{name}"))) {
                        Err(error) if error.kind() == ErrorKind::NotFound && long.exists() => {}
                        _ => return,
                    }
                    searched.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        wait_until("a search ends", || searched.load(Ordering::Relaxed) > 0);
        terminate(&mount)?;
        mount.ended(BOUND)
    })?;
    let clean = !is_marked(image.path())?;
    ensure!(output.code == Some(0) && clean, "{}", output.describe());
    Ok(())
}

#[test]
fn a_dead_daemons_image_is_reported() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    let bin = tools::extant()?;
    let mount = mounted(image.path())?;
    let raw = mount.pid().and_then(|pid| i32::try_from(pid).ok());
    let dir = mount.dir().to_owned();
    if let Some(pid) = raw.and_then(Pid::from_raw) {
        kill_process(pid, Signal::KILL)?;
    }
    wait_until("the daemon dies", || fs::metadata(&dir).is_err());
    let o = umount(&bin, &dir)?;
    let reported = o.code == Some(1) && o.err.contains("died before the image was closed");
    ensure!(reported && is_marked(image.path())?, "{}", o.describe());
    mount.ended(BOUND)?;
    Ok(())
}

/// A mount of the same image takes the place of a dead one; what else is mounted there is left to
/// its user.
#[test]
fn a_dead_mount_makes_way_for_its_own_image_alone() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (image, other) = (Image::of_mib(16).make()?, Image::of_mib(16).make()?);
    let bin = tools::extant()?;
    let mount = mounted(image.path())?;
    let raw = mount.pid().and_then(|pid| i32::try_from(pid).ok());
    let dir = mount.dir().to_owned();
    if let Some(pid) = raw.and_then(Pid::from_raw) {
        kill_process(pid, Signal::KILL)?;
    }
    wait_until("the daemon dies", || fs::metadata(&dir).is_err());
    let again = |image: &Path| Cmd::new(&bin).arg("mount").args([image, &dir]).run();
    for image in [other.path(), Path::new("/nowhere")] {
        let o = again(image)?;
        ensure!(o.code == Some(1), "{}", o.describe());
        ensure!(fs::metadata(&dir).is_err(), "it was taken off");
        let told = o.err.contains("extant umount it first");
        ensure!(told || image != other.path(), "{}", o.describe());
    }
    // It stays until the image is known to be one.
    let start = fs::read(image.path())?[..2048].to_vec();
    let put = |bytes: &[u8]| {
        let file = File::options().write(true).open(image.path());
        file.and_then(|file| file.write_all_at(bytes, 0))
    };
    put(&[0; 2048])?;
    let o = again(image.path())?;
    let told = o.err.contains("not an ext4 file system");
    ensure!(o.code == Some(1) && told, "{}", o.describe());
    ensure!(fs::metadata(&dir).is_err(), "it was taken off");
    put(&start)?;
    let o = again(image.path())?;
    let told = o.err.contains("whose process has died is taken off");
    ensure!(o.code == Some(0) && told, "{}", o.describe());
    ensure!(dir.join("lost+found").is_dir(), "no file system");
    let o = umount(&bin, &dir)?;
    ensure!(o.code == Some(0), "{}", o.describe());
    ensure!(fs::read_dir(&dir)?.next().is_none(), "a mount is below");
    mount.ended(BOUND)?;
    image.fsck_clean()?;
    other.fsck_clean()
}

/// A dead mount below which others are mounted is in use.
#[test]
fn a_dead_mount_with_others_below_it_stays() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    let bin = tools::extant()?;
    let mount = mounted(image.path())?;
    let dir = mount.dir().to_owned();
    let below = dir.join("below");
    fs::create_dir(&below)?;
    attach("tmpfs", &below, "tmpfs", MountFlags::empty(), c"")?;
    let open = File::open(&below)?;
    let raw = mount.pid().and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = raw.and_then(Pid::from_raw) {
        kill_process(pid, Signal::KILL)?;
    }
    // The kernel still knows the attributes.
    let asked = || statx(CWD, &dir, AtFlags::STATX_FORCE_SYNC, StatxFlags::INO);
    wait_until("the daemon dies", || asked().is_err());
    let again = || Cmd::new(&bin).arg("mount").args([image.path(), &dir]).run();
    let o = again()?;
    let told = o.err.contains("with others below it");
    ensure!(o.code == Some(1) && told, "{}", o.describe());
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let there = below.to_string_lossy().into_owned();
    ensure!(table.contains(&there), "{there} is not mounted any more");
    drop(open);
    Cmd::new(&bin).args(["umount", "-l"]).arg(&dir).ok()?;
    let o = again()?;
    ensure!(o.code == Some(0), "{}", o.describe());
    Cmd::new(&bin).arg("umount").arg(&dir).ok()?;
    mount.ended(BOUND)?;
    image.fsck_clean()
}

/// Lets a process have so many bytes of address space more than it has.
fn leave_memory(pid: u32, bytes: u64) -> Result<()> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm"))?;
    let pages: u64 = text.split(' ').next().unwrap_or("").parse()?;
    let limit = format!("--as={}", pages * 4096 + bytes);
    let prlimit = Cmd::new("prlimit").arg(format!("--pid={pid}"));
    prlimit.arg(limit).ok().map(drop)
}

#[test]
fn a_daemon_without_memory_for_threads_unmounts_cleanly() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("prlimit")]) {
        return Ok(());
    }
    for by_signal in [false, true] {
        let image = Image::of_mib(32).make()?;
        let mount = mounted(image.path())?;
        let pid = mount.pid().unwrap_or(0);
        // Over rings a mount answers before it has all threads that it cannot do without.
        let look = format!("grep -qsx fuse-1 /proc/{pid}/task/*/comm");
        wait_until("the daemon has its threads", || {
            let found = Cmd::new("sh").args(["-c", &look]).run();
            found.is_ok_and(|o| o.code == Some(0))
        });
        // Less than a thread's stack is left.
        leave_memory(pid, 3 << 19)?;
        fs::write(mount.join("late"), vec![9; 700_000])?;
        let o = if by_signal {
            let held = File::open(mount.join("f1"))?;
            terminate(&mount)?;
            let o = mount.ended(BOUND)?;
            drop(held);
            o
        } else {
            let o = umount(&tools::extant()?, mount.dir())?;
            ensure!(o.code == Some(0), "{}", o.describe());
            mount.ended(BOUND)?
        };
        let clean = !is_marked(image.path())?;
        ensure!(o.code == Some(0) && clean, "{}", o.describe());
        image.fsck_clean()?;
    }
    Ok(())
}

#[test]
fn a_mount_that_cannot_be_served_says_why_and_is_not_left() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("prlimit")]) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    let at = TempDir::new_in(&std::env::temp_dir(), "half")?;
    let bin = tools::extant()?;
    let (mut failed, mut mounted) = (0, 0);
    // Below 512 MiB a mount says that it needs more; above it works, or says what it lacks.
    for mib in (48..=720).step_by(48) {
        let o = Cmd::new("prlimit")
            .arg(format!("--as={}", mib << 20))
            .arg(&bin)
            .arg("mount")
            .args([image.path(), at.path()])
            .run()?;
        let table = fs::read_to_string("/proc/self/mountinfo")?;
        let there = table.contains(&*at.path().to_string_lossy());
        if o.code == Some(0) {
            mounted += 1;
            // A daemon that finds no memory for a request dies of it; the image is sound.
            let served = fs::metadata(at.path()).is_ok();
            let o = umount(&bin, at.path())?;
            let died = !served && o.err.contains("died");
            ensure!(o.code == Some(0) || died, "{mib} MiB: {}", o.describe());
        } else {
            failed += 1;
            let reported = !o.err.trim().is_empty() && !o.err.contains("panicked");
            ensure!(
                reported && !there,
                "{mib} MiB, left {there}: {}",
                o.describe()
            );
        }
    }
    ensure!(failed > 0 && mounted > 0, "{failed} failed, {mounted} not");
    image.fsck_clean()
}
