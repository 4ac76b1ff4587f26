//! The daemon: SIGTERM closes the image, the mount helper serves `mount -t` and fstab, `umount`
//! waits, an installation works, statfs returns what Linux returns.

use extant_testkit::apart::apart;
use extant_testkit::{
    Cmd, Image, Need, Result, Subject, TempDir, ensure, mount, need, patience, tools,
};
use rustix::fs::statvfs;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")];

#[test]
fn sigterm_unmounts_cleanly() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(32).make()?;
    let mount = Subject::Extant.mount(image.path(), "")?;
    fs::write(mount.join("f"), vec![1; 300_000])?;
    let pid = mount
        .pid()
        .and_then(|p| i32::try_from(p).ok())
        .and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| extant_testkit::Error::new("no daemon"))?;
    kill_process(pid, Signal::TERM)?;
    // The mount is gone before the image is closed: the daemon's end shows it.
    let o = mount.ended(Duration::from_secs(30))?;
    ensure!(o.code == Some(0), "{}", o.describe());
    image.fsck_clean()?;
    ensure!(!image.needs_recovery()?, "the journal was left dirty");
    let linux = Subject::Ext4.mount(image.path(), "ro")?;
    ensure!(
        fs::read(linux.join("f"))? == vec![1; 300_000],
        "the file is not what was written"
    );
    Ok(())
}

#[test]
fn umount_returns_once_the_image_is_closed() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for round in 0..5u8 {
        let image = Image::of_mib(64).make()?;
        let mount = mount::in_background(image.path(), "")?;
        fs::write(mount.join("f"), vec![round; 20_000_000])?;
        mount.unmount()?;
        // No waiting here: e2fsck, and another opener, must find it finished.
        image.fsck_clean()?;
        let o = Cmd::new(tools::extant()?)
            .arg("ls")
            .arg(format!("{}:/", image.path().display()))
            .ok()?;
        ensure!(o.out.contains('f'), "{}", o.describe());
    }
    Ok(())
}

#[test]
fn statfs_says_what_linux_says() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for args in ["-b 4096", "-b 1024 -m 10", "-b 2048 -O ^has_journal"] {
        let image = Image::of_mib(64).args(args).make()?;
        let linux = Subject::Ext4.mount(image.path(), "")?;
        fs::write(linux.join("f"), vec![1; 3_000_000])?;
        fs::create_dir(linux.join("d"))?;
        fs::File::open(linux.dir())?.sync_all()?;
        let want = statvfs(linux.dir())?;
        linux.unmount()?;
        let here = Subject::under_test().mount(image.path(), "")?;
        let got = statvfs(here.dir())?;
        here.unmount()?;
        let of = |s: &rustix::fs::StatVfs| {
            (
                s.f_blocks * s.f_frsize,
                s.f_bfree * s.f_frsize,
                s.f_bavail * s.f_frsize,
                s.f_files,
                s.f_ffree,
                s.f_namemax,
            )
        };
        ensure!(
            of(&got) == of(&want),
            "{args}: here {:?}, Linux {:?}",
            of(&got),
            of(&want)
        );
    }
    Ok(())
}

/// An installation by `make install` is used from there by mount(8) and umount(8).
#[test]
fn an_installation_serves_mount_and_fstab() -> Result<()> {
    if !need(&[
        Need::Root,
        Need::Fuse,
        Need::Tool("mke2fs"),
        Need::Tool("unshare"),
    ]) {
        return Ok(());
    }
    let to = TempDir::new_in(&std::env::temp_dir(), "install")?;
    let (t, bin) = (to.path().display(), tools::extant()?);
    // The system's own helpers beside ours, to lie over /sbin in a mount namespace of its own.
    Cmd::new("cp")
        .args(["-a", "/sbin/.", &format!("{t}/sbin")])
        .ok()?;
    tools::make()
        .args([
            "-s",
            "install-files",
            &format!("PREFIX={t}/usr"),
            &format!("SBINDIR={t}/sbin"),
        ])
        .arg(format!("BINARY={}", bin.display()))
        .arg(format!("TARGET={t}/target"))
        .dir(tools::workspace())
        .ok()?;
    for file in [
        "usr/bin/extant",
        "sbin/mount.fuse.extant",
        "usr/share/man/man1/extant.1",
    ] {
        ensure!(to.join(file).is_file(), "{file} was not installed");
    }
    let image = Image::of_mib(32).make()?;
    let script = format!(
        r#"set -e
        mount --bind {t}/sbin /sbin
        mkdir {t}/mnt
        mount -t fuse.extant -o noatime {image} {t}/mnt
        echo through-mount > {t}/mnt/f
        head -c 24000000 /dev/zero | tr '\0' x > {t}/mnt/takes-a-while
        umount {t}/mnt
        {t}/usr/bin/extant ls {image}:/ >/dev/null
        e2fsck -fn {image} >/dev/null 2>&1
        echo '{image} {t}/mnt fuse.extant noauto,noatime 0 0' > {t}/fstab
        mount --fstab {t}/fstab {t}/mnt
        cat {t}/mnt/f
        umount {t}/mnt
        e2fsck -fn {image} >/dev/null 2>&1
        "#,
        image = image.path().display()
    );
    let o = apart(&[]).args(["sh", "-c", &script]).run()?;
    ensure!(
        o.code == Some(0) && o.out.trim() == "through-mount",
        "{}",
        o.describe()
    );
    Ok(())
}

