//! Damage that leaves a choice, or speaks against itself: what depends on it is left as it is.

#[path = "../../check/tests/check_kit/mod.rs"]
mod check_kit;
mod fix_kit;

use std::fs;

use check_kit::{BASES, Expected, base, damage, kind};
use extant_disk::damage::{
    BitmapDamage, DirectoryDamage, DirentError, ExtentError, GroupDescError, InodeDamage,
    InodeError, LinkDamage, MapDamage, ReservedDamage, SuperblockError, XattrError,
};
use extant_testkit::mutate::{Kind, Map};
use extant_testkit::{Context, Image, Result, bail, ensure, need};
use fix_kit::{NEEDS, are_left, free_neighbour, left_alone, repaired, run};

/// Requests on a base, what is left, and whether anything is written.
const LEFT: &[(usize, &str, &[Expected], bool)] = &[
    // Two owners: no bitmap follows the maps.
    (
        1,
        "sif tiny block[0] {block 0}\nsetb 3500 10",
        &[
            kind!(Map(MapDamage::Shared { .. })),
            kind!(Bitmap(BitmapDamage::MarkedInUse { .. })),
        ],
        false,
    ),
    // A directory with two names: what names lead to is in doubt, so nothing is freed or
    // counted.
    (
        0,
        "ln sub empty/again\nsetb 3500 10\nssv free_blocks_count 5",
        &[
            kind!(Link(LinkDamage::SecondParent { .. })),
            kind!(Bitmap(BitmapDamage::MarkedInUse { .. })),
        ],
        false,
    ),
    // An entry without an inode: link counts are left, checksums of others are not.
    (
        0,
        "clri tiny\nsif file links_count 7",
        &[
            kind!(Directory(DirectoryDamage::UnusedInode { .. })),
            kind!(Link(LinkDamage::Count {
                stored: 7,
                found: 1
            })),
        ],
        false,
    ),
    // A broken map: what it owned is not freed.
    (
        0,
        "sif sparse block[0] 5",
        &[kind!(Bitmap(BitmapDamage::MarkedInUse { .. }))],
        false,
    ),
    // A journal with a hole is of no use, and the blocks that it lost may be what is free.
    (
        1,
        "sif <8> block[2] 0",
        &[kind!(Reserved(ReservedDamage::NotMapped { block: 2 }))],
        false,
    ),
    (
        4,
        "sif <12> block[3] 1",
        &[kind!(Reserved(ReservedDamage::NotMapped { block: 0 }))],
        false,
    ),
    // A device that is protected from changes, and has more than its number: perhaps none.
    (
        0,
        "sif chr flags 0x10\nsif chr block[9] 77",
        &[kind!(Inode(InodeDamage::ProtectedSpecial))],
        false,
    ),
    // A file that may have its data inside of the inode, or in the blocks of its map.
    (
        9,
        "sif sparse flags 0x10080000",
        &[kind!(Inode(InodeDamage::NoInlineAttribute))],
        false,
    ),
    (
        9,
        "sif tiny flags 0x10080000",
        &[kind!(Inode(InodeDamage::InlineExtents))],
        false,
    ),
    // The sectors of a sound file are right again whatever else is wrong.
    (
        0,
        "clri tiny\nsif file blocks 98",
        &[kind!(Directory(DirectoryDamage::UnusedInode { .. }))],
        true,
    ),
];

/// Damage that a person has to decide on is reported, and nothing that depends on it is touched.
#[test]
fn what_leaves_a_choice_is_left() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (at, request, left, written) in LEFT {
        let (name, mib, args, dirty) = BASES[*at];
        let image = base(mib, args, dirty)?;
        damage(&image, request)?;
        let before = image.fingerprint()?;
        let report = run(&image, false).context(|| (*request).to_owned())?;
        are_left(&report, left).context(|| format!("{name}: {request}"))?;
        let changed = image.fingerprint()? != before;
        ensure!(
            changed == *written,
            "{request}: written: {changed}, {report:?}"
        );
        ensure!(report.fixed.is_empty() != *written, "{request}: {report:?}");
    }
    Ok(())
}

