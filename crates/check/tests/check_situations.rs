//! Images that other programs make, and rare states: `check` and e2fsck agree, or Linux is the
//! judge.

mod check_kit;

use std::path::Path;
use std::sync::Arc;

use check_kit::{Expected, kind, verdict};
use extant_blockdev::{FileDevice, OpenMode};
use extant_check::{CheckOptions, Report, check};
use extant_disk::damage::{
    BitmapDamage, DirectoryDamage, InodeDamage, JournalDamage, MapDamage, ReservedDamage,
    SuperblockDamage, XattrError,
};
use extant_testkit::{Cmd, Context, Image, Need, Result, Subject, TempDir, bail, ensure, need};

const NEEDS: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
    Need::Tool("e2fsck"),
];

const LINUX: &[Need] = &[Need::Root, Need::Loop];

/// An image with the file `f` of 20 bytes.
fn with_file(args: &str) -> Result<Image> {
    let tree = TempDir::new("tree")?;
    std::fs::write(tree.join("f"), "twenty bytes of text")?;
    std::fs::write(tree.join("gone"), "x")?;
    let tree = tree.path().display().to_string();
    Image::of_mib(8).args(args).args("-d").args(&tree).make()
}

fn report(image: &Image) -> Result<Report> {
    let device = FileDevice::open(image.path(), OpenMode::ReadOnly)?;
    Ok(check(Arc::new(device), &CheckOptions::default())?)
}

/// Both find nothing, and `check` has the note `expected`; none at all without it.
fn agree_clean(image: &Image, expected: Option<Expected>) -> Result<()> {
    let verdict = verdict(image.path())?;
    ensure!(
        verdict.e2fsck_is_clean() && verdict.is_clean(),
        "{verdict:?}"
    );
    let notes = report(image)?.notes;
    let right = match expected {
        Some(expected) => expected.is_in(notes.iter().map(|note| &note.kind)),
        None => notes.is_empty(),
    };
    ensure!(right, "{expected:?}: {notes:?}");
    Ok(())
}

/// Both find damage, and `check` names it.
fn agree_damaged(image: &Image, expected: Expected) -> Result<()> {
    let verdict = verdict(image.path())?;
    let named = expected.is_in(verdict.kinds());
    ensure!(
        !verdict.e2fsck_is_clean() && named,
        "{expected:?}: {verdict:?}"
    );
    Ok(())
}

/// The number behind `words` in the output of dumpe2fs.
fn number(image: &Image, words: &str) -> Result<u64> {
    let said = Cmd::new("dumpe2fs").arg(image.path()).ok()?.out;
    let rest = said.split_once(words).map_or("", |(_, rest)| rest);
    let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit());
    Ok(digits.into_iter().next().unwrap_or_default().parse()?)
}

#[test]
fn an_attribute_block_without_the_feature_is_damage() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 4096 -O ^has_journal")?;
    image.debugfs_write(&format!("ea_set f user.x {}", "v".repeat(300)))?;
    agree_clean(&image, None)?;
    image.debugfs_write("feature -ext_attr")?;
    agree_damaged(
        &image,
        kind!(Inode(InodeDamage::AttributesWithoutFeature { .. })),
    )
}

#[test]
fn a_deleted_inode_has_its_checksum() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 4096 -O ^has_journal")?;
    let stat = image.debugfs("stat gone")?;
    let ino = stat.split_whitespace().nth(1).unwrap_or_default();
    image.debugfs_write("rm gone")?;
    agree_clean(&image, None)?;
    image.debugfs_write(&format!("sif <{ino}> checksum 0x1234"))?;
    agree_damaged(&image, kind!(Inode(InodeDamage::Deleted { .. })))
}

/// The second of two entries is told, whatever stands between them.
#[test]
fn a_name_that_stands_twice_is_damage() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 1024 -O none,filetype")?;
    let find = |what: &[u8]| -> Result<Option<usize>> {
        let bytes = std::fs::read(image.path())?;
        Ok(bytes.windows(what.len()).position(|window| window == what))
    };
    image.debugfs_write("mknod between p")?;
    image.debugfs_write("mknod again p")?;
    agree_clean(&image, None)?;
    let Some(at) = find(b"\x05\x05again")? else {
        bail!("no entry")
    };
    image.patch(at as u64, 7, |name| name.copy_from_slice(b"\x01\x05fgain"))?;
    let repeated = kind!(Directory(DirectoryDamage::RepeatedName { .. }));
    agree_damaged(&image, repeated)?;
    let findings = report(&image)?.findings;
    let told = findings.iter().filter(|one| (repeated.matches)(&one.kind));
    ensure!(told.count() == 1, "{findings:?}");
    Ok(())
}

