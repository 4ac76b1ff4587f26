//! Inodes without a name, the numbers in the superblock that lead to them, and the places of what
//! groups have: `check` and e2fsck agree, or Linux is the judge.

mod check_kit;

use check_kit::{BASES, CLUSTERS, Expected, base, damage, kind, verdict};
use extant_disk::damage::{
    BitmapDamage, CorruptKind, GroupDamage, InodeDamage, LinkDamage, OrphanDamage, ReservedDamage,
    SuperblockDamage,
};
use extant_testkit::{Context, Image, Need, Result, ensure, need};

const NEEDS: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
    Need::Tool("e2fsck"),
];

/// A copy of `image` after the `requests` of debugfs.
fn damaged(image: &Image, requests: &str) -> Result<Image> {
    let copy = image.copy()?;
    damage(&copy, requests)?;
    Ok(copy)
}

/// Both find damage, and `check` names it.
fn agree_damaged(image: &Image, expected: Expected) -> Result<()> {
    let verdict = verdict(image.path())?;
    let named = expected.is_in(verdict.kinds());
    ensure!(
        named && !verdict.e2fsck_is_clean(),
        "{expected:?}: {verdict:?}"
    );
    Ok(())
}

/// `check` finds nothing but the expected damage.
fn alone(image: &Image, expected: fn(&CorruptKind) -> bool) -> Result<()> {
    let verdict = verdict(image.path())?;
    ensure!(
        !verdict.is_clean() && verdict.kinds().all(expected),
        "{verdict:?}"
    );
    Ok(())
}

/// The blocks of the copies are the data of the resize inode.
#[test]
fn the_resize_inode_is_as_long_as_what_it_leads_to() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let within = kind!(Inode(InodeDamage::SizeWithinBlocks { .. }));
    let (_, mib, args, dirty) = CLUSTERS[1];
    let image = base(mib, args, dirty)?;
    agree_damaged(&damaged(&image, "sif <7> size 0x2000000")?, within)?;
    let args = "-b 1024 -N 192 -g 1024 -O ^has_journal";
    let image = base(6, args, false)?;
    agree_damaged(&damaged(&image, "sif <7> size 0")?, within)?;
    // Without copies it has no data.
    let (_, mib, args, dirty) = BASES[0];
    let image = damaged(&base(mib, args, dirty)?, "sif <7> size 0")?;
    let verdict = verdict(image.path())?;
    ensure!(verdict.is_clean() && verdict.agree(), "{verdict:?}");
    Ok(())
}

/// It owns what it leads to, also what is not reserved any more.
#[test]
fn the_resize_inode_owns_what_it_leads_to() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = CLUSTERS[3];
    let image = damaged(&base(mib, args, dirty)?, "ssv reserved_gdt_blocks 9")?;
    alone(&image, |kind| {
        matches!(
            kind,
            CorruptKind::Reserved(ReservedDamage::ResizePointer { expected: 0, .. })
        )
    })
}

/// Without `flex_bg` Linux refuses a volume whose groups have their bitmaps elsewhere.
#[test]
fn groups_have_their_own_metadata_without_flex_bg() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let elsewhere = kind!(Group(GroupDamage::Elsewhere { .. }));
    for at in [2, 8] {
        let (name, mib, args, dirty) = BASES[at];
        let image = base(mib, args, dirty)?;
        let spread = damaged(&image, "feature -flex_bg")?;
        agree_damaged(&spread, elsewhere).context(|| name.to_owned())?;
        let args = format!("{args},^flex_bg");
        base(mib, &args, dirty).context(|| format!("{name} without flex_bg"))?;
    }
    Ok(())
}

/// The attributes that have a value count as one link of its inode.
#[test]
fn a_value_has_one_link() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = BASES[10];
    let image = base(mib, args, dirty)?;
    let values = (12..=160)
        .filter(|ino| {
            let told = image.debugfs(&format!("stat <{ino}>")).unwrap_or_default();
            told.contains("Flags: 0x200000") || told.contains("Flags: 0x280000")
        })
        .collect::<Vec<_>>();
    ensure!(!values.is_empty(), "no values");
    for ino in values {
        let request = format!("sif <{ino}> links_count 7");
        let count = kind!(Link(LinkDamage::Count {
            stored: 7,
            found: 1
        }));
        agree_damaged(&damaged(&image, &request)?, count)?;
    }
    Ok(())
}

