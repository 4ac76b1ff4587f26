//! Operations on names, each done by Linux's ext4 and by us: the same answers, the same trees.

mod names;

use extant_engine::{Cred, Error, RenameFlags, SetAttr};
use extant_testkit::{Image, Need, Rng, Subject, need};
use names::folded::{Folded, by_key};
use names::world::{Linux, Ours, Snapshot, World};
use names::{list, open};

const LINUX: &[Need] = &[Need::Root, Need::Loop, Need::Tool("mke2fs")];

/// Makes all that a rename may meet, below a directory of its own.
fn furnish(world: &dyn World, top: &str) {
    type Step<'a> = &'a dyn Fn(&str) -> Result<(), i32>;
    let all: &[Step<'_>] = &[
        &|t| world.mkdir(t, 0o700),
        &|t| world.mkdir(&format!("{t}/a"), 0o701),
        &|t| world.mkdir(&format!("{t}/b"), 0o702),
        &|t| world.create(&format!("{t}/a/file"), 0o601),
        &|t| world.create(&format!("{t}/a/other"), 0o602),
        &|t| world.create(&format!("{t}/b/file"), 0o603),
        &|t| world.mkdir(&format!("{t}/a/empty"), 0o703),
        &|t| world.mkdir(&format!("{t}/a/full"), 0o704),
        &|t| world.mkdir(&format!("{t}/a/full/sub"), 0o705),
        &|t| world.create(&format!("{t}/a/full/sub/x"), 0o604),
        &|t| world.mkdir(&format!("{t}/b/empty"), 0o706),
        &|t| world.mkdir(&format!("{t}/b/full"), 0o707),
        &|t| world.fifo(&format!("{t}/b/full/y"), 0o605),
        &|t| world.symlink("nowhere", &format!("{t}/b/link")),
        &|t| world.create(&format!("{t}/a/hard"), 0o606),
        &|t| world.link(&format!("{t}/a/hard"), &format!("{t}/b/hard")),
        &|t| world.link(&format!("{t}/a/hard"), &format!("{t}/a/hard2")),
    ];
    for step in all {
        step(top).unwrap();
    }
}

const PLACES: &[&str] = &[
    "a",
    "b",
    "a/file",
    "a/other",
    "b/file",
    "a/empty",
    "a/full",
    "a/full/sub",
    "a/full/sub/x",
    "b/empty",
    "b/full",
    "b/link",
    "a/hard",
    "b/hard",
    "a/hard2",
    "a/none",
    "b/none",
    "a/full/sub/none",
];

#[test]
fn every_rename_of_every_kind() {
    if !need(LINUX) {
        return;
    }
    let make = || Image::of_mib(160).args("-b 1024 -N 60000").make().unwrap();
    let (theirs, ours) = (make(), make());
    let mount = Subject::Ext4.mount(theirs.path(), "").unwrap();
    let linux = Linux(mount.dir().to_owned());
    let volume = open(&ours);
    rename_all(&linux, &Ours(&volume), "case");
    drop(mount);
    volume.unmount().unwrap();
    ours.fsck_clean().unwrap();
}

/// Linux has each name in one spelling, and we find it in any.
#[test]
fn every_rename_where_names_are_folded() {
    if !need(LINUX) {
        return;
    }
    let image = |args| Image::of_mib(160).args(args).make().unwrap();
    let theirs = image("-b 1024 -N 60000");
    let ours = image("-b 1024 -N 60000 -O casefold");
    let mount = Subject::Ext4.mount(theirs.path(), "").unwrap();
    let linux = Linux(mount.dir().to_owned());
    let volume = open(&ours);
    let here = Folded::new(&volume, 1);
    linux.mkdir("top", 0o755).unwrap();
    here.make_top("top");
    rename_all(&linux, &here, "top/case");
    drop(mount);
    volume.unmount().unwrap();
    ours.fsck_clean().unwrap();
}