/// Two spellings of one name are the same where case is folded, and only there. With strict
/// encoding names are UTF-8.
#[test]
fn names_that_fold_to_one_are_damage() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let repeated = kind!(Directory(DirectoryDamage::RepeatedName { .. }));
    for strict in ["", ",encoding_flags=strict"] {
        let args = "-b 1024 -O casefold,^has_journal,^metadata_csum -E encoding=utf8";
        let image = with_file(&format!("{args}{strict}"))?;
        for dir in ["folded", "plain"] {
            image.debugfs_write(&format!("mkdir {dir}"))?;
            image.debugfs_write(&format!("ln f {dir}/straße_ä"))?;
        }
        image.debugfs_write("sif f links_count 4")?;
        image.debugfs_write("sif folded flags 0x40080000")?;
        image.debugfs_write("ln f plain/STRASSE_Ä")?;
        agree_clean(&image, None)?;
        let twice = image.copy()?;
        twice.debugfs_write("ln f folded/STRASSE_Ä")?;
        agree_damaged(&twice, repeated)?;

        let block = image.debugfs("bmap folded 0")?.trim().parse::<u64>()?;
        let name = b"stra\xc3\x9fe";
        let bytes = image.bytes(block << 10, 1 << 10)?;
        let at = bytes.windows(name.len()).position(|bytes| bytes == name);
        let Some(at) = at else { bail!("no entry") };
        image.patch((block << 10) + at as u64 + 5, 1, |byte| byte.fill(b'x'))?;
        match strict {
            "" => agree_clean(&image, None)?,
            _ => agree_damaged(&image, kind!(Directory(DirectoryDamage::NotText { .. })))?,
        }
        // Where no character began.
        image.patch((block << 10) + at as u64 + 4, 2, |bytes| {
            bytes.copy_from_slice(b"x\x80")
        })?;
        match strict {
            "" => agree_clean(&image, None)?,
            _ => agree_damaged(&image, kind!(Directory(DirectoryDamage::NotText { .. })))?,
        }
    }
    Ok(())
}

/// As genext2fs leaves them: no copies, though each group has room for them.
#[test]
fn copies_that_were_never_written_are_no_damage() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 1024 -g 2048 -O none")?;
    agree_clean(&image, None)?;
    for group in 1..4 {
        image.patch((1 + group * 2048) * 1024, 2048, |bytes| bytes.fill(0))?;
    }
    agree_clean(
        &image,
        Some(kind!(SuperblockField(SuperblockDamage::SuperblockCopies {
            unusable: 3,
            copies: 3,
            ..
        }))),
    )?;
    agree_clean(
        &image,
        Some(kind!(SuperblockField(SuperblockDamage::DescriptorCopies {
            unusable: 3,
            copies: 3,
            ..
        }))),
    )
}

/// As tar2ext4 makes them: for reading only, with copies nowhere. The padding of a bitmap must be
/// set all the same.
#[test]
fn images_to_be_read_only_are_judged() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file(
        "-b 4096 -N 16 -O ^has_journal,^metadata_csum,^64bit,^resize_inode,sparse_super2 \
         -E num_backup_sb=0",
    )?;
    image.debugfs_write("feature read-only")?;
    agree_clean(&image, None)?;
    let bitmap = number(&image, "Inode bitmap at")?;
    image.patch(bitmap * 4096 + 2, 4094, |bytes| bytes.fill(0))?;
    agree_damaged(&image, kind!(Bitmap(BitmapDamage::Padding)))
}

#[test]
fn an_error_that_the_journal_remembers_is_no_damage() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 1024 -J size=1")?;
    let journal: u64 = image.debugfs("bmap <8> 0")?.trim().parse()?;
    image.patch(journal * 1024 + 32, 4, |errno| {
        errno.copy_from_slice(&(-5_i32).to_be_bytes());
    })?;
    agree_clean(
        &image,
        Some(kind!(Journal(JournalDamage::Errno { errno: -5 }))),
    )
}

