//! Known damage, one kind at a time: what is repaired, and what is left.

#[path = "../../check/tests/check_kit/mod.rs"]
mod check_kit;
mod fix_kit;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use check_kit::{BASES, Expected, base, damage, kind};
use extant_blockdev::MemoryDevice;
use extant_disk::csum::Crc32c;
use extant_disk::damage::{
    AttributeDamage, BitmapDamage, DirectoryDamage, DirentError, ExtentError, GroupDamage,
    GroupDescError, HtreeError, InodeDamage, InodeError, JournalDamage, LinkDamage,
    SuperblockDamage, SuperblockError, XattrError,
};
use extant_disk::mmp::{MMP_SIZE, Mmp, MmpState};
use extant_disk::superblock::{RawSuperblock, Superblock};
use extant_fix::{Error, FixOptions, fix};
use extant_testkit::mutate::{Kind, Map};
use extant_testkit::{Cmd, Context, Event, Image, Recorder, Result, bail, ensure, need};
use fix_kit::{NEEDS, left_alone, repaired, run};
use zerocopy::IntoBytes;

/// A damage: the base, by its index, requests of debugfs, and what is then repaired.
const REPAIRED: &[(usize, &str, Expected)] = &[
    (
        0,
        "sif file links_count 7",
        kind!(Link(LinkDamage::Count {
            stored: 7,
            found: 1
        })),
    ),
    (
        1,
        "sif sub links_count 2",
        kind!(Link(LinkDamage::Count {
            stored: 2,
            found: 3
        })),
    ),
    (
        0,
        "sif file blocks 98",
        kind!(Inode(InodeDamage::Sectors { stored: 98, .. })),
    ),
    (
        2,
        "sif sparse blocks 2",
        kind!(Inode(InodeDamage::Sectors { stored: 2, .. })),
    ),
    // Groups whose descriptors lie in the second meta group.
    (
        8,
        "set_bg 20 free_blocks_count 5\nset_bg 20 checksum calc",
        kind!(Group(GroupDamage::FreeBlocks { stored: 5, .. })),
    ),
    (
        8,
        "zap_block -o 8 -l 1 -p 0x55 4353",
        kind!(SuperblockField(SuperblockDamage::DescriptorCopies { .. })),
    ),
    (
        0,
        "ssv free_blocks_count 5",
        kind!(SuperblockField(SuperblockDamage::FreeBlocks {
            stored: 5,
            ..
        })),
    ),
    (
        1,
        "ssv free_inodes_count 5",
        kind!(SuperblockField(SuperblockDamage::FreeInodes {
            stored: 5,
            ..
        })),
    ),
    (
        0,
        "set_bg 0 free_blocks_count 5\nset_bg 0 checksum calc",
        kind!(Group(GroupDamage::FreeBlocks { stored: 5, .. })),
    ),
    (
        2,
        "set_bg 1 free_inodes_count 5\nset_bg 1 checksum calc",
        kind!(Group(GroupDamage::FreeInodes { stored: 5, .. })),
    ),
    (
        3,
        "set_bg 0 used_dirs_count 9\nset_bg 0 checksum calc",
        kind!(Group(GroupDamage::Directories { stored: 9, .. })),
    ),
    (
        3,
        "set_bg 5 itable_unused 999\nset_bg 5 checksum calc",
        kind!(Group(GroupDamage::TooManyUnused { unused: 999, .. })),
    ),
    (
        1,
        "set_bg 0 flags 2",
        kind!(Group(GroupDamage::NeverWritten)),
    ),
    (
        1,
        "set_bg 0 itable_unused 5",
        kind!(Group(GroupDamage::NeverWritten)),
    ),
    (
        3,
        "set_bg 0 flags 2\nset_bg 0 checksum calc",
        kind!(Bitmap(BitmapDamage::FilesInUnwritten)),
    ),
    (
        0,
        "sif fifo flags 0x10",
        kind!(Inode(InodeDamage::Protected)),
    ),
    (
        1,
        "sif chr flags 0x20",
        kind!(Inode(InodeDamage::Protected)),
    ),
    (
        2,
        "sif blk flags 0x30",
        kind!(Inode(InodeDamage::Protected)),
    ),
    (
        3,
        "sif fast flags 0x10",
        kind!(Inode(InodeDamage::Protected)),
    ),
    (
        0,
        "setb 3500 10",
        kind!(Bitmap(BitmapDamage::MarkedInUse { .. })),
    ),
    (
        1,
        "freeb 3 2",
        kind!(Bitmap(BitmapDamage::MarkedFree { count: 2, .. })),
    ),
    (
        0,
        "seti <120>",
        kind!(Bitmap(BitmapDamage::MarkedInUse { count: 1, .. })),
    ),
    (
        5,
        "freei file",
        kind!(Bitmap(BitmapDamage::MarkedFree { count: 1, .. })),
    ),
    (0, "unlink file", kind!(Link(LinkDamage::NoName { .. }))),
    (1, "unlink sub/deep", kind!(Link(LinkDamage::NoWayFromRoot))),
    (4, "unlink big", kind!(Link(LinkDamage::NoWayFromRoot))),
    (
        0,
        "ssv state 3",
        kind!(SuperblockField(SuperblockDamage::MarkedWithErrors)),
    ),
    (
        2,
        "ssv state 0",
        kind!(SuperblockField(SuperblockDamage::NotMarkedClean)),
    ),
];

