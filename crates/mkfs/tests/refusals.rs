//! Refusals, each with its own error, and with nothing written.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use extant_blockdev::MemoryDevice;
use extant_mkfs::{
    Error, Identity, Layout, Options, Usage, make, parse_features, parse_quota_kinds, plan, write,
};
use extant_testkit::{Cmd, LoopDevice, Need, TempDir, need};

const MIB: u64 = 1 << 20;

fn options(change: impl FnOnce(&mut Options)) -> Options {
    let mut options = Options::default();
    change(&mut options);
    options
}

/// The error for a volume of `bytes` bytes.
fn refused(bytes: u64, change: impl FnOnce(&mut Options)) -> String {
    Layout::plan(&options(change), bytes)
        .unwrap_err()
        .to_string()
}

#[test]
fn values_that_no_volume_can_have() {
    let what = |change: fn(&mut Options)| refused(64 * MIB, change);
    assert_eq!(
        what(|o| o.block_size = Some(131_072)),
        "the block size is 131072: it has to be a power of two from 1024 to 65536"
    );
    assert_eq!(
        what(|o| o.block_size = Some(1000)),
        "the block size is 1000: it has to be a power of two from 1024 to 65536"
    );
    let sizes = "it has to be a power of two from 128 to the block size, at most 32768";
    for size in [0, 64, 192, 2048] {
        let said = refused(64 * MIB, |o| o.inode_size = Some(size));
        assert_eq!(said, format!("the inode size is {size}: {sizes}"));
    }
    let said = what(|o| o.reserved_percent = Some(50.5));
    assert_eq!(
        said,
        "the share of reserved blocks is 50.5: it has to be from 0 to 50 percent"
    );
    assert!(what(|o| o.reserved_percent = Some(f64::NAN)).contains("from 0 to 50 percent"));
    assert!(what(|o| o.reserved_percent = Some(-1.0)).contains("from 0 to 50 percent"));
    let said = what(|o| o.bytes_per_inode = Some(512));
    assert_eq!(
        said,
        "the number of bytes for an inode is 512: it has to be from 1024 to 67108864"
    );
    assert!(what(|o| o.inodes = Some(0)).contains("from 1 to 2^32 - 1"));
    assert!(what(|o| o.inodes = Some(1 << 32)).contains("from 1 to 2^32 - 1"));
    let said = what(|o| o.journal_mib = Some(0));
    assert_eq!(
        said,
        "the journal's size in MiB is 0: a journal has from 1024 to 10240000 blocks"
    );
    let said = what(|o| o.journal_mib = Some(40));
    assert!(
        said.starts_with("a journal of 40960 blocks is too large: at most "),
        "{said}"
    );
    let said = what(|o| o.fast_commit_kib = Some(64));
    assert_eq!(said, "an area for fast commits needs fast_commit");
    let said = what(|o| {
        o.fast_commit_kib = Some(4097);
        o.features = parse_features("fast_commit").unwrap();
    });
    assert_eq!(
        said,
        "the area for fast commits in KiB is 4097: it has at most as many blocks as the log in \
         front of it"
    );
    assert!(what(|o| o.stride = 1 << 16).contains("at most 65535 are possible"));
}

#[test]
fn clusters_that_no_volume_can_have() {
    let with = |bytes, list: &str, change: fn(&mut Options)| {
        refused(bytes, |o| {
            o.features = parse_features(list).unwrap();
            change(o);
        })
    };
    let sizes = "it has to be a power of two, at least a block and 2048, at most 536870912";
    for size in [0, 1024, 2048, 5000, 1 << 30] {
        let options = options(|o| {
            o.features = parse_features("bigalloc").unwrap();
            (o.block_size, o.cluster_size) = (Some(4096), Some(size));
        });
        let said = Layout::plan(&options, 64 * MIB).unwrap_err().to_string();
        assert_eq!(said, format!("the size of a cluster is {size}: {sizes}"));
    }
    let said = with(64 * MIB, "bigalloc", |o| o.cluster_size = Some(1024));
    assert!(said.ends_with(sizes), "{said}");
    let said = refused(64 * MIB, |o| o.cluster_size = Some(4096));
    assert_eq!(said, "a size of clusters needs bigalloc");
    let said = with(64 * MIB, "bigalloc,^extent,^64bit", |_| {});
    assert_eq!(said, "bigalloc needs extent: block maps have no clusters");
    let said = with(64 * MIB, "bigalloc,meta_bg", |_| {});
    assert!(said.starts_with("meta_bg leaves no table"), "{said}");
    let said = with(1 << 40, "bigalloc", |o| {
        (o.block_size, o.cluster_size) = (Some(1024), Some(1 << 26));
    });
    assert!(
        said.contains("hold no journal: take ^has_journal"),
        "{said}"
    );
    // A group has no more inodes than its bitmap has bits, and clusters make few groups.
    let said = with(64 * MIB, "bigalloc", |o| o.bytes_per_inode = Some(4096));
    assert!(said.starts_with("16384 inodes are too many"), "{said}");
    let said = with(64 * MIB, "bigalloc", |o| o.cluster_size = Some(1 << 27));
    assert!(said.contains("a group would not fit"), "{said}");
}

