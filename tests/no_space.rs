//! A mount without space: each writer gets its error in time, acknowledged data is there, and
//! the sizes are true.

use extant_testkit::{
    Cmd, Error, Image, Mount, Need, Result, Subject, TempDir, bail, content, ensure, need,
    patience, wait_until,
};
use rustix::fs::{Advice, FallocateFlags, Mode, fallocate};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")];
const MIB: usize = 1 << 20;

/// A volume so small that each write is checked.
fn small() -> Result<(Image, Mount)> {
    let image = Image::of_mib(32).make()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    Ok((image, mount))
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

const NO_SPACE: Option<i32> = Some(Errno::NOSPC.raw_os_error());
const TOO_BIG: Option<i32> = Some(Errno::FBIG.raw_os_error());

/// Writes pieces of `len` bytes until one is refused: how many bytes were taken.
fn fill(file: &mut File, len: usize) -> Result<u64> {
    let mut taken = 0;
    while taken < 64 << 20 {
        match file.write(&content::fill(7, taken, len)) {
            Ok(done) => taken += done as u64,
            Err(error) => {
                ensure!(error.raw_os_error() == NO_SPACE, "{error}");
                return Ok(taken);
            }
        }
    }
    bail!("{taken} bytes fit into 32 MiB")
}

/// Each page that is written takes a block, which is larger.
#[test]
fn pages_of_large_blocks_are_refused_in_time() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let args = "-b 65536 -m 0 -O ^has_journal";
    let image = Image::of_mib(160).args(args).make()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    let path = mount.join("file");
    let file = File::create(&path)?;
    let mut taken = 0;
    loop {
        match file.write_all_at(&content::fill(9, taken, 4096), taken << 16) {
            Ok(()) => taken += 1,
            Err(error) if error.raw_os_error() == NO_SPACE => break,
            Err(error) => return Err(error.into()),
        }
        ensure!(taken < 2560, "more blocks than the volume has");
    }
    file.sync_all()?;
    drop(file);
    mount.unmount()?;
    ensure!(taken > 1500, "{taken} of some 2,300 blocks");
    let mount = Subject::under_test().mount(image.path(), "ro")?;
    let file = File::open(mount.join("file"))?;
    for at in 0..taken {
        let mut page = vec![0; 4096];
        file.read_exact_at(&mut page, at << 16)?;
        ensure!(page == content::fill(9, at, 4096), "write {at}");
    }
    drop(file);
    mount.unmount()?;
    image.fsck_clean()
}

#[test]
fn a_write_is_refused_before_anything_is_lost() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for len in [MIB, 8192] {
        let (image, mount) = small()?;
        let path = mount.join("file");
        let mut file = File::create(&path)?;
        let taken = fill(&mut file, len)?;
        ensure!(taken > 20 << 20, "refused after {taken} bytes");
        ensure!(fs::metadata(&path)?.len() == taken, "another size");
        file.sync_all()?;
        // What is there can be written again.
        file.write_all_at(&content::fill(7, 0, MIB), 0)?;
        file.sync_all()?;
        drop(file);
        mount.unmount()?;
        image.fsck_clean()?;
        let linux = Subject::Ext4.mount(image.path(), "ro")?;
        let there = fs::read(linux.join("file"))?;
        ensure!(there.len() as u64 == taken, "Linux sees another size");
        let wrong = content::first_wrong(7, 0, &there);
        ensure!(wrong.is_none(), "wrong at {wrong:?}");
    }
    Ok(())
}

