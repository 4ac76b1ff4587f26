//! Volumes whose journal is on another device, which the mount is given: logs of Linux replayed
//! here, logs written here replayed by Linux, and devices that do not belong to the volume.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_engine::{Cred, Error, Volume, VolumeOptions};
use extant_testkit::mount::Subject;
use extant_testkit::tree::{Compare, Tree};
use extant_testkit::{
    Cmd, Context, Error as TestError, Image, LoopDevice, Mount, Need, Result, ensure, need,
};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Loop,
    Need::Tool("mke2fs"),
    Need::Tool("e2fsck"),
];

fn told(error: impl std::fmt::Display) -> TestError {
    TestError::new(error.to_string())
}

/// A volume and its journal.
struct Pair {
    volume: Image,
    journal: Image,
}

impl Pair {
    fn make(block: u32, args: &str) -> Result<Self> {
        let dev = format!("-b {block} -O journal_dev");
        let journal = Image::of_mib(16).args(&dev).make()?;
        let device = LoopDevice::over(journal.path(), 512)?;
        let args = format!("-b {block} {args} -J device={}", device.path().display());
        let volume = Image::of_mib(64).args(&args).make()?;
        drop(device);
        Ok(Self { volume, journal })
    }

    fn copy(&self) -> Result<Self> {
        let (volume, journal) = (self.volume.copy()?, self.journal.copy()?);
        Ok(Self { volume, journal })
    }

    /// Linux's mount, and the device of the journal.
    fn linux(&self, options: &str) -> Result<(Mount, LoopDevice)> {
        let device = LoopDevice::over(self.journal.path(), 512)?;
        let options = format!("journal_path={},{options}", device.path().display());
        let mount = Subject::Ext4.mount(self.volume.path(), options.trim_end_matches(','))?;
        Ok((mount, device))
    }

    fn tree(&self) -> Result<Tree> {
        let (mount, device) = self.linux("")?;
        let tree = Tree::take(mount.dir())?;
        mount.unmount()?;
        drop(device);
        Ok(tree)
    }

    fn open(&self, write: bool) -> std::result::Result<Volume, Error> {
        let path = self.journal.path().display();
        VolumeOptions::new()
            .write(write)
            .mount_options(&format!("journal_path={path}"))
            .open(self.volume.path())
    }

    fn fsck(&self) -> Result<()> {
        let checked = Cmd::new("e2fsck")
            .args(["-f", "-n", "-j"])
            .arg(self.journal.path())
            .arg(self.volume.path())
            .run()?;
        ensure!(checked.code == Some(0), "{}", checked.describe());
        Ok(())
    }
}

/// Changes of Linux that its log holds.
fn busy(root: &Path) -> Result<()> {
    let dir = root.join("dir");
    std::fs::create_dir(&dir)?;
    for number in 0..200 {
        std::fs::write(dir.join(format!("{number:0>60}")), vec![7; number * 20])?;
    }
    Cmd::new("sync").arg("-f").arg(root).ok()?;
    for number in 0..50 {
        std::fs::remove_file(dir.join(format!("{number:0>60}")))?;
    }
    Cmd::new("sync").arg("-f").arg(root).ok()?;
    Ok(())
}

const CASES: [(u32, &str); 3] = [(4096, ""), (1024, ""), (1024, "-O ^metadata_csum")];

#[test]
fn logs_of_linux_are_replayed() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (block, args) in CASES {
        let pair = Pair::make(block, args)?;
        let (mount, device) = pair.linux("commit=300")?;
        busy(mount.dir())?;
        // What the loop device holds is in its file by then.
        Cmd::new("sync").arg(device.path()).ok()?;
        let copy = pair.copy()?;
        let live = Tree::take(mount.dir())?;
        mount.unmount()?;
        drop(device);
        let what = || format!("blocks of {block}, {args}");
        let before = (copy.volume.fingerprint()?, copy.journal.fingerprint()?);
        let looked = copy.open(false).map_err(told).context(what)?;
        let root = looked.root().map_err(told)?;
        looked.lookup(&root, b"dir").map_err(told)?;
        drop((root, looked));
        let after = (copy.volume.fingerprint()?, copy.journal.fingerprint()?);
        ensure!(before == after, "{}: a look has written", what());
        copy.open(true)
            .and_then(|volume| volume.unmount())
            .map_err(told)
            .context(what)?;
        copy.fsck().context(what)?;
        copy.tree()?
            .expect_equal(&live, Compare::default())
            .context(what)?;
    }
    Ok(())
}

