//! Quotas: usage is what the inodes say, whatever changes them, and limits are kept. e2fsck judges
//! usage.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use extant_engine::{
    Cred, Error, FallocateMode, Node, QuotaEntry, QuotaKind, QuotaLimits, QuotaTimes, RenameFlags,
    SetAttr, Volume, VolumeOptions, XattrMode,
};
use extant_testkit::{Image, Rng};

/// The flag that children of a directory inherit its project (`FS_XFLAG_PROJINHERIT`).
const INHERIT: u32 = 0x200;
const KINDS: [QuotaKind; 3] = QuotaKind::ALL;

fn image(args: &str) -> Image {
    let kinds = "-E quotatype=usrquota:grpquota:prjquota";
    let image = Image::of_mib(32).args("-O quota,project").args(kinds);
    image.args(args).make().unwrap()
}

fn open(image: &Image, options: &str) -> Volume {
    let mut how = VolumeOptions::new();
    how.write(true).mount_options(options);
    how.open(image.path()).unwrap()
}

fn user(uid: u32) -> Cred {
    Cred {
        uid,
        gid: uid + 1000,
        privileged: false,
        ..Cred::root()
    }
}

fn of(volume: &Volume, kind: QuotaKind, id: u32) -> QuotaEntry {
    let (_, entries) = volume.quotas(kind).unwrap();
    let found = entries.into_iter().find(|entry| entry.id == id);
    found.unwrap_or_else(|| QuotaEntry::of(id))
}

/// Bytes and inodes.
fn usage(volume: &Volume, kind: QuotaKind, id: u32) -> (u64, u64) {
    let usage = of(volume, kind, id).usage;
    (usage.bytes, usage.inodes)
}

/// The root, in which everyone may make files.
fn root(volume: &Volume) -> Node {
    let root = volume.root().unwrap();
    let open = SetAttr {
        perm: Some(0o777),
        ..SetAttr::default()
    };
    volume.setattr(&root, &open, &Cred::root()).unwrap();
    root
}

fn set_size(volume: &Volume, node: &Node, size: u64) {
    let to = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    volume.setattr(node, &to, &Cred::root()).unwrap();
}

