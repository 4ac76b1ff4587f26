//! Directories on real images: Linux's read by us, ours read by Linux and judged by e2fsck, at
//! every block size, with every hash, with and without checksums; listings that go on while others
//! change the directory; hostile blocks.

mod names;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use extant_engine::damage::LinkDamage;
use extant_engine::{Cred, Error, Node, RenameFlags, Volume, VolumeOptions};
use extant_testkit::{Cmd, Image, Need, Rng, Stop, Subject, need};
use names::{list, open, open_read_only};

const LINUX: &[Need] = &[Need::Root, Need::Loop, Need::Tool("mke2fs")];

/// mke2fs arguments, hash algorithm, signedness (`s_flags`): 1 signed, 2 unsigned.
const SHAPES: &[(&str, &str, u8)] = &[
    ("-b 1024", "half_md4", 1),
    ("-b 1024 -O ^metadata_csum", "tea", 2),
    ("-b 2048", "legacy", 1),
    ("-b 2048 -O ^metadata_csum,^64bit", "half_md4", 2),
    ("-b 4096", "tea", 1),
    ("-b 4096 -O ^metadata_csum", "legacy", 2),
    ("-b 1024 -O ^dir_index", "half_md4", 1),
    ("-b 4096 -O ^filetype,^metadata_csum", "half_md4", 1),
    ("-b 16384", "tea", 2),
    ("-b 65536", "half_md4", 1),
    ("-b 65536 -O ^metadata_csum", "legacy", 2),
];

fn image(mib: u64, (args, hash, signedness): (&str, &str, u8), inodes: u32) -> Image {
    let image = Image::with_args(mib, args)
        .args(&format!("-N {inodes}"))
        .make()
        .unwrap();
    let tune = ["-E", &format!("hash_alg={hash}")];
    Cmd::new("tune2fs")
        .args(tune)
        .arg(image.path())
        .ok()
        .unwrap();
    let flags = format!("set_super_value flags {signedness}");
    image.debugfs_write(&flags).unwrap();
    image
}

/// The system that makes names or finds them beside Extant: see [`Subject::other`].
fn other(image: &Image) -> Subject {
    Subject::other(image.block_size().unwrap())
}

/// Names of all lengths and kinds of bytes; the same for the same `i`.
fn name(i: u32) -> Vec<u8> {
    let mut name = format!("n{i}-").into_bytes();
    let more = match i % 17 {
        0 => 240,
        1..=3 => 60,
        4 => 0,
        n => n,
    };
    // Bytes above 127 give signed hashes other values than unsigned ones.
    name.extend((0..more).map(|k| match (i + k) % 5 {
        0 => 0xc3,
        1 => 0xff,
        _ => b'a' + u8::try_from((i + k) % 26).unwrap(),
    }));
    name
}

fn read_names(dir: &Path) -> BTreeSet<Vec<u8>> {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_vec())
        .collect()
}

fn path_of(dir: &Path, name: &[u8]) -> std::path::PathBuf {
    dir.join(std::ffi::OsString::from_vec(name.to_vec()))
}

#[test]
fn what_linux_made_is_listed_and_found() {
    if !need(LINUX) {
        return;
    }
    for shape in SHAPES {
        let image = image(48, *shape, 9000);
        let mut expected = BTreeSet::new();
        let linux = other(&image).mount(image.path(), "").unwrap();
        let dir = linux.join("d");
        fs::create_dir(&dir).unwrap();
        let count = if shape.0.contains("^dir_index") {
            1500
        } else {
            4000
        };
        for i in 0..count {
            fs::File::create(path_of(&dir, &name(i))).unwrap();
            expected.insert(name(i));
        }
        for i in (0..count).step_by(3) {
            fs::remove_file(path_of(&dir, &name(i))).unwrap();
            expected.remove(&name(i));
        }
        drop(linux);

        let volume = open_read_only(&image);
        let root = volume.root().unwrap();
        let dir = volume.lookup(&root, b"d").unwrap();
        let listed: BTreeSet<_> = list(&volume, &dir).into_keys().collect();
        assert_eq!(listed, expected, "{shape:?}");
        for i in 0..count {
            let found = volume.lookup(&dir, &name(i));
            match expected.contains(&name(i)) {
                true => drop(found.unwrap()),
                false => assert!(matches!(found, Err(Error::NotFound)), "{shape:?}"),
            }
        }
        volume.unmount().unwrap();
    }
}

