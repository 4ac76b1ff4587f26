//! Known damage, one kind at a time: what is repaired, and what is left.

#[path = "../../check/tests/check_kit/mod.rs"]
mod check_kit;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use check_kit::{BASES, base, damage};
use extant_blockdev::MemoryDevice;
use extant_fix::{Error, FixOptions, Report, fix, fix_image};
use extant_testkit::mutate::{Kind, Map};
use extant_testkit::{Context, Image, Need, Result, bail, ensure, need};

const NEEDS: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
    Need::Tool("e2fsck"),
];

/// A damage: the base, by its index, requests of debugfs, and a part of what is then repaired.
const REPAIRED: &[(usize, &str, &str)] = &[
    (0, "sif file links_count 7", "link count 7, found 1"),
    (1, "sif sub links_count 2", "link count 2, found 3"),
    (0, "sif file blocks 98", "counts 98 sectors"),
    (2, "sif sparse blocks 2", "counts 2 sectors"),
    (0, "ssv free_blocks_count 5", "5 free blocks, found"),
    (1, "ssv free_inodes_count 5", "5 free inodes, found"),
    (
        0,
        "set_bg 0 free_blocks_count 5\nset_bg 0 checksum calc",
        "5 free blocks, found",
    ),
    (
        2,
        "set_bg 1 free_inodes_count 5\nset_bg 1 checksum calc",
        "5 free inodes, found",
    ),
    (
        3,
        "set_bg 0 used_dirs_count 9\nset_bg 0 checksum calc",
        "9 directories, found",
    ),
    (
        3,
        "set_bg 5 itable_unused 999\nset_bg 5 checksum calc",
        "999 inodes that were never used",
    ),
    (1, "set_bg 0 flags 2", "for which a feature is missing"),
    (0, "setb 3500 10", "free but marked in use"),
    (1, "freeb 3 2", "2 in use but marked free"),
    (0, "seti <120>", "1 free but marked in use"),
    (5, "freei file", "1 in use but marked free"),
    (0, "unlink file", "no name leads to it"),
    (
        1,
        "unlink sub/deep",
        "directory without a way from the root",
    ),
    (4, "unlink big", "directory without a way from the root"),
    (0, "ssv state 3", "marked as having errors"),
    (2, "ssv state 0", "not marked as clean"),
];

fn run(image: &Image, dry_run: bool) -> Result<Report> {
    let options = FixOptions {
        dry_run,
        ..FixOptions::default()
    };
    Ok(fix_image(image.path(), &options)?)
}

fn texts(report: &Report) -> Vec<String> {
    report.fixed.iter().map(ToString::to_string).collect()
}

/// Repairs an image completely: a dry run says the same and writes nothing, e2fsck agrees, and
/// there is nothing to do any more.
fn repaired(image: &Image, says: &str) -> Result<()> {
    let before = image.fingerprint()?;
    let dry = run(image, true)?;
    ensure!(image.fingerprint()? == before, "a dry run has written");
    let report = run(image, false)?;
    let fixed = texts(&report);
    ensure!(
        fixed == texts(&dry),
        "{fixed:?}, not as the dry run: {dry:?}"
    );
    ensure!(report.is_clean() && report.has_changed(), "{report:?}");
    ensure!(
        fixed.iter().any(|line| line.contains(says)),
        "{says}: {fixed:?}"
    );
    image.fsck_clean()?;
    let after = image.fingerprint()?;
    ensure!(after != before, "nothing was written");
    let again = run(image, false)?;
    ensure!(!again.has_changed() && again.is_clean(), "{again:?}");
    ensure!(image.fingerprint()? == after, "a clean image was written");
    Ok(())
}

#[test]
fn each_damage_is_repaired() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let mut made = BTreeMap::new();
    for (at, request, says) in REPAIRED {
        let (name, mib, args, dirty) = BASES[*at];
        if !made.contains_key(at) {
            made.insert(*at, base(mib, args, dirty)?);
        }
        let image = made[at].copy()?;
        damage(&image, request)?;
        repaired(&image, says).context(|| format!("{name}: {request}"))?;
    }
    Ok(())
}