fn end(volume: &Volume, image: &Image) {
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

/// A file and a directory of user 7, with attributes, and names of user 8.
fn fill(volume: &Volume, root: &Node, args: &str) -> (Node, Node) {
    let cred = user(7);
    let file = volume.create(root, b"file", 0o644, &cred).unwrap();
    volume.write(&file, 0, &[1; 100], &cred).unwrap();
    volume.write(&file, 300_000, &[1; 70_000], &cred).unwrap();
    let mode = FallocateMode::Allocate { keep_size: true };
    if !args.contains("^extent") {
        volume
            .fallocate(&file, mode, 500_000, 90_000, &cred)
            .unwrap();
    }
    let dir = volume.mkdir(root, b"dir", 0o755, &cred).unwrap();
    for at in 0..200 {
        let name = format!("a-name-that-takes-room-{at}");
        volume
            .create(&dir, name.as_bytes(), 0o644, &user(8))
            .unwrap();
    }
    volume.symlink(&dir, b"link", &[b'x'; 200], &cred).unwrap();
    for (name, len) in [
        (&b"trusted.a"[..], 300),
        (b"trusted.b", 900),
        (b"trusted.c", 9000),
    ] {
        let set = volume.setxattr(&file, name, &vec![5; len], XattrMode::Either, &Cred::root());
        assert!(set.is_ok() || len > 300, "{args}: {set:?}");
    }
    (file, dir)
}

/// Each way in which an inode gains or loses blocks, or gets another owner.
#[test]
fn usage_is_what_the_inodes_say() {
    for args in [
        "-b 4096",
        "-b 1024 -O ^extent,^64bit",
        "-b 1024 -O inline_data -I 512",
        "-b 1024 -O bigalloc,inline_data,ea_inode",
        "-b 4096 -O ^has_journal,^metadata_csum",
        "-b 65536 -O inline_data,ea_inode -I 512",
    ] {
        let image = image(args);
        let volume = open(&image, "");
        let (root, cred) = (root(&volume), user(7));
        let (file, dir) = fill(&volume, &root, args);
        let (bytes, inodes) = usage(&volume, QuotaKind::User, 7);
        assert!(
            inodes >= 3 && bytes > 0,
            "{args}: {bytes} bytes, {inodes} inodes"
        );
        volume.sync().unwrap();
        let owner = SetAttr {
            uid: Some(9),
            gid: Some(77),
            ..SetAttr::default()
        };
        volume.write(&file, 900_000, &[1; 5000], &cred).unwrap();
        volume.setattr(&file, &owner, &Cred::root()).unwrap();
        volume.set_xflags(&file, 0, 42, &Cred::root()).unwrap();
        let moved = usage(&volume, QuotaKind::User, 9);
        assert!(moved.0 > 70_000 && moved.1 >= 1, "{args}: {moved:?}");
        assert_eq!(usage(&volume, QuotaKind::Project, 42), moved, "{args}");
        assert_eq!(usage(&volume, QuotaKind::Group, 77), moved, "{args}");
        set_size(&volume, &file, 310_000);
        assert!(usage(&volume, QuotaKind::User, 9).0 < moved.0, "{args}");
        volume
            .removexattr(&file, b"trusted.a", &Cred::root())
            .unwrap();
        for at in (0..200).step_by(2) {
            let name = format!("a-name-that-takes-room-{at}");
            volume.unlink(&dir, name.as_bytes()).unwrap();
        }
        drop((file, dir, root));
        end(&volume, &image);
        let volume = open(&image, "");
        let root = volume.root().unwrap();
        volume.unlink(&root, b"file").unwrap();
        volume.wait_for_background_work();
        for (kind, id) in KINDS.into_iter().zip([9, 77, 42]) {
            assert_eq!(usage(&volume, kind, id), (0, 0), "{args}: {kind}");
        }
        drop(root);
        end(&volume, &image);
    }
}

fn limit(volume: &Volume, kind: QuotaKind, id: u32, limits: QuotaLimits) {
    volume.set_quota_limits(kind, id, limits).unwrap();
}

/// Hard limits of each kind: a write goes as far as it may, and what is delayed counts.
#[test]
fn hard_limits_are_kept() {
    for (kind, id) in KINDS.into_iter().zip([7, 1007, 42]) {
        let image = image("-b 1024");
        let volume = open(&image, "usrquota,grpquota,prjquota");
        let (root, cred) = (root(&volume), user(7));
        volume
            .set_xflags(&root, INHERIT, 42, &Cred::root())
            .unwrap();
        let file = volume.create(&root, b"file", 0o644, &cred).unwrap();
        let before = usage(&volume, kind, id);
        let limits = QuotaLimits {
            bytes_hard: before.0 + (100 << 10),
            inodes_hard: before.1 + 2,
            ..QuotaLimits::default()
        };
        limit(&volume, kind, id, limits);
        assert_eq!(
            volume.write(&file, 0, &[1; 70 << 10], &cred).unwrap(),
            70 << 10
        );
        // Nothing is allocated yet, and nothing is counted.
        assert_eq!(usage(&volume, kind, id), before, "{kind}");
        let rest = volume
            .write(&file, 70 << 10, &[1; 70 << 10], &cred)
            .unwrap();
        assert_eq!(rest, 30 << 10, "{kind}: as far as it may");
        let over = volume.write(&file, 100 << 10, &[1; 1024], &cred);
        assert!(matches!(over, Err(Error::OverQuota)), "{kind}: {over:?}");
        volume.fsync(&file, false).unwrap();
        assert_eq!(usage(&volume, kind, id).0, before.0 + (100 << 10), "{kind}");
        let mode = FallocateMode::Allocate { keep_size: true };
        let over = volume.fallocate(&file, mode, 200 << 10, 2048, &cred);
        assert!(matches!(over, Err(Error::OverQuota)), "{kind}: {over:?}");
        // What was given back may be taken again.
        let mode = FallocateMode::PunchHole;
        volume.fallocate(&file, mode, 0, 8 << 10, &cred).unwrap();
        assert_eq!(
            volume.write(&file, 0, &[2; 8 << 10], &cred).unwrap(),
            8 << 10
        );
        for (name, may) in [(&b"a"[..], true), (b"b", true), (b"c", false)] {
            let made = volume.create(&root, name, 0o644, &cred);
            assert_eq!(made.is_ok(), may, "{kind}: {made:?}");
        }
        assert!(
            volume
                .create(&root, b"root's", 0o644, &Cred::root())
                .is_ok()
        );
        drop((file, root));
        end(&volume, &image);
    }
}

/// Usage of a removed file may be taken at once, though its blocks are freed later.
#[test]
fn what_is_removed_may_be_taken_again() {
    let image = image("-b 1024");
    let volume = open(&image, "usrquota");
    let (root, cred) = (root(&volume), user(7));
    let limits = QuotaLimits {
        bytes_hard: 100 << 10,
        inodes_hard: 1,
        ..QuotaLimits::default()
    };
    limit(&volume, QuotaKind::User, 7, limits);
    for _ in 0..30 {
        let file = volume.create(&root, b"file", 0o644, &cred).unwrap();
        let data = [1; 90 << 10];
        assert_eq!(volume.write(&file, 0, &data, &cred).unwrap(), data.len());
        volume.unlink(&root, b"file").unwrap();
    }
    drop(root);
    end(&volume, &image);
}

/// A soft limit may be passed for the grace time.
#[test]
fn soft_limits_are_kept_after_the_grace_time() {
    let image = image("-b 1024");
    let volume = open(&image, "usrquota");
    let (root, cred) = (root(&volume), user(7));
    let limits = QuotaLimits {
        bytes_soft: 10 << 10,
        inodes_soft: 1,
        ..QuotaLimits::default()
    };
    limit(&volume, QuotaKind::User, 7, limits);
    let file = volume.create(&root, b"file", 0o644, &cred).unwrap();
    assert_eq!(of(&volume, QuotaKind::User, 7).inodes_until, 0);
    volume.write(&file, 0, &[1; 20 << 10], &cred).unwrap();
    volume.create(&root, b"more", 0o644, &cred).unwrap();
    volume.fsync(&file, false).unwrap();
    let entry = of(&volume, QuotaKind::User, 7);
    assert!(entry.bytes_until > 0 && entry.inodes_until > 0, "{entry:?}");
    set_size(&volume, &file, 0);
    assert_eq!(
        of(&volume, QuotaKind::User, 7).bytes_until,
        0,
        "below again"
    );
    let none = QuotaTimes {
        bytes: 0,
        inodes: 0,
    };
    volume.set_quota_times(QuotaKind::User, none).unwrap();
    volume.write(&file, 0, &[1; 20 << 10], &cred).unwrap();
    volume.fsync(&file, false).unwrap();
    let over = volume.write(&file, 20 << 10, &[1; 1024], &cred);
    assert!(matches!(over, Err(Error::OverQuota)), "{over:?}");
    drop((file, root));
    end(&volume, &image);
    let volume = open(&image, "");
    assert_eq!(volume.quotas(QuotaKind::User).unwrap().0, none);
    volume.unmount().unwrap();
}

/// A new owner takes all of an inode over, delayed data included, or nothing.
#[test]
fn an_owner_over_the_limit_gets_nothing() {
    let image = image("-b 1024");
    let volume = open(&image, "usrquota,prjquota");
    let (root, cred) = (root(&volume), user(7));
    let limits = QuotaLimits {
        bytes_hard: 30 << 10,
        ..QuotaLimits::default()
    };
    limit(&volume, QuotaKind::User, 9, limits);
    limit(&volume, QuotaKind::Project, 42, limits);
    let file = volume.create(&root, b"file", 0o644, &cred).unwrap();
    volume.write(&file, 0, &[1; 31 << 10], &cred).unwrap();
    let plain = user(8);
    let to = SetAttr {
        uid: Some(9),
        ..SetAttr::default()
    };
    let owner = Cred {
        privileged: false,
        ..plain
    };
    let over = volume.setattr(&file, &to, &owner);
    assert!(matches!(over, Err(Error::OverQuota)), "{over:?}");
    let over = volume.set_xflags(&file, 0, 42, &owner);
    assert!(matches!(over, Err(Error::OverQuota)), "{over:?}");
    volume.fsync(&file, false).unwrap();
    assert_eq!(usage(&volume, QuotaKind::User, 7), (31 << 10, 1));
    set_size(&volume, &file, 30 << 10);
    volume.setattr(&file, &to, &owner).unwrap();
    volume.set_xflags(&file, 0, 42, &owner).unwrap();
    assert_eq!(usage(&volume, QuotaKind::User, 9), (30 << 10, 1));
    assert_eq!(usage(&volume, QuotaKind::Project, 42), (30 << 10, 1));
    drop((file, root));
    end(&volume, &image);
}

/// Children inherit the project, and a file of another one does not come in.
#[test]
fn projects_are_inherited_and_do_not_mix() {
    let image = image("-b 1024");
    let volume = open(&image, "prjquota");
    let (root, cred) = (root(&volume), user(7));
    let dir = volume.mkdir(&root, b"dir", 0o777, &cred).unwrap();
    volume.set_xflags(&dir, INHERIT, 42, &Cred::root()).unwrap();
    let inner = volume.mkdir(&dir, b"inner", 0o777, &cred).unwrap();
    assert_eq!(volume.xflags(&inner).unwrap(), (INHERIT, 42));
    let file = volume.create(&inner, b"file", 0o644, &cred).unwrap();
    assert_eq!(volume.xflags(&file).unwrap(), (0, 42));
    let other = volume.create(&root, b"other", 0o644, &cred).unwrap();
    let moved = volume.rename(&root, b"other", &dir, b"other", RenameFlags::empty(), &cred);
    assert!(matches!(moved, Err(Error::CrossDevice)), "{moved:?}");
    let linked = volume.link(&other, &dir, b"other", &cred);
    assert!(matches!(linked, Err(Error::CrossDevice)), "{linked:?}");
    let limits = QuotaLimits {
        bytes_soft: 1 << 20,
        bytes_hard: 2 << 20,
        inodes_hard: 20,
        ..QuotaLimits::default()
    };
    limit(&volume, QuotaKind::Project, 42, limits);
    let seen = volume.statfs_at(&inner).unwrap();
    assert_eq!((seen.blocks, seen.inodes), (1024, 20));
    assert_eq!(seen.blocks - seen.blocks_free, 2, "two directories");
    assert_eq!(seen.inodes - seen.inodes_free, 3);
    assert_eq!(volume.statfs_at(&root).unwrap(), volume.statfs().unwrap());
    drop((file, other, inner, dir, root));
    end(&volume, &image);
}

/// Many ids: the file grows, and what it says is there after the next mount.
#[test]
fn many_ids_have_entries() {
    for args in ["-b 1024", "-b 4096"] {
        let image = image(args);
        let volume = open(&image, "");
        let root = root(&volume);
        let ids: Vec<u32> = (0..60).chain([300, 70_000, 1 << 20, 1 << 31]).collect();
        for id in &ids {
            let name = format!("{id}");
            let cred = Cred {
                gid: *id,
                ..user(*id)
            };
            volume.create(&root, name.as_bytes(), 0o644, &cred).unwrap();
        }
        drop(root);
        end(&volume, &image);
        let volume = open(&image, "");
        let (_, entries) = volume.quotas(QuotaKind::User).unwrap();
        assert_eq!(
            entries.iter().map(|entry| entry.id).collect::<Vec<_>>(),
            ids
        );
        volume.unmount().unwrap();
    }
}

/// The options say which limits are kept; usage is counted in any case.
#[test]
fn limits_are_kept_where_the_mount_asks() {
    let image = image("-b 1024");
    let volume = open(&image, "grpquota");
    let root = root(&volume);
    let limits = QuotaLimits {
        inodes_hard: 1,
        ..QuotaLimits::default()
    };
    limit(&volume, QuotaKind::User, 7, limits);
    for name in [b"a", b"b"] {
        volume.create(&root, name, 0o644, &user(7)).unwrap();
    }
    assert_eq!(usage(&volume, QuotaKind::User, 7), (0, 2));
    drop(root);
    end(&volume, &image);
    let plain = Image::of_mib(8).make().unwrap();
    let mut how = VolumeOptions::new();
    let refused = how.write(true).mount_options("usrquota").open(plain.path());
    let why = refused.err().unwrap().to_string();
    assert!(why.contains("the volume counts no user quotas"), "{why}");
}

/// Random changes by several users on several threads: no limit is passed, and usage is what the
/// inodes say.
#[test]
fn random_changes_keep_limits_and_counts() {
    for (round, args) in [
        "-b 4096 -O inline_data -I 512",
        "-b 1024 -O ea_inode,^orphan_file",
        "-b 1024 -O ^extent,^64bit",
        "-b 16384 -O inline_data",
    ]
    .into_iter()
    .enumerate()
    {
        let image = image(args);
        let volume = open(&image, "usrquota,grpquota,prjquota");
        let root = root(&volume);
        let limits = |at: u64| QuotaLimits {
            bytes_hard: (at % 3 + 1) << 19,
            inodes_hard: 12,
            ..QuotaLimits::default()
        };
        for at in 1..5_u32 {
            limit(&volume, QuotaKind::User, at, limits(at.into()));
            limit(
                &volume,
                QuotaKind::Group,
                at + 1000,
                limits(u64::from(at) + 1),
            );
            limit(
                &volume,
                QuotaKind::Project,
                at + 40,
                limits(u64::from(at) + 2),
            );
        }
        for at in 0..4 {
            let name = format!("dir{at}");
            let dir = volume
                .mkdir(&root, name.as_bytes(), 0o777, &Cred::root())
                .unwrap();
            volume
                .set_xflags(&dir, INHERIT, 41 + at, &Cred::root())
                .unwrap();
        }
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (volume, root) = (&volume, &root);
                scope.spawn(move || {
                    let mut rng = Rng::new(round as u64 * 100 + thread);
                    for _ in 0..400 {
                        change(volume, root, &mut rng);
                    }
                });
            }
        });
        volume.sync().unwrap();
        volume.wait_for_background_work();
        for at in 1..5_u32 {
            for (kind, id) in KINDS.into_iter().zip([at, at + 1000, at + 40]) {
                let entry = of(&volume, kind, id);
                // Writeback is not refused the nodes of its map, as in Linux.
                assert!(
                    entry.usage.bytes <= entry.limits.bytes_hard + 20 * 1024,
                    "{args}: {kind} {entry:?}"
                );
            }
        }
        drop(root);
        end(&volume, &image);
    }
}

