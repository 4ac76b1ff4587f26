//! `check` against images that mke2fs and Linux make, and against damage: it must agree with
//! e2fsck.

mod check_kit;

use std::sync::Arc;

use check_kit::{BASES, Expected, base, kind, verdict};

use extant_blockdev::{FileDevice, MemoryDevice, OpenMode};
use extant_check::{CheckOptions, Report, check};
use extant_disk::damage::{
    BitmapDamage, DirectoryDamage, ExtentError, GroupDamage, GroupPart, InodeDamage, InodeError,
    LinkDamage, MapDamage, OrphanDamage, ReservedDamage, SuperblockDamage, SuperblockError,
};
use extant_engine::{Cred, VolumeOptions};
use extant_testkit::{Cmd, Context, Image, Need, Result, Subject, need};

fn run(image: &Image) -> Report {
    let dev = FileDevice::open(image.path(), OpenMode::ReadOnly).unwrap();
    check(Arc::new(dev), &CheckOptions::default()).unwrap()
}

fn assert_clean(image: &Image, what: &str) {
    let report = run(image);
    let lines: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(report.is_clean(), "{what}:\n{}", lines.join("\n"));
    assert_eq!(report.notes, [], "{what}");
}

/// A tree with all kinds of entries of a host's directory, put in by mke2fs itself.
fn filled(args: &str) -> Image {
    let tree = extant_testkit::TempDir::new("tree").unwrap();
    for dir in 0..3 {
        let dir = tree.join(format!("dir{dir}"));
        std::fs::create_dir(&dir).unwrap();
        for file in 0..150 {
            std::fs::write(dir.join(format!("file{file}")), vec![7; file * 97]).unwrap();
        }
        std::os::unix::fs::symlink("x".repeat(30), dir.join("short")).unwrap();
        std::os::unix::fs::symlink("y".repeat(200), dir.join("long")).unwrap();
    }
    std::fs::write(tree.join("big"), vec![1; 9 << 20]).unwrap();
    Image::of_mib(48)
        .args(args)
        .args("-d")
        .args(tree.path().to_str().unwrap())
        .make()
        .unwrap()
}

#[test]
fn fresh_and_filled_images_are_clean() {
    for args in [
        "-b 4096",
        "-b 1024",
        "-b 2048 -I 128",
        "-O ^metadata_csum",
        "-O ^metadata_csum,uninit_bg",
        "-O ^64bit,^metadata_csum,^flex_bg",
        "-O ^has_journal",
        "-b 1024 -O ^extents,^64bit,^flex_bg,^resize_inode",
        "-O orphan_file",
        "-b 1024 -g 1024 -O ^resize_inode",
        "-b 1024 -g 256 -O meta_bg,^resize_inode",
        "-b 1024 -g 256 -O meta_bg,^resize_inode,^64bit,^flex_bg,sparse_super2",
    ] {
        assert_clean(&filled(args), args);
    }
}

#[test]
fn images_that_linux_filled_are_clean_dirty_journal_included() {
    if !need(&[Need::Root, Need::Loop]) {
        return;
    }
    for args in ["-b 1024", "-b 4096 -O orphan_file"] {
        let image = Image::of_mib(96).args(args).make().unwrap();
        let mount = Subject::Ext4.mount(image.path(), "").unwrap();
        let script = "for i in $(seq 1 6000); do \
                          echo $i > a_name_that_is_long_enough_to_split_$i; done; \
                      mkdir sub; ln a_name_that_is_long_enough_to_split_7 sub/seven; rm *_1?; \
                      ln -s /$(printf 'z%.0s' $(seq 100)) sub/link; \
                      setfattr -n user.a -v b sub; sync";
        Cmd::new("sh")
            .args(["-c", script])
            .dir(mount.dir())
            .ok()
            .unwrap();
        let dirty = image.copy().unwrap();
        mount.unmount().unwrap();
        assert_clean(&image, args);
        let report = run(&dirty);
        assert!(report.is_clean(), "{args}: {:?}", report.findings);
        assert!(report.replayed > 0, "the copy was made while mounted");
    }
}

