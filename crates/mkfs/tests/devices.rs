//! Devices: the order of writes, old contents, block devices of the host, other implementations.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_disk::geometry::Geometry;
use extant_disk::group_desc::{GroupChecksum, GroupDesc, GroupFlags};
use extant_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extant_mkfs::{Identity, Layout, Options, Usage, make, parse_features};
use extant_testkit::{
    Cmd, Event, Image, LoopDevice, Need, Recorder, Subject, TempDir, content, need,
};
use extant_units::{DevOff, Group, index};

const MIB: u64 = 1 << 20;

fn options(features: &str) -> Options {
    Options {
        features: parse_features(features).unwrap(),
        uuid: Some([7; 16]),
        hash_seed: Some([9; 16]),
        time: Some(1_700_000_000),
        ..Options::default()
    }
}

fn write_to(device: &dyn BlockDevice, options: &Options) {
    let layout = Layout::plan(options, device.len()).unwrap();
    extant_mkfs::write(device, &layout, &Identity::of(options).unwrap()).unwrap();
}

fn superblock_of(bytes: &[u8]) -> Option<Superblock> {
    let start = usize::try_from(SUPERBLOCK_OFFSET).unwrap();
    Superblock::parse(&bytes[start..start + SUPERBLOCK_SIZE]).ok()
}

/// A cut at any moment leaves the old volume, none, or the new one: the primary superblock goes
/// first and comes last, each time with a flush between it and all else.
#[test]
fn no_moment_shows_half_a_volume() {
    let device = Recorder::new(MemoryDevice::new(16 * MIB));
    write_to(&device, &options(""));
    let old = device.inner().to_bytes();
    let start = device.position();
    let newer = Options {
        uuid: Some([8; 16]),
        ..options("")
    };
    write_to(&device, &newer);
    let events = &device.events()[start..];

    assert!(matches!(events[0], Event::Write { .. }));
    assert_eq!(events[1], Event::Flush { covers: start + 1 });
    let count = events.len();
    let covers = start + count - 3;
    assert_eq!(
        events[count - 3],
        Event::Flush { covers },
        "a flush before the superblock"
    );
    assert!(matches!(&events[count - 2], Event::Write { offset, .. } if offset.get() == 1024));
    let covers = start + count - 1;
    assert_eq!(events[count - 1], Event::Flush { covers });

    let mut bytes = old;
    let uuid = |bytes: &[u8]| superblock_of(bytes).map(|sb| sb.raw().uuid[0]);
    assert_eq!(uuid(&bytes), Some(7));
    for (at, event) in events.iter().enumerate() {
        if let Event::Write { offset, data } = event {
            let offset = usize::try_from(offset.get()).unwrap();
            bytes[offset..offset + data.len()].copy_from_slice(data);
        }
        let expected = (at >= count - 2).then_some(8);
        assert_eq!(uuid(&bytes), expected, "after event {at} of {count}");
    }
}

#[test]
fn the_same_options_give_the_same_bytes() {
    let made: Vec<Vec<u8>> = (0..2)
        .map(|_| {
            let device = MemoryDevice::new(32 * MIB);
            write_to(&device, &options("mmp,orphan_file,metadata_csum_seed"));
            device.to_bytes()
        })
        .collect();
    assert!(made[0] == made[1]);
    let device = MemoryDevice::new(32 * MIB);
    let mut random = options("mmp,orphan_file,metadata_csum_seed");
    random.uuid = None;
    write_to(&device, &random);
    assert!(made[0] != device.to_bytes(), "a random UUID shows");
}

/// Old bytes stay where nothing lies, and nowhere else.
#[test]
fn old_contents_do_not_show() {
    if !need(&[Need::Tool("e2fsck")]) {
        return;
    }
    let dir = TempDir::new("mkfs").unwrap();
    for features in [
        "",
        "^metadata_csum",
        "mmp,orphan_file",
        "^extent,^64bit",
        "^flex_bg",
    ] {
        let device = MemoryDevice::from_bytes(&vec![content::JUNK; 48 << 20]);
        write_to(&device, &options(features));
        let path = dir.join("junk.img");
        std::fs::write(&path, device.to_bytes()).unwrap();
        Image::fsck_clean_at(&path).unwrap();
        let log = Cmd::new("debugfs").args(["-R", "blocks <8>"]).arg(&path);
        let log = log.ok().unwrap().out;
        let bs = superblock_of(&device.to_bytes()).unwrap().block_size();
        for block in log
            .split_whitespace()
            .map(|word| word.parse::<u64>().unwrap())
        {
            let mut bytes = vec![0; bs.bytes()];
            device
                .read_at(DevOff::new(block * bs.bytes_u64()), &mut bytes)
                .unwrap();
            let old = bytes.iter().all(|&byte| byte == content::JUNK);
            assert!(
                !old,
                "{features}: block {block} of the journal is an old one"
            );
        }
        let mut tail = [0; 1 << 16];
        device
            .read_at(DevOff::new(device.len() - (1 << 16)), &mut tail)
            .unwrap();
        assert!(
            tail.iter().all(|&byte| byte == 0),
            "labels at the end would be found"
        );
        if need(&[Need::Loop]) {
            use_with_linux(&path);
        }
    }
}