#[test]
fn what_we_make_linux_lists_and_finds_and_e2fsck_accepts() {
    if !need(LINUX) {
        return;
    }
    for shape in SHAPES {
        let image = image(48, *shape, 9000);
        let cred = Cred::root();
        let mut expected = BTreeSet::new();
        let volume = open(&image);
        let root = volume.root().unwrap();
        let dir = volume.mkdir(&root, b"d", 0o755, &cred).unwrap();
        let count = if shape.0.contains("^dir_index") {
            1500
        } else {
            4000
        };
        for i in 0..count {
            drop(volume.create(&dir, &name(i), 0o644, &cred).unwrap());
            expected.insert(name(i));
        }
        for i in (0..count).step_by(3) {
            volume.unlink(&dir, &name(i)).unwrap();
            expected.remove(&name(i));
        }
        for i in (0..count).step_by(6) {
            drop(volume.create(&dir, &name(i), 0o644, &cred).unwrap());
            expected.insert(name(i));
        }
        drop((root, dir));
        volume.unmount().unwrap();
        drop(volume);
        image.fsck_clean().unwrap();

        let linux = other(&image).mount(image.path(), "").unwrap();
        let dir = linux.join("d");
        assert_eq!(read_names(&dir), expected, "{shape:?}");
        for i in 0..count {
            let found = fs::symlink_metadata(path_of(&dir, &name(i))).is_ok();
            assert_eq!(found, expected.contains(&name(i)), "{shape:?} {i}");
        }
        // Linux goes on in what we made, and we in what it left.
        for i in count..count + 500 {
            fs::File::create(path_of(&dir, &name(i))).unwrap();
            expected.insert(name(i));
        }
        drop(linux);
        image.fsck_clean().unwrap();
        let volume = open(&image);
        let root = volume.root().unwrap();
        let dir = volume.lookup(&root, b"d").unwrap();
        assert_eq!(
            list(&volume, &dir).into_keys().collect::<BTreeSet<_>>(),
            expected
        );
        for name in &expected {
            volume.unlink(&dir, name).unwrap();
        }
        volume.rmdir(&root, b"d").unwrap();
        drop((root, dir));
        volume.unmount().unwrap();
        drop(volume);
        image.fsck_clean().unwrap();
    }
}

#[test]
fn a_hundred_thousand_entries() {
    let image = image(160, ("-b 1024", "half_md4", 1), 101_000);
    let cred = Cred::root();
    let volume = open(&image);
    let root = volume.root().unwrap();
    let dir = volume.mkdir(&root, b"many", 0o755, &cred).unwrap();
    let name = |i: u32| format!("entry-{i:06}").into_bytes();
    for i in 0..100_000 {
        drop(volume.create(&dir, &name(i), 0o644, &cred).unwrap());
    }
    assert_eq!(list(&volume, &dir).len(), 100_000);
    drop((root, dir));
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
    if !need(LINUX) {
        return;
    }
    let linux = Subject::Ext4.mount(image.path(), "").unwrap();
    let dir = linux.join("many");
    assert_eq!(read_names(&dir).len(), 100_000);
    for i in 0..100_000 {
        let path = path_of(&dir, &name(i));
        assert!(fs::symlink_metadata(&path).is_ok(), "{}", path.display());
    }
}

