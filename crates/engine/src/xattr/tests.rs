#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod storm;
mod values;

use std::collections::BTreeMap;

use extant_check::{CheckOptions, check_image};
use extant_disk::features::{Compat, RoCompat};
use extant_disk::superblock::RawSuperblock;
use extant_testkit::{Image, Need, Rng, Subject, need};

use super::*;
use crate::state::inode::InodeRef;
use crate::test_support::test_mount::TestFs;
use crate::types::FileKind;

const CONFIGURATIONS: [&str; 4] = [
    "-b 4096 -I 256",
    "-b 1024 -I 128",
    "-b 1024 -I 1024 -O ^metadata_csum,^64bit",
    "-b 2048 -I 256 -O ^has_journal",
];

fn put(fs: &TestFs, inode: &Inode, name: &str, value: &[u8]) -> Result<()> {
    set(
        fs,
        inode,
        name.as_bytes(),
        value,
        XattrMode::Either,
        &Cred::root(),
    )
}

fn all(fs: &TestFs, inode: &Inode) -> BTreeMap<String, Vec<u8>> {
    let names = list(fs, inode).unwrap();
    let count = names.len();
    let map: BTreeMap<_, _> = names
        .into_iter()
        .map(|name| {
            let value = get(fs, inode, &name).unwrap();
            (String::from_utf8(name).unwrap(), value)
        })
        .collect();
    assert_eq!(map.len(), count, "no name twice");
    map
}

fn errno<T>(result: Result<T>) -> i32 {
    result.err().map_or(0, |e| e.errno())
}

#[test]
fn modes_limits_and_namespaces() {
    let image = Image::of_mib(8).args("-b 4096").make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    let file = fs.create("f");
    let root = Cred::root();
    let (enodata, eexist, erange, e2big, enospc, eopnotsupp, eperm) = (61, 17, 34, 7, 28, 95, 1);
    assert_eq!(errno(get(&fs, &file, b"user.a")), enodata);
    let set_as = |name: &[u8], value: &[u8], mode| set(&fs, &file, name, value, mode, &root);
    assert_eq!(errno(set_as(b"user.a", b"1", XattrMode::Replace)), enodata);
    set_as(b"user.a", b"1", XattrMode::Create).unwrap();
    assert_eq!(errno(set_as(b"user.a", b"2", XattrMode::Create)), eexist);
    set_as(b"user.a", b"2", XattrMode::Replace).unwrap();
    assert_eq!(get(&fs, &file, b"user.a").unwrap(), b"2");
    let long = [&b"user."[..], &[b'x'; 251]].concat();
    assert_eq!(errno(set_as(&long, b"", XattrMode::Either)), erange);
    set_as(&long[..255], b"", XattrMode::Either).unwrap();
    assert_eq!(get(&fs, &file, &long[..255]).unwrap(), b"");
    assert_eq!(
        errno(set_as(b"user.b", &[0; 65537], XattrMode::Either)),
        e2big
    );
    assert_eq!(
        errno(set_as(b"user.b", &[0; 4096], XattrMode::Either)),
        enospc
    );
    // A namespace without a name is another mistake than a namespace that is not served.
    assert_eq!(errno(set_as(b"user.", b"", XattrMode::Either)), 22);
    for name in [&b"nonsense"[..], b"system.data", b"system.richacl"] {
        assert_eq!(errno(set_as(name, b"", XattrMode::Either)), eopnotsupp);
    }
    assert_eq!(errno(set_as(b"", b"", XattrMode::Either)), erange);
    remove(&fs, &file, b"user.a", &root).unwrap();
    assert_eq!(errno(remove(&fs, &file, b"user.a", &root)), enodata);

    let kind = (FileKind::Fifo, 0);
    let fifo = crate::namei::mknod(&fs, &fs.root(), b"p", kind, 0o600, &root).unwrap();
    assert_eq!(errno(put(&fs, &fifo, "user.a", b"")), eperm);
    put(&fs, &fifo, "trusted.a", b"t").unwrap();
    assert_eq!(all(&fs, &fifo).len(), 1);

    crate::attr::set_flags(&fs, &file, crate::attr::get_flags(&file) | 0x10, &root).unwrap();
    assert_eq!(errno(put(&fs, &file, "user.c", b"")), eperm);
    assert_eq!(errno(remove(&fs, &file, &long[..255], &root)), eperm);
    drop((file, fifo));
    fs.unmount();
    image.fsck_clean().unwrap();
}

