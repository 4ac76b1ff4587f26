//! Usage that quotas count, and damage of their files: `check` and e2fsck on the same volumes.
#![allow(clippy::unwrap_used, reason = "tests")]

mod check_kit;

use check_kit::mutants::NEEDS;
use check_kit::{Expected, Verdict, base, damage, kind, verdict};
use extant_disk::damage::{QuotaDamage, QuotaError, ReservedDamage};
use extant_disk::quota::QuotaKind;
use extant_testkit::{Context, Image, Result, TempDir, ensure, need};

const ALL: &str = "-b 1024 -N 160 -O quota,project";

/// Volumes on which both find nothing: `base` makes files of many owners, has e2fsck count them,
/// and asks both.
#[test]
fn both_count_the_same() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (mib, args) in [
        (4, ALL),
        (4, "-b 1024 -N 160 -I 128 -O quota,^has_journal"),
        (24, "-b 4096 -N 160 -O quota,project,orphan_file -J size=4"),
        (4, "-b 1024 -N 160 -O quota -E quotatype=grpquota"),
        // Values in inodes of their own count for the inodes that have them, by reference.
        (4, "-b 1024 -N 160 -O quota,project,ea_inode"),
        (4, "-b 1024 -N 160 -O quota,project,inline_data -I 512"),
        (4, "-b 1024 -N 160 -O quota,project,^extent,^64bit"),
        (
            4,
            "-b 1024 -N 160 -O quota,project,^metadata_csum,^huge_file",
        ),
        (16, "-b 65536 -N 160 -O quota,project,^has_journal"),
        (8, "-b 1024 -N 160 -O quota,project,bigalloc -C 4096"),
    ] {
        base(mib, args, false).context(|| args.to_owned())?;
    }
    Ok(())
}

/// One damage of a file of quotas, or of what an inode counts for: both find it.
#[test]
fn each_damage_is_found_by_both() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let usage = kind!(Quota(QuotaDamage::Usage { .. }));
    let cases: &[(&str, Expected)] = &[
        // An id that has an entry, and one that has none.
        ("sif file uid 1001", usage),
        ("sif file gid 12345", usage),
        ("sif file projid 19", usage),
        // Bytes, and inodes.
        ("zap_block -o 64 -l 1 -p 1 {quota 5}", usage),
        ("zap_block -o 40 -l 1 -p 9 {quota 5}", usage),
        (
            "sif <3> size 1024",
            kind!(Quota(QuotaDamage::File {
                kind: QuotaKind::User,
                error: QuotaError::Blocks { .. },
            })),
        ),
        (
            "zap_block -o 4 -l 1 -p 7 {quota 0}",
            kind!(Quota(QuotaDamage::File {
                error: QuotaError::Version { found: 7 },
                ..
            })),
        ),
        (
            "zap_block -o 2 -l 1 -p 7 {quota 1}",
            kind!(Quota(QuotaDamage::File {
                error: QuotaError::Reference { block: 1, .. },
                ..
            })),
        ),
        (
            "sif <12> mode 0",
            kind!(Reserved(ReservedDamage::QuotaMode { .. })),
        ),
    ];
    for (request, expected) in cases {
        let image = base(4, ALL, false)?;
        damage(&image, request)?;
        let verdict = verdict(image.path())?;
        ensure!(
            expected.is_in(verdict.kinds()) && !verdict.e2fsck_is_clean(),
            "{request}: {verdict:?}"
        );
    }
    Ok(())
}

/// Numbers of inodes that Linux refuses: e2fsck reads what is there.
#[test]
fn a_file_has_its_number() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let no_file = kind!(Quota(QuotaDamage::NoFile { .. }));
    for request in ["ssv usr_quota_inum 12", "ssv prj_quota_inum 4"] {
        let image = base(4, ALL, false)?;
        damage(&image, request)?;
        let verdict = verdict(image.path())?;
        ensure!(no_file.is_in(verdict.kinds()), "{request}: {verdict:?}");
    }
    Ok(())
}

/// A symbolic link inside of its inode counts on Linux, and not for e2fsck: both are sound.
#[test]
fn links_inside_of_inodes_may_count() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let usage = kind!(Quota(QuotaDamage::Usage { .. }));
    let tree = TempDir::new("tree")?;
    std::os::unix::fs::symlink("z".repeat(100), tree.join("link"))?;
    let image = Image::of_mib(4)
        .args("-b 1024 -N 64 -I 512 -O quota,inline_data -d")
        .args(&tree.path().display().to_string())
        .make()?;
    let verdict_of = |inodes: u8| -> Result<Verdict> {
        for file in [3, 4] {
            let block = image.debugfs(&format!("bmap <{file}> 5"))?;
            let at = format!("zap_block -o 40 -l 1 -p {inodes} {}", block.trim());
            damage(&image, &at)?;
        }
        verdict(image.path())
    };
    for inodes in [2, 3] {
        let verdict = verdict_of(inodes)?;
        ensure!(verdict.is_clean(), "{verdict:?}");
        ensure!(verdict.e2fsck_is_clean() == (inodes == 2), "{verdict:?}");
    }
    for inodes in [1, 4] {
        let verdict = verdict_of(inodes)?;
        ensure!(usage.is_in(verdict.kinds()), "{verdict:?}");
    }
    Ok(())
}
