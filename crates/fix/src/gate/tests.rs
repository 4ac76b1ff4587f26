//! Every repair beside every kind of doubt.

use std::collections::BTreeSet;
use std::sync::Arc;

use extant_check::{DirPlace, GroupCounts, QuotaContent};
use extant_disk::damage::{CorruptKind, LinkDamage};
use extant_disk::inode::InodeFlags;
use extant_disk::quota::{QuotaKind, QuotaTimes, QuotaUsage};
use extant_units::Pblk;

use super::*;

fn ino(number: u32) -> Ino {
    Ino::new(number).unwrap()
}

/// The inode that the repairs below are of, another one, and a directory.
const FILE: u32 = 20;
const OTHER: u32 = 21;
const DIR: u32 = 30;
/// Their group and another one.
const GROUP: Group = Group::new(3);
const FAR: Group = Group::new(4);

fn finding(place: Location, remedy: Remedy) -> Finding {
    Finding {
        place,
        // The gate looks at the remedy alone.
        kind: CorruptKind::Link(LinkDamage::Root),
        remedy,
    }
}

fn left(place: Location, doubt: Doubt) -> Finding {
    finding(place, Remedy::Left(doubt))
}

fn repair(place: Location, repair: Repair) -> Finding {
    finding(place, Remedy::Repair(repair))
}

fn inode_sum(number: u32) -> Finding {
    repair(
        Location::Inode(ino(number)),
        Repair::InodeChecksum(ino(number)),
    )
}

fn extent_sum(number: u32) -> Finding {
    let node = Pblk::new(500);
    let place = Location::ExtentNode(ino(number), node);
    repair(place, Repair::ExtentChecksum(ino(number), node))
}

fn attr_sum() -> Finding {
    let block = Pblk::new(600);
    let place = Location::XattrBlock(ino(OTHER), block);
    repair(place, Repair::XattrChecksum(block))
}

fn descriptor(group: Group, flags: GroupFlags) -> Finding {
    repair(Location::GroupDesc(group), Repair::Descriptor(group, flags))
}

/// The block of the directory that holds the entry below.
const BLOCK: DirPlace = DirPlace {
    dir: Ino::ROOT,
    pblk: Pblk::new(700),
    index: None,
};

fn dir_block(lblk: u32) -> Location {
    Location::DirBlock(ino(DIR), Lblk::new(lblk))
}

fn changed_block() -> DirPlace {
    DirPlace {
        dir: ino(DIR),
        ..BLOCK
    }
}

fn dir_sum() -> Finding {
    repair(dir_block(2), Repair::DirChecksum(changed_block()))
}

fn entry_kind() -> Finding {
    let kind = Repair::EntryKind {
        block: changed_block(),
        at: 7,
        kind: 1,
        target: ino(FILE),
    };
    repair(dir_block(2), kind)
}

fn reattach() -> Repair {
    Repair::Reattach {
        ino: ino(FILE),
        kind: 1,
        into: Arc::from([BLOCK]),
    }
}

fn usage() -> Repair {
    Repair::QuotaUsage {
        block: Pblk::new(600),
        at: 16,
        id: 0,
        usage: QuotaUsage::default(),
    }
}

fn quotas() -> Repair {
    Repair::QuotaFile(Arc::new(QuotaContent {
        kind: QuotaKind::User,
        ino: ino(FILE),
        times: QuotaTimes::default(),
        entries: Vec::new(),
    }))
}