#[test]
fn each_damage_is_repaired() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let mut made = BTreeMap::new();
    for (at, request, expected) in REPAIRED {
        let (name, mib, args, dirty) = BASES[*at];
        if !made.contains_key(at) {
            made.insert(*at, base(mib, args, dirty)?);
        }
        let image = made[at].copy()?;
        damage(&image, request)?;
        repaired(&image, *expected).context(|| format!("{name}: {request}"))?;
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
    repaired(&image, kind!(Link(LinkDamage::NoName { .. })))?;
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
            let (at, expected) = match kind {
                Kind::Superblock => (
                    1020,
                    kind!(Superblock(SuperblockError::BadChecksum { .. }, _)),
                ),
                Kind::Descriptor => (30, kind!(GroupDesc(GroupDescError::BadChecksum { .. }))),
                Kind::Inode => (124, kind!(InodeRecord(InodeError::Checksum { .. }))),
                Kind::DirLeaf => (found.len - 4, kind!(DirBlock(DirentError::Checksum { .. }))),
                Kind::DirRoot | Kind::DirNode => (
                    found.len - 4,
                    kind!(IndexBlock(HtreeError::Checksum { .. })),
                ),
                Kind::ExtentNode => {
                    let max = bytes[found.at + 4..found.at + 6].to_vec();
                    let max = usize::from(u16::from_le_bytes([max[0], max[1]]));
                    (
                        12 + 12 * max,
                        kind!(ExtentNode(ExtentError::BadChecksum { .. })),
                    )
                }
                Kind::XattrBlock => (16, kind!(AttributeTable(XattrError::Checksum { .. }))),
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
            repaired(&spoiled, expected).context(|| format!("{name}: {kind:?}"))?;
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
    repaired(
        &wrong,
        kind!(Directory(DirectoryDamage::Kind { stored: 7, .. })),
    )?;
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
    repaired(
        &wrong,
        kind!(Attribute(AttributeDamage::References { stored: 9, .. })),
    )?;
    ensure!(fs::read(wrong.path())? == bytes, "another count");
    // The first block of `sub/deep`: its entry of "..".
    let stat = image.debugfs("bmap sub/deep 0")?;
    let at = stat.trim().parse::<u64>()? * 1024 + 12;
    let wrong = image.copy()?;
    wrong.patch(at, 1, |parent| parent[0] = 2)?;
    repaired(&wrong, kind!(Link(LinkDamage::Parent { .. })))?;
    ensure!(fs::read(wrong.path())? == bytes, "another parent");
    Ok(())
}

#[test]
fn logs_are_replayed() -> Result<()> {
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

    Ok(())
}

/// Requests that leave more inodes without a name than have room in one block.
fn many_lost() -> String {
    let names =
        (0..90).map(|number| format!("big/a_rather_long_file_name_to_fill_blocks_{number}"));
    names.map(|name| format!("unlink {name}\n")).collect()
}

/// Lost inodes for which lost+found has no room: it grows, by extents and by pointers.
#[test]
fn lost_found_grows_with_the_names() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for at in [0, 1, 3] {
        let (name, mib, args, dirty) = BASES[at];
        let image = base(mib, args, dirty)?;
        // One block, which holds the names of 82 inodes.
        damage(&image, "rmdir lost+found\nmkdir lost+found\n")?;
        damage(&image, &many_lost())?;
        repaired(&image, kind!(Link(LinkDamage::NoName { .. }))).context(|| name.to_owned())?;
        let names = image.debugfs("ls -p /lost+found")?;
        let found = names.lines().filter(|line| line.contains("/#")).count();
        ensure!(found == 90, "{name}: {found} names");
        let stat = image.debugfs("stat lost+found")?;
        ensure!(!stat.contains("Size: 1024"), "{name}: {stat}");
    }
    Ok(())
}

