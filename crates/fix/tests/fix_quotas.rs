//! Files of quotas: usage in place, files made anew, limits kept.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../check/tests/check_kit/mod.rs"]
mod check_kit;
mod fix_kit;

use check_kit::{base, damage, kind};
use extant_disk::damage::{QuotaDamage, QuotaError};
use extant_testkit::{Image, Result, ensure, need};
use fix_kit::{NEEDS, repaired, run};

const SMALL: &str = "-b 1024 -N 160 -O quota,project";

/// Lines of debugfs's `list_quota` of users, without those about the program.
fn users(image: &Image) -> Result<Vec<String>> {
    let listed = image.debugfs("list_quota user")?;
    Ok(listed.lines().map(str::to_owned).collect())
}

/// The line of `id` among `lines`, in words: id, bytes, and two limits; inodes, and two limits.
fn line(lines: &[String], id: u32) -> Option<Vec<u64>> {
    let words = |line: &String| -> Option<Vec<u64>> {
        line.split_whitespace()
            .map(|word| word.parse().ok())
            .collect()
    };
    let found = lines.iter().filter_map(words);
    found
        .into_iter()
        .find(|words| words.first() == Some(&u64::from(id)))
}

/// A volume with a limit of 5000 KiB and 77 inodes for user 0, whose entry is the first.
fn with_limits(mib: u64, args: &str) -> Result<Image> {
    let image = base(mib, args, false)?;
    let block = match args.contains("-b 4096") {
        true => "-o 1024 {quota 1}",
        false => "{quota 5}",
    };
    let (at, block) = block.rsplit_once('{').unwrap();
    let first: u64 = at.trim().trim_start_matches("-o ").parse().unwrap_or(0);
    for (byte, value) in [(16 + 32, 0x88), (16 + 33, 0x13), (16 + 8, 77)] {
        let at = first + byte;
        damage(
            &image,
            &format!("zap_block -o {at} -l 1 -p {value} {{{block}"),
        )?;
    }
    image.fsck_clean()?;
    Ok(image)
}

#[test]
fn wrong_usage_is_set_in_place() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let usage = kind!(Quota(QuotaDamage::Usage { .. }));
    for (mib, args, requests) in [
        (4, SMALL, "zap_block -o 64 -l 3 -p 1 {quota 5}"),
        (4, SMALL, "zap_block -o 40 -l 1 -p 0 {quota 5}"),
        (4, SMALL, "sif file uid 1001"),
        (
            24,
            "-b 4096 -N 160 -O quota,project -J size=4",
            "sif file uid 1001",
        ),
    ] {
        let image = with_limits(mib, args)?;
        let before = users(&image)?;
        damage(&image, requests)?;
        repaired(&image, usage)?;
        let after = line(&users(&image)?, 0).unwrap();
        let limits = (after[2], after[3], after[5], after[6]);
        ensure!(limits == (0, 5000, 0, 77), "limits are gone: {after:?}");
        if !requests.contains("sif") {
            ensure!(users(&image)? == before, "{before:?}");
        }
    }
    Ok(())
}

/// Ids without an entry: the file is made anew, in its own blocks or in others.
#[test]
fn missing_entries_are_added() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let usage = kind!(Quota(QuotaDamage::Usage { .. }));
    let blocks_of = |image: &Image| image.debugfs("blocks <3>");
    for (args, more) in [
        (SMALL, true),
        ("-b 1024 -N 160 -O quota,^has_journal,^extent,^64bit", true),
        ("-b 65536 -N 160 -O quota,^has_journal", false),
    ] {
        let mib = if more { 4 } else { 16 };
        let image = base(mib, args, false)?;
        let before = blocks_of(&image)?;
        // Each needs nodes of its own.
        damage(
            &image,
            "sif sparse uid 16777216\nsif slow uid 33554432\nsif fast uid 50331648\n\
             sif chr uid 67108864\nsif fifo gid 16777217\nsif blk projid 33554433",
        )?;
        repaired(&image, usage)?;
        ensure!((blocks_of(&image)? != before) == more, "{args}: {before}");
        for id in [16_777_216, 33_554_432, 50_331_648, 67_108_864] {
            let line = line(&users(&image)?, id);
            ensure!(line.is_some_and(|line| line[4] == 1), "{args}: no {id}");
        }
    }
    Ok(())
}

/// A file whose structure is broken is made anew, with the limits that can be read.
#[test]
fn broken_files_are_made_anew() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let file = kind!(Quota(QuotaDamage::File { .. }));
    let header = kind!(Quota(QuotaDamage::File {
        error: QuotaError::Version { .. } | QuotaError::Magic { .. },
        ..
    }));
    for (request, expected, kept) in [
        ("zap_block -o 4 -l 1 -p 7 {quota 0}", header, true),
        ("zap_block -p 0xff {quota 0}", header, true),
        ("zap_block -o 28 -l 1 -p 2 {quota 0}", file, true),
        ("zap_block -o 900 -l 4 -p 1 {quota 1}", file, true),
        ("zap_block -o 8 -l 1 -p 99 {quota 5}", file, true),
        ("zap_block -p 0xff {quota 4}", file, false),
        ("zap_block -p 0xff {quota 1}", file, false),
        ("zap_block -p 0x01 {quota 5}", file, false),
        (
            "zap_block -p 0 {quota 0}\nzap_block -p 0 {quota 1}",
            header,
            false,
        ),
        ("sif <3> size 1024", file, true),
    ] {
        let image = with_limits(4, SMALL)?;
        let before = users(&image)?;
        for request in request.lines() {
            damage(&image, request)?;
        }
        repaired(&image, expected)?;
        if kept {
            ensure!(users(&image)? == before, "{request}: {before:?}");
        }
    }
    Ok(())
}

/// More ids than a report names: one repair makes them right.
#[test]
fn many_wrong_ids_are_repaired_at_once() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = base(4, SMALL, false)?;
    let requests: Vec<String> = (0..80)
        .map(|at| {
            format!(
                "sif big/a_rather_long_file_name_to_fill_blocks_{at} uid {}",
                5000 + at
            )
        })
        .collect();
    damage(&image, &requests.join("\n"))?;
    repaired(&image, kind!(Quota(QuotaDamage::Usage { .. })))
}

/// A superblock that names a file of a user as that of quotas, or a file of quotas without a link:
/// nothing is made of it.
#[test]
fn a_file_of_something_else_is_left() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for request in ["ssv prj_quota_inum", "sif <4> links_count 0"] {
        let image = base(4, SMALL, false)?;
        let told = image.debugfs("stat sparse")?;
        let number = told.split_whitespace().nth(1).unwrap_or_default();
        let request = match request.starts_with("ssv") {
            true => format!("{request} {number}"),
            false => request.to_owned(),
        };
        damage(&image, &request)?;
        let contents = || -> Result<Vec<Vec<u8>>> {
            let inodes = ["4", "12", number];
            let contents = inodes.map(|inode| {
                let to = image.path().with_extension("content");
                image.debugfs(&format!("dump <{inode}> {}", to.display()))?;
                Ok(std::fs::read(to)?)
            });
            contents.into_iter().collect()
        };
        let before = contents()?;
        let report = run(&image, false)?;
        let damage = kind!(Quota(
            QuotaDamage::NoFile { .. } | QuotaDamage::Unlinked { .. }
        ));
        ensure!(
            damage.is_in(report.left.iter().map(|found| &found.kind)),
            "{request}: {report:?}"
        );
        ensure!(contents()? == before, "{request}: written");
    }
    Ok(())
}
