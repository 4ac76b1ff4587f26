//! Each rule by itself: one damage, and the finding that names it.
//!
//! The damaged volumes have no checksums, so that nothing but the rule can notice. Some of these
//! damages e2fsck only mentions, or first asks about something else; `check_agreement` compares the
//! two.

mod check_kit;

use std::sync::Arc;

use check_kit::{BASES, CLUSTERS, Expected, SPREAD_CLUSTERS, base, kind, verdict};
use extant_blockdev::{FileDevice, OpenMode};
use extant_check::{CheckOptions, check};
use extant_disk::damage::{
    AttributeDamage, BitmapDamage, DirectoryDamage, ExtentError, GroupDamage, IndexDamage,
    InodeDamage, JournalDamage, MapDamage, OrphanDamage, ReservedDamage, SuperblockDamage,
};
use extant_testkit::{Cmd, Image, Need, Result, TempDir, bail, ensure, need};

const NEEDS: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
    Need::Tool("e2fsck"),
];

/// Bytes that are put into a block of a file, a directory or an internal inode.
struct Patch {
    file: &'static str,
    block: u64,
    offset: u64,
    bytes: &'static [u8],
}

/// No bytes at all.
const NONE: Patch = patch("", 0, 0, b"");

const fn patch(file: &'static str, block: u64, offset: u64, bytes: &'static [u8]) -> Patch {
    Patch {
        file,
        block,
        offset,
        bytes,
    }
}

/// Damages an image by requests of debugfs and by a patch, and looks for the finding.
fn is_told(image: &Image, requests: &str, patch: &Patch, expected: Expected) -> Result<()> {
    let damaged = image.copy()?;
    if !patch.bytes.is_empty() {
        let block = image.debugfs(&format!("bmap {} {}", patch.file, patch.block))?;
        let at = block.trim().parse::<u64>()? * 1024 + patch.offset;
        damaged.patch(at, patch.bytes.len(), |to| to.copy_from_slice(patch.bytes))?;
    }
    for request in requests.lines() {
        damaged.debugfs_write(request)?;
    }
    let verdict = verdict(damaged.path())?;
    ensure!(
        expected.is_in(verdict.kinds()),
        "{requests} {:?}: {expected:?}: {verdict:?}",
        patch.bytes
    );
    Ok(())
}

/// Tries all rows, each on a sound image.
fn are_told(image: &Image, rows: &[(&str, Patch, Expected)]) -> Result<()> {
    let before = verdict(image.path())?;
    ensure!(before.is_clean(), "{before:?}");
    for (requests, patch, expected) in rows {
        is_told(image, requests, patch, *expected)?;
    }
    Ok(())
}

fn with_file(args: &str) -> Result<Image> {
    let tree = TempDir::new("tree")?;
    std::fs::write(tree.join("f"), "twenty bytes of text")?;
    std::fs::write(tree.join("gone"), "x")?;
    let tree = tree.path().display().to_string();
    let image = Image::of_mib(8).args(args).args("-d").args(&tree).make()?;
    image.debugfs_write("mknod chr c 5 1")?;
    Ok(image)
}

#[test]
fn orphans() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 1024 -O ^metadata_csum,orphan_file -J size=1")?;
    let said = image.debugfs("stats -h")?;
    let ino = said.split("Orphan file inode:").nth(1).unwrap_or_default();
    let ino = ino.split_whitespace().next().unwrap_or_default();
    let file: &'static str = format!("<{ino}>").leak();
    let slot = |bytes| patch(file, 0, 0, bytes);
    are_told(
        &image,
        &[
            (
                "ssv last_orphan 99999",
                NONE,
                kind!(Orphan(OrphanDamage::ListTarget { .. })),
            ),
            (
                "ssv last_orphan 14\nsif <14> dtime 14",
                NONE,
                kind!(Orphan(OrphanDamage::ListCircle { .. })),
            ),
            (
                "ssv orphan_file_inum 0",
                NONE,
                kind!(Orphan(OrphanDamage::NoFile)),
            ),
            (
                "",
                patch(file, 0, 1016, &[0]),
                kind!(Orphan(OrphanDamage::Block { .. })),
            ),
            (
                "",
                slot(&[14, 0, 0, 0]),
                kind!(Orphan(OrphanDamage::SlotWithoutFeature { .. })),
            ),
            (
                "",
                slot(&[5, 0, 0, 0]),
                kind!(Orphan(OrphanDamage::Slot { .. })),
            ),
            (
                "",
                slot(&[14, 0, 0, 0, 14, 0, 0, 0]),
                kind!(Orphan(OrphanDamage::Repeated { .. })),
            ),
            (
                format!("sif {file} mode 040755").leak(),
                NONE,
                kind!(Reserved(ReservedDamage::OrphanFileMode { .. })),
            ),
        ],
    )
}