/// Some of the counters of each layer.
const LISTED: &[&str] = &[
    "begin_calls",
    "map_calls",
    "stale_retries",
    "ioends",
    "merges",
    "reserved",
    "folio_order_0",
    "folio_order_9",
    "es_hits",
    "es_misses",
    "credit_overflow",
    "ordered_bytes",
    "fill_reads",
    "uncached_reads",
    "lock_waits",
    "throttle_waits",
    "page_cache_used_bytes",
    "page_cache_budget_bytes",
    "dirty_bytes",
    "evictions",
];

/// Counters that are zero after an fsync of the only file.
const IDLE: &[&str] = &[
    "reserved",
    "ordered_bytes",
    "dirty_bytes",
    "credit_overflow",
    "reservation_leaks",
];

/// The kind of requests and the shortest latency in microseconds that a counter is about.
fn bucket(name: &str) -> Option<(&str, u64)> {
    let (kind, from) = name.strip_prefix("latency_")?.rsplit_once('_')?;
    Some((kind, from.strip_suffix("us")?.parse().ok()?))
}

#[test]
fn counters_of_a_live_mount_move() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(64).make()?;
    let mount = Subject::Extant.mount(image.path(), "")?;
    let bin = tools::extant()?;
    let counters = || -> Result<serde_json::Value> {
        let o = Cmd::new(&bin)
            .args(["stats", "--json"])
            .arg(mount.dir())
            .ok()?;
        Ok(serde_json::from_str(&o.out)?)
    };
    let before = counters()?;
    let f = fs::File::create(mount.join("f"))?;
    std::os::unix::fs::FileExt::write_all_at(&f, &vec![1; 3_000_000], 0)?;
    f.sync_all()?;
    drop(f);
    let after = counters()?;
    let grew = |name: &str| -> Result<u64> {
        let value = |all: &serde_json::Value| all[name].as_u64();
        match (value(&before).or(Some(0)), value(&after)) {
            (Some(b), Some(a)) => Ok(a.saturating_sub(b)),
            _ => Err(extant_testkit::Error::new(format!("no {name} in {after}"))),
        }
    };
    for name in [
        "handles",
        "commits",
        "inode_dirty_calls",
        "requests_write",
        "requests_fsync",
    ] {
        ensure!(grew(name)? > 0, "{name} has not moved: {after}");
    }
    ensure!(grew("wb_bytes")? >= 3_000_000, "{after}");
    for name in LISTED {
        grew(name)?;
    }
    for name in IDLE {
        ensure!(after[name] == 0, "{name}: {after}");
    }
    // Each request that was served has its place in the histogram of its kind.
    let all = after.as_object().into_iter().flatten();
    let (mut served, mut timed) = (BTreeMap::new(), BTreeMap::new());
    for (name, value) in all {
        let count = value.as_u64().unwrap_or(0);
        if let Some(kind) = name.strip_prefix("requests_") {
            served.insert(kind, count);
        } else if let Some((kind, from)) = bucket(name) {
            ensure!(from == 0 || from.is_power_of_two(), "{name}");
            *timed.entry(kind).or_insert(0) += count;
        }
    }
    ensure!(served == timed && served.contains_key("write"), "{after}");
    let text = Cmd::new(&bin).arg("stats").arg(mount.dir()).ok()?.out;
    ensure!(text.lines().any(|l| l.starts_with("handles ")), "{text}");
    mount.unmount()?;
    Ok(())
}