/// Gives `f` an extent tree of this depth, with one entry in each node.
fn deepen(image: &Image, depth: u16) -> Result<()> {
    let data: u32 = image.debugfs("bmap f 0")?.trim().parse()?;
    let mut child = data;
    let mut requests = Vec::new();
    for level in 0..depth {
        let block = 3000 + u32::from(level);
        image.patch(u64::from(block) * 1024, 24, |node| {
            let words: [u16; 4] = [0xf30a, 1, 84, level];
            for (to, word) in node.chunks_exact_mut(2).zip(words) {
                to.copy_from_slice(&word.to_le_bytes());
            }
            // An extent of one block, or an entry of an index: each begins with block 0 of the
            // file.
            if level == 0 {
                node[16..20].copy_from_slice(&1_u32.to_le_bytes());
                node[20..24].copy_from_slice(&data.to_le_bytes());
            } else {
                node[16..20].copy_from_slice(&child.to_le_bytes());
            }
        })?;
        requests.push(format!("setb {block}"));
        child = block;
    }
    let root = [0x1_f30a, 4 | u32::from(depth) << 16, 0, 0, child, 0];
    for (at, word) in root.iter().enumerate() {
        requests.push(format!("sif f block[{at}] {word:#x}"));
    }
    let free = number(image, "Free blocks:")? - u64::from(depth);
    requests.push(format!("sif f blocks {}", 2 + 2 * depth));
    requests.push(format!("ssv free_blocks_count {free}"));
    requests.push(format!("set_bg 0 free_blocks_count {free}"));
    for request in requests {
        image.debugfs_write(&request)?;
    }
    Ok(())
}

/// Returns whether Linux reads `f`.
fn linux_reads(image: &Path) -> Result<bool> {
    let mount = Subject::Ext4.mount(image, "ro")?;
    let read = std::fs::read(mount.dir().join("f"));
    mount.unmount()?;
    Ok(read.is_ok_and(|bytes| bytes == b"twenty bytes of text"))
}

/// e2fsck only offers to make a tree shallower that Linux refuses to read.
#[test]
fn an_extent_tree_deeper_than_linux_reads_is_damage() -> Result<()> {
    if !need(NEEDS) || !need(LINUX) {
        return Ok(());
    }
    for depth in [5, 6] {
        let image = with_file("-b 1024 -O ^has_journal,^metadata_csum")?;
        deepen(&image, depth)?;
        let reads = linux_reads(image.path())?;
        let verdict = verdict(image.path())?;
        ensure!(
            verdict.e2fsck_is_clean() && verdict.is_clean() == reads && reads == (depth == 5),
            "depth {depth}, read by Linux: {reads}, {verdict:?}"
        );
    }
    Ok(())
}

/// Both accept two entries less than there is room for, in an inode and in a node.
#[test]
fn a_node_of_an_extent_tree_that_says_to_be_small_is_damage() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let args = "-b 1024 -O ^has_journal,^metadata_csum";
    for entries in [84, 82, 81_u16] {
        let image = with_file(args)?;
        deepen(&image, 1)?;
        image.patch(3000 * 1024 + 4, 2, |max| {
            max.copy_from_slice(&entries.to_le_bytes());
        })?;
        match entries {
            82.. => agree_clean(&image, None).context(|| format!("{entries}"))?,
            _ => agree_damaged(&image, kind!(Map(MapDamage::NodeCapacity { entries: 81 })))?,
        }
    }
    for entries in [2, 1] {
        let image = with_file(args)?;
        image.debugfs_write(&format!("sif f block[1] {entries}"))?;
        match entries {
            2 => agree_clean(&image, None)?,
            _ => agree_damaged(&image, kind!(Map(MapDamage::RootCapacity { entries: 1 })))?,
        }
    }
    Ok(())
}