/// Every repair, by name. The last three are of notes.
fn repairs() -> Vec<(&'static str, Finding)> {
    let (file, dir) = (Location::Inode(ino(FILE)), Location::Inode(ino(DIR)));
    let (desc, super_) = (Location::GroupDesc(GROUP), Location::Superblock);
    let counts = GroupCounts {
        blocks: 1,
        inodes: 1,
        dirs: 1,
        unused: 1,
    };
    let (block, bitmap) = (Pblk::new(600), Arc::from([0_u8; 8]));
    let parent = Repair::Parent {
        block: changed_block(),
        parent: Ino::ROOT,
    };
    let totals = Repair::Totals {
        blocks: 1,
        inodes: 1,
    };
    let groups: Arc<[Group]> = Arc::from([GROUP]);
    vec![
        ("inode", inode_sum(FILE)),
        ("extent", extent_sum(FILE)),
        ("sectors", repair(file, Repair::Sectors(ino(FILE), 8))),
        (
            "flags",
            repair(file, Repair::Flags(ino(FILE), InodeFlags::empty())),
        ),
        ("dir", dir_sum()),
        ("kind", entry_kind()),
        (
            "references",
            repair(file, Repair::XattrReferences(block, 2)),
        ),
        ("attributes", attr_sum()),
        ("descriptor", descriptor(GROUP, GroupFlags::empty())),
        ("uninit", repair(desc, Repair::UninitFlags(GROUP))),
        ("totals", repair(super_, totals)),
        ("counts", repair(desc, Repair::Counts(GROUP, counts))),
        (
            "block bitmap",
            repair(
                Location::BlockBitmap(GROUP),
                Repair::BlockBitmap(GROUP, Arc::clone(&bitmap)),
            ),
        ),
        (
            "inode bitmap",
            repair(
                Location::InodeBitmap(GROUP),
                Repair::InodeBitmap(GROUP, bitmap),
            ),
        ),
        ("usage", repair(file, usage())),
        ("quotas", repair(file, quotas())),
        ("links", repair(file, Repair::Links(ino(FILE), 2))),
        ("reattach", repair(file, reattach())),
        ("parent", repair(dir, parent)),
        ("journal", repair(Location::Journal, Repair::JournalError)),
        (
            "superblocks",
            repair(super_, Repair::SuperblockCopies(Arc::clone(&groups))),
        ),
        (
            "descriptors",
            repair(super_, Repair::DescriptorCopies(groups)),
        ),
    ]
}

/// Repairs that are made once nothing is wrong any more.
const LAST: &[&str] = &["journal", "superblocks", "descriptors"];
/// Repairs that rely on the names of all inodes.
const BY_NAMES: &[&str] = &["links", "reattach", "parent"];
/// Repairs that rely on what owns blocks and inodes.
const BY_MAPS: &[&str] = &[
    "descriptor",
    "uninit",
    "totals",
    "counts",
    "block bitmap",
    "inode bitmap",
    "usage",
    "quotas",
];
/// Checksums and counts that a broken map speaks against.
const SUMS: &[&str] = &["inode", "extent", "references", "attributes"];

/// A report of these findings; of one more than it has with `cut`.
fn report(findings: Vec<Finding>, notes: Vec<Finding>, cut: bool) -> Report {
    Report {
        found: findings.len() as u64 + u64::from(cut),
        findings,
        notes,
        replayed: 0,
        orphans: 0,
        inodes_used: 0,
        directories: 0,
        blocks_used: 0,
        blocks: 0,
    }
}

/// A volume with something wrong, beside which each repair is tried.
struct Situation<'a> {
    name: &'a str,
    findings: Vec<Finding>,
    whole_writes: bool,
    standing: Standing,
    /// There is more damage than the report has.
    cut: bool,
    /// Repairs that are not admitted there.
    refused: &'a [&'a [&'a str]],
    /// Repairs beside which the first finding is not repaired; it is beside all others.
    contradict: &'a [&'a str],
}

