//! Devices that fail, and logs that hold more than the damage: what a repair reports, and what it
//! leaves.

#[path = "../../check/tests/check_kit/mod.rs"]
mod check_kit;
mod fix_kit;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use check_kit::{BASES, base, damage};
use extant_blockdev::MemoryDevice;
use extant_engine::{Cred, VolumeOptions};
use extant_fix::{FixOptions, fix};
use extant_testkit::{
    Fault, FaultyDevice, Image, Recorder, Request, RequestKind, Result, ensure, need,
};
use fix_kit::NEEDS;

/// Damage whose repair changes inodes, bitmaps, descriptors and the superblock.
const DAMAGE: &str = "sif file links_count 7\nsetb 3500 10\nssv free_blocks_count 5";

/// No write that fails is passed over, with a log and without; and the next repair ends what it has
/// left.
#[test]
fn a_write_that_fails_is_reported() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for at in [0, 2] {
        let (name, mib, args, dirty) = BASES[at];
        let image = base(mib, args, dirty)?;
        damage(&image, DAMAGE)?;
        let bytes = std::fs::read(image.path())?;
        for first in 0.. {
            let count = AtomicU64::new(0);
            let plan = move |request: Request<'_>| match request.kind {
                RequestKind::Write if count.fetch_add(1, Ordering::Relaxed) == first => {
                    Fault::Fail(std::io::ErrorKind::Other)
                }
                _ => Fault::Pass,
            };
            let dev = Arc::new(FaultyDevice::new(MemoryDevice::from_bytes(&bytes), plan));
            let outcome = fix(Arc::clone(&dev) as _, &FixOptions::default());
            let left = Arc::new(MemoryDevice::from_bytes(&dev.inner().to_bytes()));
            if let Ok(report) = outcome {
                // There were not so many.
                ensure!(
                    first > 3 && report.is_clean(),
                    "{name}, {first}: {report:?}"
                );
                ensure!(
                    extant_check::check(left, &FixOptions::default().check)?.is_clean(),
                    "{name}, {first}: something is left"
                );
                break;
            }
            let again = fix(left, &FixOptions::default())?;
            ensure!(again.is_clean(), "{name}, {first}: {again:?}");
        }
    }
    Ok(())
}

/// A log that waits is replayed on the device before the repair, which has the same log to itself.
#[test]
fn a_log_that_waits_is_replayed_before_the_repair() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(20).args("-b 1024 -N 400").make()?;
    // In the last group, of which the log has nothing.
    image.debugfs_write("setb 18000 10")?;
    let volume = VolumeOptions::new().write(true).open(image.path())?;
    let root = volume.root()?;
    for name in [b"one", b"two"] {
        volume.mkdir(&root, name, 0o755, &Cred::root())?;
    }
    volume.sync()?;
    // As a power cut leaves it.
    let bytes = std::fs::read(image.path())?;
    drop(root);
    volume.unmount()?;
    let dev = Arc::new(Recorder::new(MemoryDevice::from_bytes(&bytes)));
    let report = fix(Arc::clone(&dev) as _, &FixOptions::default())?;
    ensure!(report.is_clean() && report.replayed > 0, "{report:?}");
    ensure!(!report.fixed.is_empty(), "no bitmap was wrong: {report:?}");
    let fixed = Image::of_bytes(&dev.inner().to_bytes())?;
    fixed.fsck_clean()?;
    ensure!(!fixed.needs_recovery()?, "the log waits");
    let names = fixed.debugfs("ls -p /")?;
    ensure!(
        names.contains("/one/") && names.contains("/two/"),
        "{names}"
    );
    Ok(())
}