#[test]
fn a_listing_goes_on_while_others_create_and_unlink() {
    for shape in [SHAPES[0], SHAPES[2], SHAPES[6]] {
        let image = image(48, shape, 9000);
        let cred = Cred::root();
        let volume = open(&image);
        let root = volume.root().unwrap();
        let dir = volume.mkdir(&root, b"d", 0o755, &cred).unwrap();
        let mut stays = BTreeSet::new();
        for i in 0..700_u32 {
            let name = format!("stays-{i:0w$}", w = 1 + (i as usize % 40)).into_bytes();
            drop(volume.create(&dir, &name, 0o644, &cred).unwrap());
            stays.insert(name);
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            for thread in 0..2 {
                let (volume, dir, done, cred) = (&volume, &dir, &done, &cred);
                s.spawn(move || {
                    let mut rng = Rng::new(thread);
                    while !done.load(Ordering::Relaxed) {
                        let name = format!("comes-{thread}-{}", rng.below(800)).into_bytes();
                        match volume.create(dir, &name, 0o644, cred) {
                            Ok(node) => drop(node),
                            Err(Error::Exists) => volume.unlink(dir, &name).unwrap(),
                            Err(other) => panic!("{other}"),
                        }
                    }
                });
            }
            let _stop = Stop::at_end(&done);
            let mut rng = Rng::new(9);
            for _ in 0..10 {
                let seen = list_in_steps(&volume, &dir, &mut rng);
                for name in &stays {
                    let times = seen.get(name).copied().unwrap_or_default();
                    assert_eq!(times, 1, "{}", String::from_utf8_lossy(name));
                }
            }
        });
        drop((root, dir));
        volume.unmount().unwrap();
        drop(volume);
        image.fsck_clean().unwrap();
    }
}

/// How often each name was seen in a listing of a few entries at a time.
fn list_in_steps(volume: &Volume, dir: &Node, rng: &mut Rng) -> HashMap<Vec<u8>, u32> {
    let mut seen = HashMap::new();
    let mut pos = 0;
    loop {
        let mut left = 1 + rng.below(30);
        let before = pos;
        volume
            .readdir(dir, pos, &mut |entry| {
                if left == 0 {
                    return false;
                }
                left -= 1;
                pos = entry.next_pos;
                *seen.entry(entry.name.to_vec()).or_default() += 1;
                true
            })
            .unwrap();
        if pos == before {
            return seen;
        }
    }
}

#[test]
fn broken_directory_blocks_are_named_and_do_no_harm() {
    let mut rng = Rng::new(3);
    let mut named = 0;
    for round in 0..60 {
        let args = ["-b 1024 -O ^metadata_csum", "-b 1024"][round % 2];
        let image = image(8, (args, "half_md4", 1), 2000);
        let cred = Cred::root();
        let volume = open(&image);
        let root = volume.root().unwrap();
        let dir = volume.mkdir(&root, b"d", 0o755, &cred).unwrap();
        let count = [20, 400][round / 2 % 2];
        for i in 0..count {
            drop(volume.create(&dir, &name(i), 0o644, &cred).unwrap());
        }
        drop((root, dir));
        volume.unmount().unwrap();
        drop(volume);
        let blocks: Vec<u64> = image
            .debugfs("blocks /d")
            .unwrap()
            .split_whitespace()
            .map(|block| block.parse().unwrap())
            .collect();
        for _ in 0..=rng.below(4) {
            // The first block holds the index: it is hit more often.
            let at = rng.below(2) * rng.below(blocks.len() as u64);
            let block = blocks[usize::try_from(at).unwrap()];
            let at = block * 1024 + rng.below([64, 1024][round % 2]);
            let byte = u8::try_from(rng.below(256)).unwrap();
            image.patch(at, 1, |bytes| bytes[0] = byte).unwrap();
        }

        let volume = open(&image);
        let root = volume.root().unwrap();
        let mut note = |result: Result<(), Error>| match result {
            Err(Error::Corrupt { location, .. }) => {
                assert!(!location.to_string().is_empty());
                named += 1;
            }
            Err(Error::Io(why)) => panic!("{why}"),
            _ => {}
        };
        if let Ok(dir) = volume.lookup(&root, b"d") {
            note(volume.readdir(&dir, 0, &mut |_| true));
            for i in 0..count {
                note(volume.lookup(&dir, &name(i)).map(drop));
                note(volume.unlink(&dir, &name(i)));
                note(volume.create(&dir, &name(i + 5000), 0o644, &cred).map(drop));
            }
            note(volume.rmdir(&root, b"d"));
        }
        drop(root);
        let _ = volume.unmount();
    }
    assert!(named > 30, "{named}");
}

