//! Attributes that stat(2) and ioctl(2) show of a mount's files, where the kernel has them by
//! itself: the blocks of an open file, times of access, times that the format does not hold, the
//! label.

use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use extant_testkit::{Cmd, Image, Mount, Need, Result, Subject, ensure, need, wait_until};

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Tool("mke2fs")];

#[test]
fn the_blocks_of_an_open_file_show_after_an_fsync() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    // So much space that the kernel keeps the attributes of open files.
    let image = Image::of_mib(24 << 10).args("-b 4096 -N 4096").make()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    let mut file = File::create(mount.join("f"))?;
    for round in 1..=3_u64 {
        file.write_all(&[1; 100_000])?;
        file.sync_all()?;
        let (by_handle, by_name) = (file.metadata()?, fs::metadata(mount.join("f"))?);
        for shown in [by_handle.blocks(), by_name.blocks()] {
            ensure!(shown * 512 >= round * 100_000, "round {round}: {shown}");
        }
    }
    drop(file);
    mount.unmount()?;
    image.fsck_clean()
}

fn mtime(path: &Path) -> Result<i64> {
    Ok(fs::metadata(path)?.mtime())
}

/// The largest time of an inode with room for 34 bits of seconds.
const LAST: i64 = 15_032_385_535;

#[test]
fn a_time_beyond_the_format_is_shown_as_it_is_kept() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(64).make()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    let (file, dir) = (mount.join("f"), mount.join("d"));
    fs::write(&file, "x")?;
    fs::create_dir(&dir)?;
    let late = SystemTime::UNIX_EPOCH + Duration::from_secs(20_000_000_000);
    for path in [&file, &dir] {
        let times = FileTimes::new().set_modified(late);
        File::open(path)?.set_times(times)?;
        wait_until("the time is clamped", || {
            mtime(path).is_ok_and(|t| t == LAST)
        });
    }
    mount.unmount()?;
    image.fsck_clean()?;
    let mount = Subject::under_test().mount(image.path(), "ro")?;
    ensure!(mtime(&mount.join("f"))? == LAST, "not stored");
    mount.unmount()?;
    Ok(())
}

/// Reads are seen where every one counts, so that an open alone is none.
#[test]
fn with_strictatime_reads_count_and_opens_do_not() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(64).make()?;
    let mount = Subject::under_test().mount(image.path(), "strictatime")?;
    let file = written(&mount, "file")?;
    drop(File::open(&file)?);
    ensure!(!is_read(&file)?, "an open counts as a read");
    let mut last = (0, 0);
    for round in 0..3 {
        ensure!(fs::read(&file)? == b"text", "round {round}");
        let shown = fs::metadata(&file)?;
        let now = (shown.atime(), shown.atime_nsec());
        ensure!(is_read(&file)? && now > last, "round {round}: {now:?}");
        last = now;
        std::thread::sleep(Duration::from_millis(20));
    }
    mount.unmount()?;
    image.fsck_clean()
}

/// Returns whether the file shows a time of access after its last change.
fn is_read(path: &Path) -> Result<bool> {
    let shown = fs::metadata(path)?;
    let (access, change) = (
        (shown.atime(), shown.atime_nsec()),
        (shown.mtime(), shown.mtime_nsec()),
    );
    Ok(access > change)
}

/// Writes a file, whose pages the kernel then has.
fn written(mount: &Mount, name: &str) -> Result<std::path::PathBuf> {
    let path = mount.join(name);
    fs::write(&path, "text")?;
    ensure!(!is_read(&path)?, "{name} is new");
    // Longer than a tick of the kernel's clock, by which files get their times.
    std::thread::sleep(Duration::from_millis(20));
    Ok(path)
}

#[test]
fn a_read_that_the_kernels_pages_serve_counts_as_one() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(64).make()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    let read = written(&mount, "read")?;
    ensure!(fs::read(&read)? == b"text", "read");
    ensure!(is_read(&read)?, "a read does not show");
    let unread = written(&mount, "unread")?;
    drop(OpenOptions::new().write(true).open(&unread)?);
    ensure!(!is_read(&unread)?, "an open for writing counts as a read");
    mount.unmount()?;

    let mount = Subject::under_test().mount(image.path(), "noatime")?;
    let read = written(&mount, "noatime")?;
    ensure!(fs::read(&read)? == b"text", "noatime");
    ensure!(!is_read(&read)?, "noatime: a read shows");
    mount.unmount()?;
    image.fsck_clean()
}

#[test]
fn a_member_of_a_files_group_sets_its_set_group_id_bit() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("setpriv")]) {
        return Ok(());
    }
    let image = Image::of_mib(64).make()?;
    let mount = Subject::Extant.mount(image.path(), "allow_other")?;
    for (group, kept) in [(2000, true), (3000, false)] {
        let path = mount.join(format!("of{group}"));
        fs::write(&path, "x")?;
        std::os::unix::fs::chown(&path, Some(1000), Some(group))?;
        let user = ["--reuid=1000", "--regid=1000", "--groups=2000"];
        let cmd = Cmd::new("setpriv").args(user).args(["chmod", "2755"]);
        cmd.arg(&path).ok()?;
        let mode = fs::metadata(&path)?.mode() & 0o7777;
        let expected = if kept { 0o2755 } else { 0o755 };
        ensure!(mode == expected, "group {group}: {mode:o}");
    }
    mount.unmount()?;
    image.fsck_clean()
}