/// e2fsck follows a value in another inode without the feature; Linux refuses the inode.
#[test]
fn a_value_in_another_inode_needs_the_feature() -> Result<()> {
    if !need(NEEDS) || !need(LINUX) {
        return Ok(());
    }
    let image = with_file("-b 4096 -I 256 -O ea_inode,^has_journal")?;
    let value = image.path().with_extension("value");
    std::fs::write(&value, [b'v'; 9000])?;
    image.debugfs_write(&format!("ea_set -f {} f user.big", value.display()))?;
    // It counts the blocks of the value.
    image.fsck_repair()?;
    image.debugfs_write("feature -ea_inode")?;
    ensure!(!linux_reads(image.path())?, "Linux reads it");
    let verdict = verdict(image.path())?;
    let expected = kind!(AttributeTable(XattrError::ValueInode { .. }));
    ensure!(
        verdict.e2fsck_is_clean() && expected.is_in(verdict.kinds()),
        "{verdict:?}"
    );
    Ok(())
}

/// Nothing reads the flags of inodes that only have numbers.
#[test]
fn flags_of_inodes_without_a_use_are_no_damage() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 1024 -O none,filetype")?;
    for ino in [9, 10] {
        image.debugfs_write(&format!("sif <{ino}> flags 0x10020820"))?;
    }
    agree_clean(&image, None)
}

/// As badblocks(8) finds them on a device with a file system: two table blocks, of inodes without a
/// use and of one that has a name.
#[test]
fn bad_blocks_in_inode_tables_are_no_damage() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 1024 -N 256 -I 128 -O none,filetype")?;
    let table = number(&image, "Inode table at")?;
    image.debugfs_write(&format!("sif <1> block[0] {}", table + 9))?;
    image.debugfs_write("sif <1> blocks 2")?;
    image.fsck_repair()?;
    agree_clean(
        &image,
        Some(kind!(Reserved(ReservedDamage::BadBlocksInTables {
            blocks: 1
        }))),
    )?;
    // The block of the inodes 9 to 16, lost+found's among them.
    image.debugfs_write(&format!("sif <1> block[1] {}", table + 1))?;
    image.debugfs_write("sif <1> blocks 4")?;
    agree_damaged(
        &image,
        kind!(Directory(DirectoryDamage::InodeOnBadBlock { .. })),
    )
}

/// GNU Hurd's inodes name the block of a translator, which no bitmap may call free.
#[test]
fn translators_of_the_hurd_own_their_block() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 1024 -o hurd -O none")?;
    image.debugfs_write("setb 3000")?;
    image.debugfs_write("sif f version 3000")?;
    image.debugfs_write("sif f blocks 4")?;
    let free = number(&image, "Free blocks:")? - 1;
    image.debugfs_write(&format!("ssv free_blocks_count {free}"))?;
    image.debugfs_write(&format!("set_bg 0 free_blocks_count {free}"))?;
    agree_clean(&image, None)?;
    // Each change of an inode would count up the number of the block.
    let volume = extant_engine::VolumeOptions::new()
        .write(true)
        .open(image.path())?;
    ensure!(volume.read_only(), "a mount would write");
    volume.unmount()?;
    image.debugfs_write("freeb 3000")?;
    agree_damaged(
        &image,
        kind!(Bitmap(BitmapDamage::MarkedFree { count: 1, .. })),
    )
}

/// A filesystem may give its very last block to a file, and reserve up to half of all blocks.
#[test]
fn limits_that_are_reached_are_no_damage() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 1024 -m 40 -O none,filetype")?;
    agree_clean(&image, None)?;
    let (old, last) = (image.debugfs("bmap f 0")?, 8191);
    image.debugfs_write(&format!("freeb {}", old.trim()))?;
    image.debugfs_write(&format!("setb {last}"))?;
    image.debugfs_write(&format!("sif f block[0] {last}"))?;
    agree_clean(&image, None)?;
    image.debugfs_write(&format!("sif f block[0] {}", last + 1))?;
    agree_damaged(&image, kind!(Map(MapDamage::Outside { .. })))
}

/// The shortest target has one byte.
#[test]
fn a_symbolic_link_has_a_target() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 1024 -O none,filetype")?;
    image.debugfs_write("symlink short x")?;
    agree_clean(&image, None)?;
    image.debugfs_write("sif short size 0")?;
    image.debugfs_write("sif short block[0] 0")?;
    agree_damaged(
        &image,
        kind!(Inode(InodeDamage::SymlinkTargetSize { size: 0 })),
    )
}

