//! Long runs: pjdfstest and fsx in a guest, and machines that are killed again and again. Nothing
//! is done unless `EXTANT_GUEST=1` asks for it.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

use extant_testkit::tools::{FSX, PJDFSTEST, from_crates_io};
use extant_testkit::{Cmd, Image, Need, Result, Subject, TempDir, ensure, need, report};

use crate::machine::{NEEDS, Served, TURN, kill};

/// How pjdfstest is run: as the suite `posix` runs it.
const CONFIG: &str = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutime_now = {}\n\
    utimensat = {}\n[settings]\nnaptime = 0.01\nallow_remount = false\n\
    [dummy_auth]\nentries = [[\"games\", \"games\"], [\"daemon\", \"daemon\"]]\n";
/// Users of the guest, whose C library reads files alone.
const USERS: &str = "mkdir -p /etc
    printf 'root:x:0:0::/:/bin/sh\\ndaemon:x:1:1::/:/bin/sh\\n' >/etc/passwd
    echo 'games:x:60:60::/:/bin/sh' >>/etc/passwd
    printf 'root:x:0:\\ndaemon:x:1:\\ngames:x:60:\\n' >/etc/group
    printf 'passwd: files\\ngroup: files\\n' >/etc/nsswitch.conf
    mount -t tmpfs -o mode=1777 tmp /tmp
    mount -t virtiofs extant /mnt
    chmod 777 /mnt
    cd /tmp
    export NO_COLOR=1
    run() {
        tool=$1 && shift
        /files/ld-linux-x86-64.so.2 --library-path /files /files/$tool \"$@\"
    }
";

/// Returns whether long runs are asked for, and can be done.
fn is_asked() -> bool {
    if env::var_os("EXTANT_GUEST").is_none() {
        eprintln!("long runs in a guest are for the soak: EXTANT_GUEST=1 asks for them");
        return false;
    }
    need(NEEDS)
}

/// A folder for the guest with a program and its libraries.
fn files(program: &Path) -> Result<TempDir> {
    let dir = TempDir::new("vms-files")?;
    let linked = Cmd::new("ldd").arg(program).ok()?.out;
    let libraries = linked
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    let all = Cmd::new("cp").args(libraries).arg(program);
    all.arg(dir.path()).ok()?;
    Ok(dir)
}

/// The tests that pass, by what pjdfstest prints.
fn passed(printed: &str) -> BTreeSet<String> {
    let words = printed
        .lines()
        .map(|line| line.split_whitespace().collect());
    let names = words.filter_map(|words: Vec<&str>| match words[..] {
        [name, "ok"] => Some(name.to_owned()),
        _ => None,
    });
    names.collect()
}

/// A guest passes what the host's mount passes.
#[test]
fn soak_pjdfstest() -> Result<()> {
    if !is_asked() || !need(&[Need::Root, Need::Fuse]) {
        return Ok(());
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let tool = from_crates_io(PJDFSTEST)?;
    let image = Image::of_mib(512).make()?;
    let mount = Subject::Extant.mount(image.path(), "suid,dev,allow_other")?;
    fs::set_permissions(mount.dir(), Permissions::from_mode(0o777))?;
    let files = files(&tool)?;
    let config = files.join("pjdfstest.toml");
    fs::write(&config, CONFIG)?;
    let other = TempDir::new("vms-pjdfstest")?;
    let on_host = Cmd::new(&tool).arg("-c").arg(&config).arg("-p");
    let on_host = on_host.arg(mount.dir()).arg("-s").arg(other.path());
    let on_host = on_host.env("NO_COLOR", "1").limit(Duration::from_secs(300));
    let on_host = passed(&on_host.run()?.out);
    mount.unmount()?;
    let image = Image::of_mib(512).make()?;
    let served = Served::start("fs", image.path(), &[])?;
    let call = "run pjdfstest -c /files/pjdfstest.toml -p /mnt -s /tmp\ncd /\numount /mnt\n";
    let mut machine = served.begin_with(&format!("{USERS}{call}"), Some(files.path()))?;
    let printed = machine.wait(Duration::from_secs(600))?.out;
    served.ended()?;
    image.fsck_clean()?;
    let in_guest = passed(&printed);
    let worse: Vec<_> = on_host.difference(&in_guest).collect();
    let (here, there) = (on_host.len(), in_guest.len());
    report(&format!(
        "pjdfstest: {there} pass in a guest, {here} on a mount"
    ));
    ensure!(here > 350 && worse.is_empty(), "{worse:?}\n{printed}");
    Ok(())
}

#[test]
fn soak_fsx() -> Result<()> {
    if !is_asked() {
        return Ok(());
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let files = files(&from_crates_io(FSX)?)?;
    let image = Image::of_mib(128).make()?;
    let served = Served::start("fs", image.path(), &[])?;
    let call = "run fsx -N 20000 -S 7 /mnt/file && echo held\ncd /\numount /mnt\n";
    let mut machine = served.begin_with(&format!("{USERS}{call}"), Some(files.path()))?;
    let output = machine.wait(Duration::from_secs(600))?;
    ensure!(output.out.contains("held"), "{}", output.describe());
    served.ended()?;
    image.fsck_clean()
}

/// Machines and their back-ends are killed at other moments each time.
#[test]
fn soak_kills() -> Result<()> {
    if !is_asked() {
        return Ok(());
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for (kind, mount) in [
        ("blk", "mount -t ext4 /dev/vda /mnt"),
        ("fs", "mount -t virtiofs extant /mnt"),
    ] {
        let image = Image::of_mib(128).make()?;
        let storm = format!(
            "date -s 2026-01-01 >/dev/null
            {mount}
            i=0
            while true; do
                i=$((i + 1))
                dd if=/dev/zero of=/mnt/$((i % 300)) bs=64k count=$((i % 9)) 2>/dev/null
                [ $((i % 7)) -ne 0 ] || sync
                rm -f /mnt/$(((i * 7) % 300))
            done"
        );
        for round in 0..6 {
            let mut served = Served::start(kind, image.path(), &[])?;
            let mut machine = served.begin(&storm)?;
            served.wait_for_changes(3 + round)?;
            if round % 2 == 0 {
                served.kill()?;
                kill("KILL", &served.machine()?)?;
            } else {
                kill("KILL", &served.machine()?)?;
                served.ended()?;
            }
            machine.wait(Duration::from_secs(60))?;
            image.fsck_replay()?;
            image.fsck_clean()?;
        }
    }
    Ok(())
}