#[test]
fn logs_written_here_are_replayed_by_linux_and_here() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (block, args) in CASES {
        let pair = Pair::make(block, args)?;
        let volume = pair.open(true).map_err(told)?;
        let (root, cred) = (volume.root().map_err(told)?, Cred::root());
        for number in 0..300 {
            let name = format!("file{number:0>50}");
            let node = volume
                .create(&root, name.as_bytes(), 0o644, &cred)
                .map_err(told)?;
            volume.write(&node, 0, &[9; 2000], &cred).map_err(told)?;
        }
        volume.sync().map_err(told)?;
        volume.shutdown(false).map_err(told)?;
        drop(root);
        drop(volume);
        let ours = pair.copy()?;
        ours.open(true)
            .and_then(|volume| volume.unmount())
            .map_err(told)?;
        ours.fsck()?;
        let theirs = pair.tree()?;
        pair.fsck()?;
        ensure!(made(&theirs) >= 300, "Linux sees {}", made(&theirs));
        ours.tree()?.expect_equal(&theirs, Compare::default())?;
    }
    Ok(())
}

/// Files that were made here.
fn made(tree: &Tree) -> usize {
    let paths = tree.iter().map(|(path, _)| path.to_string_lossy());
    paths.filter(|path| path.starts_with("file")).count()
}

/// The device is named by its number, as Linux encodes it.
#[test]
fn a_journal_is_found_by_the_number_of_its_device() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let pair = Pair::make(4096, "")?;
    let device = LoopDevice::over(pair.journal.path(), 512)?;
    let number = std::fs::metadata(device.path())?.rdev();
    let open = |number: u64| {
        VolumeOptions::new()
            .write(true)
            .mount_options(&format!("journal_dev={number}"))
            .open(pair.volume.path())
    };
    let volume = open(number).map_err(told)?;
    let root = volume.root().map_err(told)?;
    let made = volume.mkdir(&root, b"dir", 0o755, &Cred::root());
    made.map_err(told)?;
    drop(root);
    volume.unmount().map_err(told)?;
    // The numbers of a device that there is not, and of one that is no journal.
    for (wrong, why) in [
        (0xF_F7FF, "no block device 4087:255"),
        (0x103, "no block device 1:3"),
    ] {
        let said = open(wrong).map(drop).map_err(|error| error.to_string());
        let said = said.err().unwrap_or_default();
        ensure!(said.contains(why), "{wrong}: {said}");
    }
    drop(device);
    pair.fsck()?;
    Ok(())
}

#[test]
fn devices_that_do_not_belong_are_refused() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (one, other) = (Pair::make(4096, "")?, Pair::make(4096, "")?);
    let other_size = Pair::make(1024, "")?;
    let before = one.volume.fingerprint()?;
    let open = |journal: &Path| {
        let options = format!("journal_path={}", journal.display());
        let mut how = VolumeOptions::new();
        how.write(true).mount_options(&options);
        how.open(one.volume.path())
            .map(drop)
            .unwrap_err()
            .to_string()
    };
    for (journal, why) in [
        (other.journal.path(), "another volume"),
        (other_size.journal.path(), "another volume"),
        (other.volume.path(), "no journal"),
        (&PathBuf::from("/dev/null"), "neither a regular file"),
        (&PathBuf::from("/nowhere"), "No such file"),
    ] {
        let said = open(journal);
        ensure!(said.contains(why), "{}: {said}", journal.display());
    }
    let none = VolumeOptions::new().write(true).open(one.volume.path());
    let said = none.map(drop).unwrap_err().to_string();
    ensure!(said.contains("journal_path"), "{said}");
    ensure!(
        one.volume.fingerprint()? == before,
        "the volume was written"
    );
    // A journal that is cut short, one whose log is over its superblocks, and one that is damaged.
    let bytes = std::fs::read(one.journal.path())?;
    let device =
        |bytes: &[u8]| -> Arc<dyn BlockDevice> { Arc::new(MemoryDevice::from_bytes(bytes)) };
    let volume = std::fs::read(one.volume.path())?;
    for cut in [500, 2048, 4096, 5000, bytes.len() / 2] {
        let mut how = VolumeOptions::new();
        how.write(true).journal_device(device(&bytes[..cut]));
        ensure!(
            how.open_on(device(&volume)).is_err(),
            "{cut} bytes of the journal"
        );
    }
    let mut over = bytes.clone();
    over[4096 + 20..4096 + 24].copy_from_slice(&1_u32.to_be_bytes());
    let mut how = VolumeOptions::new();
    how.write(true).journal_device(device(&over));
    let said = how.open_on(device(&volume)).map(drop);
    let said = said.err().map(|error| error.to_string());
    ensure!(
        said.as_ref()
            .is_some_and(|said| said.contains("of a superblock")),
        "{said:?}"
    );
    for at in (4096..4096 + 256).step_by(4) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x41;
        let mut how = VolumeOptions::new();
        how.write(true).journal_device(device(&damaged));
        // Fields that are only hints change nothing. None makes a panic.
        if let Ok(volume) = how.open_on(device(&volume)) {
            volume.unmount().map_err(told)?;
        }
    }
    Ok(())
}
