//! Volumes that are in use elsewhere or were left in the middle: they are not written to, commands
//! that look write nothing at all, and a read-only mount leaves what Linux's leaves.

use extant_testkit::{Cmd, Image, LoopDevice, Need, Result, Subject, TempDir};
use extant_testkit::{content, ensure, mount, need, tools};
use std::fs::{self, File};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Loop,
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
];

fn extant(args: &[&str]) -> Result<extant_testkit::cmd::Output> {
    Cmd::new(tools::extant()?).args(args).run()
}

/// The commands that only look, at a volume that has the file `/f0`; the host's directory takes
/// what they put out.
fn looks(image: &Image, host: &TempDir) -> Vec<Vec<String>> {
    let image = image.path().display().to_string();
    let (root, file) = (format!("{image}:/"), format!("{image}:/f0"));
    let out = |name: &str| host.join(name).display().to_string();
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    vec![
        words(&["ls", &root]),
        words(&["tree", &root]),
        words(&["stat", &file]),
        words(&["cat", &file]),
        words(&["map", &file]),
        words(&["cp", &file, &out("copy")]),
        words(&["tar", &root, "-f", &out("archive")]),
        words(&["check", &image]),
        words(&["info", &image]),
    ]
}

/// An image that Linux was writing when its power went: a log to replay, files, and orphans.
fn crashed(args: &str) -> Result<Image> {
    let image = Image::of_mib(64).args(args).make()?;
    let linux = Subject::Ext4.mount(image.path(), "commit=300")?;
    fs::write(linux.join("f0"), content::fill(7, 0, 100_000))?;
    File::open(linux.join("f0"))?.sync_all()?;
    let mut open = Vec::new();
    for i in 0..3u64 {
        let path = linux.join(format!("orphan{i}"));
        fs::write(&path, content::fill(i, 0, 3_000_000))?;
        let file = File::open(&path)?;
        file.sync_all()?;
        fs::remove_file(&path)?;
        open.push(file);
    }
    File::open(linux.dir())?.sync_all()?;
    let copy = image.copy()?;
    ensure!(copy.needs_recovery()?, "the log is empty");
    Ok(copy)
}

#[test]
fn what_linux_has_mounted_is_looked_at_and_never_written() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (image, host) = (Image::of_mib(64).make()?, TempDir::new("looked")?);
    let linux = Subject::Ext4.mount(image.path(), "noinit_itable,commit=300")?;
    for i in 0..200u64 {
        fs::write(linux.join(format!("f{i}")), content::fill(i, 0, 3000))?;
        File::open(linux.join(format!("f{i}")))?.sync_all()?;
    }
    Cmd::new("sync").arg("-f").arg(linux.dir()).ok()?;
    let before = image.fingerprint()?;
    let path = image.path().display().to_string();
    for args in [
        vec!["mkdir".to_owned(), format!("{path}:/new")],
        vec!["rm".to_owned(), format!("{path}:/f1")],
        vec![
            "mount".to_owned(),
            path.clone(),
            host.path().display().to_string(),
        ],
        vec![
            "mount".to_owned(),
            "-r".to_owned(),
            path.clone(),
            host.path().display().to_string(),
        ],
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let o = extant(&args)?;
        ensure!(
            o.code == Some(1)
                && o.err
                    .contains("in use by Linux, through the loop device /dev/loop"),
            "{}",
            o.describe()
        );
    }
    for args in looks(&image, &host) {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let o = extant(&args)?;
        let reported = o.err.matches("in use by Linux").count();
        ensure!(o.code == Some(0) && reported == 1, "{}", o.describe());
    }
    ensure!(image.fingerprint()? == before, "the image was written to");
    ensure!(
        fs::read(host.join("copy"))? == content::fill(0, 0, 3000),
        "the copy"
    );
    linux.unmount()?;
    image.fsck_clean()?;
    let linux = Subject::Ext4.mount(image.path(), "ro")?;
    for i in 0..200u64 {
        ensure!(
            fs::read(linux.join(format!("f{i}")))? == content::fill(i, 0, 3000),
            "file {i} is not what was synced"
        );
    }
    Ok(())
}

