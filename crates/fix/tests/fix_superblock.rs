//! A first superblock that cannot be used: a copy takes its place.

#[path = "../../check/tests/check_kit/mod.rs"]
mod check_kit;
mod fix_kit;

use std::fs;
use std::sync::Arc;

use check_kit::{BASES, base};
use extant_blockdev::MemoryDevice;
use extant_check::{CheckOptions, check, find_superblock_copy, with_superblock_copy};
use extant_fix::{Error, FixOptions, fix_image};
use extant_testkit::{Image, Result, ensure, need};
use fix_kit::{NEEDS, run, use_mounted};

/// Where the first copy lies with blocks of 1 KiB.
const COPY: u64 = 8193 * 1024;

fn restore(image: &Image) -> extant_fix::Result<extant_fix::Report> {
    let options = FixOptions {
        superblock: Some(COPY),
        ..FixOptions::default()
    };
    fix_image(image.path(), &options)
}

/// Of a clean volume, and of one whose log has to be replayed first.
#[test]
fn a_lost_superblock_is_restored() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for at in [0, 1, 6] {
        let (name, _, args, dirty) = BASES[at];
        let image = base(20, args, dirty)?;
        ensure!(
            matches!(restore(&image), Err(Error::Usable)),
            "{name}: a good one was replaced"
        );
        image.patch(1024, 1024, |bytes| bytes.fill(0))?;
        let lost = fs::read(image.path())?;
        ensure!(run(&image, false).is_err(), "{name}: without a superblock");

        let device = Arc::new(MemoryDevice::from_bytes(&lost));
        ensure!(find_superblock_copy(&*device) == Some(COPY), "{name}");
        let by_copy = with_superblock_copy(device.clone(), COPY)?;
        let report = check(by_copy, &CheckOptions::default())?;
        ensure!(report.is_clean(), "{name}: {report:?}");
        ensure!(report.replayed == u64::from(dirty), "{name}: {report:?}");
        ensure!(device.to_bytes() == lost, "{name}: written");

        let report = restore(&image)?;
        ensure!(
            report.is_clean() && report.replayed == u64::from(dirty),
            "{name}: {report:?}"
        );
        let told = report.fixed.iter().any(|one| one.what.contains("restored"));
        ensure!(told, "{name}: {report:?}");
        image.fsck_clean()?;
        let after = fs::read(image.path())?;
        let again = run(&image, false)?;
        ensure!(!again.has_changed() && again.is_clean(), "{again:?}");
        fs::write(image.path(), use_mounted(&after)?)?;
        image.fsck_clean()?;
    }
    Ok(())
}

/// Damage elsewhere is told; the superblock is back for the next repair.
#[test]
fn damage_beside_a_lost_superblock_is_told() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, _, args, dirty) = BASES[0];
    let image = base(20, args, dirty)?;
    check_kit::damage(&image, "clri tiny")?;
    image.patch(1024, 1024, |bytes| bytes.fill(0xff))?;
    let report = restore(&image)?;
    ensure!(!report.is_clean(), "{report:?}");
    let again = run(&image, false)?;
    ensure!(
        !again.is_clean() && again.left_in_all == report.left_in_all,
        "{again:?}"
    );
    Ok(())
}