#[test]
fn lost_files_get_a_name_and_keep_what_they_have() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = BASES[0];
    let image = base(mib, args, dirty)?;
    let number = |path: &str| -> Result<String> {
        let stat = image.debugfs(&format!("stat {path}"))?;
        let number = stat.split_whitespace().nth(1).unwrap_or_default();
        Ok(number.to_owned())
    };
    let (file, sub) = (number("file")?, number("sub")?);
    damage(&image, "unlink file\nunlink sub")?;
    repaired(&image, "no name leads to it")?;
    let bytes = image.debugfs(&format!("cat /lost+found/#{file}"))?;
    ensure!(bytes == "\u{7}".repeat(5000), "{} bytes", bytes.len());
    let hard = image.debugfs(&format!("cat /lost+found/#{sub}/deep/hard"))?;
    ensure!(hard == "tiny", "{hard}");
    Ok(())
}

/// One wrong checksum on a structure of each kind.
#[test]
fn each_checksum_is_stored_anew() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for base_at in [0, 3, 4, 5] {
        let (name, mib, args, dirty) = BASES[base_at];
        let image = base(mib, args, dirty)?;
        let bytes = fs::read(image.path())?;
        let map = Map::of(&bytes);
        let mut tried = 0;
        for kind in map.kinds() {
            let found = map.found().iter().rfind(|found| found.kind == *kind);
            let Some(found) = found else { continue };
            let (at, says) = match kind {
                Kind::Superblock => (1020, "bad superblock checksum"),
                Kind::Descriptor => (30, "checksum"),
                Kind::Inode => (124, "checksum"),
                Kind::DirLeaf | Kind::DirRoot | Kind::DirNode => (found.len - 4, "checksum"),
                Kind::ExtentNode => {
                    let max = bytes[found.at + 4..found.at + 6].to_vec();
                    let max = usize::from(u16::from_le_bytes([max[0], max[1]]));
                    (12 + 12 * max, "checksum")
                }
                Kind::XattrBlock => (16, "bad attribute block checksum"),
                _ => continue,
            };
            // The map has copies of the superblock, too.
            let place = if *kind == Kind::Superblock {
                1024
            } else {
                found.at
            };
            let spoiled = image.copy()?;
            spoiled.patch((place + at) as u64, 1, |byte| byte[0] ^= 0x40)?;
            repaired(&spoiled, says).context(|| format!("{name}: {kind:?}"))?;
            // The sound structure had that checksum: the image is what it was. But the flags of a
            // descriptor are not relied on, and logs and clocks are written.
            let same = fs::read(spoiled.path())? == bytes;
            let exact = same || *kind == Kind::Descriptor || base_at == 0 || base_at == 4;
            ensure!(exact, "{name}: {kind:?} is another image");
            tried += 1;
        }
        ensure!(tried >= 5, "{name}: {tried} kinds");
    }
    Ok(())
}

#[test]
fn a_wrong_kind_and_parent_and_reference_are_stored_anew() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = BASES[2];
    let image = base(mib, args, dirty)?;
    let bytes = fs::read(image.path())?;
    let find = |what: &[u8]| bytes.windows(what.len()).position(|window| window == what);
    // The entry of `tiny` in the root: its header is in front of the name.
    let Some(tiny) = find(b"\x04\x01tiny") else {
        bail!("no entry")
    };
    let wrong = image.copy()?;
    wrong.patch(tiny as u64 + 1, 1, |kind| kind[0] = 7)?;
    repaired(&wrong, "says kind 7")?;
    ensure!(fs::read(wrong.path())? == bytes, "another kind");
    let map = Map::of(&bytes);
    let block = map
        .found()
        .iter()
        .find(|found| found.kind == Kind::XattrBlock);
    let Some(block) = block else {
        bail!("no attributes")
    };
    let wrong = image.copy()?;
    wrong.patch(block.at as u64 + 4, 1, |count| count[0] = 9)?;
    repaired(&wrong, "reference count 9, used by")?;
    ensure!(fs::read(wrong.path())? == bytes, "another count");
    // The first block of `sub/deep`: its entry of "..".
    let stat = image.debugfs("bmap sub/deep 0")?;
    let at = stat.trim().parse::<u64>()? * 1024 + 12;
    let wrong = image.copy()?;
    wrong.patch(at, 1, |parent| parent[0] = 2)?;
    repaired(&wrong, "\"..\" leads to inode 2")?;
    ensure!(fs::read(wrong.path())? == bytes, "another parent");
    Ok(())
}