/// A crash while a removed directory is open leaves it as an orphan whose ".." still leads to its
/// parent; that is no damage.
#[test]
fn a_removed_directory_that_was_open_is_clean() {
    for args in ["-b 1024 -O orphan_file", "-b 1024 -O ^orphan_file"] {
        let image = Image::of_mib(8).args(args).make().unwrap();
        let bytes = std::fs::read(image.path()).unwrap();
        let dev = Arc::new(MemoryDevice::from_bytes(&bytes));
        let volume = VolumeOptions::new().write(true).open_on(dev.clone());
        let volume = volume.unwrap();
        let root = volume.root().unwrap();
        let open = volume.mkdir(&root, b"d", 0o755, &Cred::root()).unwrap();
        volume.rmdir(&root, b"d").unwrap();
        volume.sync().unwrap();
        let crashed = Arc::new(MemoryDevice::from_bytes(&dev.to_bytes()));
        let report = check(crashed, &CheckOptions::default()).unwrap();
        assert!(report.replayed > 0 && report.is_clean(), "{report:?}");
        let waits = kind!(Orphan(OrphanDamage::Waiting { inodes: 1 }));
        let kinds = report.notes.iter().map(|note| &note.kind);
        assert!(waits.is_in(kinds), "{report:?}");
        drop(open);
    }
}

