//! An image as a disk: Linux's ext4 in the guest writes the volume.

use std::sync::PoisonError;
use std::time::Duration;

use extant_testkit::{Cmd, Image, Result, TempDir, ensure, need, tools};

use crate::machine::{NEEDS, Served, TURN, kill};

#[test]
fn linux_in_a_guest_writes_a_disk() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let image = Image::of_mib(128).make()?;
    let disk = Served::start("blk", image.path(), &[])?;
    // The image is in use.
    for command in [
        &["mkdir", &format!("{}:/x", image.path().display())][..],
        &[
            "vhost",
            "--blk",
            "/tmp/none",
            &image.path().display().to_string(),
        ],
    ] {
        let refused = Cmd::new(tools::extant()?).args(command).run()?;
        let told = refused.code == Some(1) && refused.err.contains("in use");
        ensure!(told, "{}", refused.describe());
    }
    let printed = disk.boot(
        "set -e
        cat /sys/block/vda/queue/write_cache /sys/block/vda/ro
        mount -t ext4 -o discard /dev/vda /mnt
        dd if=/dev/urandom of=/mnt/a bs=1M count=20 2>/dev/null
        md5sum </mnt/a >/tmp/sum
        mkdir /mnt/d
        for i in $(seq 200); do echo $i >/mnt/d/$i; done
        cp /mnt/a /mnt/b && sync && rm /mnt/b
        dd if=/mnt/a of=/mnt/c bs=64k oflag=direct 2>/dev/null
        cmp /mnt/a /mnt/c
        umount /mnt
        mount -t ext4 /dev/vda /mnt
        md5sum </mnt/a | tee /tmp/again
        cmp /tmp/sum /tmp/again
        umount /mnt",
    )?;
    disk.ended()?;
    image.fsck_clean()?;
    let head = printed.starts_with("write back\n0\n");
    let at = |path: &str| format!("{}:{path}", image.path().display());
    let copied = TempDir::new("vms-disk")?;
    let a = copied.join("a");
    let cp = Cmd::new(tools::extant()?).args(["cp", &at("/a")]).arg(&a);
    cp.ok()?;
    let sum = Cmd::new("md5sum").stdin(std::fs::read(&a)?).ok()?.out;
    ensure!(head && printed.contains(sum.trim()), "{printed} {sum}");
    let listed = Cmd::new(tools::extant()?).args(["ls", &at("/d")]).ok()?.out;
    ensure!(listed.lines().count() == 200, "{listed}");
    Ok(())
}

/// Writes files without an end, each made durable. The guest's clock may run fast, which e2fsck
/// would tell of.
const STORM: &str = "set -e
    date -s 2026-01-01 >/dev/null
    mount -t ext4 /dev/vda /mnt
    i=0
    while true; do
        i=$((i + 1))
        dd if=/dev/zero of=/mnt/$((i % 300)) bs=64k count=$((i % 9)) conv=fsync 2>/dev/null
        mv /mnt/$((i % 300)) /mnt/moved$((i % 200))
    done";

#[test]
fn a_guest_that_is_killed_leaves_a_volume_that_replays() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let image = Image::of_mib(128).make()?;
    let disk = Served::start("blk", image.path(), &[])?;
    let mut machine = disk.begin(STORM)?;
    disk.wait_for_writes(16)?;
    kill("KILL", &disk.machine()?)?;
    machine.wait(Duration::from_secs(60))?;
    disk.ended()?;
    ensure!(image.needs_recovery()?, "it was not in use");
    image.fsck_replay()?;
    image.fsck_clean()
}

/// The guest notices a pause of its disk, and nothing else.
#[test]
fn a_back_end_that_is_killed_is_started_again() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let image = Image::of_mib(128).make()?;
    let mut disk = Served::start("blk", image.path(), &[])?;
    let mut machine = disk.begin(
        "set -e
        mount -t ext4 /dev/vda /mnt
        for i in $(seq 80); do
            dd if=/dev/urandom of=/mnt/$i bs=256k count=1 conv=fsync 2>/dev/null
            (cd /mnt && md5sum $i >>/tmp/sums)
        done
        cp /tmp/sums /mnt
        umount /mnt
        mount -t ext4 -o ro /dev/vda /mnt
        cd /mnt
        md5sum -c sums | grep -c OK
        cd /
        umount /mnt
        dmesg | grep -i 'I/O error' || true",
    )?;
    for _ in 0..2 {
        disk.wait_for_writes(6)?;
        disk.die_and_come_back()?;
    }
    let output = machine.wait(Duration::from_secs(120))?;
    // qemu tells of the lost connection in between.
    let held = output.out.lines().any(|line| line == "80");
    let hurt = output.out.contains("I/O error");
    ensure!(held && !hurt, "{}", output.describe());
    disk.ended()?;
    image.fsck_clean()
}

/// A version in a store is a disk that is only read, or written through a layer.
#[test]
fn a_guest_reads_a_version_of_a_store() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let tree = TempDir::new("vms-tree")?;
    std::fs::write(tree.join("hello"), "from a store\n")?;
    let image = Image::of_mib(32)
        .args("-d")
        .args(&tree.path().display().to_string())
        .make()?;
    let store = TempDir::new("vms-store")?;
    let address = format!("file://{}/disk", store.path().display());
    let push = Cmd::new(tools::extant()?).args(["push", "-q"]);
    push.arg(image.path()).arg(&address).ok()?;
    let disk = Served::start("blk", address.as_ref(), &[])?;
    let printed = disk.boot(
        "cat /sys/block/vda/ro
        mount -t ext4 -o ro /dev/vda /mnt && cat /mnt/hello
        echo x 2>/dev/null >/dev/vda || echo refused
        umount /mnt",
    )?;
    ensure!(printed == "1\nfrom a store\nrefused\n", "{printed}");
    disk.ended()?;

    // With a layer it is written, and pushed.
    let layer = store.join("changes").display().to_string();
    let options = ["-o", &format!("layer={layer}")];
    let disk = Served::start("blk", address.as_ref(), &options)?;
    let printed = disk.boot(
        "cat /sys/block/vda/ro
        mount -t ext4 /dev/vda /mnt && echo written >/mnt/new && umount /mnt",
    )?;
    ensure!(printed == "0\n", "{printed}");
    disk.ended()?;
    let push = Cmd::new(tools::extant()?).args(["push", "-q", &layer, &address]);
    push.ok()?;
    let cat = Cmd::new(tools::extant()?).args(["cat", &format!("{address}@2:/new")]);
    let new = cat.ok()?.out;
    ensure!(new == "written\n", "{new}");
    Ok(())
}