#[test]
fn volumes_too_small_or_too_large() {
    for bytes in [0, 512, 1024, 2048, 30 * 1024] {
        let said = refused(bytes, |_| {});
        assert!(
            said.starts_with(&format!("{bytes} bytes are too few")),
            "{said}"
        );
    }
    let said = refused(64 * MIB, |o| o.inodes = Some(10_000_000));
    assert_eq!(
        said,
        "10000000 inodes are too many for 65536 blocks of 1024 bytes"
    );
    let narrow = |o: &mut Options| o.features = parse_features("^64bit").unwrap();
    let said = refused(1 << 44, narrow);
    assert_eq!(
        said,
        "4294967296 blocks are too many: without 64bit at most 2^32 - 1 are possible"
    );
    let narrow = |o: &mut Options| {
        o.features = parse_features("^64bit").unwrap();
        o.bytes_per_inode = Some(1024);
    };
    let said = refused(8 << 40, narrow);
    assert!(said.contains("2^32 - 1 inodes"), "{said}");
    let said = refused(u64::MAX, |_| {});
    assert!(said.contains("are too many"), "{said}");
}

#[test]
fn things_that_do_not_go_together() {
    let features = |list: &str| refused(64 * MIB, |o| o.features = parse_features(list).unwrap());
    assert!(features("^sparse_super").starts_with("resize_inode needs sparse_super"));
    assert!(features("^extent").starts_with("64bit needs extent"));
    assert!(features("^metadata_csum,metadata_csum_seed").contains("needs metadata_csum"));
    assert!(features("^has_journal,orphan_file").contains("needs has_journal"));
    let said = refused(64 * MIB, |o| {
        o.features = parse_features("quota,project").unwrap();
        o.inode_size = Some(128);
    });
    assert!(said.contains("project needs room"), "{said}");
    assert!(parse_quota_kinds("usrquota:all").is_err());
    let said = refused(64 * MIB, |o| {
        o.usage = Usage::Minimal;
        o.journal_mib = Some(8);
    });
    assert_eq!(said, "a journal's size needs has_journal");
}

/// The files of quotas say what the owner of the root directory uses.
#[test]
fn another_owner_than_planned_is_refused() {
    let options = options(|o| o.features = parse_features("quota").unwrap());
    let layout = Layout::plan(&options, 16 * MIB).unwrap();
    let mut identity = Identity::of(&options).unwrap();
    identity.root_owner = (1000, 0);
    let device = MemoryDevice::new(16 << 20);
    let refused = write(&device, &layout, &identity);
    assert!(matches!(refused, Err(Error::Conflict(_))));
    identity.root_owner = (0, 0);
    write(&device, &layout, &identity).unwrap();
}

#[test]
fn a_bad_label_is_refused_before_anything_is_made() {
    let dir = TempDir::new("mkfs").unwrap();
    let path = dir.join("new.img");
    for label in [&b"seventeen letters"[..], &b"a\0b"[..]] {
        let options = options(|o| o.label = label.to_vec());
        let said = make(&path, Some(MIB), &options).unwrap_err().to_string();
        assert!(
            said.contains("at most 16 bytes, none of them zero"),
            "{said}"
        );
        assert!(!path.exists());
    }
}

/// Each tool's own volume is known, and stays as it was.
#[test]
fn what_others_made_is_not_overwritten() {
    if !need(&[Need::Tool("mke2fs"), Need::Tool("mkswap")]) {
        return;
    }
    let dir = TempDir::new("mkfs").unwrap();
    let path = dir.join("old.img");
    let known: &[(&[&str], &str)] = &[
        (
            &["mke2fs", "-q", "-F", "-t", "ext2"],
            "an ext2, ext3 or ext4 file system",
        ),
        (&["mkswap"], "swap space"),
        (&["mkfs.xfs", "-q", "-f"], "an xfs file system"),
        (&["mkfs.btrfs", "-q", "-f"], "a btrfs file system"),
        (&["mkfs.vfat"], "a vfat file system"),
    ];
    for (command, what) in known {
        if !extant_testkit::tools::find(command[0]).is_some_and(|tool| tool.exists()) {
            continue;
        }
        let _ = std::fs::remove_file(&path);
        std::fs::File::create(&path)
            .unwrap()
            .set_len(320 * MIB)
            .unwrap();
        Cmd::new(command[0])
            .args(&command[1..])
            .arg(&path)
            .ok()
            .unwrap();
        let before = extant_testkit::tree::hash_file(&path).unwrap();
        for refused in [
            plan(&path, None, &Options::default()),
            make_at(&path, false),
        ] {
            let said = refused.unwrap_err().to_string();
            assert!(said.starts_with(&format!("holds {what} already")), "{said}");
        }
        assert_eq!(
            extant_testkit::tree::hash_file(&path).unwrap(),
            before,
            "{what}"
        );
        let made = make_at(&path, true).unwrap();
        assert_eq!(made.overwritten[0].what, *what);
        let found = Cmd::new("blkid")
            .args(["-p", "-s", "TYPE", "-o", "value"])
            .arg(&path);
        assert_eq!(found.ok().unwrap().out.trim(), "ext4", "after {what}");
    }
}