/// e2fsck takes the padding of a bitmap that was never written for missing.
#[test]
fn the_last_block_bitmap_is_written() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let unwritten = kind!(Bitmap(BitmapDamage::LastUnwritten));
    let (_, mib, args, dirty) = BASES[3];
    let image = base(mib, args, dirty)?;
    let request = "set_bg 5 flags 7\nset_bg 5 checksum calc";
    agree_damaged(&damaged(&image, request)?, unwritten)
}

/// Linux refuses such an inode, also one that becomes a file later.
#[test]
fn a_number_without_its_feature_leads_to_no_inode_of_users() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = BASES[0];
    let image = base(mib, args, dirty)?;
    let quota: fn(&CorruptKind) -> bool = |kind| {
        let found = SuperblockDamage::QuotaWithoutFeature { ino: ino() };
        *kind == found.into()
    };
    let orphans: fn(&CorruptKind) -> bool = |kind| {
        let found = SuperblockDamage::OrphanFileWithoutFeature { ino: ino() };
        *kind == found.into()
    };
    alone(&damaged(&image, "ssv usr_quota_inum 140")?, quota)?;
    alone(&damaged(&image, "ssv prj_quota_inum 140")?, quota)?;
    alone(&damaged(&image, "ssv orphan_file_inum 140")?, orphans)?;
    // No name leads to it, and it is empty.
    for request in ["ssv usr_quota_inum 3", "ssv orphan_file_inum 9"] {
        let verdict = verdict(damaged(&image, request)?.path())?;
        ensure!(verdict.is_clean() && verdict.agree(), "{verdict:?}");
    }
    Ok(())
}

/// A free inode.
fn ino() -> extant_units::Ino {
    extant_units::Ino::new(140).unwrap_or(extant_units::Ino::ROOT)
}

/// The log has a good copy of the superblock, and a mount does not mind these fields before.
#[test]
fn a_superblock_is_judged_as_a_replay_leaves_it() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = BASES[6];
    let image = base(mib, args, dirty)?;
    for request in [
        "ssv usr_quota_inum 140",
        "ssv r_blocks_count 3000",
        "ssv desc_size 32767",
    ] {
        let verdict = verdict(damaged(&image, request)?.path())?;
        ensure!(
            verdict.is_clean() && verdict.agree(),
            "{request}: {verdict:?}"
        );
    }
    // e2fsprogs opens no volume with this one.
    let image = damaged(&image, "ssv log_groups_per_flex 99")?;
    agree_damaged(
        &image,
        kind!(SuperblockField(SuperblockDamage::FlexGroups { log2: 99 })),
    )
}

/// The superblock names it still, so that its blocks are no others' and are not free.
#[test]
fn a_journal_without_the_feature_has_its_blocks() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = BASES[1];
    let image = damaged(&base(mib, args, dirty)?, "ssv feature_compat 0x38")?;
    alone(&image, |kind| {
        *kind == SuperblockDamage::JournalWithoutFeature.into()
    })
}

/// Linux goes no further at one that was never used; e2fsck -n does not read the list.
#[test]
fn the_list_of_orphans_leads_to_inodes_in_use() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for at in [0, 9] {
        let (_, mib, args, dirty) = BASES[at];
        let image = damaged(&base(mib, args, dirty)?, "ssv last_orphan 140")?;
        alone(&image, |kind| {
            *kind == OrphanDamage::ListTarget { ino: ino() }.into()
        })?;
    }
    Ok(())
}

/// e2fsck clears a symbolic link that has more than one block.
#[test]
fn a_symbolic_link_has_one_block() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let blocks = kind!(Inode(InodeDamage::SymlinkBlocks { .. }));
    let (_, mib, args, dirty) = CLUSTERS[0];
    let image = base(mib, args, dirty)?;
    // In its cluster, so that nothing else changes.
    agree_damaged(&damaged(&image, "sif slow block[4] 3")?, blocks)?;
    let (_, mib, args, dirty) = BASES[1];
    let image = base(mib, args, dirty)?;
    let free = image.debugfs("ffb 1 3000")?;
    let free = free.rsplit(' ').find_map(|word| word.trim().parse().ok());
    let free: u64 = free.unwrap_or_default();
    let request = format!(
        "sif slow block[1] {free}\nsif slow blocks 4\nsetb {free}\n\
         set_bg 0 free_blocks_count {}",
        free_blocks(&image)? - 1
    );
    agree_damaged(&damaged(&image, &request)?, blocks)
}

/// Free blocks of a volume of one group.
fn free_blocks(image: &Image) -> Result<u64> {
    let said = image.debugfs("show_super_stats -h")?;
    let (_, rest) = said.split_once("Free blocks:").unwrap_or_default();
    let number = rest.split_whitespace().next().unwrap_or_default();
    Ok(number.parse()?)
}
