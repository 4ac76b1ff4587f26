//! Images that are in use elsewhere: which second openers are refused, which are not, and what a
//! process that may only read the file can do about it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use extant_blockdev::{BlockDevice, FileDevice, LoopUse, OpenError, OpenMode};
use extant_testkit::{Cmd, LoopDevice, Mount, Need, TempDir, need, patience};
use extant_units::DevOff;

fn image(dir: &TempDir) -> PathBuf {
    let path = dir.join("image");
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    path
}

/// By what it is in use; an error if it is not.
fn user(path: &Path, mode: OpenMode) -> String {
    match FileDevice::open(path, mode) {
        Err(OpenError::InUse(_, by)) => by,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened"),
    }
}

/// Opens it, where a process that another test is just starting may share this one's files for a
/// moment.
fn open(path: &Path, mode: OpenMode) -> FileDevice {
    let end = Instant::now() + patience(Duration::from_secs(60));
    loop {
        match FileDevice::open(path, mode) {
            Err(OpenError::InUse(..)) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => return opened.unwrap(),
        }
    }
}

/// A process's lock on the whole file, as fcntl(2) gives it to any process that may read.
fn lock_shared(file: &File) {
    // SAFETY: all fields are integers; the descriptor is open.
    let done = unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = i16::try_from(libc::F_RDLCK).unwrap();
        libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock)
    };
    assert_eq!(done, 0);
}

/// The user in the error of an image that the caller itself has open.
const HERE: &str = "this process, which has it open already";

#[test]
fn one_writer_or_readers_that_could_write() {
    let dir = TempDir::new("claims").unwrap();
    let path = image(&dir);
    let writer = open(&path, OpenMode::ReadWrite);
    for mode in [OpenMode::ReadWrite, OpenMode::ReadOnly] {
        assert_eq!(user(&path, mode), HERE);
    }
    drop(writer);
    let one = open(&path, OpenMode::ReadOnly);
    let two = open(&path, OpenMode::ReadOnly);
    assert_eq!(user(&path, OpenMode::ReadWrite), HERE);
    drop(one);
    assert_eq!(user(&path, OpenMode::ReadWrite), HERE);
    drop(two);
    drop(open(&path, OpenMode::ReadWrite));
}

/// All that a process can hold that may only read the file.
#[test]
fn a_stranger_that_can_only_read_keeps_no_writer_away() {
    let dir = TempDir::new("strangers").unwrap();
    let path = image(&dir);
    let (one, two) = (File::open(&path).unwrap(), File::open(&path).unwrap());
    one.try_lock().unwrap();
    lock_shared(&two);
    let reader = open(&path, OpenMode::ReadOnly);
    drop(reader);
    let writer = open(&path, OpenMode::ReadWrite);
    writer.write_at(DevOff::ZERO, b"mine").unwrap();
    // Nor does the stranger hide that writer, and its end hides it from no later one.
    let second = user(&path, OpenMode::ReadWrite);
    assert!(second.contains("open for writing"), "{second}");
    drop((one, two));
    let second = user(&path, OpenMode::ReadWrite);
    assert!(second.contains("open for writing"), "{second}");
    drop(writer);
    drop(open(&path, OpenMode::ReadWrite));
}

#[test]
fn a_program_that_locks_nothing_is_seen_by_what_it_has_open() {
    let dir = TempDir::new("open").unwrap();
    let path = image(&dir);
    let program = File::options().write(true).open(&path).unwrap();
    let by = user(&path, OpenMode::ReadWrite);
    assert!(by.contains("open for writing"), "{by}");
    drop(open(&path, OpenMode::ReadOnly));
    drop(program);
    drop(open(&path, OpenMode::ReadWrite));
}