fn make_at(path: &Path, force: bool) -> extant_mkfs::Result<extant_mkfs::Made> {
    make(path, None, &options(|o| o.force = force))
}

/// Neither with nor without force.
#[test]
fn what_is_in_use_is_never_overwritten() {
    if !need(&[Need::Loop]) {
        return;
    }
    let dir = TempDir::new("mkfs").unwrap();
    let path = dir.join("used.img");
    make(&path, Some(16 * MIB), &Options::default()).unwrap();
    let before = extant_testkit::tree::hash_file(&path).unwrap();
    let device = LoopDevice::over(&path, 512).unwrap();
    let error = make_at(&path, true).unwrap_err();
    assert!(matches!(error, Error::Open(_)), "{error}");
    assert!(error.to_string().contains("in use by"), "{error}");
    // With a size, the file is not even made longer.
    let error = make(&path, Some(32 * MIB), &options(|o| o.force = true)).unwrap_err();
    assert!(error.to_string().contains("in use by"), "{error}");
    drop(device);
    assert_eq!(extant_testkit::tree::hash_file(&path).unwrap(), before);
    assert_eq!(path.metadata().unwrap().len(), 16 * MIB);
}

#[test]
fn there_has_to_be_something_to_make_it_on() {
    let dir = TempDir::new("mkfs").unwrap();
    let missing = make(&dir.join("new.img"), None, &Options::default()).unwrap_err();
    assert!(matches!(missing, Error::NoSize));
    assert!(!dir.join("new.img").exists());
    let folder = make(&dir.join("."), Some(MIB), &Options::default()).unwrap_err();
    assert!(
        folder
            .to_string()
            .contains("neither a regular file nor a block device")
    );
    let nowhere = make(&dir.join("no/new.img"), Some(MIB), &Options::default()).unwrap_err();
    assert!(matches!(nowhere, Error::Io(_)));
}

/// A magic number that lies behind the new volume is wiped as well, and nothing beside it.
#[test]
fn what_is_overwritten_is_not_found_again() {
    let dir = TempDir::new("mkfs").unwrap();
    let path = dir.join("disk.img");
    let mut bytes = vec![0xA5; 16 << 20];
    let at = bytes.len() - 512;
    bytes[at..at + 8].copy_from_slice(b"EFI PART");
    std::fs::write(&path, &bytes).unwrap();
    let small = |force| make(&path, Some(8 * MIB), &options(|o| o.force = force));
    let said = small(false).unwrap_err().to_string();
    assert!(
        said.starts_with("holds a GUID partition table already"),
        "{said}"
    );
    assert_eq!(small(true).unwrap().overwritten.len(), 1);
    let after = std::fs::read(&path).unwrap();
    bytes[at..at + 8].fill(0);
    assert!(after[8 << 20..] == bytes[8 << 20..]);
}

#[test]
fn a_failure_removes_only_what_it_made() {
    let dir = TempDir::new("mkfs").unwrap();
    let link = dir.join("link");
    std::os::unix::fs::symlink(dir.join("nowhere").join("disk"), &link).unwrap();
    assert!(make(&link, Some(8 * MIB), &Options::default()).is_err());
    assert!(link.symlink_metadata().unwrap().is_symlink());
}

#[test]
fn volumes_of_too_many_groups() {
    for (bytes, block_size) in [(64 << 50, None), (5 << 50, Some(1024))] {
        let said = refused(bytes, |o| o.block_size = block_size);
        assert!(said.contains("larger blocks need fewer groups") || said.contains("numbered"));
    }
}

#[test]
fn a_failure_leaves_no_file() {
    if !need(&[Need::Root]) {
        return;
    }
    let dir = TempDir::new("mkfs").unwrap();
    let small = dir.join("small");
    std::fs::create_dir(&small).unwrap();
    let mount = Cmd::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]);
    mount.arg(&small).ok().unwrap();
    let path = small.join("new.img");
    let made = make(&path, Some(64 * MIB), &Options::default());
    let exists = path.exists();
    Cmd::new("umount").arg(&small).ok().unwrap();
    assert!(matches!(made, Err(Error::Io(_))));
    assert!(!exists, "a half-made file was left");
}