/// Offset of the first block in the extent in the inode of `file`, with the number of blocks.
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
    let bitmaps = [
        kind!(Bitmap(BitmapDamage::MarkedInUse { .. })),
        kind!(Bitmap(BitmapDamage::MarkedFree { .. })),
    ];
    let inode = kind!(InodeRecord(InodeError::Checksum { .. }));
    let of_inode = [inode, bitmaps[0], bitmaps[1]];
    let node = kind!(ExtentNode(ExtentError::BadChecksum { .. }));
    let of_node = [node, bitmaps[0], bitmaps[1]];
    let (at, len) = first_extent(&image)?;
    let wrong = image.copy()?;
    let other = free_neighbour(&image, number(usize::try_from(at)?), len)?;
    wrong.patch(at, 4, |start| start.copy_from_slice(&other.to_le_bytes()))?;
    left_alone(&wrong, &of_inode).context(|| "an inode".to_owned())?;
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
    left_alone(&wrong, &of_node).context(|| "an extent node".to_owned())?;
    // The sectors of the inode contradict it: what was wrong before its checksum is not known.
    let wrong = image.copy()?;
    let (at, _) = first_extent(&image)?;
    wrong.patch(at - 60 + 28, 1, |sectors| sectors[0] ^= 0x40)?;
    left_alone(&wrong, &[inode, kind!(Inode(InodeDamage::Sectors { .. }))])
        .context(|| "sectors".to_owned())?;
    Ok(())
}

/// A flipped bit in an entry: the checksum of the block and the link counts speak against it.
#[test]
fn a_directory_that_links_contradict_gets_no_new_checksum() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let checksum = kind!(DirBlock(DirentError::Checksum { .. }));
    for at in [0, 3] {
        let (name, mib, args, dirty) = BASES[at];
        let wrong = base(mib, args, dirty)?;
        exchange_entry(&wrong)?;
        left_alone(&wrong, &[checksum, kind!(Link(LinkDamage::Count { .. }))])
            .context(|| name.to_owned())?;
    }
    // Without a journal, on a volume that was not unmounted: a cut write leaves the same.
    let (_, mib, args, dirty) = BASES[3];
    let torn = base(mib, args, dirty)?;
    damage(&torn, "ssv state 0")?;
    exchange_entry(&torn)?;
    repaired(&torn, checksum)
}

/// Lets the entry of `tiny` lead to the inode of `file`, without a new checksum.
fn exchange_entry(image: &Image) -> Result<()> {
    let bytes = fs::read(image.path())?;
    let find = |what: &[u8]| bytes.windows(what.len()).position(|window| window == what);
    let (Some(tiny), Some(file)) = (find(b"\x04\x01tiny"), find(b"\x04\x01file")) else {
        bail!("no entry")
    };
    let other = bytes[file - 6..file - 2].to_vec();
    image.patch(tiny as u64 - 6, 4, |ino| ino.copy_from_slice(&other))
}

/// A flipped bit in the location of a bitmap: the bitmaps speak against the descriptor.
#[test]
fn a_descriptor_that_bitmaps_contradict_gets_no_new_checksum() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let checksum = kind!(GroupDesc(GroupDescError::BadChecksum { .. }));
    for (at, name) in [(0, "one group"), (3, "several groups"), (2, "crc16")] {
        let (_, mib, args, dirty) = BASES[at];
        let image = base(mib, args, dirty)?;
        // The descriptors begin in block 2; a descriptor begins with the two bitmaps.
        for (field, what) in [(0, "block bitmap"), (4, "inode bitmap")] {
            let at = 2 * 1024 + field;
            let stored = image.bytes(at, 4)?;
            let stored = u32::from_le_bytes([stored[0], stored[1], stored[2], stored[3]]);
            let other = free_neighbour(&image, stored, 1)?;
            let wrong = image.copy()?;
            wrong.patch(at, 4, |field| field.copy_from_slice(&other.to_le_bytes()))?;
            let marked = kind!(Bitmap(BitmapDamage::MarkedFree { .. }));
            left_alone(&wrong, &[checksum, marked]).context(|| format!("{name}: {what}"))?;
        }
        // With nothing that contradicts it the descriptor gets its checksum.
        let wrong = image.copy()?;
        wrong.patch(2 * 1024 + 30, 1, |sum| sum[0] ^= 0x40)?;
        repaired(&wrong, checksum).context(|| format!("{name}: a checksum"))?;
    }
    Ok(())
}