/// Does every rename in both worlds, below directories whose paths begin with `top`.
fn rename_all(linux: &dyn World, here: &dyn World, top: &str) {
    let flags = [
        RenameFlags::empty(),
        RenameFlags::NOREPLACE,
        RenameFlags::EXCHANGE,
        RenameFlags::WHITEOUT,
        RenameFlags::WHITEOUT | RenameFlags::NOREPLACE,
        RenameFlags::EXCHANGE | RenameFlags::NOREPLACE,
        RenameFlags::EXCHANGE | RenameFlags::WHITEOUT,
    ];
    let mut case = 0;
    for flags in flags {
        for old in PLACES {
            for new in PLACES {
                let top = format!("{top}{case}");
                case += 1;
                furnish(linux, &top);
                furnish(here, &top);
                let (old, new) = (format!("{top}/{old}"), format!("{top}/{new}"));
                let expected = linux.rename(&old, &new, flags);
                let got = here.rename(&old, &new, flags);
                assert_eq!(got, expected, "{old} -> {new} with {flags:?}");
                assert_eq!(
                    here.snapshot(&top),
                    linux.snapshot(&top),
                    "{old} -> {new} with {flags:?}"
                );
            }
        }
    }
}

#[test]
fn a_long_walk_of_random_operations() {
    if !need(LINUX) {
        return;
    }
    let volumes = [
        "-b 1024",
        "-b 4096 -O ^metadata_csum",
        "-b 1024 -I 512 -O inline_data",
        "-b 4096 -I 1024 -O inline_data,^dir_index",
    ];
    for (round, args) in volumes.into_iter().enumerate() {
        let make = || {
            Image::of_mib(64)
                .args(args)
                .args("-N 16000")
                .make()
                .unwrap()
        };
        let (theirs, ours) = (make(), make());
        let mount = Subject::Ext4.mount(theirs.path(), "").unwrap();
        let volume = open(&ours);
        let linux = Linux(mount.dir().to_owned());
        let here = Ours(&volume);
        let worlds: [&dyn World; 2] = [&linux, &here];
        for world in worlds {
            world.mkdir("top", 0o755).unwrap();
        }
        walk(worlds, |snapshot| snapshot, round as u64);
        drop(mount);
        volume.unmount().unwrap();
        ours.fsck_clean().unwrap();
        // And Linux sees in ours what we saw.
        let again = Subject::Ext4.mount(ours.path(), "").unwrap();
        let seen = Linux(again.dir().to_owned()).snapshot("top");
        drop(again);
        let mount = Subject::Ext4.mount(theirs.path(), "").unwrap();
        assert_eq!(seen, Linux(mount.dir().to_owned()).snapshot("top"));
    }
}

