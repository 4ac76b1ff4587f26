//! Images that Linux left with fast commits in their log, by every way into a volume: each sees
//! them as they are once the log is replayed, and those that only read write nothing.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::Arc;

use extant::resize::{ResizeOptions, Target, resize};
use extant::{CheckOptions, Filesystem, FixOptions, check, check_image, fix, fix_image};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_testkit::mount::Subject;
use extant_testkit::{Cmd, Image, Need, Result, ensure, need};

const NEEDS: &[Need] = &[Need::Root, Need::Loop, Need::Tool("mke2fs")];

/// An image in which "gone" has been removed and "new" and more of "grown" come by fast commits.
fn image() -> Result<Image> {
    let args = "-b 1024 -O fast_commit -J size=4,fast_commit_size=256";
    let image = Image::of_mib(32).args(args).make()?;
    let mount = Subject::Ext4.mount(image.path(), "commit=300")?;
    let path = |name: &str| mount.join(name);
    std::fs::write(path("gone"), [1; 3000])?;
    std::fs::write(path("grown"), [2; 3000])?;
    Cmd::new("sync").arg("-f").arg(mount.dir()).ok()?;
    std::fs::write(path("new"), b"new")?;
    File::open(path("new"))?.sync_all()?;
    std::fs::remove_file(path("gone"))?;
    let mut grown = OpenOptions::new().append(true).open(path("grown"))?;
    grown.write_all(&[3; 9000])?;
    grown.sync_all()?;
    drop(grown);
    let copy = image.copy()?;
    mount.unmount()?;
    Ok(copy)
}

fn expect_replayed(fs: &Filesystem) -> Result<()> {
    ensure!(!fs.exists("/gone")?, "a removed file is back");
    ensure!(fs.read("/new")? == b"new", "a new file");
    let grown = [vec![2; 3000], vec![3; 9000]].concat();
    ensure!(fs.read("/grown")? == grown, "a file that grew");
    Ok(())
}

fn memory(image: &Image) -> Result<Arc<MemoryDevice>> {
    let bytes = std::fs::read(image.path())?;
    Ok(Arc::new(MemoryDevice::from_bytes(&bytes)))
}

#[test]
fn looks_and_checks_see_them_and_write_nothing() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = image()?;
    let before = image.fingerprint()?;
    let looked = Filesystem::open(image.path())?;
    expect_replayed(&looked)?;
    drop(looked);
    let checked = check_image(image.path(), &CheckOptions::default())?;
    // Two fast commits and a transaction, at least.
    ensure!(checked.is_clean() && checked.replayed > 2, "{checked:?}");
    let dry = FixOptions {
        dry_run: true,
        ..FixOptions::default()
    };
    let report = fix_image(image.path(), &dry)?;
    ensure!(report.is_clean() && report.replayed > 2, "{report:?}");
    ensure!(image.fingerprint()? == before, "the image was written");
    Ok(())
}

#[test]
fn a_repair_and_a_resize_replay_them_first() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = image()?;
    let fixed = memory(&image)?;
    let report = fix(Arc::clone(&fixed) as _, &FixOptions::default())?;
    ensure!(report.is_clean(), "{report:?}");
    let shrunk = memory(&image)?;
    let target = Target::Bytes(24 << 20);
    resize(Arc::clone(&shrunk) as _, target, &ResizeOptions::default())
        .map_err(|error| extant_testkit::Error::new(error.to_string()))?;
    for dev in [fixed, shrunk] {
        let dev: Arc<dyn BlockDevice> = dev;
        let checked = check(Arc::clone(&dev), &CheckOptions::default())?;
        ensure!(checked.is_clean() && checked.replayed == 0, "{checked:?}");
        expect_replayed(&Filesystem::options().open_device(dev)?)?;
    }
    Ok(())
}