/// Checks that a repair refuses the image with a bit of its superblock flipped, and writes nothing.
fn is_refused(image: &Image, (at, bit): (u64, u8), field: &str) -> Result<()> {
    let wrong = image.copy()?;
    wrong.patch(1024 + at, 1, |byte| byte[0] ^= bit)?;
    let before = wrong.fingerprint()?;
    let refused = run(&wrong, false);
    ensure!(refused.is_err(), "{field}: {refused:?}");
    ensure!(wrong.fingerprint()? == before, "{field}: written");
    Ok(())
}

/// One bit in the superblock that the checksum covers: a copy says that it was another value.
#[test]
fn a_superblock_that_a_copy_contradicts_gets_no_new_checksum() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = BASES[5];
    let image = base(mib, args, dirty)?;
    for (at, field) in [
        (0x5C, "feature_compat"),
        (0x64, "feature_ro_compat"),
        (0xE0, "journal_inum"),
        (0xEC, "hash_seed"),
        (0xFC, "def_hash_version"),
        (0x104, "first_meta_bg"),
        (0x160, "flags"),
        (0x174, "log_groups_per_flex"),
        (0x270, "checksum_seed"),
        (0x280, "orphan_file_inum"),
    ] {
        is_refused(&image, (at, 2), field)?;
    }
    Ok(())
}

/// The same without a copy: a bit is believed if everything else is sound with it.
#[test]
fn a_lone_superblock_gets_a_checksum_only_if_all_else_is_sound() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = BASES[0];
    let without_log = format!("{args} -O ^has_journal");
    for (args, fields) in [
        (
            args,
            &[
                (0x00, "inodes_count"),
                (0x20, "blocks_per_group"),
                (0x58, "inode_size"),
                // Without it, entries have no kinds.
                (0x60, "feature_incompat"),
                (0x68, "uuid"),
                (0xCE, "reserved_gdt_blocks"),
                (0xE0, "journal_inum"),
                (0xEC, "hash_seed"),
            ][..],
        ),
        // Nothing has a right checksum with another UUID.
        (&without_log, &[(0x60, "feature_incompat"), (0x68, "uuid")]),
    ] {
        let image = base(mib, args, dirty)?;
        for (at, field) in fields {
            is_refused(&image, (*at, 2), field)?;
        }
        // Of a label, and of counts, nothing else depends.
        for at in [0x0C, 0x78] {
            let wrong = image.copy()?;
            wrong.patch(1024 + at, 1, |byte| byte[0] ^= 2)?;
            repaired(
                &wrong,
                kind!(Superblock(SuperblockError::BadChecksum { .. }, _)),
            )
            .context(|| format!("{at:#x}"))?;
        }
    }
    Ok(())
}

/// A write of the marks alone that was cut leaves a checksum that is right for other marks. That
/// confirms all else, and the damage beside it is repaired.
#[test]
fn a_lone_superblock_with_other_marks_is_confirmed() -> Result<()> {
    /// The bytes of the state and of the features, with the marks there.
    const VALID: (u64, u8) = (0x3A, 1);
    const ERROR: (u64, u8) = (0x3A, 2);
    const RECOVER: (u64, u8) = (0x60, 4);
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = BASES[0];
    let image = base(mib, args, dirty)?;
    damage(&image, "setb 3500 10")?;
    for marks in [
        &[VALID][..],
        &[ERROR],
        &[RECOVER],
        &[VALID, RECOVER],
        &[VALID, ERROR, RECOVER],
    ] {
        let torn = image.copy()?;
        for (at, mark) in marks {
            torn.patch(1024 + at, 1, |byte| byte[0] ^= mark)?;
        }
        let checksum = kind!(Superblock(SuperblockError::BadChecksum { .. }, _));
        repaired(&torn, checksum).context(|| format!("{marks:?}"))?;
    }
    Ok(())
}

/// A smaller volume has another bitmap in its last group: that does not follow from one bit.
#[test]
fn a_lone_superblock_does_not_shrink_its_volume() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    // 5120 blocks; 4096 with the bit flipped.
    let image = base(20, "-b 4096", false)?;
    is_refused(&image, (0x05, 4), "blocks_count")
}