fn draw(rng: &mut Rng, below: u32) -> u32 {
    u32::try_from(rng.below(below.into())).unwrap()
}

/// Entries are added to a block while its other entries count.
#[test]
fn ids_come_while_others_count() {
    let image = image("-b 1024 -N 8192");
    let volume = open(&image, "");
    let root = root(&volume);
    let (last, done) = (AtomicU32::new(1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (volume, root, last, done) = (&volume, &root, &last, &done);
            scope.spawn(move || {
                // The newest id stands in the block that the next one goes to.
                while !done.load(Ordering::Relaxed) {
                    let cred = user(last.load(Ordering::Relaxed));
                    let name = format!("comes and goes {thread}");
                    volume.create(root, name.as_bytes(), 0o644, &cred).unwrap();
                    volume.unlink(root, name.as_bytes()).unwrap();
                }
            });
        }
        for id in 2..600 {
            let name = format!("{id}");
            volume
                .create(&root, name.as_bytes(), 0o644, &user(id))
                .unwrap();
            last.store(id, Ordering::Relaxed);
        }
        done.store(true, Ordering::Relaxed);
    });
    volume.sync().unwrap();
    drop(root);
    end(&volume, &image);
}

/// A volume without space for another block of entries refuses new ids, and is sound.
#[test]
fn a_full_volume_has_no_entry_for_another_id() {
    let image = Image::of_mib(8)
        .args("-b 1024 -m 0 -O quota")
        .make()
        .unwrap();
    let volume = open(&image, "");
    let root = root(&volume);
    let filler = volume
        .create(&root, b"filler", 0o644, &Cred::root())
        .unwrap();
    let mut at = 0;
    while let Ok(wrote) = volume.write(&filler, at, &[1; 64 << 10], &Cred::root()) {
        at += wrote as u64;
        volume.fsync(&filler, false).unwrap();
    }
    let mut refused = 0;
    for at in 0..20_u32 {
        // Each needs nodes of its own, or an entry in a block that is full.
        let name = format!("{at}");
        let made = volume.create(&root, name.as_bytes(), 0o644, &user(at << 8 | 5));
        refused += u32::from(matches!(made, Err(Error::NoSpace)));
        assert!(made.is_ok() || refused > 0, "{made:?}");
    }
    assert!(refused > 0);
    drop((filler, root));
    end(&volume, &image);
    let volume = open(&image, "");
    assert!(!volume.read_only());
    volume.unmount().unwrap();
}