/// A writer that ignores ENOSPC uses nothing up that others were promised.
#[test]
fn a_writer_that_goes_on_is_refused_and_loses_nothing() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(160).make()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    let (path, filler) = (mount.join("file"), mount.join("filler"));
    fs::write(&filler, content::fill(1, 0, 100 * MIB))?;
    File::open(&filler)?.sync_all()?;
    let file = File::create(&path)?;
    let (mut taken, mut refused) = (0, 0);
    while refused < 1000 {
        match file.write_at(&content::fill(7, taken, 8192), taken) {
            Ok(done) => taken += done as u64,
            Err(error) => {
                ensure!(error.raw_os_error() == NO_SPACE, "{error}");
                refused += 1;
            }
        }
        ensure!(taken < 60 << 20, "{taken} bytes fit");
    }
    file.sync_all()?;
    // Another handle overwrites; the first goes on as soon as there is space.
    let other = OpenOptions::new().write(true).open(&path)?;
    for at in (0..MIB as u64).step_by(8192) {
        other.write_all_at(&content::fill(7, at, 8192), at)?;
    }
    other.sync_all()?;
    fs::remove_file(&filler)?;
    // The kernel lets go of a file some time after its unlink.
    let bytes = content::fill(7, taken, MIB);
    wait_until("there is space", || {
        file.write_all_at(&bytes, taken).is_ok()
    });
    file.sync_all()?;
    drop((file, other));
    mount.unmount()?;
    image.fsck_clean()?;
    let linux = Subject::Ext4.mount(image.path(), "ro")?;
    let there = fs::read(linux.join("file"))?;
    ensure!(there.len() as u64 == taken + MIB as u64, "another size");
    let wrong = content::first_wrong(7, 0, &there);
    ensure!(wrong.is_none(), "wrong at {wrong:?}");
    Ok(())
}

/// Some space is left when a writer is refused: enough for what a database needs to open.
#[test]
fn a_little_can_be_written_one_page_at_a_time_after_a_writer_was_refused() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (image, mount) = small()?;
    fill(&mut File::create(mount.join("file"))?, 8192)?;
    let little = File::create(mount.join("little"))?;
    for page in 1..=8 {
        little.write_all_at(&[0], page * 4096 - 1)?;
        little.sync_all()?;
    }
    drop(little);
    mount.unmount()?;
    image.fsck_clean()
}

/// Bytes that each file takes of the last blocks unreported are few for many files, too.
#[test]
fn many_writers_of_a_page_each_lose_nothing() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(64).make()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    fill(&mut File::create(mount.join("file"))?, 8192)?;
    let path = |number| mount.join(format!("little{number}"));
    let files: std::io::Result<Vec<_>> = (0..40).map(|number| File::create(path(number))).collect();
    let (files, mut taken) = (files?, [0; 40]);
    for _ in 0..16 {
        for ((number, file), len) in (0..).zip(&files).zip(&mut taken) {
            match file.write_at(&content::fill(number, *len, 4096), *len) {
                Ok(done) => *len += done as u64,
                Err(error) => ensure!(error.raw_os_error() == NO_SPACE, "{error}"),
            }
        }
    }
    for ((number, file), len) in (0..).zip(files).zip(taken) {
        file.sync_all()?;
        let there = fs::read(path(number))?;
        let wrong = content::first_wrong(number, 0, &there);
        ensure!(
            there.len() as u64 == len && wrong.is_none(),
            "{number}: {} of {len} bytes, wrong at {wrong:?}",
            there.len()
        );
    }
    mount.unmount()?;
    image.fsck_clean()
}

fn refused(tool: Cmd) -> Result<()> {
    let output = tool.run()?;
    let reported = output.code != Some(0) && output.err.contains("No space left on device");
    ensure!(reported, "{}", output.describe());
    Ok(())
}

#[test]
fn tools_end_with_no_space() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (image, mount) = small()?;
    let dir = TempDir::new("no-space")?;
    let source = dir.join("source");
    fs::write(&source, content::fill(3, 0, 40 * MIB))?;
    refused(Cmd::new("cp").arg(&source).arg(mount.join("copy")))?;
    let copy = fs::metadata(mount.join("copy"))?.len();
    ensure!(copy > 20 << 20, "{copy} bytes copied");
    let append = |from: &Path| {
        let script = "cat \"$0\" >> \"$1\"";
        let cat = Cmd::new("sh").args(["-c", script]);
        cat.arg(from).arg(mount.join("copy"))
    };
    refused(append(&source))?;
    fs::remove_file(mount.join("copy"))?;
    let dd = Cmd::new("dd").args(["if=/dev/zero", "bs=1M"]);
    let of = format!("of={}", mount.join("zeros").display());
    refused(dd.arg(of))?;
    mount.unmount()?;
    image.fsck_clean()
}

