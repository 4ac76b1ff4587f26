//! Shared parts of the tests of `fix`: a repair that has to be whole, and one that has to decline.

// Each test binary uses a part of it.
#![allow(dead_code, reason = "shared by several test binaries")]

use std::sync::Arc;

use extant_blockdev::MemoryDevice;
use extant_engine::{Cred, Error, VolumeOptions};
use extant_fix::{FixOptions, Report, fix_image};
use extant_testkit::{Image, Need, Result, bail, ensure};

use crate::check_kit::Expected;

pub(crate) const NEEDS: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
    Need::Tool("e2fsck"),
];

pub(crate) fn run(image: &Image, dry_run: bool) -> Result<Report> {
    let options = FixOptions {
        dry_run,
        ..FixOptions::default()
    };
    Ok(fix_image(image.path(), &options)?)
}

pub(crate) fn texts(report: &Report) -> Vec<String> {
    report.fixed.iter().map(ToString::to_string).collect()
}

/// Repairs an image completely: a dry run says the same and writes nothing, e2fsck agrees, and
/// there is nothing to do any more.
pub(crate) fn repaired(image: &Image, expected: Expected) -> Result<()> {
    let before = image.fingerprint()?;
    let dry = run(image, true)?;
    ensure!(image.fingerprint()? == before, "a dry run has written");
    let report = run(image, false)?;
    let fixed = texts(&report);
    ensure!(
        fixed == texts(&dry),
        "{fixed:?}, not as the dry run: {dry:?}"
    );
    ensure!(report.is_clean() && report.has_changed(), "{report:?}");
    let named = expected.is_in(report.fixed.iter().map(|finding| &finding.kind));
    ensure!(named, "{expected:?}: {fixed:?}");
    image.fsck_clean()?;
    let after = image.fingerprint()?;
    ensure!(after != before, "nothing was written");
    let again = run(image, false)?;
    ensure!(!again.has_changed() && again.is_clean(), "{again:?}");
    ensure!(image.fingerprint()? == after, "a clean image was written");
    Ok(())
}

/// The image after a mount that reads all of the root, makes and removes names, and writes: as far
/// as it has room, and may be written.
pub(crate) fn use_mounted(bytes: &[u8]) -> Result<Vec<u8>> {
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let opened = VolumeOptions::new()
        .write(true)
        .open_on(Arc::clone(&device) as _);
    let volume = match opened {
        Err(Error::UnsupportedFeature(_)) => return Ok(bytes.to_vec()),
        opened => opened?,
    };
    let (root, cred) = (volume.root()?, Cred::root());
    let write = || {
        let file = volume.create(&root, b"a new file", 0o644, &cred)?;
        volume.write(&file, 3000, &[7; 9000], &cred)?;
        volume.mkdir(&root, b"a new directory", 0o755, &cred)?;
        volume.create(&root, b"another", 0o600, &cred)?;
        volume.unlink(&root, b"another")
    };
    let written = write();
    let full = matches!(written, Err(Error::NoSpace));
    ensure!(
        written.is_ok() || full || volume.read_only(),
        "a write: {written:?}"
    );
    volume.unmount()?;
    Ok(device.to_bytes())
}

/// A number that differs from `from` in one bit and begins `len` free blocks.
pub(crate) fn free_neighbour(image: &Image, from: u32, len: u64) -> Result<u32> {
    for bit in 0..12 {
        let other = from ^ (1 << bit);
        let said = image.debugfs(&format!("testb {other} {len}"))?;
        if said.matches("not in use").count() as u64 == len {
            return Ok(other);
        }
    }
    bail!("no free blocks one bit from {from}")
}

/// A repair has to leave the whole image as it is, and say so.
pub(crate) fn left_alone(image: &Image, expected: &[Expected]) -> Result<()> {
    let before = image.fingerprint()?;
    let report = run(image, false)?;
    ensure!(!report.is_clean() && !report.has_changed(), "{report:?}");
    ensure!(image.fingerprint()? == before, "written: {report:?}");
    are_left(&report, expected)
}

/// Checks that each of `expected` is among the findings that are left.
pub(crate) fn are_left(report: &Report, expected: &[Expected]) -> Result<()> {
    for one in expected {
        let named = one.is_in(report.left.iter().map(|finding| &finding.kind));
        ensure!(named, "{one:?}: {:?}", report.left);
    }
    Ok(())
}
