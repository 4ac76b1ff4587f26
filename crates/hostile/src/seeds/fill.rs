//! Fills images: with one of everything, in little space.

use std::path::Path;
use std::sync::Arc;

use extant::{Cred, FileKind, Node, Options, SetAttr, Tuning, Volume, XattrMode};
use extant_testkit::{Cmd, Result, content};

use crate::disk::Disk;

/// Switches for small images: little memory, so that reclaim runs.
pub(crate) fn tuning() -> Tuning {
    let mut tuning = Tuning::default();
    tuning.page_cache_bytes = Some(256 << 10);
    tuning.block_cache_bytes = 64 << 10;
    tuning.name_cache_bytes = 64 << 10;
    tuning.max_folio_order = 3;
    tuning
}

/// The image filled and unmounted in order; `names` in its largest directory.
pub(super) fn filled(image: Vec<u8>, names: u32) -> Result<Vec<u8>> {
    let disk = Arc::new(Disk::new(image, false));
    let volume = Options::new()
        .write(true)
        .tuning(tuning())
        .open_volume_on(disk.clone())?;
    fill(&volume, names)?;
    volume.unmount()?;
    Ok(disk.to_bytes())
}

/// The image filled, unmounted, mounted again, and copied in the middle of work: transactions with
/// revoke records wait in the log, orphans for their end.
pub(super) fn dirty(image: Vec<u8>) -> Result<Vec<u8>> {
    let disk = Arc::new(Disk::new(filled(image, DIRTY_NAMES)?, false));
    let volume = Options::new()
        .write(true)
        .mount_options("commit=300")
        .tuning(tuning())
        .open_volume_on(disk.clone())?;
    let cred = Cred::root();
    let root = volume.root()?;
    let late = volume.mkdir(&root, b"late", 0o755, &cred)?;
    let file = volume.create(&late, b"file", 0o644, &cred)?;
    volume.write(&file, 0, &content::fill(7, 0, 5000), &cred)?;
    volume.sync()?;
    // Metadata blocks that were in the log are freed: revoke records.
    let crowd = volume.lookup(&root, b"crowd")?;
    for number in 0..DIRTY_NAMES - 10 {
        volume.unlink(&crowd, crowd_name(number).as_bytes())?;
    }
    volume.unlink(&root, b"comb")?;
    volume.rmdir(&root, b"empty")?;
    volume.sync()?;
    // Orphans: one deleted while open, one being cut.
    let held = volume.lookup(&root, b"sparse")?;
    volume.unlink(&root, b"sparse")?;
    let nameless = volume.tmpfile(&root, 0o600, &cred)?;
    volume.write(&nameless, 0, &content::fill(8, 0, 3000), &cred)?;
    volume.fsync(&nameless, false)?;
    volume.sync()?;
    let image = disk.to_bytes();
    drop((held, nameless));
    volume.unmount()?;
    Ok(image)
}

/// Names in the largest directory where most of them are removed again: several blocks.
const DIRTY_NAMES: u32 = 60;

/// The name of an entry of the crowded directory: long, so that few fit a block.
fn crowd_name(number: u32) -> String {
    format!("{number:04}-{}", "c".repeat(200 + (number as usize % 40)))
}