#[test]
fn looking_at_a_volume_that_was_not_unmounted_writes_nothing() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for args in ["-b 4096", "-b 1024 -O ^orphan_file"] {
        let (image, host) = (crashed(args)?, TempDir::new("looked")?);
        let before = image.fingerprint()?;
        for args in looks(&image, &host) {
            let words: Vec<&str> = args.iter().map(String::as_str).collect();
            let o = extant(&words)?;
            ensure!(o.code == Some(0), "{}", o.describe());
            let reported = o.err.lines().filter(|l| l.contains("replayed in memory"));
            // `info` reads no further than the superblock, `check` says it in its report.
            let expected = usize::from(!["info", "check"].contains(&words[0]));
            ensure!(reported.count() == expected, "{}", o.describe());
            ensure!(
                image.fingerprint()? == before,
                "written to: {}",
                o.describe()
            );
        }
        ensure!(
            fs::read(host.join("copy"))? == content::fill(7, 0, 100_000),
            "copy"
        );
    }
    Ok(())
}

/// A read-only mount leaves the same, of Linux and of this.
#[test]
fn a_read_only_mount_replays_and_finishes_orphans_as_linux_does() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for args in ["-b 4096 -O orphan_file", "-b 1024 -O ^orphan_file"] {
        let image = crashed(args)?;
        let theirs = image.copy()?;
        // Of the testkit's mounts with `ro` the loop device is read-only as well.
        let (device, dir) = (
            LoopDevice::over(theirs.path(), 512)?,
            TempDir::new("linux")?,
        );
        let mount = Cmd::new("mount").args(["-t", "ext4", "-o", "ro"]);
        mount.arg(device.path()).arg(dir.path()).ok()?;
        Cmd::new("umount").arg(dir.path()).ok()?;
        drop(device);
        let mount = Subject::Extant.mount(image.path(), "ro")?;
        ensure!(
            fs::read(mount.join("f0"))? == content::fill(7, 0, 100_000),
            "{args}: the file"
        );
        ensure!(
            fs::write(mount.join("new"), "x").is_err(),
            "{args}: written to"
        );
        // Another one may read it, too.
        let second = Subject::Extant.mount(image.path(), "ro")?;
        second.unmount()?;
        mount.unmount()?;
        for label in [
            "Free blocks",
            "Free inodes",
            "Mount count",
            "Filesystem state",
        ] {
            let (ours, linux) = (image.header(label)?, theirs.header(label)?);
            ensure!(ours == linux, "{args}: {label}: {ours}, Linux {linux}");
        }
        image.fsck_clean()?;
    }
    Ok(())
}

/// On a device that cannot be written orphans stay, and a log that is not empty is an error, as in
/// Linux.
#[test]
fn a_read_only_device_is_left_alone() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = crashed("-b 4096 -O orphan_file")?;
    let before = image.fingerprint()?;
    let device = LoopDevice::read_only(image.path())?;
    let refused = Subject::Extant.mount(device.path(), "ro");
    let refused = refused.map(drop).map_err(|error| error.to_string());
    ensure!(
        refused
            .as_ref()
            .is_err_and(|said| said.contains("journal needs to be replayed")),
        "{refused:?}"
    );
    // The image behind it may still be read.
    Subject::Extant
        .mount(image.path(), "ro,noload")?
        .unmount()?;
    Subject::Extant
        .mount(device.path(), "ro,noload")?
        .unmount()?;
    let listed = extant(&["ls", &format!("{}:/", device.path().display())])?;
    ensure!(listed.out.contains("f0"), "{}", listed.describe());
    drop(device);
    ensure!(image.fingerprint()? == before, "the image was written to");
    Ok(())
}

/// A mount keeps other writers and readers away; what a process holds that may only read the image
/// keeps nothing away.
#[test]
fn strangers_cannot_keep_a_mount_away_and_a_mount_keeps_others() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("setpriv"), Need::Tool("flock")]) {
        return Ok(());
    }
    let image = Image::of_mib(32).make()?;
    let path = image.path().display().to_string();
    // A process of another user, with the locks that it can get.
    Cmd::new("chmod")
        .args(["a+rx"])
        .arg(image.path().parent().unwrap_or(image.path()))
        .ok()?;
    Cmd::new("chmod").args(["0644", &path]).ok()?;
    let mut stranger = Cmd::new("setpriv")
        .args(["--reuid=12345", "--regid=12345", "--clear-groups"])
        .args([
            "flock",
            "-F",
            "-x",
            &path,
            "sh",
            "-c",
            "echo locked; exec sleep 60",
        ])
        .spawn()?;
    while !stranger.texts()?.0.contains("locked") {
        if let Some(ended) = stranger.poll()? {
            return Err(extant_testkit::Error::new(ended.describe()));
        }
        std::thread::yield_now();
    }
    let mount = mount::in_background(image.path(), "")?;
    fs::write(mount.join("f"), "mine")?;
    for args in [
        ["mkdir", &format!("{path}:/new")],
        ["ls", &format!("{path}:/")],
        ["check", &path],
    ] {
        let o = extant(&args)?;
        ensure!(
            o.code != Some(0) && o.err.contains("in use by another process"),
            "{}",
            o.describe()
        );
    }
    mount.unmount()?;
    stranger.kill()?;
    image.fsck_clean()
}

