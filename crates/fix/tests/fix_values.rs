//! Values of attributes in inodes of their own: their counts.

#[path = "../../check/tests/check_kit/mod.rs"]
mod check_kit;
mod fix_kit;

use check_kit::{BASES, base, damage, kind};
use extant_disk::damage::AttributeDamage;
use extant_testkit::{Image, Result, bail, ensure, need};
use fix_kit::{NEEDS, repaired, run};

/// A volume with values, and the number of the inode of one.
fn with_values() -> Result<(Image, u32)> {
    let Some((_, mib, args, dirty)) = BASES.iter().find(|base| base.0 == "ea_inode") else {
        bail!("no base")
    };
    let image = base(*mib, args, *dirty)?;
    for ino in 12..160 {
        let stat = image.debugfs(&format!("stat <{ino}>"))?;
        if stat.contains("Flags: 0x2") {
            return Ok((image, ino));
        }
    }
    bail!("no value")
}

#[test]
fn a_wrong_count_of_a_value_is_stored_anew() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (image, value) = with_values()?;
    let requests = format!("sif <{value}> version 7\nsif <{value}> ctime_lo 1");
    damage(&image, &requests)?;
    // 2^32 and 7 where one attribute has it.
    repaired(
        &image,
        kind!(Attribute(AttributeDamage::ValueReferences {
            stored: 0x1_0000_0007,
            users: 1,
        })),
    )?;
    // debugfs wrote times, so the volume is another one by some bytes.
    let stat = image.debugfs(&format!("stat <{value}>"))?;
    let is_right =
        stat.contains("Version: 0x00000000:00000001") && stat.contains("ctime: 0x00000000");
    ensure!(is_right, "{stat}");
    Ok(())
}

/// A mount gives up the values of an orphan.
#[test]
fn an_orphan_with_values_is_deleted() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (image, _) = with_values()?;
    let stat = image.debugfs("stat file")?;
    let number = stat.split_whitespace().nth(1).unwrap_or_default();
    let requests = format!("unlink file\nsif <{number}> links_count 0\nssv last_orphan {number}");
    damage(&image, &requests)?;
    let report = run(&image, false)?;
    ensure!(report.is_clean(), "{report:?}");
    image.fsck_clean()?;
    Ok(())
}