/// It grows where it lies: in any group.
#[test]
fn lost_found_grows_in_its_group() -> Result<()> {
    /// A block of the fourth group, of 1024 blocks.
    const THERE: u64 = 3500;
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = BASES[2];
    let image = base(mib, args, dirty)?;
    damage(&image, "rmdir lost+found\nmkdir lost+found\n")?;
    let here: u64 = image.debugfs("bmap lost+found 0")?.trim().parse()?;
    let names = image.bytes(here * 1024, 1024)?;
    image.patch(THERE * 1024, 1024, |block| block.copy_from_slice(&names))?;
    damage(&image, &format!("sif lost+found block[5] {THERE}"))?;
    image.fsck_repair()?;
    let there: u64 = image.debugfs("bmap lost+found 0")?.trim().parse()?;
    ensure!(there == THERE, "{there}");
    damage(&image, &many_lost())?;
    let dry = run(&image, true)?;
    let sectors = kind!(Inode(InodeDamage::Sectors { .. }));
    let wrong = sectors.is_in(dry.fixed.iter().map(|finding| &finding.kind));
    ensure!(!wrong, "the growth was not counted: {dry:?}");
    repaired(&image, kind!(Link(LinkDamage::NoName { .. })))?;
    let block: u64 = image.debugfs("bmap lost+found 1")?.trim().parse()?;
    ensure!(block > 3072, "{block}");
    Ok(())
}

/// Behind twelve blocks a pointer would lead to blocks of pointers.
#[test]
fn a_full_lost_found_of_twelve_blocks_does_not_grow() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = BASES[1];
    let image = base(mib, args, dirty)?;
    // Four names to a block; three and a shorter one beside the dots.
    let mut requests = String::new();
    for number in 0..48 {
        let len = if number == 47 { 220 } else { 248 };
        requests += &format!("ln tiny lost+found/{number:0len$}\n");
    }
    damage(&image, &(requests + "sif tiny links_count 50"))?;
    image.fsck_clean()?;
    damage(&image, "unlink file")?;
    left_alone(&image, &[kind!(Link(LinkDamage::NoName { .. }))])
}

/// An error on record, in the journal and in the superblock, is forgotten once nothing is wrong,
/// and not before.
#[test]
fn errors_on_record_are_forgotten_once_nothing_is_wrong() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, mib, args, dirty) = BASES[1];
    let image = base(mib, args, dirty)?;
    let journal: u64 = image.debugfs("bmap <8> 0")?.trim().parse()?;
    let errno = journal * 1024 + 0x20;
    // -EIO, as the journal stores it, and three errors with the time of the first.
    image.patch(errno, 4, |field| {
        field.copy_from_slice(&(-5_i32).to_be_bytes())
    })?;
    image.patch(1024 + 0x194, 8, |field| {
        field.copy_from_slice(&[3, 0, 0, 0, 9, 9, 9, 9]);
    })?;
    let damaged = image.copy()?;
    damage(&damaged, "clri tiny")?;
    let report = run(&damaged, false)?;
    ensure!(!report.is_clean(), "{report:?}");
    ensure!(
        damaged.bytes(errno, 4)? == (-5_i32).to_be_bytes(),
        "forgotten"
    );
    ensure!(damaged.bytes(1024 + 0x194, 1)? == [3], "forgotten");

    let record = kind!(SuperblockField(SuperblockDamage::ErrorRecord { errors: 3 }));
    let dry = run(&image, true)?;
    let told = record.is_in(dry.fixed.iter().map(|finding| &finding.kind));
    ensure!(told, "{dry:?}");
    repaired(&image, kind!(Journal(JournalDamage::Errno { .. })))?;
    ensure!(image.bytes(errno, 4)? == [0; 4], "remembered");
    ensure!(image.bytes(1024 + 0x194, 8)? == [0; 8], "remembered");
    Ok(())
}

/// Copies that were lost are written anew, and can be used.
#[test]
fn copies_of_superblock_and_descriptors_are_written_anew() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    // The first block of group 1, and the size of a block.
    for (at, block, size) in [(2, 1025, 1024), (3, 1025, 1024), (5, 512, 2048)] {
        let (name, mib, args, dirty) = BASES[at];
        let image = base(mib, args, dirty)?;
        image.patch(block * size, 2 * usize::try_from(size)?, |bytes| {
            bytes.fill(0)
        })?;
        repaired(
            &image,
            kind!(SuperblockField(SuperblockDamage::SuperblockCopies { .. })),
        )
        .context(|| name.to_owned())?;
        let report = run(&image, true)?;
        ensure!(report.notes.is_empty(), "{name}: {report:?}");
        // e2fsck works with the copy alone.
        let copy = image.copy()?;
        copy.patch(1024, 1024, |bytes| bytes.fill(0))?;
        let said = Cmd::new("e2fsck")
            .args(["-fn", "-b"])
            .arg(block.to_string());
        let said = said
            .args(["-B"])
            .arg(size.to_string())
            .arg(copy.path())
            .run()?;
        let text = format!("{}{}", said.out, said.err);
        ensure!(text.contains("Pass 5"), "{name}: {text}");
    }
    Ok(())
}