/// One change, which may be refused.
fn change(volume: &Volume, root: &Node, rng: &mut Rng) {
    let cred = user(draw(rng, 4) + 1);
    let dir = format!("dir{}", draw(rng, 4));
    let dir = volume.lookup(root, dir.as_bytes()).unwrap();
    let name = format!("file{}", draw(rng, 8));
    let name = name.as_bytes();
    if let Ok(file) = volume.lookup(&dir, name) {
        let at = rng.below(400_000);
        let owner = draw(rng, 4) + 1;
        let _ = match draw(rng, 13) {
            8 => volume.defragment(&file, &cred, |_, _| ()).map(drop),
            0 => volume.unlink(&dir, name),
            1 => volume.fsync(&file, false),
            2 => {
                let mode = FallocateMode::Allocate { keep_size: true };
                volume.fallocate(&file, mode, at, 1 + rng.below(60_000), &cred)
            }
            3 => volume.fallocate(&file, FallocateMode::PunchHole, at, 50_000, &cred),
            4 => {
                let to = SetAttr {
                    uid: Some(owner),
                    gid: Some(owner + 1000),
                    ..SetAttr::default()
                };
                volume.setattr(&file, &to, &cred).map(drop)
            }
            5 => {
                let to = SetAttr {
                    size: Some(at),
                    ..SetAttr::default()
                };
                volume.setattr(&file, &to, &cred).map(drop)
            }
            6 => volume.set_xflags(&file, 0, owner + 40, &cred),
            7 => {
                let value = vec![7; rng.index(3000)];
                volume.setxattr(&file, b"user.x", &value, XattrMode::Either, &cred)
            }
            _ => {
                let data = vec![7; 1 + rng.index(40_000)];
                volume.write(&file, at, &data, &cred).map(drop)
            }
        };
    } else {
        let _ = match draw(rng, 3) {
            0 => volume.symlink(&dir, name, &[b'x'; 300], &cred),
            _ => volume.create(&dir, name, 0o666, &cred),
        };
    }
}
