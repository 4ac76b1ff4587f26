//! Values in inodes of their own (`ea_inode`): where they go, and how they are counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use extant_blockdev::MemoryDevice;
use extant_check::{CheckOptions, check, check_image};
use extant_testkit::crash::{Budget, Explorer};
use extant_testkit::{Image, Need, Recorder, Rng, need};
use extant_units::Ino;

use super::{all, errno, linux_sees, put};
use crate::namei;
use crate::state::inode::{Inode, InodeRef};
use crate::symlink;
use crate::test_support::test_mount::TestFs;
use crate::types::{Cred, FallocateMode, FileKind, XattrMode};
use crate::xattr::attr_tables::AttrTables;
use crate::xattr::locked_attrs::SharedAttrs;
use crate::xattr::remove;

const CONFIGURATIONS: [&str; 5] = [
    "-b 4096 -I 256",
    "-b 1024 -I 128 -O orphan_file",
    "-b 1024 -I 1024 -O ^metadata_csum,^64bit",
    "-b 2048 -I 256 -O ^has_journal",
    "-b 1024 -I 256 -O ^extents,^64bit",
];

fn volume(mib: u64, args: &str) -> Image {
    let maker = Image::of_mib(mib).args(args).args("-O ea_inode");
    maker.make().unwrap()
}

