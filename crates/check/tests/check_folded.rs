//! Directories that encrypt names and fold their case: damage of the hashes that their entries
//! store, and of their indexes. `check` and e2fsck agree.

mod check_kit;

use check_kit::{Expected, kind, verdict};
use extant_disk::damage::{DirentError, IndexDamage};
use extant_engine::{Cred, EncryptionPolicy, VolumeOptions};
use extant_testkit::{Context, Image, Need, Result, ensure, need};

const NEEDS: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
    Need::Tool("e2fsck"),
];
/// Bytes of a block.
const BLOCK: usize = 1024;
/// `FS_CASEFOLD_FL`.
const CASEFOLD: u32 = 0x4000_0000;
/// The byte of an index root that has the version of its hashes.
const VERSION: u64 = 28;

/// A volume with a directory `dir` that encrypts names and folds their case, after so many names
/// were made and so many of them removed.
fn folded(made: u32, removed: u32) -> Result<Image> {
    let args = format!("-b {BLOCK} -N 64 -O encrypt,casefold,^has_journal,^metadata_csum");
    let image = Image::of_mib(8).args(&args).make()?;
    let volume = VolumeOptions::new().write(true).open(image.path())?;
    let (root, cred) = (volume.root()?, Cred::root());
    let file = volume.create(&root, b"plain", 0o644, &cred)?;
    let dir = volume.mkdir(&root, b"dir", 0o755, &cred)?;
    let key = volume.add_key(&[7; 64])?;
    volume.set_encryption_policy(&dir, &EncryptionPolicy::usual(key), &cred)?;
    volume.set_flags(&dir, volume.flags(&dir)? | CASEFOLD, &cred)?;
    let first = volume.create(&dir, b"Name 0", 0o644, &cred)?;
    for number in 1..made {
        let name = format!("Name {number}");
        volume.link(&first, &dir, name.as_bytes(), &cred)?;
    }
    for number in 0..removed {
        volume.unlink(&dir, format!("NAME {number}").as_bytes())?;
    }
    drop((root, dir, file, first));
    volume.unmount()?;
    let verdict = verdict(image.path())?;
    ensure!(verdict.is_clean() && verdict.agree(), "{verdict:?}");
    Ok(image)
}

/// The byte of the image at which the directory begins.
fn first_block(image: &Image) -> Result<u64> {
    let block: u64 = image.debugfs("bmap dir 0")?.trim().parse()?;
    Ok(block * BLOCK as u64)
}

/// Both find damage, and `check` names it.
fn damaged(image: &Image, expected: Expected) -> Result<()> {
    let verdict = verdict(image.path())?;
    let is_named = expected.is_in(verdict.kinds());
    ensure!(
        is_named && !verdict.e2fsck_is_clean(),
        "{expected:?}: {verdict:?}"
    );
    Ok(())
}

/// An entry ends where its hashes would be, and the next one begins there.
#[test]
fn a_record_without_room_for_its_hashes_is_damage() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = folded(2, 0)?;
    image.patch(first_block(&image)?, BLOCK, |block| {
        let len = |block: &[u8], at: usize| {
            usize::from(u16::from_le_bytes([block[at + 4], block[at + 5]]))
        };
        let put = |block: &mut [u8], at: usize, len: usize| {
            block[at + 4..at + 6].copy_from_slice(&u16::try_from(len).unwrap().to_le_bytes());
        };
        // Behind the dots.
        let first = 12 + len(block, 12);
        let second = first + len(block, first);
        let short = 8 + usize::from(block[first + 6]).next_multiple_of(4);
        assert_eq!(second, first + short + 8, "a record with its hashes");
        assert_eq!(second + len(block, second), BLOCK, "the last record");
        block.copy_within(second.., first + short);
        put(block, first, short);
        put(block, first + short, BLOCK - first - short);
    })?;
    damaged(&image, kind!(DirBlock(DirentError::RecordLength { .. })))
}

/// An index of hashes that no entry stores, whatever there is in its leaves.
#[test]
fn an_index_of_other_hashes_is_damage() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (made, removed) in [(60, 0), (60, 60)] {
        let image = folded(made, removed)?;
        let at = first_block(&image)? + VERSION;
        ensure!(image.bytes(at, 1)? == [6], "an index by SipHash");
        for version in [0, 1, 2, 3, 5, 7] {
            image.patch(at, 1, |byte| byte[0] = version)?;
            damaged(&image, kind!(Index(IndexDamage::HashVersion { .. })))
                .context(|| format!("{made} names, {removed} removed, version {version}"))?;
        }
    }
    Ok(())
}