#[test]
fn a_loop_device_is_named_however_its_file_is_called_now() {
    if !need(&[Need::Loop]) {
        return;
    }
    let dir = TempDir::new("loops").unwrap();
    let path = image(&dir);
    let device = LoopDevice::over(&path, 512).unwrap();
    let link = dir.join("link");
    std::fs::hard_link(&path, &link).unwrap();
    let renamed = dir.join("renamed");
    for path in [&path, &link, &renamed] {
        if path == &renamed {
            // What sysfs says leads nowhere now.
            std::fs::remove_file(&link).unwrap();
            std::fs::rename(dir.join("image"), &renamed).unwrap();
        }
        let by = user(path, OpenMode::ReadWrite);
        assert!(by.ends_with(device.path().to_str().unwrap()), "{by}");
        let reader = open(path, OpenMode::ReadOnly);
        let device = device.path().to_owned();
        let wanted = LoopUse {
            device,
            read_only: false,
        };
        assert_eq!(reader.loops(), [wanted]);
    }
    // The device itself is another matter, unless it has a sister.
    drop(open(device.path(), OpenMode::ReadWrite));
    let sister = LoopDevice::read_only(&renamed).unwrap();
    let by = user(device.path(), OpenMode::ReadWrite);
    assert!(by.ends_with(sister.path().to_str().unwrap()), "{by}");
    let reader = open(&renamed, OpenMode::ReadOnly);
    let seen = reader.loops();
    let read_only = |one: &LoopUse| one.device == sister.path() && one.read_only;
    assert!(seen.len() == 2 && seen.iter().any(read_only), "{seen:?}");
    drop((device, sister, reader));
    drop(open(&renamed, OpenMode::ReadWrite));
}

/// The device as a program opens it that wants it for itself.
fn exclusively(device: &LoopDevice) -> File {
    let mut options = File::options();
    let options = options.read(true).custom_flags(libc::O_EXCL);
    let end = Instant::now() + patience(Duration::from_secs(60));
    loop {
        match options.open(device.path()) {
            // A program that looks at new devices, or one that looks for a free one.
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                assert!(Instant::now() < end, "{error}");
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => return opened.unwrap(),
        }
    }
}

/// Opens `path` while `user` uses it, which goes a moment later. On a busy machine that may be too
/// late: one of several rounds has to succeed.
fn opens_behind<T: Send>(path: &Path, mode: OpenMode, user: impl Fn() -> T) -> bool {
    (0..5).any(|_| {
        let user = user();
        let opened = std::thread::scope(|scope| {
            let opener = scope.spawn(|| FileDevice::open(path, mode));
            std::thread::sleep(Duration::from_millis(100));
            drop(user);
            opener.join().unwrap()
        });
        opened.is_ok()
    })
}

#[test]
fn a_program_that_holds_a_device_for_a_moment_is_waited_for() {
    if !need(&[Need::Loop]) {
        return;
    }
    let dir = TempDir::new("moment").unwrap();
    let device = LoopDevice::over(&image(&dir), 512).unwrap();
    for mode in [OpenMode::ReadWrite, OpenMode::ReadOnly] {
        assert!(opens_behind(device.path(), mode, || exclusively(&device)));
    }
}

#[test]
fn the_user_of_a_busy_device_is_named() {
    if !need(&[Need::Loop, Need::Tool("mke2fs")]) {
        return;
    }
    let dir = TempDir::new("busy").unwrap();
    let path = image(&dir);
    Cmd::new("mke2fs")
        .args(["-q", "-F"])
        .arg(&path)
        .ok()
        .unwrap();
    let device = LoopDevice::over(&path, 512).unwrap();
    let program = exclusively(&device);
    let by = user(device.path(), OpenMode::ReadWrite);
    assert!(by.ends_with(") has it open"), "{by}");
    drop(program);

    let linux = Mount::by_linux_on("ext4", device.path(), "").unwrap();
    let by = user(device.path(), OpenMode::ReadOnly);
    let wanted = format!("Linux, which has it mounted on {}", linux.dir().display());
    assert_eq!(by, wanted);
    linux.unmount().unwrap();
    drop(open(device.path(), OpenMode::ReadWrite));
}

/// `losetup -d` of a device that is open returns at once; the device goes with its last user.
#[test]
fn a_loop_device_that_is_about_to_go_is_waited_for() {
    if !need(&[Need::Loop]) {
        return;
    }
    let dir = TempDir::new("going").unwrap();
    let path = image(&dir);
    let going = || {
        let device = LoopDevice::over(&path, 512).unwrap();
        File::open(device.path()).unwrap()
    };
    assert!(opens_behind(&path, OpenMode::ReadWrite, going));
}