fn fill(volume: &Volume, names: u32) -> Result<()> {
    let cred = Cred::root();
    let root = volume.root()?;
    let file = |name: &str, size: usize| -> Result<Node> {
        let node = volume.create(&root, name.as_bytes(), 0o644, &cred)?;
        volume.write(&node, 0, &content::fill(size as u64, 0, size), &cred)?;
        Ok(node)
    };
    file("small", 60)?;
    file("large", 40_000)?;
    // Every other block: more extents than the inode and one node hold.
    let comb = file("comb", 1)?;
    let step = 2 * u64::from(volume.statfs()?.block_size);
    for tooth in 0..100 {
        volume.write(&comb, tooth * step, b"tooth", &cred)?;
        if tooth % 20 == 0 {
            volume.fsync(&comb, false)?;
        }
    }
    let sparse = file("sparse", 3000)?;
    volume.write(&sparse, 1 << 30, b"far", &cred)?;
    let dir = volume.mkdir(&root, b"dir", 0o755, &cred)?;
    let deep = volume.mkdir(&dir, b"deep", 0o755, &cred)?;
    volume.mkdir(&deep, b"deeper", 0o755, &cred)?;
    volume.mkdir(&root, b"empty", 0o755, &cred)?;
    volume.symlink(&root, b"short", b"dir/deep", &cred)?;
    volume.symlink(&root, b"long", &[b'l'; 300], &cred)?;
    volume.symlink(&dir, b"loop", b"loop", &cred)?;
    let (fifo, node) = (FileKind::Fifo, FileKind::CharDevice);
    volume.mknod(&dir, b"fifo", fifo, 0o644, 0, &cred)?;
    volume.mknod(&dir, b"null", node, 0o666, 0x103, &cred)?;
    attributes(volume, &root)?;
    // Many names of one file: 500 make an index of two levels.
    let crowd = volume.mkdir(&root, b"crowd", 0o755, &cred)?;
    let small = volume.lookup(&root, b"small")?;
    for number in 0..names {
        volume.link(&small, &crowd, crowd_name(number).as_bytes(), &cred)?;
    }
    volume.sync()?;
    Ok(())
}

fn attributes(volume: &Volume, root: &Node) -> Result<()> {
    let cred = Cred::root();
    let either = XattrMode::Either;
    for (name, size) in [("few", 10), ("many", 400), ("same", 400)] {
        let node = volume.create(root, name.as_bytes(), 0o640, &cred)?;
        let value = content::fill(1, 0, size);
        volume.setxattr(&node, b"user.one", &value, either, &cred)?;
        volume.setxattr(&node, b"trusted.two", b"2", either, &cred)?;
    }
    let many = volume.lookup(root, b"many")?;
    let dir = volume.lookup(root, b"dir")?;
    for node in [&many, &dir] {
        // In an inode of its own, where there are such.
        match volume.setxattr(node, b"user.huge", &[b'h'; 5000], either, &cred) {
            Ok(()) | Err(extant::Error::NoSpace) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // An access ACL: owner, user 1, group, mask, other.
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in [
        (1u16, 6u16, !0u32),
        (2, 7, 1),
        (4, 4, !0),
        (16, 7, !0),
        (32, 4, !0),
    ] {
        acl.extend(tag.to_le_bytes());
        acl.extend(perm.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    volume.setxattr(&many, b"system.posix_acl_access", &acl, either, &cred)?;
    volume.setxattr(&dir, b"system.posix_acl_default", &acl, either, &cred)?;
    let owner = SetAttr {
        uid: Some(1000),
        gid: Some(100_000),
        ..SetAttr::default()
    };
    volume.setattr(&many, &owner, &cred)?;
    Ok(())
}

/// A tree of the host for mke2fs to copy.
pub(super) fn tree(at: &Path) -> Result<()> {
    std::fs::create_dir(at)?;
    std::fs::write(at.join("small"), b"some text")?;
    std::fs::write(at.join("large"), content::fill(1, 0, 300_000))?;
    std::fs::create_dir_all(at.join("dir/deep/deeper"))?;
    for number in 0..20 {
        std::fs::write(at.join(format!("dir/{}", crowd_name(number))), b"")?;
    }
    std::os::unix::fs::symlink("dir/deep", at.join("short"))?;
    std::os::unix::fs::symlink("l".repeat(300), at.join("long"))?;
    Ok(())
}

/// Gives two files of the tree on the image at `path` a block together.
pub(super) fn share(path: &Path) -> Result<()> {
    let debugfs = |words: &[&str]| {
        let cmd = Cmd::new("debugfs").env("E2FSPROGS_FAKE_TIME", "1700000000");
        cmd.args(words).arg(path).ok()
    };
    let first = debugfs(&["-R", "bmap large 0"])?.out;
    for request in [
        "feature shared_blocks",
        &format!("sif small block[5] {}", first.trim()),
    ] {
        debugfs(&["-w", "-R", request])?;
    }
    Ok(())
}