#[test]
fn directories_that_contain_each_other_do_not_hang() {
    let image = Image::of_mib(8)
        .args("-b 1024 -O ^metadata_csum")
        .make()
        .unwrap();
    let cred = Cred::root();
    let volume = open(&image);
    let root = volume.root().unwrap();
    let a = volume.mkdir(&root, b"a", 0o755, &cred).unwrap();
    let b = volume.mkdir(&a, b"b", 0o755, &cred).unwrap();
    let (a, b) = (a.ino(), b.ino());
    volume.mkdir(&root, b"c", 0o755, &cred).unwrap();
    drop(root);
    volume.unmount().unwrap();
    drop(volume);
    // "a" contains "b" contains "a", and both say so: ".." of "a" leads to "b".
    image
        .debugfs_write(&format!("link <{a}> /a/b/loop"))
        .unwrap();
    image.debugfs_write(&format!("link <{a}> /a/own")).unwrap();
    let block: u64 = image.debugfs("blocks /a").unwrap().trim().parse().unwrap();
    let up = b.get().to_le_bytes();
    image
        .patch(block * 1024 + 12, 4, |bytes| bytes.copy_from_slice(&up))
        .unwrap();

    let volume = VolumeOptions::new()
        .write(true)
        .mount_options("errors=continue")
        .open(image.path())
        .unwrap();
    let none = RenameFlags::empty();
    let root = volume.root().unwrap();
    let (a, b) = (volume.node(a).unwrap(), volume.node(b).unwrap());
    std::thread::scope(|s| {
        for (dir, name) in [(&a, &b"b"[..]), (&b, b"loop"), (&a, b"own")] {
            let (volume, cred) = (&volume, &cred);
            s.spawn(move || {
                for _ in 0..300 {
                    let _ = volume.rmdir(dir, name);
                    let _ = volume.lookup(dir, name);
                    let _ = volume.rename(dir, name, dir, b"moved", RenameFlags::EXCHANGE, cred);
                    let _ = volume.rename(dir, name, dir, b"moved", none, cred);
                    let _ = volume.rename(dir, b"moved", dir, name, none, cred);
                }
            });
        }
    });
    let moved = volume.rename(&root, b"c", &b, b"c", none, &cred);
    match moved {
        Err(error) => {
            let kind = Some(&LinkDamage::ParentsPastRoot.into());
            assert_eq!(error.corrupt_kind(), kind);
        }
        Ok(()) => panic!("moved"),
    }
}

#[test]
fn subdirectories_past_the_link_limit_are_not_counted() {
    let image = image(128, ("-b 1024 -I 128", "half_md4", 1), 65_200);
    let cred = Cred::root();
    let volume = open(&image);
    let root = volume.root().unwrap();
    let name = |i: u32| format!("{i}").into_bytes();
    let links = || volume.getattr(&root).unwrap().nlink;
    let before = links();
    let mut made = BTreeMap::new();
    for i in 0..65_010 {
        let node = volume
            .mkdir(&root, &name(i), 0o755, &cred)
            .unwrap_or_else(|e| panic!("{i} {e}"));
        made.insert(i, node.ino());
        if i == 60_000 {
            assert_eq!(links(), before + 60_001);
        }
    }
    assert_eq!(links(), 1, "too many to count");
    volume.rmdir(&root, &name(7)).unwrap();
    assert_eq!(links(), 1, "for good");
    drop(root);
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}