/// The inodes of each group's table that were never used: whether the descriptor says that they
/// are zeros, and whether they are.
fn unused_tables(device: &dyn BlockDevice) -> Vec<(bool, bool)> {
    let read = |at: u64, len: usize| {
        let mut bytes = vec![0; len];
        device.read_at(DevOff::new(at), &mut bytes).unwrap();
        bytes
    };
    let sb = Superblock::parse(&read(SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE)).unwrap();
    let (bs, size) = (sb.block_size().bytes_u64(), sb.desc_size());
    let (per_group, checksum) = (sb.inodes_per_group(), GroupChecksum::of(&sb));
    let first = (sb.first_data_block().get() + 1) * bs;
    let table = |group: u32| {
        let desc = read(first + u64::from(group) * size as u64, size);
        let desc = GroupDesc::parse(&desc, Group::new(group), &checksum).unwrap();
        let unused = desc.free_inodes as usize * sb.inode_size();
        let whole = per_group as usize * sb.inode_size();
        let at = desc.inode_table.get() * bs + (whole - unused) as u64;
        let zeros = read(at, unused).iter().all(|&byte| byte == 0);
        (desc.flags.contains(GroupFlags::ITABLE_ZEROED), zeros)
    };
    (0..sb.group_count()).map(table).collect()
}

/// The flag of a table that is not zeros would keep Linux from zeroing it; without the flag of one
/// that is, Linux zeroes it once more.
#[test]
fn tables_are_zeros_where_they_are_said_to_be() {
    const BYTES: usize = 48 << 20;
    for (features, lazy, zeroed) in [
        ("", None, false),
        ("", Some(true), false),
        ("", Some(false), true),
        ("uninit_bg,^metadata_csum", Some(true), false),
        // Without checksums of descriptors no part of a table is known to be unused.
        ("^uninit_bg,^metadata_csum", Some(true), true),
    ] {
        let options = Options {
            lazy_itable_init: lazy,
            ..options(features)
        };
        let junk = MemoryDevice::from_bytes(&vec![content::JUNK; BYTES]);
        write_to(&junk, &options);
        let found = unused_tables(&junk);
        assert!(found.len() > 1, "several groups");
        let expected = (zeroed, zeroed);
        assert!(
            found.iter().all(|one| *one == expected),
            "{features} {lazy:?}: {found:?}"
        );
        // A new file is zeros where nothing was written.
        let dir = TempDir::new("mkfs").unwrap();
        let path = dir.join("new.img");
        make(&path, Some(BYTES as u64), &options).unwrap();
        let found = unused_tables(&MemoryDevice::from_bytes(&std::fs::read(&path).unwrap()));
        assert!(
            found.iter().all(|one| *one == (true, true)),
            "{features} {lazy:?}: {found:?}"
        );
    }
}

/// The reserve of descriptors is not written by the blocks that are made: a group that is added
/// later finds its descriptors there.
#[test]
fn the_heads_of_groups_have_nothing_of_what_was_there() {
    for features in ["", "^resize_inode", "^resize_inode,^sparse_super"] {
        let devices = [0, content::JUNK].map(|byte| {
            let device = MemoryDevice::from_bytes(&vec![byte; 48 << 20]);
            write_to(&device, &options(features));
            device.to_bytes()
        });
        let sb = superblock_of(&devices[0]).unwrap();
        let geometry = Geometry::of(&sb);
        let bs = geometry.block_size.bytes();
        let heads = (0..geometry.groups).map(|group| geometry.head(group));
        for block in heads.flatten().map(index) {
            let [zeros, junk] = devices.each_ref().map(|of| &of[block * bs..][..bs]);
            assert!(zeros == junk, "{features}: block {block}");
        }
    }
}