/// Without checksums the primary superblock is believed no more than its copies: what follows from
/// a bit of it alone is not written, and least of all over the copies.
#[test]
fn copies_outlive_a_superblock_without_checksum_that_they_contradict() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let clusters = "-b 4096 -N 640 -g 256 -O bigalloc,^metadata_csum -C 65536";
    for (args, at, bit, field) in [
        ("-b 1024 -O ^metadata_csum", 0x60, 2, "feature_incompat"),
        ("-b 1024 -O ^metadata_csum,uninit_bg", 0x68, 2, "uuid"),
        ("-b 1024 -O ^metadata_csum,^uninit_bg", 0x68, 2, "uuid"),
        // A block, instead of sixteen.
        (clusters, 0x1C, 4, "log_cluster_size"),
    ] {
        let image = base(32, args, false)?;
        let wrong = image.copy()?;
        wrong.patch(1024 + at, 1, |byte| byte[0] ^= bit)?;
        let before = wrong.fingerprint()?;
        let report = run(&wrong, false);
        ensure!(wrong.fingerprint()? == before, "{args} {field}: {report:?}");
    }
    Ok(())
}

/// Sound images of every base are left as they are, byte by byte.
#[test]
fn clean_images_are_not_written() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (name, mib, args, dirty) in BASES.iter().filter(|base| !base.3) {
        let image = base(*mib, args, *dirty)?;
        let before = fs::read(image.path())?;
        let report = run(&image, false)?;
        ensure!(
            report.is_clean() && !report.has_changed(),
            "{name}: {report:?}"
        );
        ensure!(fs::read(image.path())? == before, "{name}: written");
    }
    Ok(())
}

/// A wrong kind of an entry inside of an inode is left: it is in no block.
#[test]
fn an_entry_inside_of_an_inode_keeps_its_kind() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(8).args("-b 1024 -O inline_data,^metadata_csum,^has_journal");
    let image = image.make()?;
    image.debugfs_write("mkdir dir")?;
    image.debugfs_write("mkdir dir/found-by-this-name")?;
    let mut bytes = fs::read(image.path())?;
    let name = b"found-by-this-name";
    let at = bytes.windows(name.len()).position(|part| part == name);
    let Some(at) = at else { bail!("no entry") };
    bytes[at - 1] = 1; // a regular file
    fs::write(image.path(), &bytes)?;
    let report = run(&image, false)?;
    are_left(&report, &[kind!(Directory(DirectoryDamage::Kind { .. }))])?;
    ensure!(fs::read(image.path())? == bytes, "written: {report:?}");
    Ok(())
}

/// A file that may have its data inside, and whose attributes do not say.
#[test]
fn blocks_are_not_freed_beside_attributes_that_cannot_be_read() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(8).args("-b 1024 -O inline_data,^metadata_csum,^has_journal");
    let image = image.make()?;
    let source = image.path().with_extension("data");
    fs::write(&source, [5; 20_000])?;
    image.debugfs_write(&format!("write {} file", source.display()))?;
    image.debugfs_write("ea_set file user.found-by-this-name value")?;
    image.debugfs_write("sif file flags 0x10080000")?;
    let mut bytes = fs::read(image.path())?;
    let name = b"found-by-this-name";
    let at = bytes.windows(name.len()).position(|part| part == name);
    let Some(at) = at else { bail!("no attribute") };
    bytes[at - 14..at - 12].fill(0xff); // the place of its value
    fs::write(image.path(), &bytes)?;
    let report = run(&image, false)?;
    are_left(&report, &[kind!(AttributeTable(XattrError::Value { .. }))])?;
    ensure!(fs::read(image.path())? == bytes, "written: {report:?}");
    Ok(())
}

/// Inodes on a bad block of a table may own what seems to be free.
#[test]
fn nothing_is_freed_while_inodes_lie_on_bad_blocks() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(8)
        .args("-b 1024 -N 256 -I 128 -O none")
        .make()?;
    let stats = image.debugfs("stats")?;
    let after = stats.split("inode table at ").nth(1).unwrap_or_default();
    let digits = after.split(|c: char| !c.is_ascii_digit()).next();
    let table: u64 = digits.unwrap_or_default().parse()?;
    damage(
        &image,
        &format!("sif <1> block[0] {}\nsif <1> blocks 2", table + 9),
    )?;
    image.fsck_repair()?;
    let report = run(&image, false)?;
    ensure!(report.is_clean() && !report.has_changed(), "{report:?}");
    damage(&image, "setb 3500 10")?;
    left_alone(&image, &[kind!(Bitmap(BitmapDamage::MarkedInUse { .. }))])
}