#[test]
fn orphans_are_finished_and_logs_replayed() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = BASES[6];
    let image = base(mib, args, dirty)?;
    ensure!(image.needs_recovery()?, "the base is not dirty");
    let report = run(&image, false)?;
    ensure!(report.is_clean() && report.replayed == 1, "{report:?}");
    image.fsck_clean()?;
    ensure!(!image.needs_recovery()?, "the log is not empty");

    let (_, mib, args, dirty) = BASES[0];
    let image = base(mib, args, dirty)?;
    let stat = image.debugfs("stat file")?;
    let number = stat
        .split_whitespace()
        .nth(1)
        .unwrap_or_default()
        .to_owned();
    let requests = format!("unlink file\nsif <{number}> links_count 0\nssv last_orphan {number}");
    damage(&image, &requests)?;
    let report = run(&image, false)?;
    ensure!(report.is_clean() && report.orphans == 1, "{report:?}");
    image.fsck_clean()?;
    let stat = image.debugfs(&format!("stat <{number}>"))?;
    ensure!(stat.contains("Blockcount: 0"), "{stat}");
    Ok(())
}

/// What a person has to decide: reported, and nothing that depends on it is touched.
#[test]
fn what_leaves_a_choice_is_left() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    // Requests, what is left, and whether anything is written.
    let rows: &[(usize, &str, &[&str], bool)] = &[
        // Two owners: no bitmap follows the maps.
        (
            1,
            "sif tiny block[0] {block 0}\nsetb 3500 10",
            &["has another owner as well", "free but marked in use"],
            false,
        ),
        // An entry without an inode: link counts are left, checksums of others are not.
        (
            0,
            "clri tiny\nsif file links_count 7",
            &["which is not in use", "link count 7, found 1"],
            false,
        ),
        // A broken map: what it owned is not freed.
        (
            0,
            "sif sparse block[0] 5",
            &["free but marked in use"],
            false,
        ),
        // The sectors of a sound file are right again whatever else is wrong.
        (
            0,
            "clri tiny\nsif file blocks 98",
            &["which is not in use"],
            true,
        ),
    ];
    for (at, request, left, written) in rows {
        let (name, mib, args, dirty) = BASES[*at];
        let image = base(mib, args, dirty)?;
        damage(&image, request)?;
        let before = image.fingerprint()?;
        let report = run(&image, false).context(|| (*request).to_owned())?;
        let all: Vec<String> = report.left.iter().map(ToString::to_string).collect();
        for part in *left {
            ensure!(
                all.iter().any(|line| line.contains(part)),
                "{name}: {request}: {all:?}"
            );
        }
        let changed = image.fingerprint()? != before;
        ensure!(
            changed == *written,
            "{request}: written: {changed}, {report:?}"
        );
        ensure!(report.fixed.is_empty() != *written, "{request}: {report:?}");
    }
    Ok(())
}

#[test]
fn what_cannot_be_judged_is_an_error_and_not_written() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = BASES[5];
    let image = base(mib, args, dirty)?;
    // The checksum is wrong, and so is what the copies say.
    let wrong = image.copy()?;
    wrong.patch(1024, 1, |inodes| inodes[0] ^= 0x20)?;
    let before = wrong.fingerprint()?;
    ensure!(run(&wrong, false).is_err(), "another geometry");
    ensure!(wrong.fingerprint()? == before, "written");
    let empty = fix(Arc::new(MemoryDevice::new(1 << 20)), &FixOptions::default());
    ensure!(matches!(empty, Err(Error::Superblock(_))), "{empty:?}");
    let short = fix(Arc::new(MemoryDevice::new(1000)), &FixOptions::default());
    ensure!(short.is_err(), "{short:?}");
    Ok(())
}

