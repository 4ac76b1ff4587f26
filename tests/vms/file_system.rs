//! A volume as a file system: the guest's virtiofs is served by the engine.

use std::sync::PoisonError;
use std::time::Duration;

use extant_testkit::{Cmd, Image, Result, ensure, need, tools};

use crate::machine::{NEEDS, Served, TURN, kill};

fn extant(args: &[&str]) -> Result<String> {
    Ok(Cmd::new(tools::extant()?).args(args).ok()?.out)
}

#[test]
fn a_guest_uses_a_file_system() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let image = Image::of_mib(128).make()?;
    let served = Served::start("fs", image.path(), &["--keep"])?;
    let printed = served.boot(
        "set -e
        mount -t virtiofs extant /mnt
        cd /mnt
        dd if=/dev/urandom of=a bs=1M count=20 conv=fsync 2>/dev/null
        mkdir d
        for i in $(seq 200); do echo $i >d/$i; done
        mv d/5 d/moved
        rm d/6
        ln -s target d/link
        ln d/7 d/seven
        chmod 600 d/7
        cp a b && cmp a b && rm b
        truncate -s 5000 d/8
        echo more >>d/9
        md5sum <a >/tmp/sum
        cd /
        umount /mnt
        mount -t virtiofs extant /mnt
        md5sum </mnt/a | cmp - /tmp/sum
        echo held >/mnt/open
        exec 3</mnt/open
        rm /mnt/open
        cat <&3
        exec 3<&-
        ls /mnt/d | wc -l
        stat -c %a-%h-%s /mnt/d/seven /mnt/d/8
        readlink /mnt/d/link
        cat /mnt/d/9",
    )?;
    let expected = "held\n201\n600-2-2\n644-1-5000\ntarget\n9\nmore\n";
    ensure!(printed == expected, "{printed}");
    // The machine has ended with the volume mounted. The next one finds the same.
    let again = served.boot("mount -t virtiofs extant /mnt && cat /mnt/d/moved")?;
    ensure!(again == "5\n", "{again}");
    served.terminate()?;
    image.fsck_clean()?;
    ensure!(!image.needs_recovery()?, "the journal is not empty");
    let at = |path: &str| format!("{}:{path}", image.path().display());
    ensure!(extant(&["cat", &at("/d/moved")])? == "5\n", "moved");
    ensure!(extant(&["cat", &at("/d/seven")])? == "7\n", "seven");
    ensure!(extant(&["ls", &at("/d")])?.lines().count() == 201, "d");
    Ok(())
}

/// The process unmounts the volume of a guest that is gone.
#[test]
fn a_guest_that_is_killed_leaves_a_volume_that_is_closed() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let image = Image::of_mib(128).make()?;
    let served = Served::start("fs", image.path(), &[])?;
    let mut machine = served.begin(
        "mount -t virtiofs extant /mnt
        i=0
        while true; do
            i=$((i + 1))
            dd if=/dev/zero of=/mnt/$((i % 300)) bs=64k count=$((i % 9)) conv=fsync 2>/dev/null
            mv /mnt/$((i % 300)) /mnt/moved$((i % 200))
        done",
    )?;
    served.wait_for_writes(16)?;
    kill("KILL", &served.machine()?)?;
    machine.wait(Duration::from_secs(60))?;
    served.ended()?;
    image.fsck_clean()?;
    ensure!(!image.needs_recovery()?, "the journal is not empty");
    Ok(())
}

/// A full volume refuses in time, and gives space back.
#[test]
fn a_guest_fills_a_file_system() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let image = Image::of_mib(24).make()?;
    let served = Served::start("fs", image.path(), &[])?;
    let printed = served.boot(
        "mount -t virtiofs extant /mnt
        dd if=/dev/zero of=/mnt/big bs=1M 2>&1 | grep -c 'No space left'
        rm /mnt/big && dd if=/dev/zero of=/mnt/again bs=1M count=8 conv=fsync 2>/dev/null
        stat -c %s /mnt/again
        umount /mnt",
    )?;
    ensure!(printed == "1\n8388608\n", "{printed}");
    served.ended()?;
    image.fsck_clean()
}
