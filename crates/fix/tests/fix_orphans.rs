//! Orphans: a repair finishes those of a volume on which nothing else is wrong.

#[path = "../../check/tests/check_kit/mod.rs"]
mod check_kit;
mod fix_kit;

use std::fs;

use check_kit::{BASES, base, damage};
use extant_disk::damage::OrphanDamage;
use extant_testkit::{Context, Image, Result, ensure, need};
use fix_kit::{NEEDS, run};

/// The number of the inode of `file`.
fn number_of(image: &Image, file: &str) -> Result<String> {
    let stat = image.debugfs(&format!("stat {file}"))?;
    let number = stat.split_whitespace().nth(1);
    Ok(number.unwrap_or_default().to_owned())
}

/// A base with an orphan that has no name, and its number.
fn with_unlinked(at: usize) -> Result<(Image, String)> {
    let (_, mib, args, dirty) = BASES[at];
    let image = base(mib, args, dirty)?;
    let number = number_of(&image, "file")?;
    let requests = format!("unlink file\nsif <{number}> links_count 0\nssv last_orphan {number}");
    damage(&image, &requests)?;
    Ok((image, number))
}

/// With a journal and without one, by extents and by pointers, with descriptors that have checksums
/// and with others.
#[test]
fn unlinked_inodes_are_deleted() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for at in [0, 1, 2, 3, 5] {
        let name = BASES[at].0;
        let (image, number) = with_unlinked(at)?;
        let report = run(&image, false).context(|| name.to_owned())?;
        ensure!(
            report.is_clean() && report.orphans == 1,
            "{name}: {report:?}"
        );
        image.fsck_clean().context(|| name.to_owned())?;
        let stat = image.debugfs(&format!("stat <{number}>"))?;
        ensure!(stat.contains("Blockcount: 0"), "{name}: {stat}");
        let again = run(&image, false)?;
        ensure!(
            !again.has_changed() && again.is_clean(),
            "{name}: {again:?}"
        );
    }
    Ok(())
}

/// A file that was being truncated: its blocks reach past its size.
#[test]
fn truncations_are_finished() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for at in [0, 1, 2, 3] {
        let (name, mib, args, dirty) = BASES[at];
        let image = base(mib, args, dirty)?;
        let number = number_of(&image, "sparse")?;
        damage(
            &image,
            &format!("sif sparse size 20000\nssv last_orphan {number}"),
        )?;
        let report = run(&image, false).context(|| name.to_owned())?;
        ensure!(
            report.is_clean() && report.orphans == 1,
            "{name}: {report:?}"
        );
        image.fsck_clean().context(|| name.to_owned())?;
        let stat = image.debugfs("stat sparse")?;
        ensure!(stat.contains("Size: 20000"), "{name}: {stat}");
    }
    Ok(())
}

/// A volume that is for reading keeps its orphans: they are told, not counted.
#[test]
fn orphans_that_are_left_are_not_counted() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (image, _) = with_unlinked(3)?;
    image.debugfs_write("feature read-only")?;
    let before = fs::read(image.path())?;
    let report = run(&image, false)?;
    let waits = OrphanDamage::Waiting { inodes: 1 }.into();
    let told = report.notes.iter().any(|note| note.kind == waits);
    ensure!(report.is_clean() && told, "{report:?}");
    ensure!(!report.has_changed(), "{report:?}");
    ensure!(fs::read(image.path())? == before, "it was written");
    Ok(())
}