/// With few addresses (`ulimit -v`) a mount works to its end, or says why it does not begin.
#[test]
fn a_mount_with_few_addresses_works_or_says_why_not() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (bin, dir) = (tools::extant()?, TempDir::new("mount")?);
    for (kib, works) in [
        (100_000, false),
        (300_000, false),
        (520_000, false),
        (540_000, true),
        (600_000, true),
        (1_000_000, true),
    ] {
        let image = Image::of_mib(64).make()?;
        let (path, at) = (image.path().display(), dir.path().display());
        let script = format!("ulimit -v {kib}; exec {} mount {path} {at}", bin.display());
        let o = Cmd::new("sh").args(["-c", &script]).run()?;
        if works {
            ensure!(o.code == Some(0), "{kib}: {}", o.describe());
            let written = std::thread::scope(|s| {
                let write = |number: u64| {
                    let path = dir.join(format!("f{number}"));
                    fs::write(&path, content::fill(number, 0, 5_000_000))?;
                    File::open(path)?.sync_all()
                };
                let all: Vec<_> = (0..4).map(|n| s.spawn(move || write(n))).collect();
                all.into_iter().all(|t| matches!(t.join(), Ok(Ok(()))))
            });
            let o = extant(&["umount", &at.to_string()])?;
            ensure!(written && o.code == Some(0), "{kib}: {}", o.describe());
        } else {
            let said = o.err.contains("address space is limited to");
            ensure!(o.code == Some(1) && said, "{kib}: {}", o.describe());
        }
        image.fsck_clean()?;
        ensure!(!image.needs_recovery()?, "{kib}: the journal is dirty");
    }
    Ok(())
}

/// Descriptors and superblocks with faults that Linux ignores when it only reads: the
/// volume can be read.
#[test]
fn damage_that_linux_reads_past_is_read_past() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let seal = "set_bg 1 checksum calc";
    for (requests, writable) in [
        (vec!["set_bg 1 checksum 0x1234"], false),
        (vec!["set_bg 0 checksum 0x1234"], false),
        (vec!["set_bg 1 free_blocks_count 65000", seal], false),
        (vec!["set_bg 1 free_inodes_count 65000", seal], false),
        (vec!["set_bg 1 used_dirs_count 65000", seal], false),
        (vec!["set_bg 1 itable_unused 65000", seal], false),
        (vec!["set_super_value free_blocks_count 99999999"], true),
        (vec!["set_super_value free_inodes_count 99999999"], true),
    ] {
        let (image, host) = (
            Image::of_mib(32).args("-b 1024").make()?,
            TempDir::new("host")?,
        );
        fs::write(host.join("in"), content::fill(9, 0, 5000))?;
        image.debugfs_write(&format!("write {} f0", host.join("in").display()))?;
        // In one run: it does not open what the first of them leaves.
        fs::write(host.join("requests"), requests.join("\n"))?;
        let edit = Cmd::new("debugfs").args(["-w", "-f"]);
        edit.arg(host.join("requests")).arg(image.path()).ok()?;
        let linux = Subject::Ext4.mount(image.path(), "ro")?;
        ensure!(
            fs::read(linux.join("f0"))? == content::fill(9, 0, 5000),
            "{requests:?}"
        );
        linux.unmount()?;
        let mount = Subject::Extant.mount(image.path(), "ro")?;
        ensure!(
            fs::read(mount.join("f0"))? == content::fill(9, 0, 5000),
            "{requests:?}"
        );
        mount.unmount()?;
        let path = image.path().display();
        for look in [vec!["cat", "f0"], vec!["ls", ""]] {
            let o = extant(&[look[0], &format!("{path}:/{}", look[1])])?;
            let warned = o.err.matches("corrupt descriptor of group").count();
            let expected = usize::from(!writable);
            ensure!(o.code == Some(0) && warned == expected, "{}", o.describe());
        }
        ensure!(
            extant(&["info", "--groups", &path.to_string()])?.code == Some(0),
            "info"
        );
        let o = extant(&["mkdir", &format!("{path}:/new")])?;
        ensure!(
            (o.code == Some(0)) == writable,
            "{requests:?}: {}",
            o.describe()
        );
    }
    Ok(())
}