fn python(words: &[&str], file: &Path) -> Result<String> {
    let script = Cmd::new("python3").args(["-c", include_str!("no_space.py"), words[0]]);
    Ok(script.arg(file).args(&words[1..]).ok()?.out)
}

#[test]
fn a_mapping_that_does_not_fit_fails_once_for_each_handle() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("python3")]) {
        return Ok(());
    }
    let (image, mount) = small()?;
    let said = python(&["mapping"], &mount.join("file"))?;
    let expected = "msync ENOSPC\nfirst ok\nsecond ENOSPC ok\n";
    ensure!(said == expected, "{said}");
    mount.unmount()?;
    image.fsck_clean()
}

#[test]
fn a_database_that_fills_its_volume_keeps_what_it_acknowledged() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("python3")]) {
        return Ok(());
    }
    for journal in ["delete", "wal"] {
        let (image, mount) = small()?;
        let said = python(&["database", journal], &mount.join("file"))?;
        let expected = "error: database or disk is full\nintegrity: ok\nacknowledged ";
        ensure!(said.starts_with(expected), "{journal}: {said}");
        mount.unmount()?;
        image.fsck_clean()?;
    }
    Ok(())
}

/// Returns whether the kernel can be made to forget an unused inode.
fn prunes() -> bool {
    Need::Linux(6, 18).missing().is_none()
}