#[test]
fn the_journal() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 1024 -O ^metadata_csum -J size=1")?;
    are_told(
        &image,
        &[
            (
                "ssv journal_inum 0",
                NONE,
                kind!(SuperblockField(SuperblockDamage::NoJournalInode)),
            ),
            ("", patch("<8>", 0, 0, &[0]), kind!(JournalSuperblock(_))),
            (
                "",
                patch("<8>", 0, 64, &[0, 0, 0, 2]),
                kind!(Journal(JournalDamage::Users { users: 2 })),
            ),
        ],
    )
}

#[test]
fn fields() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 1024 -O ^metadata_csum,^has_journal,uninit_bg")?;
    are_told(
        &image,
        &[
            (
                "ssv clusters_per_group 4096",
                NONE,
                kind!(SuperblockField(SuperblockDamage::ClustersPerGroup { .. })),
            ),
            (
                "set_bg 0 itable_unused 9999\nset_bg 0 checksum calc",
                NONE,
                kind!(Group(GroupDamage::TooManyUnused { .. })),
            ),
            (
                "sif <7> mode 0",
                NONE,
                kind!(Reserved(ReservedDamage::ResizeMode)),
            ),
            (
                "sif <7> file_acl 99",
                NONE,
                kind!(Reserved(ReservedDamage::ResizeAttributes)),
            ),
            (
                "sif gone links_count 0",
                NONE,
                kind!(Inode(InodeDamage::NoDeletionTime)),
            ),
            (
                "sif chr flags 0x10",
                NONE,
                kind!(Inode(InodeDamage::Protected)),
            ),
            (
                "sif chr flags 0x10\nsif chr block[7] 1",
                NONE,
                kind!(Inode(InodeDamage::ProtectedSpecial)),
            ),
        ],
    )
}

#[test]
fn directories() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 1024 -O none,filetype")?;
    let root = |offset, bytes| patch("<2>", 0, offset, bytes);
    are_told(
        &image,
        &[
            (
                "",
                root(9, b"x"),
                kind!(Directory(DirectoryDamage::DotEnd { .. })),
            ),
            (
                "",
                root(22, b"x"),
                kind!(Directory(DirectoryDamage::DotEnd { .. })),
            ),
            (
                "",
                root(7, &[1]),
                kind!(Directory(DirectoryDamage::Kind { .. })),
            ),
            (
                "",
                root(19, &[1]),
                kind!(Directory(DirectoryDamage::Kind { .. })),
            ),
            (
                "sif lost+found block[3] 0",
                NONE,
                kind!(Directory(DirectoryDamage::HoleAt { block: 3 })),
            ),
        ],
    )?;
    image.debugfs_write("mkdir none")?;
    let root: u64 = image.debugfs("bmap <2> 0")?.trim().parse()?;
    let bytes = std::fs::read(image.path())?;
    let start = usize::try_from(root * 1024)?;
    let block = bytes.get(start..start + 1024).unwrap_or_default();
    let gone = block
        .windows(6)
        .position(|window| window == b"\x04\x01gone");
    let Some(gone) = gone else { bail!("no entry") };
    let gone = gone as u64;
    for (name, expected) in [
        (&b"\x04\x01g/ne"[..], kind!(DirBlock(_))),
        (
            b"\x02\x01..ne",
            kind!(Directory(DirectoryDamage::RepeatedName { .. })),
        ),
    ] {
        is_told(&image, "", &patch("<2>", 0, gone, name), expected)?;
    }
    is_told(
        &image,
        "sif none block[0] 0\nsif none size 0\nsif none blocks 0",
        &NONE,
        kind!(Directory(DirectoryDamage::NoBlock)),
    )
}

/// The root of an index has a count behind the dots, and then its entries: of the first, only the
/// block is stored.
#[test]
fn indexes() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = BASES[1];
    let image = base(mib, args, dirty)?;
    let root = |offset, bytes| patch("big", 0, offset, bytes);
    are_told(
        &image,
        &[
            (
                "",
                root(0x1c, &[9]),
                kind!(Index(IndexDamage::HashVersion { .. })),
            ),
            (
                "",
                root(0x24, &[2, 0, 0, 0]),
                kind!(Index(IndexDamage::TwoEntries)),
            ),
            (
                "",
                root(0x24, &[2, 0, 0, 0]),
                kind!(Index(IndexDamage::NoEntry)),
            ),
            (
                "",
                root(0x24, &[99, 0, 0, 0]),
                kind!(Index(IndexDamage::Target { .. })),
            ),
            (
                "",
                root(0x28, &[2, 0, 0, 0]),
                kind!(Index(IndexDamage::WrongLeaf { .. })),
            ),
            (
                "",
                root(16, &[12, 0]),
                kind!(Directory(DirectoryDamage::DotDotLength { .. })),
            ),
        ],
    )
}

