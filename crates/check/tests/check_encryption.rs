//! Encrypted trees that Linux made, and damage in them: `check` and e2fsck agree.

mod check_kit;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use check_kit::{Expected, kind, verdict};
use extant_blockdev::{FileDevice, OpenMode};
use extant_check::{CheckOptions, check};
use extant_disk::damage::{DirectoryDamage, InodeDamage};
use extant_testkit::encryption::{self, EncryptionPolicy};
use extant_testkit::{Image, Mount, Need, Result, ensure, need};

const NEEDS: &[Need] = &[
    Need::Loop,
    Need::Tool("xfs_io"),
    Need::Tool("debugfs"),
    Need::Tool("e2fsck"),
];
/// Bytes of a block.
const BLOCK: u64 = 1024;
/// `EXT4_ENCRYPT_FL`.
const ENCRYPT: u32 = 0x800;

/// Inodes of the tree.
struct Tree {
    image: Image,
    dir: u64,
    file: u64,
    subdir: u64,
    link: u64,
    longer: u64,
    fifo: u64,
    alone: u64,
    plain: u64,
}

fn tree(args: &str) -> Result<Tree> {
    let args = format!("-b {BLOCK} -N 64 -O encrypt,^has_journal,^metadata_csum {args}");
    let image = Image::of_mib(8).args(&args).make()?;
    let mount = Mount::by_linux("ext4", image.path(), "")?;
    let key = encryption::add_key(mount.dir(), &[7; 64])?;
    for dir in ["dir", "alone"] {
        std::fs::create_dir(mount.join(dir))?;
        let policy = EncryptionPolicy {
            contents: 1,
            names: 4,
            flags: 0,
            key: &key,
        };
        encryption::set_policy(&mount.join(dir), policy)?;
    }
    std::fs::write(mount.join("dir/file"), "text")?;
    std::fs::create_dir(mount.join("dir/subdir"))?;
    std::os::unix::fs::symlink("target", mount.join("dir/link"))?;
    std::os::unix::fs::symlink("t".repeat(200), mount.join("dir/longer"))?;
    std::os::unix::net::UnixListener::bind(mount.join("dir/fifo"))?;
    std::fs::write(mount.join("plain"), "text")?;
    let ino = |path: &str| -> Result<u64> { Ok(mount.join(path).symlink_metadata()?.ino()) };
    let (dir, file, subdir) = (ino("dir")?, ino("dir/file")?, ino("dir/subdir")?);
    let (link, longer, fifo) = (ino("dir/link")?, ino("dir/longer")?, ino("dir/fifo")?);
    let (alone, plain) = (ino("alone")?, ino("plain")?);
    mount.unmount()?;
    Ok(Tree {
        image,
        dir,
        file,
        subdir,
        link,
        longer,
        fifo,
        alone,
        plain,
    })
}

impl Tree {
    fn copy(&self) -> Result<Image> {
        self.image.copy()
    }

    /// The byte of the image where an inode is.
    fn at(&self, ino: u64) -> Result<u64> {
        let said = self.image.debugfs(&format!("imap <{ino}>"))?;
        let (_, place) = said.split_once("at block ").unwrap();
        let (block, offset) = place.trim().split_once(", offset 0x").unwrap();
        let offset = u64::from_str_radix(offset, 16).unwrap();
        Ok(block.parse::<u64>()? * BLOCK + offset)
    }

    /// Changes the context of an inode, which has no other attribute: the entry, and the value.
    /// Without a hash, which means that there is none.
    fn context(&self, ino: u64, change: impl FnOnce(&mut [u8], &mut [u8])) -> Result<Image> {
        let image = self.copy()?;
        self.patch_context(&image, ino, change)?;
        Ok(image)
    }

    fn patch_context(
        &self,
        image: &Image,
        ino: u64,
        change: impl FnOnce(&mut [u8], &mut [u8]),
    ) -> Result<()> {
        image.patch(self.at(ino)?, 256, |inode| {
            let first = 128 + 32 + 4;
            assert_eq!(inode[first + 1], 9, "a context");
            inode[first + 12..first + 16].fill(0);
            let value = first + usize::from(inode[first + 2]);
            let (entry, value) = inode.split_at_mut(value);
            change(&mut entry[first..], value);
        })
    }

    fn flag(&self, ino: u64) -> Result<Image> {
        let image = self.copy()?;
        image.patch(self.at(ino)? + 0x20, 4, |flags| {
            let word = u32::from_le_bytes(flags.try_into().unwrap()) ^ ENCRYPT;
            flags.copy_from_slice(&word.to_le_bytes());
        })?;
        Ok(image)
    }
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

/// Both find none; `check` has this note.
fn clean(image: &Image, expected: Option<Expected>) -> Result<()> {
    let verdict = verdict(image.path())?;
    ensure!(
        verdict.is_clean() && verdict.e2fsck_is_clean(),
        "{verdict:?}"
    );
    let device = FileDevice::open(Path::new(image.path()), OpenMode::ReadOnly)?;
    let notes = check(Arc::new(device), &CheckOptions::default())?.notes;
    let is_right = match expected {
        Some(expected) => expected.is_in(notes.iter().map(|note| &note.kind)),
        None => notes.is_empty(),
    };
    ensure!(is_right, "{expected:?}: {notes:?}");
    Ok(())
}

/// Contexts stand in the inode, or where it has no room, in an attribute block.
#[test]
fn trees_of_linux_are_clean() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for args in ["", "-I 128", "-I 512 -O inline_data"] {
        clean(&tree(args)?.image, None)?;
    }
    Ok(())
}