impl<'a> Situation<'a> {
    fn of(name: &'a str, findings: Vec<Finding>, refused: &'a [&'a [&'a str]]) -> Self {
        Self {
            name,
            findings,
            whole_writes: true,
            standing: Standing::Confirmed,
            cut: false,
            refused,
            contradict: &[],
        }
    }

    /// The names of the repairs in `among`.
    fn names(among: &'a [&'a [&'a str]]) -> BTreeSet<&'a str> {
        among.iter().copied().flatten().copied().collect()
    }

    fn holds(&self) {
        let (mut refused, mut contradict) = (BTreeSet::new(), BTreeSet::new());
        for (name, tried) in repairs() {
            let (mut findings, mut notes) = (self.findings.clone(), Vec::new());
            match LAST.contains(&name) {
                true => notes.push(tried.clone()),
                false => findings.push(tried.clone()),
            }
            let report = report(findings, notes, self.cut);
            let admitted = admit(&report, self.whole_writes, self.standing);
            let admitted: Vec<&Finding> = admitted.map(|(finding, _)| finding).collect();
            if !admitted.contains(&&tried) {
                refused.insert(name);
            }
            let first = self.findings.first().filter(|one| **one != tried);
            if first.is_some_and(|first| !admitted.contains(&first)) {
                contradict.insert(name);
            }
        }
        assert_eq!(refused, Self::names(self.refused), "{}", self.name);
        let is_repair = |one: &Finding| matches!(one.remedy, Remedy::Repair(_));
        if self.findings.first().is_some_and(is_repair) {
            let expected = self.contradict.iter().copied().collect();
            assert_eq!(contradict, expected, "beside {}", self.name);
        }
    }
}

#[test]
fn a_sound_volume_gets_every_repair() {
    Situation::of("nothing else", Vec::new(), &[]).holds();
    let harmless = vec![left(Location::Journal, Doubt::Nothing)];
    Situation::of("no doubt", harmless, &[LAST]).holds();
}

/// Names that cannot be read: what follows from names or from what is in use is left.
#[test]
fn names_in_doubt_leave_links_and_bitmaps() {
    let elsewhere = || vec![left(dir_block(3), Doubt::Names)];
    let all = &[LAST, BY_NAMES, BY_MAPS, &["dir"]];
    Situation::of("another block", elsewhere(), all).holds();
    Situation {
        whole_writes: false,
        ..Situation::of("cut writes", elsewhere(), &[LAST, BY_NAMES, BY_MAPS])
    }
    .holds();
    let here = || vec![left(dir_block(2), Doubt::Names)];
    let all = &[LAST, BY_NAMES, BY_MAPS, &["dir", "kind"]];
    Situation::of("the block itself", here(), all).holds();
    Situation {
        whole_writes: false,
        ..Situation::of("the block itself, cut", here(), all)
    }
    .holds();
    // The name of an inode is in doubt, and not its map.
    let file = vec![left(Location::Inode(ino(FILE)), Doubt::Names)];
    let all = &[LAST, BY_NAMES, BY_MAPS, &["dir"]];
    Situation::of("a name of the file", file, all).holds();
}

/// A map that cannot be read may own whatever seems to be free.
#[test]
fn maps_in_doubt_leave_all_but_what_stands_in_a_sound_inode() {
    let maps = |place| vec![left(place, Doubt::Maps)];
    let others: &[&[&str]] = &[LAST, BY_NAMES, BY_MAPS, SUMS, &["dir"]];
    Situation::of("another inode", maps(Location::Inode(ino(OTHER))), others).holds();
    Situation {
        whole_writes: false,
        ..Situation::of(
            "another inode, cut",
            maps(Location::Inode(ino(OTHER))),
            &[LAST, BY_NAMES, BY_MAPS, SUMS],
        )
    }
    .holds();
    Situation {
        cut: true,
        ..Situation::of("too much to list", Vec::new(), others)
    }
    .holds();
    let own = &[LAST, BY_NAMES, BY_MAPS, SUMS, &["dir", "sectors", "flags"]];
    Situation::of("the file", maps(Location::Inode(ino(FILE))), own).holds();
    let node = Location::ExtentNode(ino(DIR), Pblk::new(1));
    let dir = &[LAST, BY_NAMES, BY_MAPS, SUMS, &["dir", "kind"]];
    Situation {
        whole_writes: false,
        ..Situation::of("the directory", maps(node), dir)
    }
    .holds();
}

/// Damage of one inode that leaves all else certain.
#[test]
fn a_broken_group_keeps_its_descriptor() {
    let group = |group| vec![left(Location::GroupDesc(group), Doubt::Nothing)];
    let own = &[LAST, &["descriptor", "uninit"]];
    Situation::of("its descriptor", group(GROUP), own).holds();
    Situation::of("another descriptor", group(FAR), &[LAST]).holds();
}

/// Of an inode with a wrong checksum and what contradicts it neither is believed.
#[test]
fn what_contradicts_a_wrong_checksum_is_left_and_so_is_that() {
    const BITMAPS: &[&str] = &["block bitmap", "inode bitmap", "usage", "quotas"];
    const OF_FILE: &[&str] = &["sectors", "flags", "kind"];
    const BOTH: &[&str] = &[
        "block bitmap",
        "inode bitmap",
        "usage",
        "quotas",
        "sectors",
        "flags",
        "kind",
    ];
    for (name, sum) in [("inode", inode_sum(FILE)), ("extent", extent_sum(FILE))] {
        Situation {
            contradict: BOTH,
            ..Situation::of(name, vec![sum], &[LAST, BITMAPS, OF_FILE])
        }
        .holds();
    }
    for (name, sum) in [
        ("another inode", inode_sum(OTHER)),
        ("another inode's node", extent_sum(OTHER)),
        ("attributes", attr_sum()),
    ] {
        Situation {
            contradict: BITMAPS,
            ..Situation::of(name, vec![sum], &[LAST, BITMAPS])
        }
        .holds();
    }
}

/// A descriptor leads to bitmaps; of a group that was never written it leads to none.
#[test]
fn bitmaps_that_contradict_a_descriptor_are_left() {
    let (blocks, inodes) = (GroupFlags::BLOCK_UNINIT, GroupFlags::INODE_UNINIT);
    for (name, group, flags, left) in [
        (
            "its own",
            GROUP,
            GroupFlags::empty(),
            &["block bitmap", "inode bitmap"][..],
        ),
        ("of no blocks", GROUP, blocks, &["inode bitmap"]),
        ("of no inodes", GROUP, inodes, &["block bitmap"]),
        ("of nothing", GROUP, blocks | inodes, &[]),
        (
            "another's",
            FAR,
            blocks | inodes,
            &["block bitmap", "inode bitmap"],
        ),
    ] {
        Situation {
            contradict: left,
            ..Situation::of(name, vec![descriptor(group, flags)], &[LAST, left])
        }
        .holds();
    }
}

/// A block of a directory whose checksum is wrong may have lost a name, unless a write was cut.
#[test]
fn links_that_contradict_a_directory_are_left() {
    Situation {
        contradict: BY_NAMES,
        ..Situation::of("a directory", vec![dir_sum()], &[LAST, BY_NAMES])
    }
    .holds();
    Situation {
        whole_writes: false,
        ..Situation::of("a cut directory", vec![dir_sum()], &[LAST])
    }
    .holds();
    // An entry of it is right only if nothing else is in doubt.
    let doubtful = vec![dir_sum(), left(dir_block(3), Doubt::Names)];
    let report = report([doubtful, vec![entry_kind()]].concat(), Vec::new(), false);
    assert_eq!(admit(&report, true, Standing::Confirmed).count(), 0);
}

/// Findings that a wrong superblock would make seem right are left while only it says so.
#[test]
fn a_superblock_that_nothing_confirms_is_not_relied_on() {
    const RELY: &[&str] = &[
        "inode",
        "extent",
        "dir",
        "attributes",
        "kind",
        "descriptor",
        "uninit",
        "counts",
        "block bitmap",
        "inode bitmap",
    ];
    for (standing, refused) in [
        (Standing::Alone, &[RELY][..]),
        (Standing::Contradicted, &[RELY, &["superblocks"]]),
    ] {
        let name = format!("{standing:?}");
        Situation {
            standing,
            ..Situation::of(&name, Vec::new(), refused)
        }
        .holds();
    }
}