fn is_clean(image: &Image) {
    image.fsck_clean().unwrap();
    let report = check_image(image.path(), &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// The inodes that hold values of `inode`, in order, and how many entries have each.
fn values(fs: &TestFs, inode: &Inode) -> Vec<(u32, u64)> {
    let tables = AttrTables::read(fs, &SharedAttrs::lock(inode)).unwrap();
    let all = tables.area.elsewhere().chain(tables.block.elsewhere());
    all.map(|at| {
        let value = fs.iget_value(Ino::new(at.inode).unwrap()).unwrap();
        (at.inode, value.core.read().value_users())
    })
    .collect()
}

fn acl(inode: &Inode) -> u64 {
    inode.core.read().file_acl.get()
}

/// Free blocks and inodes after all evictions and commits.
fn free(fs: &TestFs) -> (u64, u64) {
    fs.reap_all();
    fs.journal.force_commit().unwrap();
    let counts = &fs.alloc.counts;
    (counts.free_blocks().get(), counts.free_inodes())
}

#[test]
fn values_go_where_linux_puts_them_and_come_back() {
    for args in CONFIGURATIONS {
        let image = volume(16, args);
        let fs = TestFs::mount(image.path(), "");
        let size = fs.layout.block_size.bytes();
        let before = free(&fs);
        let mut model = Vec::new();
        let in_block = size - size / 8;
        for (i, len) in [
            800,
            in_block,
            in_block + 1,
            size,
            3 * size + 1,
            60_000,
            65_536,
        ]
        .into_iter()
        .enumerate()
        {
            let file = fs.create(&format!("f{i}"));
            let value: Vec<u8> = (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect();
            put(&fs, &file, "user.value", &value).unwrap();
            let elsewhere = len > in_block;
            assert_eq!(
                values(&fs, &file).len(),
                usize::from(elsewhere),
                "{args}: {len}"
            );
            if elsewhere && fs.layout.inode_size > 128 {
                assert_eq!(acl(&file), 0, "{args}: {len}: the entry is in the inode");
            }
            assert_eq!(all(&fs, &file)["user.value"], value);
            model.push(BTreeMap::from([("user.value".to_owned(), value)]));
        }
        let last = fs.find("f6");
        assert_eq!(errno(put(&fs, &last, "user.more", &[0; 65_537])), 7);
        drop(last);
        fs.unmount();
        is_clean(&image);
        if need(&[Need::Loop]) {
            linux_sees(&image, &model);
        }
        let fs = TestFs::mount(image.path(), "");
        for (i, expected) in model.iter().enumerate() {
            assert_eq!(&all(&fs, &fs.find(&format!("f{i}"))), expected);
            fs.unlink(&format!("f{i}"));
        }
        assert_eq!(free(&fs), before, "{args}");
        assert_eq!(fs.stats.faults.get(), 0);
        fs.unmount();
        is_clean(&image);
    }
}

#[test]
fn equal_values_are_one_inode_that_counts_them() {
    let image = volume(16, "-b 1024");
    let fs = TestFs::mount(image.path(), "");
    let before = free(&fs);
    let files: Vec<InodeRef> = (0..3).map(|i| fs.create(&format!("f{i}"))).collect();
    let without = free(&fs);
    for (file, name) in files.iter().zip(["user.a", "user.other", "trusted.a"]) {
        put(&fs, file, name, &[7; 5000]).unwrap();
        assert_eq!(file.core.read().sectors, 10, "each counts the blocks");
    }
    assert_eq!(free(&fs), (without.0 - 5, without.1 - 1));
    assert_eq!(fs.stats.xattr_values_shared.get(), 2);
    let [(ino, 3)] = values(&fs, &files[0])[..] else {
        panic!("three entries have it")
    };
    put(&fs, &files[0], "user.a", &[7; 5000]).unwrap();
    assert_eq!(values(&fs, &files[0]), [(ino, 3)], "the same value again");
    put(&fs, &files[0], "user.a", &[8; 5000]).unwrap();
    assert_eq!(values(&fs, &files[1]), [(ino, 2)]);
    assert_ne!(values(&fs, &files[0])[0].0, ino);
    put(&fs, &files[0], "user.a", b"short").unwrap();
    assert_eq!(files[0].core.read().sectors, 0);
    remove(&fs, &files[1], b"user.other", &Cred::root()).unwrap();
    assert_eq!(values(&fs, &files[2]), [(ino, 1)]);
    assert_eq!(free(&fs), (without.0 - 5, without.1 - 1));
    drop(files);
    for i in 0..3 {
        fs.unlink(&format!("f{i}"));
    }
    assert_eq!(free(&fs), before);
    fs.unmount();
    is_clean(&image);

    // A value that was read is found as well.
    let fs = TestFs::mount(image.path(), "");
    put(&fs, &fs.create("old"), "user.a", &[3; 9000]).unwrap();
    fs.unmount();
    let fs = TestFs::mount(image.path(), "");
    assert_eq!(all(&fs, &fs.find("old"))["user.a"], [3; 9000]);
    let new = fs.create("new");
    put(&fs, &new, "user.a", &[3; 9000]).unwrap();
    assert_eq!(values(&fs, &new)[0].1, 2);
    drop(new);
    fs.unmount();
    is_clean(&image);
}

/// A number that a file had may be that of a value by the time it is asked for.
#[test]
fn a_handle_of_a_value_is_stale_and_no_damage() {
    let image = volume(16, "-b 1024");
    for loaded in [true, false] {
        let fs = TestFs::mount(image.path(), "");
        let file = match loaded {
            true => fs.create("f"),
            false => fs.find("f"),
        };
        if loaded {
            put(&fs, &file, "user.a", &[7; 5000]).unwrap();
        }
        let ino = {
            let tables = AttrTables::read(&fs, &SharedAttrs::lock(&file)).unwrap();
            Ino::new(tables.area.elsewhere().next().unwrap().inode).unwrap()
        };
        assert_eq!(fs.iget_handle(ino).unwrap_err().errno(), 116, "ESTALE");
        assert_eq!(fs.stats.faults.get(), 0);
        drop(file);
        fs.unmount();
    }
    is_clean(&image);
}

/// An attribute block is one copy of its entries, however many inodes have it.
#[test]
fn a_shared_block_counts_its_values_once() {
    // No attribute fits these inodes.
    let image = volume(16, "-b 1024 -I 128");
    let fs = TestFs::mount(image.path(), "");
    let before = free(&fs);
    let files: Vec<InodeRef> = (0..3).map(|i| fs.create(&format!("f{i}"))).collect();
    for file in &files {
        put(&fs, file, "user.big", &[7; 5000]).unwrap();
        put(&fs, file, "user.huge", &[6; 9000]).unwrap();
        put(&fs, file, "user.small", b"s").unwrap();
    }
    let counts = |file: &Inode| -> Vec<u64> { values(&fs, file).iter().map(|v| v.1).collect() };
    assert!(files.iter().all(|file| acl(file) == acl(&files[0])));
    assert_eq!(counts(&files[0]), [1, 1]);
    assert_eq!(files[0].core.read().sectors, 10 + 18 + 2);
    put(&fs, &files[1], "user.small", b"other").unwrap();
    assert_eq!(counts(&files[0]), [2, 2], "a block of its own");
    remove(&fs, &files[2], b"user.big", &Cred::root()).unwrap();
    assert_eq!(counts(&files[0]), [2, 3]);
    put(&fs, &files[2], "user.big", &[7; 5000]).unwrap();
    assert_eq!(counts(&files[0]), [2, 2], "and back again");
    put(&fs, &files[1], "user.small", b"s").unwrap();
    assert_eq!(counts(&files[0]), [1, 1]);
    fs.unlink("f0");
    fs.unlink("f1");
    let mut files = files;
    files.drain(..2);
    fs.reap_all();
    assert_eq!(counts(&files[0]), [1, 1]);
    drop(files);
    fs.unlink("f2");
    assert_eq!(free(&fs), before);
    assert_eq!(fs.stats.faults.get(), 0);
    fs.unmount();
    is_clean(&image);
}

#[test]
fn inodes_of_all_kinds_have_them_and_give_them_up() {
    for args in ["-b 1024 -I 256", "-b 4096 -I 128 -O orphan_file"] {
        let image = volume(16, args);
        let fs = TestFs::mount(image.path(), "");
        let (root, cred) = (fs.root(), Cred::root());
        let before = free(&fs);
        let mut made = vec![fs.mkdir("d")];
        for (name, kind) in [
            (&b"c"[..], FileKind::CharDevice),
            (b"p", FileKind::Fifo),
            (b"s", FileKind::Socket),
        ] {
            made.push(namei::mknod(&fs, &root, name, (kind, 0x103), 0o600, &cred).unwrap());
        }
        made.push(namei::symlink(&fs, &root, b"l", b"short", &cred).unwrap());
        made.push(namei::symlink(&fs, &root, b"long", &[b'x'; 200], &cred).unwrap());
        made.push(fs.create("f"));
        // More than an eviction drops at once.
        for inode in &made {
            for i in 0..20_u8 {
                let value = vec![i; 4000 + usize::from(i % 3) * 1000];
                let set = put(&fs, inode, &format!("trusted.{i}"), &value);
                set.unwrap_or_else(|error| panic!("{args}: {:?} {i}: {error}", inode.kind));
            }
            assert_eq!(all(&fs, inode).len(), 20);
        }
        let target = symlink::readlink(&fs, &made[4]).unwrap();
        assert_eq!(target, b"short");
        fs.journal.force_commit().unwrap();
        drop(made);
        for name in ["c", "p", "s", "l", "long", "f"] {
            fs.unlink(name);
        }
        namei::rmdir(&fs, &root, b"d").unwrap();
        assert_eq!(free(&fs), before, "{args}");
        assert_eq!(fs.stats.faults.get(), 0);
        drop(root);
        fs.unmount();
        is_clean(&image);
    }
}

#[test]
fn without_space_nothing_changes() {
    let image = volume(8, "-b 1024 -m 0 -N 32");
    let fs = TestFs::mount(image.path(), "");
    let file = fs.create("f");
    put(&fs, &file, "user.first", &[1; 3000]).unwrap();
    let mut sets = 0_u32;
    let mut refused = 0;
    // Inodes first.
    for i in 0..40 {
        match put(
            &fs,
            &file,
            &format!("user.{i}"),
            &i.to_string().repeat(900).into_bytes(),
        ) {
            Ok(()) => sets += 1,
            Err(error) => {
                assert_eq!(error.errno(), 28);
                refused += 1;
            }
        }
    }
    assert!(sets > 5 && refused > 5, "{sets} {refused}");
    assert_eq!(fs.alloc.counts.free_inodes(), 0);
    let there = all(&fs, &file);
    assert_eq!(there.len(), 1 + sets as usize);
    for i in 0..40 {
        let _ = remove(&fs, &file, format!("user.{i}").as_bytes(), &Cred::root());
    }
    // Then blocks: a value may get some of its blocks, and gives them back.
    fs.reap_all();
    let filler = fs.create("filler");
    let mode = FallocateMode::Allocate { keep_size: false };
    let mut filled = 0;
    let fill = |at: u64| crate::file::fallocate(&fs, &filler, mode, (at, 16 << 10), &Cred::root());
    while fill(filled).is_ok() {
        filled += 16 << 10;
    }
    assert!(filled > 1 << 20);
    let before = free(&fs);
    assert_eq!(errno(put(&fs, &file, "user.no", &[9; 60_000])), 28);
    assert_eq!(errno(put(&fs, &file, "user.first", &[9; 60_000])), 28);
    assert_eq!(free(&fs), before);
    assert_eq!(all(&fs, &file)["user.first"], [1; 3000]);
    drop((file, filler));
    fs.unmount();
    is_clean(&image);
}

/// Random changes to files that share much, against a map per file; then again after a mount, and
/// by Linux.
#[test]
fn random_changes_follow_a_model() {
    for (round, args) in CONFIGURATIONS.into_iter().enumerate() {
        let image = volume(32, args);
        let mut rng = Rng::new(177 + round as u64);
        let mut model: Vec<BTreeMap<String, Vec<u8>>> = vec![BTreeMap::new(); 5];
        let fs = TestFs::mount(image.path(), "");
        for i in 0..5 {
            fs.create(&format!("f{i}"));
        }
        for step in 0..400 {
            let at = rng.index(5);
            let file = fs.find(&format!("f{at}"));
            if rng.chance(3) {
                drop(file);
                fs.unlink(&format!("f{at}"));
                fs.create(&format!("f{at}"));
                model[at].clear();
                continue;
            }
            let name = format!(
                "{}.{}",
                ["user", "trusted", "security"][rng.index(3)],
                ["a", "bb", "a-rather-long-name", "c"][rng.index(4)]
            );
            if rng.chance(25) {
                let gone = remove(&fs, &file, name.as_bytes(), &Cred::root());
                let expected = model[at].remove(&name).is_some();
                assert_eq!(gone.is_ok(), expected, "step {step}");
                continue;
            }
            let len = [0, 7, 200, 900, 4000, 5000, 20_000][rng.index(7)];
            let value = vec![u8::try_from(rng.below(2)).unwrap(); len];
            match put(&fs, &file, &name, &value) {
                Ok(()) => drop(model[at].insert(name, value)),
                Err(error) => assert_eq!(error.errno(), 28, "step {step}: {error}"),
            }
            assert_eq!(all(&fs, &file), model[at], "step {step}");
        }
        assert!(fs.stats.xattr_values_shared.get() > 20, "{args}");
        assert_eq!(fs.stats.faults.get(), 0);
        fs.unmount();
        is_clean(&image);
        let fs = TestFs::mount(image.path(), "");
        for (i, expected) in model.iter().enumerate() {
            assert_eq!(&all(&fs, &fs.find(&format!("f{i}"))), expected);
        }
        fs.unmount();
        if need(&[Need::Loop]) {
            linux_sees(&image, &model);
        }
    }
}

#[test]
fn many_threads_share_values() {
    let image = volume(32, "-b 1024");
    let fs = TestFs::mount(image.path(), "");
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let fs = &fs;
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                for i in 0..100 {
                    let name = format!("t{thread}-{}", i % 6);
                    if namei::lookup(fs, &fs.root(), name.as_bytes()).is_err() {
                        fs.create(&name);
                    }
                    let value = vec![u8::try_from(rng.below(3)).unwrap(); 3000];
                    let file = fs.find(&name);
                    // Equal blocks that refer to values, and entries in inodes.
                    put(fs, &file, "user.fill", &vec![1; 60 * (i % 2)]).unwrap();
                    put(fs, &file, "user.v", &value).unwrap();
                    assert_eq!(all(fs, &file)["user.v"], value);
                    match rng.below(4) {
                        0 => remove(fs, &file, b"user.v", &Cred::root()).unwrap(),
                        1 => fs.unlink(&name),
                        _ => {}
                    }
                }
            });
        }
    });
    assert!(fs.stats.xattr_values_shared.get() > 50);
    assert_eq!(fs.stats.faults.get(), 0);
    fs.unmount();
    is_clean(&image);
}

