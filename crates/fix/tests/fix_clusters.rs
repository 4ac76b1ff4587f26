//! Volumes with clusters: what is repaired, what is left, and blocks that a repair gives out.

#[path = "../../check/tests/check_kit/mod.rs"]
mod check_kit;
mod fix_kit;

use check_kit::{CLUSTERS, Expected, FeatureSet, base, damage, kind};
use extant_blockdev::{FileDevice, OpenMode};
use extant_check::find_superblock_copy;
use extant_disk::damage::{BitmapDamage, GroupDamage, InodeDamage, MapDamage, QuotaDamage};
use extant_fix::{FixOptions, fix_image};
use extant_testkit::{Image, Result, TempDir, ensure, need};
use fix_kit::{NEEDS, left_alone, repaired};

fn image_of((_, mib, args, dirty): FeatureSet) -> Result<Image> {
    base(mib, args, dirty)
}

/// The block of the volume that has block `at` of a file.
fn block(image: &Image, file: &str, at: u64) -> Result<u64> {
    Ok(image
        .debugfs(&format!("bmap {file} {at}"))?
        .trim()
        .parse()?)
}

#[test]
fn counts_and_bitmaps_of_clusters_are_repaired() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let freed = kind!(Bitmap(BitmapDamage::MarkedFree { count: 1, .. }));
    let free_blocks = kind!(Group(GroupDamage::FreeBlocks { stored: 9, .. }));
    let rows: [(&str, Expected); 4] = [
        ("freeb {}", freed),
        (
            "set_bg 0 free_blocks_count 9\nset_bg 0 checksum calc",
            free_blocks,
        ),
        (
            "sif file blocks 10",
            kind!(Inode(InodeDamage::Sectors { stored: 10, .. })),
        ),
        (
            "sif file blocks 98\nfreeb {}\nset_bg 0 free_blocks_count 9",
            freed,
        ),
    ];
    for set in &CLUSTERS[..2] {
        let image = image_of(*set)?;
        let own = block(&image, "file", 0)?;
        for (requests, expected) in &rows {
            let damaged = image.copy()?;
            damage(&damaged, &requests.replace("{}", &own.to_string()))?;
            repaired(&damaged, *expected)?;
        }
    }
    Ok(())
}

/// Clusters that two files claim, and blocks elsewhere in a cluster, are a choice of the owner.
#[test]
fn shared_and_shifted_clusters_are_left() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = image_of(CLUSTERS[0])?;
    let (own, other) = (block(&image, "tiny", 0)?, block(&image, "file", 4)?);
    let rows = [
        (
            format!("sif tiny block[5] {}", own + 1),
            kind!(Map(MapDamage::Cluster { .. })),
        ),
        (
            format!("sif tiny block[5] {other}"),
            kind!(Map(MapDamage::Shared { .. })),
        ),
        (
            format!("sif tiny flags 0\nsif tiny block[0] {own}\nsif tiny block[3] 0"),
            kind!(Map(MapDamage::NoClusters)),
        ),
    ];
    for (requests, expected) in rows {
        let damaged = image.copy()?;
        damage(&damaged, &requests)?;
        left_alone(&damaged, &[expected])?;
    }
    Ok(())
}

/// Lost+found grows into the rest of its cluster, and then by another one.
#[test]
fn lost_found_grows_by_clusters() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let tree = TempDir::new("lost")?;
    for number in 1..=400 {
        std::fs::write(tree.join(format!("f{number}")), b"")?;
    }
    // A block has 82 names.
    for (lost, blocks) in [(90, 3), (400, 6)] {
        let image = Image::of_mib(8).args("-b 1024 -N 512 -O bigalloc -C 4096 -d");
        let image = image.args(&tree.path().display().to_string()).make()?;
        damage(&image, "rmdir lost+found\nmkdir lost+found\n")?;
        let names: String = (1..=lost)
            .map(|number| format!("unlink f{number}\n"))
            .collect();
        damage(&image, &names)?;
        let report = fix_image(image.path(), &FixOptions::default())?;
        ensure!(report.is_clean(), "{report:?}");
        image.fsck_clean()?;
        let names = image.debugfs("ls -p /lost+found")?;
        ensure!(names.matches("/#").count() == lost, "{names}");
        let stat = image.debugfs("stat lost+found")?;
        let size = format!("Size: {}", blocks * 1024);
        ensure!(stat.contains(&size), "not {blocks} blocks: {stat}");
        let clusters = format!("Blockcount: {}", u64::div_ceil(blocks, 4) * 8);
        ensure!(stat.contains(&clusters), "{stat}");
    }
    Ok(())
}

/// A file of quotas that is made anew has whole clusters.
#[test]
fn files_of_quotas_are_made_anew_in_clusters() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = image_of(CLUSTERS[2])?;
    damage(
        &image,
        "sif sparse uid 16777216\nsif slow uid 33554432\nsif fast uid 50331648\n\
         sif chr uid 67108864\nsif blk uid 83886080\nsif fifo uid 100663296",
    )?;
    repaired(&image, kind!(Quota(QuotaDamage::Usage { .. })))?;
    let image = image_of(CLUSTERS[2])?;
    damage(&image, "sif file uid 1001")?;
    repaired(&image, kind!(Quota(QuotaDamage::Usage { .. })))
}

/// The first copy lies behind as many clusters as a block has bits.
#[test]
fn a_lost_superblock_is_found_behind_the_clusters() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let offset = 2 * 8192 * 1024;
    let image = base(36, "-b 1024 -N 320 -O bigalloc -C 2048", false)?;
    image.patch(1024, 1024, |bytes| bytes.fill(0))?;
    let device = FileDevice::open(image.path(), OpenMode::ReadOnly)?;
    ensure!(find_superblock_copy(&device) == Some(offset), "not found");
    drop(device);
    let options = FixOptions {
        superblock: Some(offset),
        ..FixOptions::default()
    };
    let report = fix_image(image.path(), &options)?;
    ensure!(report.is_clean(), "{report:?}");
    image.fsck_clean()
}
