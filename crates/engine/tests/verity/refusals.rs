//! Changes of a sealed file, and files that cannot be sealed.

use extant_engine::{
    BufferedPath, Cred, Error, FallocateMode, QuotaKind, QuotaLimits, Result, SetAttr, TreeHash,
    VerityParams, VolumeOptions, XattrMode,
};
use extant_testkit::Image;

use crate::kit::{
    VERITY, blocks, create, data, find, free, image, open, params, read, seal, set_size,
};

/// `FS_IMMUTABLE_FL`, `FS_APPEND_FL` and `FS_JOURNAL_DATA_FL`.
const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;
const JOURNAL_DATA: u32 = 0x4000;

/// Everything that changes content or its blocks is refused.
#[test]
fn a_sealed_file_changes_no_more() {
    let image = image(16, "-b 1024");
    let volume = open(&image, "");
    let cred = Cred::root();
    let node = create(&volume, "f", &data(100_000));
    let other = create(&volume, "g", &data(100_000));
    seal(&volume, &node, &params(TreeHash::Sha256, 1024, b"")).unwrap();
    let setuid = SetAttr {
        perm: Some(0o4755),
        ..SetAttr::default()
    };
    let moved = volume.move_extents(&other, &node, 0..1024, 0);
    assert_eq!(moved.map_err(|error| error.errno()), Err(1));
    volume.setattr(&node, &setuid, &cred).unwrap();
    let user = Cred {
        uid: 5,
        privileged: false,
        ..Cred::root()
    };
    let (page, from) = ([1; 4096], (&other, 0));
    let range = |mode| volume.fallocate(&node, mode, 4096, 4096, &cred);
    let edit = |_, bytes: &mut [u8]| bytes.fill(1);
    let refused = [
        volume.write(&node, 0, &page, &user).map(drop),
        volume.write_back(&node, 0, &page, &cred).map(drop),
        volume.append(&node, &page, &cred).map(drop),
        volume.write_direct(&node, 0, &page, &cred).map(drop),
        volume.edit(&node, 0, 10, &cred, edit).map(drop),
        range(FallocateMode::Allocate { keep_size: true }),
        range(FallocateMode::PunchHole),
        range(FallocateMode::ZeroRange { keep_size: true }),
        range(FallocateMode::CollapseRange),
        range(FallocateMode::InsertRange),
        set_size(&volume, &node, 10),
        set_size(&volume, &node, 200_000),
        set_size(&volume, &node, 100_000),
        volume.copy_range(from, (&node, 0), 100, &cred).map(drop),
        volume.open_for_writing(&node).map(drop),
        volume.defragment(&node, &cred, |_, _| ()).map(drop),
        volume.move_extents(&node, &other, 0..1024, 0).map(drop),
    ];
    for (number, result) in refused.into_iter().enumerate() {
        assert_eq!(
            result.map_err(|error| error.errno()),
            Err(1),
            "number {number}"
        );
    }
    assert_eq!(
        volume.getattr(&node).unwrap().perm,
        0o4755,
        "a refused write"
    );
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

/// Attributes, names and reads are as before; there is no way back.
#[test]
fn a_sealed_file_changes_its_attributes() {
    let image = image(16, "-b 1024");
    let volume = open(&image, "");
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    let node = create(&volume, "f", &data(100_000));
    let other = create(&volume, "g", &data(100_000));
    seal(&volume, &node, &params(TreeHash::Sha256, 1024, b"")).unwrap();
    let again = seal(&volume, &node, &VerityParams::default());
    assert_eq!(
        again.map_err(|error| error.errno()),
        Err(22),
        "blocks of 4096 bytes"
    );
    let again = seal(&volume, &node, &params(TreeHash::Sha256, 1024, b""));
    assert_eq!(again.map_err(|error| error.errno()), Err(17));
    let iomap = volume.set_buffered_path(&node, BufferedPath::Iomap);
    assert!(matches!(iomap, Err(Error::NotSupported(_))));
    volume
        .setxattr(&node, b"user.a", b"b", XattrMode::default(), &cred)
        .unwrap();
    let flags = volume.flags(&node).unwrap();
    volume.set_flags(&node, flags | IMMUTABLE, &cred).unwrap();
    volume.set_flags(&node, flags, &cred).unwrap();
    volume
        .set_flags(&node, flags & !VERITY | JOURNAL_DATA, &cred)
        .unwrap();
    assert_ne!(
        volume.flags(&node).unwrap() & VERITY,
        0,
        "there is no way back"
    );
    assert_eq!(read(&volume, &node).unwrap(), data(100_000));
    volume.link(&node, &root, b"h", &cred).unwrap();
    let copied = volume.copy_range((&node, 0), (&other, 0), 100, &cred);
    assert_eq!(copied.unwrap(), 100);
    volume.unlink(&root, b"f").unwrap();
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

#[test]
fn what_linux_refuses_to_seal_is_refused() {
    let errno = |result: Result<()>| result.map_err(|error| error.errno());
    let how = params(TreeHash::Sha256, 1024, b"");
    let image = image(16, "-b 1024");
    let volume = open(&image, "");
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    let node = create(&volume, "f", &data(5000));
    assert_eq!(errno(seal(&volume, &root, &how)), Err(21));
    let link = volume.symlink(&root, b"link", b"f", &cred).unwrap();
    assert_eq!(errno(seal(&volume, &link, &how)), Err(22));
    let salted = params(TreeHash::Sha256, 1024, &[1; 33]);
    for bad in [
        params(TreeHash::Sha256, 4096, b""),
        params(TreeHash::Sha256, 512, b""),
        salted,
    ] {
        assert_eq!(errno(seal(&volume, &node, &bad)), Err(22), "{bad:?}");
    }
    let flags = volume.flags(&node).unwrap();
    for fixed in [IMMUTABLE, APPEND] {
        volume.set_flags(&node, flags | fixed, &cred).unwrap();
        assert_eq!(errno(seal(&volume, &node, &how)), Err(1));
        volume.set_flags(&node, flags, &cred).unwrap();
    }
    // As long as one of two openers may write.
    let first = volume.open_for_writing(&node).unwrap();
    let second = volume.open_for_writing(&node).unwrap();
    drop(first);
    assert_eq!(errno(seal(&volume, &node, &how)), Err(26));
    drop(second);
    seal(&volume, &node, &how).unwrap();
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();

    let volume = VolumeOptions::new().open(image.path()).unwrap();
    let node = find(&volume, "f");
    assert_eq!(errno(seal(&volume, &node, &how)), Err(30));
    volume.unmount().unwrap();

    for args in ["-O ^verity", "-O ^extent,^64bit"] {
        let image = Image::of_mib(16)
            .args("-O verity -b 1024")
            .args(args)
            .make()
            .unwrap();
        let volume = open(&image, "");
        let node = create(&volume, "f", &data(5000));
        assert_eq!(errno(seal(&volume, &node, &how)), Err(95), "{args}");
        assert_eq!(volume.flags(&node).unwrap() & VERITY, 0);
        volume.write(&node, 0, b"more", &cred).unwrap();
        volume.unmount().unwrap();
        image.fsck_clean().unwrap();
    }
}

/// A tree that would lie behind the largest position of a file.
#[test]
fn a_file_without_room_for_a_tree_is_refused() {
    let image = image(16, "-b 1024");
    let volume = open(&image, "");
    let node = create(&volume, "f", b"");
    let most = ((1 << 32) - 1) * 1024;
    set_size(&volume, &node, most).unwrap();
    let how = params(TreeHash::Sha256, 1024, b"");
    let refused = seal(&volume, &node, &how).unwrap_err();
    assert_eq!(refused.errno(), 27);
    // Its tree has more blocks than the volume: there is no attempt to make it.
    set_size(&volume, &node, 1 << 40).unwrap();
    let before = free(&volume);
    assert_eq!(seal(&volume, &node, &how).unwrap_err().errno(), 28);
    assert_eq!(free(&volume), before);
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

/// A tree that finds no space, or is refused by a quota, leaves all as it was.
#[test]
fn without_space_nothing_changes() {
    let how = params(TreeHash::Sha512, 1024, b"");
    let image = image(16, "-b 1024");
    let volume = open(&image, "");
    let node = create(&volume, "f", &data(3 << 20));
    volume.fsync(&node, false).unwrap();
    let filler = create(&volume, "filler", b"");
    let left = 150 << 10;
    let rest = volume.room(true) - left;
    let mode = FallocateMode::Allocate { keep_size: true };
    volume
        .fallocate(&filler, mode, 0, rest, &Cred::root())
        .unwrap();
    let (before, taken) = (free(&volume), blocks(&volume, &node));
    assert!(matches!(seal(&volume, &node, &how), Err(Error::NoSpace)));
    assert_eq!((free(&volume), blocks(&volume, &node)), (before, taken));
    volume.write(&node, 0, b"changes", &Cred::root()).unwrap();
    drop(volume.open_for_writing(&node).unwrap());
    // What is unlinked comes back in time.
    volume.unlink(&volume.root().unwrap(), b"filler").unwrap();
    drop(filler);
    seal(&volume, &node, &how).unwrap();
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

#[test]
fn a_quota_that_refuses_the_tree_leaves_the_file() {
    let args = "-b 1024 -O quota -E quotatype=usrquota";
    let image = image(32, args);
    let volume = open(&image, "usrquota");
    let user = Cred {
        uid: 7,
        gid: 7,
        privileged: false,
        ..Cred::root()
    };
    let node = create(&volume, "f", &data(3 << 20));
    let owned = SetAttr {
        uid: Some(7),
        ..SetAttr::default()
    };
    volume.setattr(&node, &owned, &Cred::root()).unwrap();
    volume.fsync(&node, false).unwrap();
    let used = || {
        volume
            .next_quota(QuotaKind::User, 7)
            .unwrap()
            .1
            .unwrap()
            .usage
            .bytes
    };
    let before = used();
    let limits = |bytes_hard| {
        let limits = QuotaLimits {
            bytes_hard,
            ..QuotaLimits::default()
        };
        volume.set_quota_limits(QuotaKind::User, 7, limits).unwrap();
    };
    limits(before + (50 << 10));
    let how = params(TreeHash::Sha256, 1024, b"");
    let refused = volume.enable_verity(&node, &how, &user).unwrap_err();
    assert_eq!(refused.errno(), 122);
    assert_eq!(used(), before);
    volume.write(&node, 0, b"changes", &user).unwrap();
    limits(before + (200 << 10));
    volume.enable_verity(&node, &how, &user).unwrap();
    let tree = used() - before;
    assert!((96 << 10..110 << 10).contains(&tree), "{tree} bytes");
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

/// A file without blocks whose tree gets none either is no orphan of a volume that is clean.
#[test]
fn a_refused_seal_of_a_file_without_blocks_leaves_no_orphan() {
    for orphans in ["^orphan_file", "orphan_file"] {
        let args = format!("-b 1024 -O quota,{orphans} -E quotatype=usrquota");
        let image = image(32, &args);
        let volume = open(&image, "usrquota");
        let cred = Cred::root();
        let owned = SetAttr {
            uid: Some(7),
            ..SetAttr::default()
        };
        let filler = create(&volume, "filler", &[1; 8192]);
        let sparse = create(&volume, "sparse", b"");
        let empty = create(&volume, "empty", b"");
        for node in [&filler, &sparse, &empty] {
            volume.setattr(node, &owned, &cred).unwrap();
        }
        set_size(&volume, &sparse, 1 << 20).unwrap();
        volume.sync().unwrap();
        let limits = QuotaLimits {
            bytes_hard: 8192,
            ..QuotaLimits::default()
        };
        volume.set_quota_limits(QuotaKind::User, 7, limits).unwrap();
        let user = Cred {
            uid: 7,
            gid: 7,
            privileged: false,
            ..Cred::root()
        };
        let how = params(TreeHash::Sha256, 1024, b"");
        for node in [&sparse, &empty] {
            let refused = volume.enable_verity(node, &how, &user).unwrap_err();
            assert_eq!(refused.errno(), 122, "{orphans}");
        }
        drop((filler, sparse, empty));
        volume.unmount().unwrap();
        image.fsck_clean().unwrap();
    }
}