/// The table of a group that says so may hold anything, as a device had it before.
#[test]
fn tables_that_were_never_written_are_not_read() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 1024 -N 256 -g 2048 -O none,filetype,uninit_bg")?;
    let said = Cmd::new("dumpe2fs").arg(image.path()).ok()?.out;
    let Some(group) = said.split("Group 3:").nth(1) else {
        bail!("no fourth group: {said}")
    };
    ensure!(group.contains("INODE_UNINIT"), "{group}");
    let table = group.split("Inode table at ").nth(1).unwrap_or_default();
    let digits: String = table.chars().take_while(char::is_ascii_digit).collect();
    let table: u64 = digits.parse()?;
    image.patch(table * 1024, 1024, |records| records.fill(0xa5))?;
    agree_clean(&image, None)?;
    image.debugfs_write("set_bg 3 flags 0")?;
    image.debugfs_write("set_bg 3 itable_unused 0")?;
    image.debugfs_write("set_bg 3 checksum calc")?;
    agree_damaged(&image, kind!(Inode(_)))
}

/// Upper halves of fields that only features give a meaning.
#[test]
fn what_a_size_cannot_be_is_damage() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 1024 -I 128 -O none,filetype")?;
    let blocks = image.copy()?;
    blocks.debugfs_write("sif f blocks 0x100000002")?;
    agree_damaged(
        &blocks,
        kind!(Inode(InodeDamage::NotZero {
            field: "i_blocks_hi",
            value: 1
        })),
    )?;
    // Three levels of pointers reach 16,843,020 blocks.
    image.debugfs_write("sif f size 20000000000")?;
    agree_damaged(&image, kind!(Inode(InodeDamage::SizePastMap { .. })))
}

/// A block that is reserved for descriptors leads to those of the copies, and nowhere else.
#[test]
fn a_reserve_for_descriptors_has_an_inode_that_leads_to_it() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 1024 -g 1024 -O ^has_journal,^metadata_csum")?;
    agree_clean(&image, None)?;
    // e2fsck says so too, and exits as if nothing were wrong.
    let without = image.copy()?;
    without.debugfs_write("feature -resize_inode")?;
    let expected = kind!(SuperblockField(SuperblockDamage::DescriptorReserve { .. }));
    let verdict = verdict(without.path())?;
    ensure!(expected.is_in(verdict.kinds()), "{verdict:?}");
    let block = number(&image, "Reserved GDT blocks at")?;
    // The second of its pointers, to the copy in group 3.
    image.patch(block * 1024 + 4, 1, |byte| byte[0] ^= 1)?;
    let expected = kind!(Reserved(ReservedDamage::ResizeCopies { .. }));
    let verdict = check_kit::verdict(image.path())?;
    ensure!(expected.is_in(verdict.kinds()), "{verdict:?}");
    Ok(())
}

/// Totals lag behind while a volume is mounted: they are noted, and no damage.
#[test]
fn totals_that_lag_behind_are_noted() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 1024 -O none,filetype")?;
    image.debugfs_write("ssv free_blocks_count 5")?;
    image.debugfs_write("ssv free_inodes_count 6")?;
    let report = report(&image)?;
    let noted = |expected: Expected| expected.is_in(report.notes.iter().map(|note| &note.kind));
    ensure!(
        report.is_clean()
            && noted(kind!(SuperblockField(SuperblockDamage::FreeBlocks {
                stored: 5,
                ..
            })))
            && noted(kind!(SuperblockField(SuperblockDamage::FreeInodes {
                stored: 6,
                ..
            }))),
        "{report:?}"
    );
    Ok(())
}

/// One bit is as wrong as many.
#[test]
fn a_single_wrong_bit_of_a_bitmap_is_damage() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = with_file("-b 1024 -O none,filetype")?;
    let free = image.copy()?;
    let block = free.debugfs("bmap f 0")?;
    free.debugfs_write(&format!("freeb {}", block.trim()))?;
    agree_damaged(
        &free,
        kind!(Bitmap(BitmapDamage::MarkedFree { count: 1, .. })),
    )?;
    image.debugfs_write("setb 3000")?;
    agree_damaged(
        &image,
        kind!(Bitmap(BitmapDamage::MarkedInUse { count: 1, .. })),
    )
}