/// With blocks of 1 KiB the first group of clusters begins with the boot block.
#[test]
fn groups_of_clusters() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = SPREAD_CLUSTERS;
    let image = base(mib, args, dirty)?;
    let stored = "set_bg 17 free_blocks_count 9\nset_bg 17 checksum calc";
    let expected = kind!(Group(GroupDamage::FreeBlocks { stored: 9, .. }));
    is_told(&image, stored, &NONE, expected)
}

/// A cluster of a file is one on the volume, block by block, and no other file's.
#[test]
fn clusters() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = CLUSTERS[0];
    let image = base(mib, args, dirty)?;
    let block = |of: &str| -> Result<u64> {
        let answer = image.debugfs(&format!("bmap {of}"))?;
        Ok(answer.trim().parse()?)
    };
    // The file's fifth block is alone in a cluster.
    let (own, other) = (block("tiny 0")?, block("file 4")?);
    let share = format!(
        "sif tiny size 1500\nsif tiny block[3] 1\nsif tiny block[5] {}",
        other + 1
    );
    let free = image.debugfs("ffb 1 5000")?;
    let free: u64 = free
        .rsplit(' ')
        .find_map(|word| word.trim().parse().ok())
        .unwrap_or(0);
    let rows = [
        (
            format!("sif tiny block[5] {}", own + 1),
            kind!(Map(MapDamage::Cluster { .. })),
        ),
        // Its second block, where the first one's cluster would have it and in another.
        (
            format!(
                "sif tiny size 1500\nsif tiny block[0] 0x2f30a\nsif tiny block[6] 1\n\
                 sif tiny block[7] 1\nsif tiny block[8] {}\nsetb {free}",
                free + 1
            ),
            kind!(Map(MapDamage::Cluster { .. })),
        ),
        (
            format!("sif tiny flags 0\nsif tiny block[0] {own}\nsif tiny block[3] 0"),
            kind!(Map(MapDamage::NoClusters)),
        ),
        // In the cluster of another file's data.
        (
            format!("sif sub file_acl {}", other + 1),
            kind!(Map(MapDamage::Shared { .. })),
        ),
        (share, kind!(Map(MapDamage::Shared { .. }))),
        (
            "sif tiny blocks 2".to_owned(),
            kind!(Inode(InodeDamage::Sectors {
                stored: 2,
                owned: 8
            })),
        ),
        (
            format!("freeb {own}"),
            kind!(Bitmap(BitmapDamage::MarkedFree { count: 1, .. })),
        ),
        (
            "set_bg 0 free_blocks_count 9\nset_bg 0 checksum calc".to_owned(),
            kind!(Group(GroupDamage::FreeBlocks { stored: 9, .. })),
        ),
    ];
    for (requests, expected) in rows {
        is_told(&image, &requests, &NONE, expected)?;
        is_found_by_e2fsck(&image, &requests)?;
    }
    Ok(())
}

fn is_found_by_e2fsck(image: &Image, requests: &str) -> Result<()> {
    let damaged = image.copy()?;
    for request in requests.lines() {
        damaged.debugfs_write(request)?;
    }
    let agreed = verdict(damaged.path())?.agree();
    ensure!(agreed, "{requests}: e2fsck finds nothing");
    Ok(())
}

/// Bits behind the last cluster of the last group.
#[test]
fn padding_of_clusters() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let args = "-b 1024 -N 160 -O bigalloc,^metadata_csum,^has_journal -C 4096";
    let image = Image::of_mib(8).args(args).make()?;
    let said = Cmd::new("dumpe2fs").arg(image.path()).ok()?.out;
    let at = said.split("Block bitmap at ").nth(1).unwrap_or_default();
    let at: u64 = at.split_whitespace().next().unwrap_or_default().parse()?;
    // 2048 clusters.
    image.patch(at * 1024 + 256, 1, |byte| byte[0] = 0xfe)?;
    let verdict = verdict(image.path())?;
    ensure!(
        kind!(Bitmap(BitmapDamage::Padding)).is_in(verdict.kinds()),
        "{verdict:?}"
    );
    ensure!(verdict.agree(), "{verdict:?}");
    Ok(())
}