/// Waits until the file has `len` bytes: the kernel forgets a size shortly after the last close.
fn shrinks_to(path: &Path, len: impl Fn(u64) -> bool) -> Result<()> {
    let end = Instant::now() + patience(Duration::from_secs(20));
    loop {
        let there = fs::metadata(path)?.len();
        if len(there) {
            return Ok(());
        }
        ensure!(Instant::now() < end, "still {there} bytes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// One write of more than fits cannot be refused in time: its handles get the error afterwards,
/// each once.
#[test]
fn what_was_lost_is_reported_once_and_not_shown_after_the_last_close() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (image, mount) = small()?;
    let path = mount.join("file");
    let mut file = File::create(&path)?;
    // What is written again below has its blocks. Of all else any piece may be lost.
    file.write_all_at(&content::fill(5, 0, 4096), 0)?;
    file.sync_all()?;
    let other = OpenOptions::new().write(true).open(&path)?;
    let taken = file.write(&content::fill(5, 0, 48 * MIB))?;
    ensure!(taken == 48 * MIB, "{taken} bytes taken");
    ensure!(errno(file.sync_all()) == NO_SPACE, "fsync");
    ensure!(errno(other.sync_all()) == NO_SPACE, "fsync of another");
    ensure!(errno(file.write_all_at(b"x", 0)) == NO_SPACE, "write");
    ensure!(
        errno(other.write_all_at(b"x", 0)) == NO_SPACE,
        "other write"
    );
    file.write_all_at(&content::fill(5, 0, 1), 0)?;
    other.write_all_at(&content::fill(5, 1, 1), 1)?;
    file.sync_all()?;
    other.sync_all()?;
    drop((file, other));
    if prunes() {
        shrinks_to(&path, |len| len < taken as u64)?;
    }
    let there = fs::read(&path)?;
    let foreign = content::first_foreign(5, 0, &there);
    ensure!(foreign.is_none(), "foreign at {foreign:?}");
    mount.unmount()?;
    image.fsck_clean()?;
    // Pieces are written back in any order: what fails may lie before what does not. So the file
    // may be longer than the volume.
    let mount = Subject::under_test().mount(image.path(), "ro")?;
    let len = fs::metadata(mount.join("file"))?.len();
    let shown = there.len();
    ensure!(
        !prunes() || len == shown as u64,
        "{shown} shown, {len} there"
    );
    mount.unmount()?;
    Ok(())
}

/// The kernel knows no largest size of a file on FUSE: the write behind it is taken, and reported
/// like one without space.
#[test]
fn a_write_behind_the_largest_size_is_reported() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (image, mount) = small()?;
    let path = mount.join("file");
    let file = File::create(&path)?;
    file.write_all_at(b"a", 0)?;
    file.sync_all()?;
    let most = (1 << 44) - 4096;
    match errno(file.write_all_at(b"b", most)) {
        None => {
            ensure!(errno(file.sync_all()) == TOO_BIG, "fsync");
            ensure!(errno(file.write_all_at(b"c", 1)) == TOO_BIG, "next write");
        }
        error => ensure!(error == TOO_BIG, "{error:?}"),
    }
    file.write_all_at(b"d", 1)?;
    file.sync_all()?;
    drop(file);
    if prunes() {
        // The kernel wrote a whole page back, which it took to be inside of the file.
        shrinks_to(&path, |len| len <= 4096)?;
        ensure!(fs::read(&path)?.starts_with(b"ad"), "another content");
    }
    mount.unmount()?;
    image.fsck_clean()
}

/// A counter of the mount.
fn counter(mount: &Mount, name: &str) -> Result<u64> {
    let mut value = vec![0; 64 << 10];
    let len = rustix::fs::getxattr(mount.dir(), "extant.stats", &mut value)?;
    let list = String::from_utf8_lossy(&value[..len]).into_owned();
    let mut pairs = list.lines().filter_map(|line| line.split_once(' '));
    let number = pairs.find_map(|(of, number)| (of == name).then_some(number));
    Ok(number.map_or(Ok(0), |number| number.trim().parse())?)
}

/// The number of GETATTR requests that were served.
fn attribute_requests(mount: &Mount) -> Result<u64> {
    counter(mount, "requests_getattr")
}

/// As long as there is space, a file that is not kept open for writing is not asked about.
#[test]
fn checks_add_no_request_to_short_uses_of_files() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(256).make()?;
    let mount = Subject::Extant.mount(image.path(), "")?;
    let path = mount.join("file");
    fs::write(&path, [1; 4096])?;
    let mut least = [u64::MAX; 2];
    // A tick may come between open and write on a busy machine.
    for round in 0..20u8 {
        let before = attribute_requests(&mount)?;
        let file = OpenOptions::new().write(true).open(&path)?;
        file.write_all_at(&[round; 1024], 1024)?;
        drop(file);
        let between = attribute_requests(&mount)?;
        fs::write(mount.join(format!("new{round}")), [round; 1024])?;
        let after = attribute_requests(&mount)?;
        least = [
            least[0].min(between - before),
            least[1].min(after - between),
        ];
    }
    // That of the directory, which changed.
    ensure!(least == [0, 1], "{least:?} GETATTR");
    mount.unmount()?;
    image.fsck_clean()
}

