//! A first superblock that cannot be used: a copy takes its place.

#[path = "../../check/tests/check_kit/mod.rs"]
mod check_kit;
mod fix_kit;

use std::fs;
use std::sync::Arc;

use check_kit::{BASES, base};
use extant_blockdev::MemoryDevice;
use extant_check::{CheckOptions, check, find_superblock_copy, with_superblock_copy};
use extant_disk::damage::SuperblockDamage;
use extant_fix::{Error, FixOptions, fix_image};
use extant_testkit::{Image, Result, ensure, need};
use fix_kit::{NEEDS, run, use_mounted};

/// Offset of the first copy with blocks of 1 KiB.
const COPY: u64 = 8193 * 1024;

/// Offset of the first copy of the last of [`BASES`], whose groups have 256 blocks.
const SPREAD_COPY: u64 = 257 * 1024;

fn restore(image: &Image, copy: u64) -> extant_fix::Result<extant_fix::Report> {
    let options = FixOptions {
        superblock: Some(copy),
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
    for (at, offset) in [(0, COPY), (1, COPY), (6, COPY), (8, SPREAD_COPY)] {
        let (name, _, args, dirty) = BASES[at];
        let image = base(20, args, dirty)?;
        ensure!(
            matches!(restore(&image, offset), Err(Error::Usable)),
            "{name}: a good one was replaced"
        );
        image.patch(1024, 1024, |bytes| bytes.fill(0))?;
        let lost = fs::read(image.path())?;
        ensure!(run(&image, false).is_err(), "{name}: without a superblock");

        let device = Arc::new(MemoryDevice::from_bytes(&lost));
        let found = find_superblock_copy(&*device);
        // It is looked for where full groups have it.
        ensure!(
            found == Some(offset).filter(|at| *at == COPY),
            "{name}: {found:?}"
        );
        let by_copy = with_superblock_copy(device.clone(), offset)?;
        let report = check(by_copy, &CheckOptions::default())?;
        ensure!(report.is_clean(), "{name}: {report:?}");
        ensure!(report.replayed == u64::from(dirty), "{name}: {report:?}");
        ensure!(device.to_bytes() == lost, "{name}: written");

        let report = restore(&image, offset)?;
        ensure!(
            report.is_clean() && report.replayed == u64::from(dirty),
            "{name}: {report:?}"
        );
        let restored = SuperblockDamage::Restored { offset };
        let told = report
            .fixed
            .iter()
            .any(|one| one.kind == restored.clone().into());
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
    let report = restore(&image, COPY)?;
    ensure!(!report.is_clean(), "{report:?}");
    let again = run(&image, false)?;
    ensure!(
        !again.is_clean() && again.left_in_all == report.left_in_all,
        "{again:?}"
    );
    Ok(())
}

/// A copy lies at the start of a group that has one, and is no image inside of a file.
#[test]
fn a_copy_lies_where_its_volume_has_one() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(40).args("-b 1024").make()?;
    let other = Image::of_mib(20).args("-b 1024").make()?;
    let (bytes, other) = (fs::read(image.path())?, fs::read(other.path())?);
    let at = usize::try_from(COPY).unwrap();
    let usable = |bytes: &[u8], offset| {
        let device = Arc::new(MemoryDevice::from_bytes(bytes));
        with_superblock_copy(device, offset).is_ok()
    };
    ensure!(usable(&bytes, COPY) && !usable(&bytes, 1024), "whole");

    let mut moved = bytes.clone();
    moved.copy_within(at..at + 1024, at + 4096);
    ensure!(!usable(&moved, COPY + 4096), "beside its place");
    let mut nested = bytes.clone();
    nested[at..at + 1024].copy_from_slice(&other[1024..2048]);
    ensure!(!usable(&nested, COPY), "of an image inside");

    // As Linux left it where it grew a volume.
    let mut grown = bytes.clone();
    grown.copy_within(1024..2048, at);
    ensure!(usable(&grown, COPY), "without its number");
    Ok(())
}

/// A boot sector is no other format: a volume may have one. A copy that is none is refused there
/// too.
#[test]
fn a_boot_sector_stays_in_front_of_what_is_restored() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, _, args, dirty) = BASES[0];
    let image = base(20, args, dirty)?;
    image.patch(510, 2, |bytes| bytes.copy_from_slice(&[0x55, 0xaa]))?;
    image.patch(1024, 1024, |bytes| bytes.fill(0))?;
    let lost = fs::read(image.path())?;

    image.patch(COPY + 4, 1, |bytes| bytes[0] ^= 1)?;
    let damaged = fs::read(image.path())?;
    ensure!(restore(&image, COPY).is_err(), "by a damaged copy");
    ensure!(fs::read(image.path())? == damaged, "written");

    fs::write(image.path(), &lost[..12 << 20])?;
    ensure!(
        restore(&image, COPY).is_err(),
        "on a device that is too short"
    );

    fs::write(image.path(), &lost)?;
    image.patch(0, 4, |bytes| bytes.copy_from_slice(b"XFSB"))?;
    let refused = restore(&image, COPY);
    ensure!(matches!(refused, Err(Error::OtherFormat(_))), "{refused:?}");

    // The device was divided since.
    fs::write(image.path(), &lost)?;
    image.patch(446 + 16 + 4, 1, |bytes| bytes[0] = 0x83)?;
    let refused = restore(&image, COPY);
    ensure!(matches!(refused, Err(Error::OtherFormat(_))), "{refused:?}");

    fs::write(image.path(), &lost)?;
    let report = restore(&image, COPY)?;
    ensure!(report.is_clean(), "{report:?}");
    ensure!(
        fs::read(image.path())?[..1024] == lost[..1024],
        "the boot sector"
    );
    image.fsck_clean()
}

/// A repair without a copy stores what is newer than the copy.
#[test]
fn a_superblock_with_a_wrong_checksum_is_kept() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, _, args, dirty) = BASES[0];
    let image = base(20, args, dirty)?;
    image.patch(1024 + 1020, 4, |bytes| bytes.fill(0))?;
    let damaged = fs::read(image.path())?;
    ensure!(
        matches!(restore(&image, COPY), Err(Error::Resealable)),
        "replaced"
    );
    ensure!(fs::read(image.path())? == damaged, "written");
    ensure!(run(&image, false)?.is_clean(), "left");
    Ok(())
}