#[test]
fn the_first_attribute_sets_the_feature() {
    for args in ["-I 256 -O ^ext_attr", "-I 128 -O ^ext_attr,^has_journal"] {
        let image = Image::of_mib(8).args(args).make().unwrap();
        let has_feature = || {
            let bytes = std::fs::read(image.path()).unwrap();
            let raw = RawSuperblock::copy_from(&bytes[1024..2048]).unwrap();
            raw.features().has_compat(Compat::EXT_ATTR)
        };
        let fs = TestFs::mount(image.path(), "");
        fs.create("plain");
        fs.unmount();
        assert!(!has_feature(), "{args}");
        let fs = TestFs::mount(image.path(), "");
        put(&fs, &fs.create("file"), "user.long", &[1; 300]).unwrap();
        fs.unmount();
        assert!(has_feature(), "{args}");
        image.fsck_clean().unwrap();
        let report = check_image(image.path(), &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{args}: {:?}", report.findings);
    }
}

#[test]
fn attributes_move_between_inode_and_block() {
    let image = Image::of_mib(8).args("-b 4096").make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    let file = fs.create("f");
    let sectors = || file.core.read().sectors;
    let acl = || file.core.read().file_acl.get();
    put(&fs, &file, "user.a", &[1; 40]).unwrap();
    assert_eq!((acl(), sectors()), (0, 0));
    put(&fs, &file, "user.b", &[2; 40]).unwrap();
    assert_ne!(
        file.core.read().file_acl.get(),
        0,
        "no room for two in the inode"
    );
    assert_eq!(sectors(), 8, "the block counts");
    put(&fs, &file, "user.a", &[1; 400]).unwrap();
    assert_eq!(
        file.core.read().xattrs[..],
        [0; 96],
        "grown out of the inode"
    );
    put(&fs, &file, "user.b", &[2; 30]).unwrap();
    let stored = all(&fs, &file);
    assert_eq!(
        stored["user.b"], [2; 30],
        "shrunk back into the inode, and in one place only"
    );
    remove(&fs, &file, b"user.a", &Cred::root()).unwrap();
    assert_eq!((acl(), sectors()), (0, 0));
    drop(file);
    fs.unmount();
    image.fsck_clean().unwrap();
}

#[test]
fn equal_blocks_are_shared_and_unshared() {
    let image = Image::of_mib(16).args("-b 1024").make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    let free = || fs.alloc.counts.free_blocks().get();
    let files: Vec<InodeRef> = (0..20).map(|i| fs.create(&format!("f{i}"))).collect();
    let before = free();
    for file in &files {
        put(&fs, file, "user.same", &[9; 500]).unwrap();
    }
    assert_eq!(before - free(), 1, "one block for twenty files");
    assert_eq!(fs.stats.xattr_blocks_shared.get(), 19);
    let acl = files[0].core.read().file_acl;
    assert!(files.iter().all(|f| f.core.read().file_acl == acl));
    put(&fs, &files[3], "user.same", &[8; 500]).unwrap();
    assert_eq!(before - free(), 2, "a block of its own");
    assert_eq!(all(&fs, &files[4])["user.same"], [9; 500]);
    put(&fs, &files[3], "user.same", &[9; 500]).unwrap();
    assert_eq!(before - free(), 1, "and back again");
    drop(files);
    for i in 0..19 {
        fs.unlink(&format!("f{i}"));
    }
    fs.reap_all();
    assert_eq!(all(&fs, &fs.find("f19"))["user.same"], [9; 500]);
    fs.unlink("f19");
    fs.reap_all();
    fs.journal.force_commit().unwrap();
    assert_eq!(before, free(), "the last one frees it");
    fs.unmount();
    image.fsck_clean().unwrap();
}

#[test]
fn a_full_share_count_starts_a_new_block() {
    let image = Image::of_mib(32).args("-b 1024 -N 2048").make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    let mut blocks = std::collections::BTreeMap::new();
    for i in 0..1030 {
        let file = fs.create(&format!("f{i}"));
        put(&fs, &file, "user.same", &[9; 500]).unwrap();
        *blocks.entry(file.core.read().file_acl).or_insert(0) += 1;
    }
    let counts: Vec<i32> = blocks.into_values().collect();
    assert_eq!(counts.len(), 2);
    assert_eq!(counts.iter().max(), Some(&1024));
    fs.unmount();
    image.fsck_clean().unwrap();
}

/// Random changes to files that share much, against a map per file; then again after a mount, and
/// by Linux.
#[test]
fn random_changes_follow_a_model() {
    for (round, args) in CONFIGURATIONS.into_iter().enumerate() {
        let image = Image::of_mib(16).args(args).make().unwrap();
        let mut rng = Rng::new(77 + round as u64);
        let mut model: Vec<BTreeMap<String, Vec<u8>>> = vec![BTreeMap::new(); 6];
        let fs = TestFs::mount(image.path(), "");
        let block_size = fs.layout.block_size.bytes() as u64;
        let files: Vec<InodeRef> = (0..6).map(|i| fs.create(&format!("f{i}"))).collect();
        for step in 0..600 {
            let at = rng.index(files.len());
            if rng.chance(5) {
                // All attributes of another file: equal sets are what sharing is about.
                let other = model[rng.index(files.len())].clone();
                for name in std::mem::take(&mut model[at]).keys() {
                    remove(&fs, &files[at], name.as_bytes(), &Cred::root()).unwrap();
                }
                for (name, value) in other {
                    if put(&fs, &files[at], &name, &value).is_ok() {
                        model[at].insert(name, value);
                    }
                }
                continue;
            }
            let name = format!(
                "{}.{}",
                ["user", "trusted", "security"][rng.index(3)],
                ["a", "bb", "a-rather-long-name", "c"][rng.index(4)]
            );
            if rng.chance(30) {
                let gone = remove(&fs, &files[at], name.as_bytes(), &Cred::root());
                assert_eq!(
                    gone.is_ok(),
                    model[at].remove(&name).is_some(),
                    "step {step}"
                );
                continue;
            }
            // Few values, so that blocks come to be equal.
            let len = [0, 1, 7, 60, 200, block_size / 2][rng.index(6)];
            let byte = u8::try_from(rng.below(2)).unwrap();
            let value = vec![byte; usize::try_from(len).unwrap()];
            match put(&fs, &files[at], &name, &value) {
                Ok(()) => drop(model[at].insert(name, value)),
                Err(error) => assert_eq!(error.errno(), 28, "step {step}: {error}"),
            }
            assert_eq!(all(&fs, &files[at]), model[at], "step {step}");
        }
        assert!(
            fs.stats.xattr_blocks_shared.get() > 0,
            "something was shared"
        );
        drop(files);
        fs.unmount();
        image.fsck_clean().unwrap();

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

fn linux_sees(image: &Image, model: &[BTreeMap<String, Vec<u8>>]) {
    let mount = Subject::Ext4.mount(image.path(), "").unwrap();
    for (i, expected) in model.iter().enumerate() {
        let path = mount.join(format!("f{i}"));
        let mut names = vec![0; 4096];
        let len = rustix::fs::listxattr(&path, &mut names[..]).unwrap();
        let mut seen = BTreeMap::new();
        for name in names[..len].split(|b| *b == 0).filter(|n| !n.is_empty()) {
            let name = std::str::from_utf8(name).unwrap();
            let mut value = vec![0; 65536];
            let len = rustix::fs::getxattr(&path, name, &mut value[..]).unwrap();
            value.truncate(len);
            seen.insert(name.to_owned(), value);
        }
        assert_eq!(&seen, expected, "as Linux reads f{i}");
    }
    mount.unmount().unwrap();
    image.fsck_clean().unwrap();
}

#[test]
fn damage_in_a_block_is_named_and_survived() {
    let image = Image::of_mib(8).args("-b 4096").make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    let file = fs.create("f");
    put(&fs, &file, "user.big", &[1; 1000]).unwrap();
    let at = file.core.read().file_acl.get() * 4096;
    drop(file);
    fs.unmount();
    image.patch(at + 40, 1, |b| b[0] ^= 1).unwrap();
    let fs = TestFs::mount(image.path(), "errors=continue");
    let file = fs.find("f");
    let error = get(&fs, &file, b"user.big").unwrap_err();
    assert!(error.to_string().contains("attribute block"), "{error}");
    assert_eq!(error.errno(), 117);
    assert_eq!(errno(list(&fs, &file)), 117);
    drop(file);
}

/// Random bytes in attribute blocks of a volume without checksums: errors at most.
#[test]
fn hostile_blocks_never_panic() {
    let maker = Image::of_mib(8).args("-b 1024 -O ^metadata_csum");
    let image = maker.make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    assert!(!fs.layout.features.has_ro_compat(RoCompat::METADATA_CSUM));
    let file = fs.create("f");
    for name in ["user.a", "user.bb", "trusted.c"] {
        put(&fs, &file, name, &[3; 200]).unwrap();
    }
    let at = file.core.read().file_acl.get() * 1024;
    drop(file);
    fs.unmount();
    let good = image.bytes(at, 1024).unwrap();
    let mut rng = Rng::new(5);
    for _ in 0..60 {
        let mut bad = good.clone();
        for _ in 0..=rng.below(3) {
            bad[rng.index(160)] = u8::try_from(rng.below(256)).unwrap();
        }
        image.patch(at, 1024, |b| b.copy_from_slice(&bad)).unwrap();
        let fs = TestFs::mount(image.path(), "errors=continue");
        let file = fs.find("f");
        if let Ok(names) = list(&fs, &file) {
            for name in names {
                let _ = get(&fs, &file, &name);
            }
        }
        let _ = put(&fs, &file, "user.new", &[1; 300]);
        let _ = remove(&fs, &file, b"user.a", &Cred::root());
        drop(file);
        let _ = crate::namei::unlink(&fs, &fs.root(), b"f");
        fs.reap_all();
        drop(fs);
        image.fsck_repair().unwrap();
        let fs = TestFs::mount(image.path(), "");
        if crate::namei::lookup(&fs, &fs.root(), b"f").is_err() {
            fs.create("f");
        }
        let file = fs.find("f");
        for name in ["user.a", "user.bb", "trusted.c"] {
            put(&fs, &file, name, &[3; 200]).unwrap();
        }
        let now = file.core.read().file_acl.get() * 1024;
        drop(file);
        fs.unmount();
        assert_eq!(now, at, "the block is found where it was");
    }
}