#[test]
fn counters_of_a_live_mount_are_its_owners_alone() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("setpriv")]) {
        return Ok(());
    }
    let image = Image::of_mib(64).make()?;
    let mount = Subject::Extant.mount(image.path(), "allow_other")?;
    let bin = tools::extant()?;
    let other = Cmd::new("setpriv")
        .args(["--reuid=12345", "--regid=12345", "--clear-groups"])
        .arg(&bin)
        .arg("stats")
        .arg(mount.dir())
        .run()?;
    ensure!(
        other.code != Some(0) && other.err.contains("Permission denied"),
        "{}",
        other.describe()
    );
    let listed = Cmd::new("getfattr")
        .args(["-m", "-"])
        .arg(mount.dir())
        .run()?;
    ensure!(!listed.out.contains("extant"), "{}", listed.describe());
    mount.unmount()?;
    let dir = TempDir::new("plain")?;
    let o = Cmd::new(&bin).arg("stats").arg(dir.path()).run()?;
    ensure!(
        o.code == Some(1) && o.err.contains("not a mount of Extant"),
        "{}",
        o.describe()
    );
    Ok(())
}

/// The words that mount(8) passes on as flags, and a remount.
#[test]
fn mount_by_its_helper_has_the_flags_that_were_asked_for() -> Result<()> {
    if !need(&[
        Need::Root,
        Need::Fuse,
        Need::Tool("mke2fs"),
        Need::Tool("findmnt"),
    ]) {
        return Ok(());
    }
    let dir = TempDir::new_in(&std::env::temp_dir(), "mnt-flags")?;
    let helper = dir.join("mount.fuse.extant");
    tools::copy_program(tools::extant()?, &helper)?;
    let image = Image::of_mib(32).make()?;
    let at = dir.join("mnt");
    fs::create_dir(&at)?;
    let mount = |words: &str| {
        let cmd = Cmd::new(&helper).args([image.path(), at.as_path()]);
        cmd.args(["-o", words]).run()
    };
    let shown = |column: &str| -> Result<String> {
        let cmd = Cmd::new("findmnt").args(["-n", "-o", column]);
        Ok(cmd.arg(&at).ok()?.out.trim().to_owned())
    };
    let has = |word: &str| -> Result<bool> {
        Ok(shown("VFS-OPTIONS")?.split(',').any(|shown| shown == word))
    };
    ensure!(mount("rw")?.code == Some(0), "not mounted");
    ensure!(
        !has("nosuid")? && !has("nodev")?,
        "{}",
        shown("VFS-OPTIONS")?
    );
    ensure!(
        shown("SOURCE")? == image.path().to_string_lossy(),
        "{}",
        shown("SOURCE")?
    );
    ensure!(shown("FSTYPE")? == "fuse.extant", "{}", shown("FSTYPE")?);
    fs::write(at.join("f"), "x")?;
    // Flags that are not named stay.
    let o = mount("remount,ro,nosuid")?;
    ensure!(o.code == Some(0) && o.err.is_empty(), "{}", o.describe());
    ensure!(has("ro")? && has("nosuid")? && !has("nodev")?, "flags");
    ensure!(fs::write(at.join("g"), "x").is_err(), "it was written");
    let o = mount("remount,rw,commit=7")?;
    ensure!(
        o.code == Some(0) && o.err.contains("commit=7"),
        "{}",
        o.describe()
    );
    ensure!(has("rw")? && has("nosuid")?, "flags");
    // mount(8) hands back what the table of mounts has.
    let present = shown("OPTIONS")?;
    ensure!(present.contains("user_id=0"), "{present}");
    let o = mount(&format!("{present},remount"))?;
    ensure!(o.code == Some(0) && o.err.is_empty(), "{}", o.describe());
    let o = mount("remount,user_id=7")?;
    ensure!(o.err.contains("user_id=7"), "{}", o.describe());
    fs::write(at.join("g"), "x")?;
    Cmd::new(tools::extant()?).arg("umount").arg(&at).ok()?;
    // What is open for reading alone stays so.
    ensure!(mount("ro,nosuid,nodev")?.code == Some(0), "not mounted");
    ensure!(has("nosuid")? && has("nodev")?, "{}", shown("VFS-OPTIONS")?);
    let o = mount("remount,rw")?;
    let told = o.err.contains("umount it, and mount it with rw");
    ensure!(o.code == Some(1) && told, "{}", o.describe());
    Cmd::new(tools::extant()?).arg("umount").arg(&at).ok()?;
    image.fsck_clean()
}