/// The kernel, which keeps attributes, hears that the set-id bits went with a write. It is the
/// first caller that looks: a look of its own would not ask the file system again.
#[test]
fn a_write_takes_the_set_id_bits_and_the_kernel_shows_it() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("setpriv")]) {
        return Ok(());
    }
    let image = Image::of_mib(64).make()?;
    let mount = Subject::Extant.mount(image.path(), "allow_other")?;
    let copy = mount.join("source");
    fs::write(&copy, [1; 8192])?;
    for (name, how) in [
        (
            "cached",
            "dd if=/dev/zero of=$0 bs=512 count=1 conv=notrunc",
        ),
        (
            "direct",
            "dd if=/dev/zero of=$0 bs=4096 count=1 conv=notrunc oflag=direct",
        ),
        (
            "copied",
            "exec python3 -c \"import os, sys; to = os.open('$0', os.O_WRONLY); \
                    os.copy_file_range(os.open('$1', os.O_RDONLY), to, 4096)\"",
        ),
    ] {
        let path = mount.join(name);
        fs::write(&path, [1; 8192])?;
        std::os::unix::fs::chown(&path, Some(1000), Some(1000))?;
        fs::set_permissions(&path, Permissions::from_mode(0o6777))?;
        let mode = || Ok::<u32, std::io::Error>(fs::metadata(&path)?.mode() & 0o7777);
        ensure!(mode()? == 0o6777, "{name}: {:o} at first", mode()?);
        // What is not dirty any more is not written back beside the write.
        File::open(&path)?.sync_all()?;
        let user = ["--reuid=2000", "--regid=2000", "--clear-groups"];
        let cmd = Cmd::new("setpriv").args(user).args(["sh", "-c", how]);
        cmd.arg(&path).arg(&copy).ok()?;
        ensure!(mode()? == 0o777, "{name}: {:o}", mode()?);
    }
    mount.unmount()?;
    image.fsck_clean()
}

/// Makes files of mode 2755 in a set-group-id directory of group 2000, by users of these groups;
/// returns the modes.
fn made_by_users(subject: Subject, options: &str) -> Result<Vec<String>> {
    const MAKE: &str = "umask 0; sysopen(F, $ARGV[0], O_CREAT | O_WRONLY, 02755) or die $!";
    let image = Image::of_mib(64).make()?;
    let mount = subject.mount(image.path(), options)?;
    let dir = mount.join("d");
    fs::create_dir(&dir)?;
    std::os::unix::fs::chown(&dir, None, Some(2000))?;
    fs::set_permissions(&dir, Permissions::from_mode(0o2777))?;
    let made = ["1000", "2000", "3000"].map(|groups| {
        let path = dir.join(format!("by{groups}"));
        let groups = format!("--groups={groups}");
        let cmd = Cmd::new("setpriv").args(["--reuid=1000", "--regid=1000", &groups]);
        cmd.args(["perl", "-MFcntl", "-e", MAKE]).arg(&path).ok()?;
        let made = fs::metadata(&path)?;
        ensure!(made.gid() == 2000, "{groups}: {}", made.gid());
        Ok(format!("{:o}", made.mode() & 0o7777))
    });
    mount.unmount()?;
    image.fsck_clean()?;
    made.into_iter().collect()
}

#[test]
fn a_member_of_a_directorys_group_makes_set_group_id_files() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("setpriv"), Need::Tool("perl"), Need::Loop]) {
        return Ok(());
    }
    let expected = ["755", "2755", "755"];
    let linux = made_by_users(Subject::Ext4, "")?;
    ensure!(linux == expected, "Linux: {linux:?}");
    let here = made_by_users(Subject::Extant, "allow_other")?;
    ensure!(here == expected, "{here:?}");
    Ok(())
}

/// Gets the label by FS_IOC_GETFSLABEL, or sets it by FS_IOC_SETFSLABEL; prints it, or the error.
const LABEL: &str = r"
import fcntl, os, sys
path, label = sys.argv[1], sys.argv[2:]
fd = os.open(path, os.O_RDONLY)
try:
    if label:
        fcntl.ioctl(fd, 0x41009432, os.fsencode(label[0]).ljust(256, b'\0'))
    told = fcntl.ioctl(fd, 0x81009431, bytes(256))
    print(told.rstrip(b'\0').decode())
except OSError as error:
    print('error', error.errno)
";

fn label(mount: &Mount, new: &[&str]) -> Result<String> {
    let cmd = Cmd::new("python3").args(["-c", LABEL]);
    let out = cmd.arg(mount.dir()).args(new).ok()?.out;
    Ok(out.trim().to_owned())
}

#[test]
fn the_label_is_read_and_changed_by_ioctls() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("python3"), Need::Tool("e2label")]) {
        return Ok(());
    }
    let image = Image::of_mib(64).args("-L before").make()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    ensure!(label(&mount, &[])? == "before", "{}", label(&mount, &[])?);
    let longest = "sixteen letters!";
    let changed = label(&mount, &[longest])?;
    ensure!(changed == longest, "{changed}");
    // On the device as well, where other programs read it.
    let stored = Cmd::new("e2label").arg(image.path()).ok()?.out;
    ensure!(stored.trim() == longest, "while mounted: {stored}");
    let refused = label(&mount, &["seventeen letters"])?;
    ensure!(refused == "error 22", "{refused}");
    mount.unmount()?;
    image.fsck_clean()?;
    let stored = Cmd::new("e2label").arg(image.path()).ok()?.out;
    ensure!(stored.trim() == longest, "{stored}");
    let mount = Subject::under_test().mount(image.path(), "ro")?;
    let refused = label(&mount, &["other"])?;
    ensure!(refused == "error 30", "{refused}");
    mount.unmount()?;
    Ok(())
}
