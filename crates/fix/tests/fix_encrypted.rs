//! Volumes whose lost+found encrypts names or folds their case.

#[path = "../../check/tests/check_kit/mod.rs"]
mod check_kit;
mod fix_kit;

use check_kit::{damage, kind};
use extant_disk::damage::LinkDamage;
use extant_engine::{Cred, EncryptionPolicy, VolumeOptions};
use extant_testkit::{Context, Image, Result, ensure, need};
use fix_kit::{NEEDS, left_alone, repaired};

/// `FS_CASEFOLD_FL`.
const CASEFOLD: u32 = 0x4000_0000;

/// A volume with a file `file` in the root, and a lost+found that encrypts names, folds their case,
/// or both.
fn volume_of(encrypted: bool, folded: bool) -> Result<Image> {
    let image = Image::of_mib(8)
        .args("-b 1024 -N 64 -O encrypt,casefold")
        .make()?;
    let volume = VolumeOptions::new().write(true).open(image.path())?;
    let (root, cred) = (volume.root()?, Cred::root());
    volume.rmdir(&root, b"lost+found")?;
    let dir = volume.mkdir(&root, b"lost+found", 0o700, &cred)?;
    if folded {
        volume.set_flags(&dir, volume.flags(&dir)? | CASEFOLD, &cred)?;
    }
    if encrypted {
        let key = volume.add_key(&[7; 64])?;
        volume.set_encryption_policy(&dir, &EncryptionPolicy::usual(key), &cred)?;
    }
    volume.create(&dir, b"Name", 0o600, &cred)?;
    let file = volume.create(&root, b"file", 0o600, &cred)?;
    volume.write(&file, 0, b"text", &cred)?;
    drop((root, dir, file));
    volume.unmount()?;
    image.fsck_clean()?;
    Ok(image)
}

/// No name can be encrypted without the key, so a file without one stays so.
#[test]
fn no_plain_name_comes_into_an_encrypted_directory() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for folded in [false, true] {
        let image = volume_of(true, folded)?;
        damage(&image, "unlink file")?;
        left_alone(&image, &[kind!(Link(LinkDamage::NoName { .. }))])
            .context(|| format!("folded: {folded}"))?;
    }
    Ok(())
}

/// Other damage is repaired beside it.
#[test]
fn what_needs_no_name_is_repaired() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = volume_of(true, true)?;
    damage(&image, "sif file links_count 7")?;
    repaired(&image, kind!(Link(LinkDamage::Count { .. })))
}

#[test]
fn a_folded_directory_takes_names() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = volume_of(false, true)?;
    let stat = image.debugfs("stat file")?;
    let file = stat.split_whitespace().nth(1).unwrap_or_default();
    damage(&image, "unlink file")?;
    repaired(&image, kind!(Link(LinkDamage::NoName { .. })))?;
    let text = image.debugfs(&format!("cat /lost+found/#{file}"))?;
    ensure!(text == "text", "{text}");
    Ok(())
}