#[test]
fn a_long_walk_where_names_are_folded() {
    if !need(LINUX) {
        return;
    }
    for (round, (block, args)) in [
        ("-b 1024 -N 16000", "-O casefold"),
        (
            "-b 4096 -N 16000",
            "-O casefold,^metadata_csum -E encoding_flags=strict",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let theirs = Image::of_mib(64).args(block).make().unwrap();
        let ours = Image::of_mib(64).args(block).args(args).make().unwrap();
        let mount = Subject::Ext4.mount(theirs.path(), "").unwrap();
        let volume = open(&ours);
        let linux = Linux(mount.dir().to_owned());
        let here = Folded::new(&volume, round as u64);
        linux.mkdir("top", 0o755).unwrap();
        here.make_top("top");
        walk([&linux, &here], by_key, 10 + round as u64);
        drop(mount);
        volume.unmount().unwrap();
        ours.fsck_clean().unwrap();
    }
}

/// Does the same random operations in both worlds, below the directory "top".
fn walk(worlds: [&dyn World; 2], compared: impl Fn(Snapshot) -> Snapshot, seed: u64) {
    let compare = |step: u32| {
        let [theirs, ours] = worlds.map(|world| compared(world.snapshot("top")));
        assert_eq!(ours, theirs, "step {step}");
    };
    let mut rng = Rng::new(seed);
    for step in 0..12_000_u32 {
        let (what, a, b) = (rng.below(100), path(&mut rng), path(&mut rng));
        let perm = u16::try_from(0o400 + rng.below(0o377)).unwrap();
        let flags = RenameFlags::from_bits_retain([0, 0, 0, 1, 2, 4][rng.index(6)]);
        let answers = worlds.map(|world| match what {
            0..30 => world.create(&a, perm),
            30..45 => world.mkdir(&a, perm),
            45..50 => world.symlink(&b.repeat(1 + usize::from(perm) % 9), &a),
            50..53 => world.fifo(&a, perm),
            53..61 => world.link(&a, &b),
            61..71 => world.unlink(&a),
            71..78 => world.rmdir(&a),
            _ => world.rename(&a, &b, flags),
        });
        assert_eq!(
            answers[1], answers[0],
            "step {step}: {what} {a} {b} {flags:?}"
        );
        if step % 1500 == 0 {
            compare(step);
        }
    }
    compare(12_000);
}

/// A path up to three names deep, of few enough names that paths meet.
fn path(rng: &mut Rng) -> String {
    let mut path = "top".to_owned();
    for _ in 0..=rng.below(3) {
        let number = rng.below(12);
        let name = if number < 10 {
            format!("ä{number}")
        } else {
            format!("{number}-{}", "long".repeat(10 + rng.index(2) * 20))
        };
        path = format!("{path}/{name}");
    }
    path
}

#[test]
fn names_that_cannot_be() {
    let image = Image::of_mib(8).args("-b 1024").make().unwrap();
    let volume = open(&image);
    let root = volume.root().unwrap();
    let cred = Cred::root();
    let create = |name: &[u8]| {
        volume
            .create(&root, name, 0o644, &cred)
            .map(drop)
            .unwrap_err()
    };
    assert!(matches!(create(&[b'x'; 256]), Error::NameTooLong));
    assert!(matches!(create(b""), Error::NotFound));
    assert!(matches!(create(b"."), Error::Exists));
    assert!(matches!(create(b".."), Error::Exists));
    assert!(matches!(create(b"a/b"), Error::Invalid));
    assert!(matches!(create(b"a\0"), Error::Invalid));
    volume.create(&root, &[0xff; 255], 0o644, &cred).unwrap();
    assert!(matches!(
        volume.lookup(&root, &[b'x'; 256]),
        Err(Error::NameTooLong)
    ));
    assert!(matches!(volume.unlink(&root, b"."), Err(Error::IsDir)));
    assert!(matches!(volume.rmdir(&root, b"."), Err(Error::Invalid)));
    assert!(matches!(volume.rmdir(&root, b".."), Err(Error::NotEmpty)));
    let none = RenameFlags::empty();
    let to_dot = volume.rename(&root, &[0xff; 255], &root, b"..", none, &cred);
    assert!(matches!(to_dot, Err(Error::Busy)));
    for target in [vec![], vec![b'a'; 1024]] {
        assert!(volume.symlink(&root, b"s", &target, &cred).is_err());
    }
    volume.symlink(&root, b"s", &[b't'; 1023], &cred).unwrap();
    let file = volume.lookup(&root, &[0xff; 255]).unwrap();
    assert!(matches!(volume.lookup(&file, b"x"), Err(Error::NotDir)));
    assert_eq!(
        list(&volume, &root).len(),
        3,
        "lost+found, the file, the link"
    );
    drop((file, root));
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

#[test]
fn immutable_and_append_only_inodes() {
    const APPEND: u32 = 0x20;
    const IMMUTABLE: u32 = 0x10;
    let image = Image::of_mib(8).make().unwrap();
    let volume = open(&image);
    let root = volume.root().unwrap();
    let cred = Cred::root();
    let dir = volume.mkdir(&root, b"dir", 0o755, &cred).unwrap();
    let file = volume.create(&dir, b"file", 0o644, &cred).unwrap();
    let none = RenameFlags::empty();
    let set = |node, on: u32| {
        let kept = volume.flags(node).unwrap() & !(APPEND | IMMUTABLE);
        volume.set_flags(node, kept | on, &cred).unwrap();
    };
    for (on_dir, on_file, may_add, may_remove, may_link) in [
        (0, 0, true, true, true),
        (IMMUTABLE, 0, false, false, false),
        (APPEND, 0, true, false, true),
        (0, IMMUTABLE, true, false, false),
        (0, APPEND, true, false, false),
    ] {
        set(&dir, on_dir);
        set(&file, on_file);
        let check = |done: Result<(), Error>, may: bool| match done {
            Ok(()) => assert!(may),
            Err(Error::NotPermitted) => assert!(!may),
            Err(other) => panic!("{other}"),
        };
        check(volume.create(&dir, b"new", 0o644, &cred).map(drop), may_add);
        check(volume.mkdir(&dir, b"sub", 0o755, &cred).map(drop), may_add);
        check(volume.link(&file, &dir, b"other", &cred), may_link);
        check(
            volume.rename(&dir, b"file", &dir, b"moved", none, &cred),
            may_remove,
        );
        check(
            volume
                .rename(&dir, b"file", &root, b"out", none, &cred)
                .or_else(|error| {
                    // The first rename may have succeeded.
                    if matches!(error, Error::NotFound) {
                        Ok(())
                    } else {
                        Err(error)
                    }
                }),
            may_remove,
        );
        set(&dir, 0);
        set(&file, 0);
        let _ = volume.rename(&dir, b"moved", &dir, b"file", none, &cred);
        for name in [&b"new"[..], b"other"] {
            let _ = volume.unlink(&dir, name);
        }
        let _ = volume.rmdir(&dir, b"sub");
        assert_eq!(list(&volume, &dir).len(), 1);
    }
    drop((file, dir, root));
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

#[test]
fn files_without_names_live_until_they_are_let_go() {
    for args in ["", "-O ^orphan_file", "-O ^has_journal"] {
        let image = Image::of_mib(16).args(args).make().unwrap();
        let volume = open(&image);
        let cred = Cred::root();
        let root = volume.root().unwrap();
        let free = volume.statfs().unwrap().inodes_free;
        // Unlinked while it is held.
        let held = volume.create(&root, b"held", 0o644, &cred).unwrap();
        volume.unlink(&root, b"held").unwrap();
        assert_eq!(volume.getattr(&held).unwrap().nlink, 0);
        assert_eq!(volume.statfs().unwrap().inodes_free, free - 1);
        assert!(matches!(
            volume.link(&held, &root, b"again", &cred),
            Err(Error::NotFound)
        ));
        // Never named, and named later.
        let unnamed = volume.tmpfile(&root, 0o600, &cred).unwrap();
        let later = volume.tmpfile(&root, 0o640, &cred).unwrap();
        assert_eq!(volume.getattr(&later).unwrap().nlink, 0);
        volume.link(&later, &root, b"later", &cred).unwrap();
        assert_eq!(volume.getattr(&later).unwrap().nlink, 1);
        // A directory that is removed while it is held: empty, and nothing can be put in.
        let dir = volume.mkdir(&root, b"dir", 0o755, &cred).unwrap();
        volume.rmdir(&root, b"dir").unwrap();
        let in_it = volume.create(&dir, b"x", 0o644, &cred);
        assert!(matches!(in_it, Err(Error::NotFound)));
        assert!(matches!(volume.lookup(&dir, b".."), Err(Error::NotFound)));
        drop((held, unnamed, dir));
        assert_eq!(volume.statfs().unwrap().inodes_free, free - 1, "{args}");
        drop((later, root));
        volume.unmount().unwrap();
        image.fsck_clean().unwrap();
    }
}

#[test]
fn new_inodes_take_after_their_directory() {
    let image = Image::of_mib(8).make().unwrap();
    let volume = open(&image);
    let root = volume.root().unwrap();
    let user = Cred {
        uid: 1000,
        gid: 1000,
        groups: vec![],
        privileged: false,
        umask: 0o022,
    };
    let dir = volume
        .mkdir(&root, b"shared", 0o777, &Cred::root())
        .unwrap();
    let owner = SetAttr {
        gid: Some(50),
        perm: Some(0o2777),
        ..SetAttr::default()
    };
    volume.setattr(&dir, &owner, &Cred::root()).unwrap();
    let file = volume.create(&dir, b"f", 0o666, &user).unwrap();
    let sub = volume.mkdir(&dir, b"d", 0o777, &user).unwrap();
    let (file, sub) = (
        volume.getattr(&file).unwrap(),
        volume.getattr(&sub).unwrap(),
    );
    assert_eq!((file.uid, file.gid, file.perm), (1000, 50, 0o644));
    assert_eq!((sub.uid, sub.gid, sub.perm), (1000, 50, 0o2755));
    let before = volume.getattr(&dir).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(5));
    volume.unlink(&dir, b"f").unwrap();
    let after = volume.getattr(&dir).unwrap();
    assert!(after.mtime > before.mtime && after.ctime > before.ctime);
    assert_eq!((before.nlink, after.nlink), (3, 3));
    drop((dir, root));
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

#[test]
fn no_space_leaves_nothing_behind() {
    // Out of blocks, and out of inodes.
    for args in ["-b 1024 -N 6000", "-b 1024 -N 200"] {
        let image = Image::of_mib(4).args(args).make().unwrap();
        let volume = open(&image);
        let root = volume.root().unwrap();
        let user = Cred {
            privileged: false,
            ..Cred::root()
        };
        let before = volume.statfs().unwrap();
        for round in 0..3 {
            let dir = volume.mkdir(&root, b"dir", 0o755, &user).unwrap();
            let mut made = Vec::new();
            let full = loop {
                let name = format!("{}-{}", made.len(), "n".repeat(100)).into_bytes();
                let target = [b't'; 300];
                let done = match made.len() % 3 {
                    0 => volume.mkdir(&dir, &name, 0o755, &user),
                    1 => volume.symlink(&dir, &name, &target, &user),
                    _ => volume.create(&dir, &name, 0o644, &user),
                };
                match done {
                    Ok(_) => made.push(name),
                    Err(error) => break error,
                }
            };
            assert!(matches!(full, Error::NoSpace), "{full}");
            assert_eq!(list(&volume, &dir).len(), made.len(), "{args} {round}");
            for (i, name) in made.iter().enumerate() {
                match i % 3 {
                    0 => volume.rmdir(&dir, name).unwrap(),
                    _ => volume.unlink(&dir, name).unwrap(),
                }
            }
            volume.rmdir(&root, b"dir").unwrap();
        }
        drop(root);
        let after = volume.statfs().unwrap();
        assert_eq!(after.inodes_free, before.inodes_free, "{args}");
        assert_eq!(after.blocks_free, before.blocks_free, "{args}");
        volume.unmount().unwrap();
        image.fsck_clean().unwrap();
    }
}

#[test]
fn renames_from_many_threads_lose_nothing() {
    // Directories move among each other, also into places that would make a loop.
    let image = Image::of_mib(32).args("-b 1024").make().unwrap();
    let volume = open(&image);
    let cred = Cred::root();
    let root = volume.root().unwrap();
    let dirs: Vec<_> = (0..6)
        .map(|i| {
            volume
                .mkdir(&root, format!("d{i}").as_bytes(), 0o755, &cred)
                .unwrap()
        })
        .collect();
    for dir in &dirs {
        for i in 0..20 {
            drop(
                volume
                    .create(dir, format!("{}-{i}", dir.ino()).as_bytes(), 0o644, &cred)
                    .unwrap(),
            );
        }
    }
    std::thread::scope(|s| {
        for thread in 0..4 {
            let (volume, dirs, root, cred) = (&volume, &dirs, &root, &cred);
            s.spawn(move || {
                let mut rng = Rng::new(thread);
                for _ in 0..1500 {
                    let at = |rng: &mut Rng| [root, &dirs[rng.index(6)]][rng.index(2)].clone();
                    let (from, to) = (at(&mut rng), at(&mut rng));
                    let name = |rng: &mut Rng| match rng.below(2) {
                        0 => format!("d{}", rng.below(6)),
                        _ => format!("{}-{}", dirs[rng.index(6)].ino(), rng.below(20)),
                    };
                    let (old, new) = (name(&mut rng), name(&mut rng));
                    let flags = [RenameFlags::NOREPLACE, RenameFlags::EXCHANGE][rng.index(2)];
                    let done =
                        volume.rename(&from, old.as_bytes(), &to, new.as_bytes(), flags, cred);
                    match done {
                        Ok(()) | Err(Error::NotFound | Error::Exists | Error::Invalid) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    let all = Ours(&volume).snapshot("");
    let files = all.values().filter(|thing| thing.perm == 0o644).count();
    assert_eq!(files, 120);
    drop((dirs, root));
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}