#[test]
fn inodes_that_do_not_belong_into_an_encrypted_directory_are_damage() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let tree = tree("")?;
    let unencrypted = kind!(Directory(DirectoryDamage::Unencrypted { .. }));
    for ino in [tree.file, tree.subdir, tree.link] {
        damaged(&tree.flag(ino)?, unencrypted)?;
    }
    let other = kind!(Directory(DirectoryDamage::OtherPolicy { .. }));
    for at in [1, 3, 8, 23] {
        damaged(
            &tree.context(tree.file, |_, value| value[at] ^= 0x40)?,
            other,
        )?;
    }
    damaged(&tree.context(tree.dir, |_, value| value[10] ^= 1)?, other)?;
    damaged(&tree.context(tree.subdir, |_, value| value[0] = 3)?, other)?;
    // Each inode has its own nonce.
    clean(&tree.context(tree.file, |_, value| value[24] ^= 1)?, None)?;
    // Names that are plain now may have bytes that no name has.
    let plain = verdict(tree.flag(tree.dir)?.path())?;
    ensure!(plain.agree(), "{plain:?}");
    Ok(())
}

#[test]
fn an_encrypted_inode_without_a_context_is_damage() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let tree = tree("")?;
    let missing = kind!(Inode(InodeDamage::NoEncryptionContext));
    for ino in [tree.plain, tree.fifo] {
        damaged(&tree.flag(ino)?, missing)?;
    }
    for ino in [tree.dir, tree.file, tree.link] {
        damaged(&tree.context(ino, |entry, _| entry[16] = b'd')?, missing)?;
    }
    let bad = kind!(Inode(InodeDamage::EncryptionContext { .. }));
    for version in [0, 1] {
        damaged(
            &tree.context(tree.file, |_, value| value[0] = version)?,
            bad,
        )?;
    }
    for length in [0, 1, 28, 39] {
        damaged(&tree.context(tree.file, |entry, _| entry[8] = length)?, bad)?;
    }
    Ok(())
}

/// A later version of Linux may know them.
#[test]
fn unknown_policies_are_noted() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let tree = tree("")?;
    let unknown = kind!(Inode(InodeDamage::EncryptionPolicy { .. }));
    for (at, byte) in [(1, 99), (3, 0xff), (4, 3), (6, 1)] {
        let image = tree.context(tree.alone, |_, value| value[at] = byte)?;
        clean(&image, Some(unknown))?;
    }
    let later = kind!(Inode(InodeDamage::EncryptionContext { .. }));
    // Their policies are not compared.
    let image = tree.copy()?;
    for (number, ino) in (1..).zip([tree.dir, tree.file, tree.subdir, tree.link, tree.longer]) {
        tree.patch_context(&image, ino, |_, value| {
            value[0] = 3;
            value[10] ^= number;
        })?;
    }
    clean(&image, Some(later))?;
    clean(
        &tree.context(tree.alone, |_, value| value[0] = 3)?,
        Some(later),
    )
}

#[test]
fn encrypted_names_and_targets_have_a_length() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let tree = tree("")?;
    let blocks = tree.image.debugfs(&format!("blocks <{}>", tree.dir))?;
    let first_name = blocks.trim().parse::<u64>()? * BLOCK + 24 + 6;
    for bytes in [8, 15, 16] {
        let image = tree.copy()?;
        image.patch(first_name, 1, |length| length[0] = bytes)?;
        match bytes {
            16 => clean(&image, None)?,
            _ => damaged(&image, kind!(Directory(DirectoryDamage::ShortName { .. })))?,
        }
    }
    // Without a context nothing is known of its names.
    let image = tree.context(tree.dir, |entry, _| entry[16] = b'd')?;
    image.patch(first_name, 1, |length| length[0] = 8)?;
    let verdict = verdict(image.path())?;
    let short = kind!(Directory(DirectoryDamage::ShortName { .. }));
    ensure!(!short.is_in(verdict.kinds()), "{verdict:?}");

    let size = kind!(Inode(InodeDamage::SymlinkTargetSize { .. }));
    for bytes in [1_u8, 17, 19, 30, 59] {
        let image = tree.copy()?;
        image.patch(tree.at(tree.link)? + 4, 1, |size| size[0] = bytes)?;
        damaged(&image, size)?;
    }
    for (prefix, is_clean) in [(15, false), (16, true), (17, false)] {
        let image = tree.copy()?;
        image.patch(tree.at(tree.link)? + 0x28, 1, |length| length[0] = prefix)?;
        match is_clean {
            true => clean(&image, None)?,
            false => damaged(&image, size)?,
        }
    }
    Ok(())
}