#[test]
fn what_lies_behind_the_volume_stays() {
    const VOLUME: u64 = 16 << 20;
    let device = MemoryDevice::from_bytes(&vec![content::JUNK; 24 << 20]);
    let options = options("");
    let layout = Layout::plan(&options, VOLUME).unwrap();
    extant_mkfs::write(&device, &layout, &Identity::of(&options).unwrap()).unwrap();
    let mut behind = vec![0; 8 << 20];
    device.read_at(DevOff::new(VOLUME), &mut behind).unwrap();
    assert!(behind.iter().all(|&byte| byte == content::JUNK));
}

/// Mounts, fills and checks it.
fn use_with_linux(path: &Path) {
    let linux = Subject::Ext4.mount(path, "").unwrap();
    std::fs::create_dir(linux.join("dir")).unwrap();
    for i in 0..300 {
        let name = format!("dir/file{i}");
        std::fs::write(linux.join(name), content::fill(i, 0, 30_000)).unwrap();
    }
    linux.unmount().unwrap();
    Image::fsck_clean_at(path).unwrap();
}

#[test]
fn block_devices_are_filled() {
    if !need(&[Need::Loop, Need::Tool("e2fsck")]) {
        return;
    }
    let dir = TempDir::new("mkfs").unwrap();
    let path = dir.join("device.img");
    for (sector, features, discard) in [
        (512, "", false),
        (512, "", true),
        (4096, "^metadata_csum,uninit_bg", false),
    ] {
        std::fs::write(&path, vec![content::JUNK; 600 << 20]).unwrap();
        let device = LoopDevice::over(&path, sector).unwrap();
        let mut options = options(features);
        options.discard = discard;
        let made = make(device.path(), None, &options).unwrap();
        assert_eq!(made.layout.bytes(), 600 * MIB);
        Image::fsck_clean_at(device.path()).unwrap();
        let small = Options {
            block_size: Some(1024),
            force: true,
            ..Options::default()
        };
        let again = make(device.path(), None, &small);
        if sector == 4096 {
            let said = again.unwrap_err().to_string();
            assert_eq!(
                said,
                "the block size is 1024: the device's sectors are larger"
            );
        } else {
            assert_eq!(again.unwrap().overwritten.len(), 1);
        }
        let large = make(device.path(), Some(601 * MIB), &small).unwrap_err();
        let said = large.to_string();
        assert_eq!(
            said,
            format!(
                "{} bytes were asked for, the device has {}",
                601 * MIB,
                600 * MIB
            )
        );
        let uses = if discard { 100 } else { 601 };
        assert!(
            used_mib(&path) <= uses,
            "{} MiB are in use",
            used_mib(&path)
        );
        drop(device);
    }
}

fn used_mib(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    path.metadata().unwrap().blocks() * 512 / MIB
}

#[test]
fn a_file_takes_space_for_metadata_only() {
    let dir = TempDir::new("mkfs").unwrap();
    let path = dir.join("sparse.img");
    make(&path, Some(1 << 40), &options("")).unwrap();
    assert_eq!(path.metadata().unwrap().len(), 1 << 40);
    assert!(used_mib(&path) < 24, "{} MiB", used_mib(&path));
    // A file that held something is as a new one, where the volume lies.
    let new = dir.join("new.img");
    make(&new, Some(32 * MIB), &options("")).unwrap();
    std::fs::write(&path, vec![content::JUNK; 64 << 20]).unwrap();
    make(&path, Some(32 * MIB), &options("")).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes[..32 << 20] == std::fs::read(&new).unwrap());
    assert!(bytes[32 << 20..].iter().all(|&byte| byte == content::JUNK));
    assert_eq!(bytes.len(), 64 << 20);
    assert!(used_mib(&path) < 36, "{} MiB", used_mib(&path));
    make(
        &path,
        Some(128 * MIB),
        &Options {
            force: true,
            ..options("")
        },
    )
    .unwrap();
    assert_eq!(path.metadata().unwrap().len(), 128 * MIB);
}

#[test]
fn each_usage_is_sound_and_linux_writes_it() {
    if !need(&[Need::Loop, Need::Tool("e2fsck")]) {
        return;
    }
    let dir = TempDir::new("mkfs").unwrap();
    for usage in [
        Usage::Default,
        Usage::Small,
        Usage::LargeFile,
        Usage::Minimal,
        Usage::Firecracker,
        Usage::Android,
        Usage::Grub,
    ] {
        let path = dir.join(format!("{usage:?}.img"));
        let mut options = options("");
        options.usage = usage;
        // Enough inodes for the files below, where the usage has few.
        options.inodes = (usage == Usage::LargeFile).then_some(1000);
        make(&path, Some(64 * MIB), &options).unwrap();
        Image::fsck_clean_at(&path).unwrap();
        use_with_linux(&path);
    }
}