/// Whatever a power cut leaves is consistent after replay: counts of values, orphans, free space;
/// and every value is whole.
#[test]
fn power_cuts_leave_counts_right() {
    for args in [
        "-b 1024 -J size=1 -O orphan_file",
        "-b 1024 -J size=1 -I 128",
    ] {
        let image = volume(8, args);
        let base = std::fs::read(image.path()).unwrap();
        let dev = Arc::new(Recorder::new(MemoryDevice::from_bytes(&base)));
        let fs = TestFs::on(dev.clone(), "").unwrap();
        let mut rng = Rng::new(8);
        for step in 0..60 {
            let name = format!("f{}", rng.below(5));
            match namei::lookup(&fs, &fs.root(), name.as_bytes()) {
                Err(_) => drop(fs.create(&name)),
                Ok(file) if rng.chance(75) => {
                    let value = vec![u8::try_from(rng.below(3)).unwrap(); 4000];
                    put(&fs, &file, "user.v", &value).unwrap();
                }
                Ok(held) => {
                    fs.unlink(&name);
                    if step % 3 == 0 {
                        fs.journal.force_commit().unwrap();
                    }
                    drop(held);
                    fs.reap_all();
                }
            }
            if rng.chance(20) {
                fs.journal.force_commit().unwrap();
            }
        }
        fs.unmount();

        let budget = Budget {
            exhaustive_below: 2,
            samples: 1,
            torn: 0,
            cut_stride: 4,
        };
        let explorer = Explorer::new(base, dev.events(), 1, budget);
        let totals = explorer.run(|state| {
            let fs = TestFs::on(state.device.clone(), "").map_err(|e| e.to_string())?;
            for i in 0..5 {
                let file = namei::lookup(&fs, &fs.root(), format!("f{i}").as_bytes());
                let Ok(file) = file else { continue };
                for (name, value) in all(&fs, &file) {
                    if value.len() != 4000 || value.iter().any(|byte| *byte != value[0]) {
                        return Err(format!("f{i}: {name} is not whole"));
                    }
                }
            }
            fs.unmount();
            let options = CheckOptions::default();
            let report = check(state.device.clone(), &options).map_err(|e| e.to_string())?;
            match report.findings.first() {
                None => Ok(()),
                Some(finding) => Err(finding.to_string()),
            }
        });
        assert!(totals.unwrap().all() > 50);
    }
}