/// Waits until all of them have ended.
fn end(writers: Vec<Child>) -> Result<()> {
    let until = Instant::now() + patience(Duration::from_secs(60));
    for mut writer in writers {
        while writer.try_wait()?.is_none() {
            ensure!(Instant::now() < until, "a writer that got a signal goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

/// More of them wait for space than the daemon has workers.
#[test]
fn writers_that_get_a_signal_end_and_the_mount_goes_on() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(160).make()?;
    let mount = Subject::Extant.mount(image.path(), "")?;
    for round in 0..4 {
        let drains = counter(&mount, "space_drains")?;
        let writer = |number: u64| {
            let of = format!("of={}", mount.join(format!("w{number}")).display());
            let mut dd = Command::new("dd");
            dd.args(["if=/dev/zero", "bs=64k"]).arg(of);
            dd.stderr(Stdio::null()).spawn()
        };
        let writers: Vec<Child> = (0..40).map(writer).collect::<std::io::Result<_>>()?;
        wait_until("writers wait for space", || {
            counter(&mount, "space_drains").is_ok_and(|now| now > drains)
        });
        for writer in &writers {
            let pid = i32::try_from(writer.id())?;
            // One that has filled the volume may have ended by itself.
            let pid = Pid::from_raw(pid).ok_or_else(|| Error::new("no process"))?;
            let _ = kill_process(pid, Signal::TERM);
        }
        end(writers)?;
        rustix::fs::statvfs(mount.dir())?;
        fs::write(mount.join("after"), format!("{round}"))?;
        for number in 0..40 {
            // One may have ended before it made its file.
            let _ = fs::remove_file(mount.join(format!("w{number}")));
        }
    }
    mount.unmount()?;
    image.fsck_clean()
}

/// Takes space by name and gives it back, until it is told to stop.
fn take_space(mount: &Mount, stop: &AtomicBool) -> Result<()> {
    const TAKEN: u64 = 48 << 20;
    let full = |outcome: rustix::io::Result<()>| match outcome {
        Ok(()) | Err(Errno::NOSPC) => Ok(()),
        Err(error) => Err(error),
    };
    while !stop.load(Ordering::Relaxed) {
        for number in 0..2 {
            let file = File::create(mount.join(format!("taken{number}")))?;
            full(fallocate(&file, FallocateFlags::empty(), 0, TAKEN))?;
            full(fallocate(&file, FallocateFlags::ZERO_RANGE, TAKEN, TAKEN))?;
        }
        let dir = mount.join("dir");
        full(rustix::fs::mkdir(&dir, Mode::RWXU))?;
        full(
            rustix::fs::symlink("t".repeat(200), dir.join("link")).or_else(|error| {
                // The directory may have found no space.
                if error == Errno::NOENT {
                    Ok(())
                } else {
                    Err(error)
                }
            }),
        )?;
        for number in 0..2 {
            fs::remove_file(mount.join(format!("taken{number}")))?;
        }
        if dir.exists() {
            fs::remove_dir_all(dir)?;
        }
    }
    Ok(())
}

/// Writes that are accepted beside a taker of space, before the test looks for their data.
const ACCEPTED: usize = 1500;

/// Writes blocks here and there until many writes were accepted, however many are refused while
/// others have the space; returns where.
fn write_blocks(file: &File) -> Result<Vec<u64>> {
    let mut accepted = Vec::new();
    for number in 0..1 << 18 {
        if accepted.len() > ACCEPTED {
            break;
        }
        let at = number * 7919 % (1 << 18) * 4096;
        match file.write_all_at(&content::fill(9, at, 4096), at) {
            Ok(()) => accepted.push(at),
            Err(error) => ensure!(error.raw_os_error() == NO_SPACE, "{error}"),
        }
    }
    Ok(accepted)
}

/// Data that write() accepted is there, whatever other processes take by name meanwhile.
#[test]
fn what_was_accepted_is_there_beside_operations_that_take_space() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(96).make()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    let mut how = File::options();
    let how = how.create(true).truncate(true).read(true).write(true);
    let file = how.open(mount.join("data"))?;
    file.set_len(1 << 30)?;
    let stop = AtomicBool::new(false);
    let accepted = std::thread::scope(|scope| {
        let taker = scope.spawn(|| take_space(&mount, &stop));
        let accepted = write_blocks(&file);
        stop.store(true, Ordering::Relaxed);
        let taken = taker.join();
        taken.map_err(|_| Error::new("panicked"))??;
        accepted
    })?;
    ensure!(
        accepted.len() > ACCEPTED,
        "{} writes accepted",
        accepted.len()
    );
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    let mut there = vec![0; 4096];
    for &at in &accepted {
        file.read_exact_at(&mut there, at)?;
        let wrong = content::first_wrong(9, at, &there);
        ensure!(wrong.is_none(), "the block at {at} is lost: {wrong:?}");
    }
    drop(file);
    mount.unmount()?;
    image.fsck_clean()
}