/// Offset of the block of multiple mount protection, and the seed of its checksum.
fn protection(bytes: &[u8]) -> Result<(usize, Option<Crc32c>)> {
    let sb = Superblock::parse(&bytes[1024..2048])?;
    let at = usize::try_from(sb.raw().mmp_block.get())? * sb.block_size().bytes();
    let sealed = sb.features().metadata_csum();
    Ok((at, sealed.then(|| sb.checksum_seed())))
}

/// For each write the state and the time that it put into the block of the protection, if it is one
/// of that: durably, and under the repair's name.
fn states_of(
    events: &[Event],
    block: u64,
    seed: Option<Crc32c>,
) -> Result<Vec<Option<(MmpState, u64)>>> {
    let mut name = [0; 32];
    name[..10].copy_from_slice(b"extant fix");
    let mut states = Vec::new();
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::Write { offset, data } if offset.get() == block => {
                let mmp = Mmp::parse(data, seed)?;
                let named = mmp.device == name && mmp.node == [0; 64];
                let flushed = matches!(events.get(at + 1), Some(Event::Flush { .. }));
                ensure!(named && flushed, "{mmp:?}, durable: {flushed}");
                states.push(Some((mmp.state(), mmp.time.get())));
            }
            Event::Write { .. } => states.push(None),
            _ => {}
        }
    }
    Ok(states)
}

/// A volume that several hosts can reach is marked before the first write and after the last.
#[test]
fn other_hosts_are_kept_away_while_a_volume_is_written() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for args in [
        "-b 1024 -O mmp",
        "-b 4096 -O mmp,^has_journal,^metadata_csum",
    ] {
        let image = Image::of_mib(8).args(args).make()?;
        let mut bytes = fs::read(image.path())?;
        let Some(mut raw) = RawSuperblock::copy_from(&bytes[1024..2048]) else {
            bail!("no superblock")
        };
        raw.free_inodes_count.set(5);
        raw.seal();
        bytes[1024..2048].copy_from_slice(raw.as_bytes());
        let (block, seed) = protection(&bytes)?;
        // A host whose clock is ahead used it last: the times go on from there.
        let ahead = u64::MAX >> 8;
        let mut clean = Mmp::parse(&bytes[block..block + MMP_SIZE], seed)?;
        clean.time.set(ahead);
        clean.node.fill(b'n');
        clean.device.fill(b'd');
        clean.seal(seed);
        bytes[block..block + MMP_SIZE].copy_from_slice(clean.as_bytes());
        let recorder = Arc::new(Recorder::new(MemoryDevice::from_bytes(&bytes)));
        let report = fix(Arc::clone(&recorder) as _, &FixOptions::default())?;
        ensure!(report.is_clean() && report.has_changed(), "{report:?}");
        let states = states_of(&recorder.events(), block as u64, seed)?;
        let (first, last) = (states.first(), states.last());
        let taken = Some(&Some((MmpState::Fsck, ahead + 1)));
        let released = Some(&Some((MmpState::Clean, ahead + 2)));
        let kept = (first, last) == (taken, released);
        ensure!(kept && states.len() > 2, "{states:?}");
        let writes = recorder.position();
        let again = fix(Arc::clone(&recorder) as _, &FixOptions::default())?;
        let still = recorder.position() == writes;
        ensure!(!again.has_changed() && still, "{again:?}");
        // While a host has it, nothing is written.
        for state in [MmpState::Fsck, MmpState::InUse(77)] {
            let mut used = bytes.clone();
            let mut mmp = Mmp::parse(&used[block..], seed)?;
            mmp.set_state(state);
            mmp.seal(seed);
            used[block..block + MMP_SIZE].copy_from_slice(mmp.as_bytes());
            let device = Arc::new(MemoryDevice::from_bytes(&used));
            let refused = fix(Arc::clone(&device) as _, &FixOptions::default());
            ensure!(matches!(refused, Err(Error::InUse)), "{refused:?}");
            ensure!(device.to_bytes() == used, "written");
        }
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