/// Inherited ACLs that fit no block, and a mode that changes one.
#[test]
fn long_acls_are_inherited_and_changed() {
    let image = volume(16, "-b 1024");
    let fs = TestFs::mount(image.path(), "");
    let dir = fs.mkdir("d");
    // Version 2; user, users by number, group, mask, other.
    let mut acl = 2_u32.to_le_bytes().to_vec();
    let mut entry = |tag: u16, perm: u16, id: u32| {
        acl.extend(tag.to_le_bytes());
        acl.extend(perm.to_le_bytes());
        acl.extend(id.to_le_bytes());
    };
    entry(1, 7, u32::MAX);
    for id in 0..400 {
        entry(2, 5, 1000 + id);
    }
    for tag in [4, 0x10, 0x20] {
        entry(tag, 5, u32::MAX);
    }
    let default = b"system.posix_acl_default";
    super::set(&fs, &dir, default, &acl, XattrMode::Either, &Cred::root()).unwrap();
    assert_eq!(values(&fs, &dir).len(), 1);
    let sub = namei::mkdir(&fs, &dir, b"sub", 0o777, &Cred::root()).unwrap();
    assert_eq!(
        values(&fs, &sub).len(),
        2,
        "for access, and for what comes below"
    );
    let changes = crate::types::SetAttr {
        perm: Some(0o700),
        ..crate::types::SetAttr::default()
    };
    crate::attr::setattr(&fs, &sub, &changes, &Cred::root()).unwrap();
    let access = super::get(&fs, &sub, b"system.posix_acl_access").unwrap();
    assert_eq!(access.len(), acl.len());
    assert_ne!(access, acl, "another mask");
    drop((dir, sub));
    fs.unmount();
    is_clean(&image);
}