/// Damages that debugfs can make: base (by its index in [`BASES`]), requests, and the finding.
const DAMAGES: &[(usize, &str, Expected)] = &[
    // Superblock.
    (
        0,
        "ssv r_blocks_count 3000",
        kind!(SuperblockField(SuperblockDamage::ReservedBlocks { .. })),
    ),
    (
        0,
        "ssv usr_quota_inum 11",
        kind!(SuperblockField(
            SuperblockDamage::QuotaWithoutFeature { .. }
        )),
    ),
    (
        0,
        "ssv journal_uuid 0f0f0f0f-0000-0000-0000-000000000001",
        kind!(SuperblockField(SuperblockDamage::ExternalJournal)),
    ),
    (
        0,
        "ssv inodes_count 170",
        kind!(Superblock(
            SuperblockError::BadField {
                field: "inodes_count",
                ..
            },
            _
        )),
    ),
    (
        0,
        "ssv first_ino 5",
        kind!(Superblock(
            SuperblockError::BadField {
                field: "first_ino",
                ..
            },
            _
        )),
    ),
    (
        0,
        "ssv log_groups_per_flex 40",
        kind!(SuperblockField(SuperblockDamage::FlexGroups { log2: 40 })),
    ),
    (
        0,
        "ssv feature_incompat 0x282",
        kind!(SuperblockField(SuperblockDamage::WideWithoutExtents)),
    ),
    (
        0,
        "feature meta_bg",
        kind!(SuperblockField(SuperblockDamage::SpreadWithReserve)),
    ),
    (
        8,
        "ssv first_meta_bg 3",
        kind!(Superblock(
            SuperblockError::BadField {
                field: "first_meta_bg",
                ..
            },
            _
        )),
    ),
    (
        2,
        "ssv journal_inum 8",
        kind!(SuperblockField(SuperblockDamage::JournalWithoutFeature)),
    ),
    (
        1,
        "ssv desc_size 2048",
        kind!(SuperblockField(SuperblockDamage::DescriptorSize {
            bytes: 2048
        })),
    ),
    // Group descriptors and bitmaps.
    (
        0,
        "set_bg 0 block_bitmap 9999",
        kind!(Group(GroupDamage::Outside {
            part: GroupPart::BlockBitmap,
            ..
        })),
    ),
    (
        2,
        "set_bg 0 inode_table 5",
        kind!(Group(GroupDamage::Overlap { .. })),
    ),
    // The descriptors of groups 16 to 23 lie there.
    (
        8,
        "set_bg 20 block_bitmap 4097",
        kind!(Group(GroupDamage::Overlap { .. })),
    ),
    (
        0,
        "set_bg 0 free_blocks_count 3",
        kind!(Group(GroupDamage::FreeBlocks { stored: 3, .. })),
    ),
    (
        0,
        "set_bg 0 free_inodes_count 3",
        kind!(Group(GroupDamage::FreeInodes { stored: 3, .. })),
    ),
    (
        0,
        "set_bg 0 used_dirs_count 3",
        kind!(Group(GroupDamage::Directories { stored: 3, .. })),
    ),
    (
        1,
        "set_bg 0 flags 1",
        kind!(Group(GroupDamage::NeverWritten)),
    ),
    (
        0,
        "freeb 1118 4",
        kind!(Bitmap(BitmapDamage::MarkedFree { .. })),
    ),
    (
        0,
        "setb 3000 4",
        kind!(Bitmap(BitmapDamage::MarkedInUse { .. })),
    ),
    (
        0,
        "freei <12>",
        kind!(Bitmap(BitmapDamage::MarkedFree { .. })),
    ),
    (
        0,
        "seti <150>",
        kind!(Bitmap(BitmapDamage::MarkedInUse { .. })),
    ),
    (
        2,
        "freeb 100 2",
        kind!(Bitmap(
            BitmapDamage::FilesInUnwritten | BitmapDamage::MarkedFree { .. }
        )),
    ),
    (
        2,
        "set_bg 3 itable_unused 3",
        kind!(Bitmap(BitmapDamage::Padding)),
    ),
    // Reserved inodes.
    (
        0,
        "sif <1> links_count 3",
        kind!(Reserved(ReservedDamage::BadBlocks)),
    ),
    (
        0,
        "sif <3> links_count 1",
        kind!(Reserved(ReservedDamage::NotEmpty)),
    ),
    (
        0,
        "sif <6> mode 0100644",
        kind!(Reserved(ReservedDamage::Mode { .. })),
    ),
    (
        0,
        "sif <5> mode 040755",
        kind!(Reserved(ReservedDamage::BootLoader)),
    ),
    (
        0,
        "sif <7> block[3] 99",
        kind!(Reserved(ReservedDamage::ResizeMap)),
    ),
    (
        0,
        "sif <7> blocks 99",
        kind!(Inode(InodeDamage::Sectors { stored: 99, .. })),
    ),
    (
        0,
        "sif <8> mode 040755",
        kind!(Reserved(ReservedDamage::JournalMode { .. })),
    ),
    (0, "sif <2> mode 0100755", kind!(Link(LinkDamage::Root))),
    // Fields of inodes.
    (
        0,
        "sif tiny dtime 1700000000",
        kind!(Inode(InodeDamage::DeletionTime { .. })),
    ),
    (
        0,
        "sif tiny dtime 20",
        kind!(Inode(InodeDamage::DeletionTime { .. })),
    ),
    (
        0,
        "sif tiny faddr 7",
        kind!(Inode(InodeDamage::NotZero {
            field: "i_faddr",
            value: 7
        })),
    ),
    (
        1,
        "sif tiny block[1] 0x7fffffff",
        kind!(Map(MapDamage::Outside { .. })),
    ),
    (0, "sif tiny mode 0", kind!(Inode(InodeDamage::Mode { .. }))),
    (
        0,
        "sif tiny mode 0170000",
        kind!(Inode(InodeDamage::Mode { .. })),
    ),
    (
        0,
        "sif tiny flags 0x80800",
        kind!(Inode(InodeDamage::FlagWithoutFeature { flag: "encrypt" })),
    ),
    (
        0,
        "sif tiny flags 0x40080000",
        kind!(Inode(InodeDamage::FlagWithoutFeature { flag: "casefold" })),
    ),
    (
        0,
        "sif tiny flags 0x81000",
        kind!(Inode(InodeDamage::FlagOfDirectory { flag: "index" })),
    ),
    (
        0,
        "sif tiny flags 0x82000",
        kind!(Inode(InodeDamage::FlagWithoutFeature { flag: "imagic" })),
    ),
    (
        0,
        "sif tiny flags 0x10080000",
        kind!(Inode(InodeDamage::FlagWithoutFeature {
            flag: "inline data"
        })),
    ),
    (
        0,
        "sif tiny extra_isize 7",
        kind!(InodeRecord(InodeError::ExtraSize { found: 7 })),
    ),
    (
        0,
        "sif tiny links_count 7",
        kind!(Link(LinkDamage::Count {
            stored: 7,
            found: 2
        })),
    ),
    (
        0,
        "sif tiny blocks 99",
        kind!(Inode(InodeDamage::Sectors { stored: 99, .. })),
    ),
    (
        0,
        "sif sparse size 100",
        kind!(Inode(InodeDamage::SizeWithinBlocks { size: 100, .. })),
    ),
    (
        0,
        "sif tiny file_acl 99999",
        kind!(Inode(InodeDamage::AttributesOutside { .. })),
    ),
    (
        0,
        "sif fifo size 7",
        kind!(Inode(InodeDamage::SpecialSize { size: 7 })),
    ),
    (
        0,
        "sif chr flags 0x80000",
        kind!(Inode(InodeDamage::SpecialExtents)),
    ),
    (
        0,
        "sif fast size 4",
        kind!(Inode(InodeDamage::SymlinkTargetSize { .. })),
    ),
    (
        0,
        "sif slow size 99",
        kind!(Inode(InodeDamage::SymlinkTargetSize { .. })),
    ),
    (
        0,
        "clri tiny",
        kind!(Directory(DirectoryDamage::UnusedInode { .. })),
    ),
    // Extent trees and block maps.
    (
        0,
        "sif tiny block[0] 0x1f30b",
        kind!(ExtentNode(ExtentError::BadMagic { found: 0xf30b })),
    ),
    (
        0,
        "sif tiny block[1] 0x1",
        kind!(Map(MapDamage::RootCapacity { entries: 1 })),
    ),
    (
        0,
        "sif tiny block[4] 0",
        kind!(ExtentNode(ExtentError::BadLength { len: 0, .. })),
    ),
    (
        0,
        "sif tiny block[5] 99999",
        kind!(Map(MapDamage::Outside { .. })),
    ),
    (
        0,
        "sif tiny block[5] 3",
        kind!(Map(MapDamage::Shared { .. })),
    ),
    (
        0,
        "sif sparse block[5] 99999",
        kind!(Map(MapDamage::Outside { .. })),
    ),
    (
        1,
        "sif sparse block[IND] 99999",
        kind!(Map(MapDamage::Outside { .. })),
    ),
    (
        1,
        "sif tiny block[0] 30",
        kind!(Map(MapDamage::Shared { .. })),
    ),
    // Directories.
    (
        0,
        "sif sub size 5",
        kind!(Inode(InodeDamage::DirectorySize { size: 5, .. })),
    ),
    (
        0,
        "unlink sub/deep/hard",
        kind!(Link(LinkDamage::Count {
            stored: 2,
            found: 1
        })),
    ),
    (0, "unlink slow", kind!(Link(LinkDamage::NoName { .. }))),
    (0, "unlink sub/deep", kind!(Link(LinkDamage::NoWayFromRoot))),
    (
        0,
        "ln sub empty/again",
        kind!(Link(LinkDamage::SecondParent { .. })),
    ),
    (
        0,
        "ln <150> empty/nothing",
        kind!(Directory(DirectoryDamage::UnusedInode { .. })),
    ),
    (
        0,
        "ln <2> empty/root",
        kind!(Directory(DirectoryDamage::OwnDirectory { .. })),
    ),
    (0, "sif empty flags 0x81000", kind!(IndexBlock(_))),
    // Attributes.
    (0, "sif sub file_acl 1140", kind!(AttributeTable(_))),
];

/// Each kind of damage is found by both, and `check` says what and where.
#[test]
fn damage_is_found_and_named() -> Result<()> {
    let mut wrong = Vec::new();
    let mut bases = Vec::new();
    for (name, mib, args, dirty) in BASES {
        bases.push(base(*mib, args, *dirty).context(|| (*name).to_owned())?);
    }
    for (at, request, expected) in DAMAGES {
        let image = bases.get(*at).expect("a base").copy()?;
        image.debugfs_write(request)?;
        let verdict = verdict(image.path())?;
        let named = expected.is_in(verdict.kinds());
        if verdict.e2fsck_is_clean() || !named {
            wrong.push(format!(
                "{request}: {expected:?} {:?}\n  e2fsck {:?} {}",
                verdict.found, verdict.e2fsck, verdict.said
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