#[test]
fn a_write_protected_device_is_mounted_read_only_with_a_warning() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(32).make()?;
    let protected = Cmd::new("losetup").args(["-f", "--show", "-r"]);
    let device = protected.arg(image.path()).ok()?.out.trim().to_owned();
    let mount = Subject::Extant.mount(std::path::Path::new(&device), "");
    let outcome = mount.and_then(|mount| {
        ensure!(fs::write(mount.join("f"), "x").is_err(), "it was written");
        let said = mount.unmount()?;
        ensure!(
            said.contains("write-protected, mounted read-only"),
            "{said}"
        );
        Ok(())
    });
    Cmd::new("losetup").args(["-d", &device]).ok()?;
    outcome
}

/// The units that are shipped, with the paths of this machine.
#[test]
fn the_units_of_systemd_are_sound() -> Result<()> {
    if !need(&[Need::Tool("systemd-analyze")]) {
        return Ok(());
    }
    let dir = TempDir::new("units")?;
    let extant = tools::extant()?;
    for (unit, name) in [
        ("extant@.service", "extant@disk.service"),
        ("mnt-disk.mount", "mnt-disk.mount"),
    ] {
        let text = fs::read_to_string(tools::workspace().join("scripts/systemd").join(unit))?;
        let text = text.replace("/usr/bin/extant", &extant.to_string_lossy());
        fs::write(dir.join(unit), &text)?;
        let verify = || {
            let cmd = Cmd::new("systemd-analyze").args(["verify", "--man=no"]);
            cmd.arg(dir.join(name)).run()
        };
        let o = verify()?;
        ensure!(o.code == Some(0) && o.err.is_empty(), "{}", o.describe());
        // It finds what is wrong.
        let wrong = text
            .replace("Type=", "Tipe=")
            .replace("Where=/mnt", "Where=mnt");
        fs::write(dir.join(unit), wrong)?;
        let o = verify()?;
        ensure!(!o.err.is_empty(), "{}", o.describe());
    }
    Ok(())
}

/// A service whose daemon has ended by a signal has not failed, and starts on what a kill has left.
#[test]
fn the_service_needs_no_command_to_stop_and_starts_on_a_dead_mount() -> Result<()> {
    let unit = tools::workspace().join("scripts/systemd/extant@.service");
    let text = fs::read_to_string(unit)?;
    for line in text.lines().filter(|line| line.starts_with("Exec")) {
        let optional = line.contains("=-");
        let serves = line.starts_with("ExecStart=/usr/bin/extant mount -f ");
        ensure!(serves || optional, "it may fail: {line}");
    }
    Ok(())
}

/// `Type=notify`: a daemon in the foreground says when its mount answers.
#[test]
fn a_service_manager_is_told_when_the_mount_answers() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(32).make()?;
    let dir = TempDir::new_in(&std::env::temp_dir(), "mnt-notify")?;
    let at = dir.join("mnt");
    fs::create_dir(&at)?;
    let path = dir.join("socket");
    let socket = std::os::unix::net::UnixDatagram::bind(&path)?;
    socket.set_read_timeout(Some(patience(Duration::from_secs(30))))?;
    let cmd = Cmd::new(tools::extant()?).args(["mount", "-f"]);
    let cmd = cmd.args([image.path(), at.as_path()]);
    let mut daemon = cmd.env("NOTIFY_SOCKET", &path).spawn()?;
    let mut word = [0; 64];
    let len = socket.recv(&mut word)?;
    ensure!(word.get(..len) == Some(b"READY=1".as_slice()), "{word:?}");
    fs::write(at.join("f"), "x")?;
    Cmd::new(tools::extant()?).arg("umount").arg(&at).ok()?;
    let o = daemon.wait(Duration::from_secs(30))?;
    ensure!(o.code == Some(0), "{}", o.describe());
    image.fsck_clean()
}