#[test]
fn protection_from_other_hosts() -> Result<()> {
    /// The byte of the superblock that begins the number of the block.
    const MMP_BLOCK: u64 = 0x168;
    if !need(NEEDS) {
        return Ok(());
    }
    let args = "-b 1024 -O ^metadata_csum,^has_journal,mmp";
    let image = Image::of_mib(8).args(args).make()?;
    // Not by debugfs or e2fsck: they wait for other hosts.
    for (block, expected) in [
        (
            1,
            kind!(SuperblockField(SuperblockDamage::MmpOutside { .. })),
        ),
        (
            99999,
            kind!(SuperblockField(SuperblockDamage::MmpOutside { .. })),
        ),
        (
            2,
            kind!(SuperblockField(SuperblockDamage::MmpOverlap { .. })),
        ),
        (2, kind!(Mmp(_))),
    ] {
        let damaged = image.copy()?;
        damaged.patch(1024 + MMP_BLOCK, 8, |field| {
            field.copy_from_slice(&u64::to_le_bytes(block));
        })?;
        let device = FileDevice::open(damaged.path(), OpenMode::ReadOnly)?;
        let report = check(Arc::new(device), &CheckOptions::default())?;
        let kinds = report.findings.iter().map(|finding| &finding.kind);
        ensure!(expected.is_in(kinds), "{block}: {expected:?}: {report:?}");
    }
    Ok(())
}

/// The block of attributes begins with its magic number and the count of the inodes that use it.
#[test]
fn attributes() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 1024 -O ^metadata_csum,^has_journal -I 128")?;
    image.debugfs_write(&format!("ea_set f user.x {}", "v".repeat(300)))?;
    let stat = image.debugfs("stat f")?;
    let acl = stat.split("File ACL:").nth(1).unwrap_or_default();
    let block: u64 = acl.split_whitespace().next().unwrap_or_default().parse()?;
    for (offset, byte, expected) in [
        (3, 0, kind!(AttributeTable(_))),
        (4, 7, kind!(Attribute(AttributeDamage::References { .. }))),
        // The first entry: the kind of its name, and its hash.
        (33, 0, kind!(Attribute(AttributeDamage::NoNameKind))),
        (44, 0x5a, kind!(Attribute(AttributeDamage::Hash))),
    ] {
        let damaged = image.copy()?;
        damaged.patch(block * 1024 + offset, 1, |at| at[0] = byte)?;
        let verdict = verdict(damaged.path())?;
        ensure!(
            expected.is_in(verdict.kinds()),
            "{offset}: {expected:?}: {verdict:?}"
        );
    }
    Ok(())
}

/// Records that were never used are all zeros, and have no checksum.
#[test]
fn records_that_were_never_used_are_no_damage() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 1024 -N 160 -O ^has_journal")?;
    image.debugfs_write("set_bg 0 itable_unused 0")?;
    image.debugfs_write("set_bg 0 checksum calc")?;
    let verdict = verdict(image.path())?;
    ensure!(
        verdict.e2fsck_is_clean() && verdict.is_clean(),
        "{verdict:?}"
    );
    Ok(())
}

/// The block of the first node below the root of the extent tree of the file `sparse`.
fn first_node(image: &Image) -> Result<u64> {
    /// Numbers of the line before the block: "0/ 1 1/ 1 0 - 480 1201 481".
    const BLOCK: usize = 4;
    let said = image.debugfs("dump_extents -n sparse")?;
    // The last number of the line of the first node below the root.
    let node = said
        .lines()
        .find(|line| line.trim_start().starts_with("0/"));
    let words = node.into_iter().flat_map(str::split_whitespace);
    let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
    let Some(block) = numbers.get(BLOCK) else {
        bail!("no node: {said}")
    };
    Ok(*block)
}

/// A node that says to be deeper than its parent implies, and one with a wrong checksum, are named
/// once; what they lead to is read all the same.
#[test]
fn nodes_below_a_root() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let rows: [(&str, u64, Expected); 2] = [
        (
            "^metadata_csum",
            6,
            kind!(ExtentNode(ExtentError::BadDepth { .. })),
        ),
        // Behind the entries.
        (
            "metadata_csum",
            1000,
            kind!(ExtentNode(ExtentError::BadChecksum { .. })),
        ),
    ];
    for (feature, at, expected) in rows {
        let image = base(4, &format!("-b 1024 -N 160 -O {feature}"), false)?;
        let block = first_node(&image)?;
        image.patch(block * 1024 + at, 2, |bytes| bytes.copy_from_slice(&[1, 0]))?;
        let verdict = verdict(image.path())?;
        ensure!(
            expected.is_in(verdict.kinds()) && verdict.kinds().count() == 1,
            "{feature}: {verdict:?}"
        );
    }
    Ok(())
}