/// Where the extent in the inode of `file` stores its first block, with the number of blocks.
fn first_extent(image: &Image) -> Result<(u64, u64)> {
    let imap = image.debugfs("imap file")?;
    let words: Vec<&str> = imap.split([' ', ',', '\n']).collect();
    let after = |word: &str| {
        let at = words.iter().rposition(|other| *other == word);
        at.and_then(|at| words.get(at + 1)).copied()
    };
    let (Some(block), Some(offset)) = (after("block"), after("offset")) else {
        bail!("{imap}")
    };
    let offset = u64::from_str_radix(offset.trim_start_matches("0x"), 16)?;
    let inode = block.parse::<u64>()? * 1024 + offset;
    // The map is at byte 40; its header has 12 bytes.
    Ok((inode + 40 + 12 + 8, 5))
}

/// A number that differs from `from` in one bit and begins `len` free blocks.
fn free_neighbour(image: &Image, from: u32, len: u64) -> Result<u32> {
    for bit in 0..12 {
        let other = from ^ (1 << bit);
        let said = image.debugfs(&format!("testb {other} {len}"))?;
        if said.matches("not in use").count() as u64 == len {
            return Ok(other);
        }
    }
    bail!("no free blocks one bit from {from}")
}

/// A repair has to leave the whole image as it is, and say so.
fn left_alone(image: &Image, says: &[&str]) -> Result<()> {
    let before = image.fingerprint()?;
    let report = run(image, false)?;
    ensure!(!report.is_clean() && !report.has_changed(), "{report:?}");
    ensure!(image.fingerprint()? == before, "written: {report:?}");
    let left: Vec<String> = report.left.iter().map(ToString::to_string).collect();
    for part in says {
        ensure!(
            left.iter().any(|line| line.contains(part)),
            "{part}: {left:?}"
        );
    }
    Ok(())
}

/// A flipped bit in a map: the checksum of the map and the bitmaps both speak against it.
#[test]
fn a_map_that_bitmaps_contradict_gets_no_new_checksum() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = BASES[0];
    let image = base(mib, args, dirty)?;
    let bytes = fs::read(image.path())?;
    let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
    let says = [
        "checksum",
        "free but marked in use",
        "in use but marked free",
    ];
    let (at, len) = first_extent(&image)?;
    let wrong = image.copy()?;
    let other = free_neighbour(&image, number(usize::try_from(at)?), len)?;
    wrong.patch(at, 4, |start| start.copy_from_slice(&other.to_le_bytes()))?;
    left_alone(&wrong, &says).context(|| "an inode".to_owned())?;
    // The same in a leaf of an extent tree.
    let map = Map::of(&bytes);
    let Some(node) = map
        .found()
        .iter()
        .find(|found| found.kind == Kind::ExtentNode)
    else {
        bail!("no node")
    };
    let at = node.at + 12 + 8;
    let wrong = image.copy()?;
    let other = free_neighbour(&image, number(at), 1)?;
    wrong.patch(at as u64, 4, |start| {
        start.copy_from_slice(&other.to_le_bytes())
    })?;
    left_alone(&wrong, &says).context(|| "an extent node".to_owned())?;
    // The sectors of the inode contradict it: what was wrong before its checksum is not known.
    let wrong = image.copy()?;
    let (at, _) = first_extent(&image)?;
    wrong.patch(at - 60 + 28, 1, |sectors| sectors[0] ^= 0x40)?;
    left_alone(&wrong, &["checksum", "sectors"]).context(|| "sectors".to_owned())?;
    Ok(())
}

/// A flipped bit in an entry: the checksum of the block and the link counts speak against it.
#[test]
fn a_directory_that_links_contradict_gets_no_new_checksum() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = BASES[0];
    let image = base(mib, args, dirty)?;
    let bytes = fs::read(image.path())?;
    let find = |what: &[u8]| bytes.windows(what.len()).position(|window| window == what);
    let (Some(tiny), Some(file)) = (find(b"\x04\x01tiny"), find(b"\x04\x01file")) else {
        bail!("no entry")
    };
    let other = bytes[file - 6..file - 2].to_vec();
    let wrong = image.copy()?;
    wrong.patch(tiny as u64 - 6, 4, |ino| ino.copy_from_slice(&other))?;
    left_alone(&wrong, &["checksum", "link count"])
}
