//! A mount that grows while it is in use, by the command and by the ioctl of ext4: the files stay,
//! what is new can be used, and e2fsck and Linux agree.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::time::Duration;

use extant_testkit::limit::Watchdog;
use extant_testkit::{Cmd, Image, Need, Result, Subject, content, ensure, need, tools};
use rustix::fs::statvfs;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")];
const MIB: u64 = 1 << 20;

#[test]
fn a_full_mount_grows_and_goes_on() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let _limit = Watchdog::new(Duration::from_secs(120));
    let image = Image::of_mib(32).args("-b 1024 -J size=4").make()?;
    let mount = Subject::Extant.mount(image.path(), "")?;
    let dir = mount.dir();
    let kept = content::fill(1, 0, 3_000_000);
    fs::write(dir.join("kept"), &kept)?;
    let mut growing = File::create(dir.join("growing"))?;
    let piece = vec![3; 1 << 20];
    let full = loop {
        if let Err(error) = growing.write_all(&piece).and_then(|()| growing.sync_all()) {
            break error;
        }
    };
    ensure!(full.kind() == ErrorKind::StorageFull, "{full}");
    let resize = |to: &str| {
        Cmd::new(tools::extant()?)
            .arg("resize")
            .arg(dir)
            .arg(to)
            .run()
    };
    let before = statvfs(dir)?.f_blocks;
    let grown = resize("200M")?;
    ensure!(grown.code == Some(0), "it did not grow: {}", grown.err);
    let after = statvfs(dir)?.f_blocks;
    ensure!(
        after > before + 150 * 1024,
        "{before} blocks before, {after} after"
    );
    // The file that found no space goes on.
    for _ in 0..100 {
        growing.write_all(&piece)?;
    }
    growing.sync_all()?;
    let smaller = resize("100M")?;
    ensure!(smaller.code == Some(1), "a smaller size was taken");
    let reason = smaller.err;
    ensure!(
        reason.contains("smaller"),
        "the reason is missing: {reason}"
    );
    drop(growing);
    ensure!(fs::read(dir.join("kept"))? == kept, "another content");
    mount.unmount()?;
    ensure!(
        fs::metadata(image.path())?.len() == 200 * MIB,
        "the file's length"
    );
    image.fsck_clean()?;
    let linux = Subject::Ext4.mount(image.path(), "")?;
    ensure!(
        fs::read(linux.dir().join("kept"))? == kept,
        "Linux reads another content"
    );
    linux.unmount()?;
    image.fsck_clean()
}

#[test]
fn other_users_may_not() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("setpriv")]) {
        return Ok(());
    }
    let image = Image::of_mib(32).make()?;
    let mount = Subject::Extant.mount(image.path(), "allow_other")?;
    let size = statvfs(mount.dir())?.f_blocks;
    let asked = Cmd::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(tools::extant()?)
        .arg("resize")
        .arg(mount.dir())
        .arg("64M")
        .run()?;
    ensure!(asked.code == Some(1), "another user may grow it: {asked:?}");
    ensure!(statvfs(mount.dir())?.f_blocks == size, "it has grown");
    mount.unmount()?;
    image.fsck_clean()
}
