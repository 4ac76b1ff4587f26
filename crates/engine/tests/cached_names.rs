//! The cache of names: a volume with one and a volume without answer alike, whatever changes names,
//! and threads that look names up find no file of another name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use extant_blockdev::MemoryDevice;
use extant_engine::{Cred, Error, FileKind, Node, RenameFlags, Tuning, Volume, VolumeOptions};
use extant_testkit::{Image, Rng, Stop};

/// Names in each directory.
const NAMES: u64 = 6;
/// Directories beside the root.
const DIRS: u64 = 3;

fn mounted(image: &[u8], name_cache_bytes: u64) -> Volume {
    let mut tuning = Tuning::default();
    tuning.flushers = 0;
    tuning.name_cache_bytes = name_cache_bytes;
    let device = Arc::new(MemoryDevice::from_bytes(image));
    let mut options = VolumeOptions::new();
    let options = options.write(true).tuning(tuning);
    options.open_on(device).unwrap()
}

fn image() -> Vec<u8> {
    std::fs::read(Image::of_mib(16).make().unwrap().path()).unwrap()
}

fn counters(volume: &Volume) -> BTreeMap<&'static str, u64> {
    volume.stats().into_iter().collect()
}

/// How much a counter has grown since `before`.
fn grown(volume: &Volume, before: &BTreeMap<&'static str, u64>, name: &str) -> u64 {
    counters(volume)[name] - before[name]
}

/// The number behind a name, or the error, as words.
fn looked_up(volume: &Volume, dir: &Node, name: &[u8]) -> Result<(u32, FileKind), String> {
    match volume.lookup(dir, name) {
        Ok(node) => Ok((node.ino().get(), node.kind())),
        Err(error) => Err(error.to_string()),
    }
}

fn short_or_long(number: u64) -> Vec<u8> {
    match number % 3 {
        0 => format!("{number}-{}", "long".repeat(40)).into_bytes(),
        _ => format!("name{number}").into_bytes(),
    }
}

/// One random change of names. Returns what it answered.
fn change(volume: &Volume, dirs: &[Node], rng: &mut Rng) -> String {
    let cred = Cred::root();
    let (from, to) = (&dirs[rng.index(dirs.len())], &dirs[rng.index(dirs.len())]);
    let (old, new) = (rng.below(NAMES), rng.below(NAMES));
    let (old, new) = (short_or_long(old), short_or_long(new));
    let flags = [
        RenameFlags::empty(),
        RenameFlags::NOREPLACE,
        RenameFlags::EXCHANGE,
        RenameFlags::WHITEOUT,
    ][rng.index(4)];
    let done = match rng.below(10) {
        0 => volume.create(from, &old, 0o644, &cred).map(drop),
        1 => volume.mkdir(from, &old, 0o755, &cred).map(drop),
        2 => volume
            .mknod(from, &old, FileKind::Fifo, 0o600, 0, &cred)
            .map(drop),
        3 => volume.symlink(from, &old, b"name1", &cred).map(drop),
        4 => volume
            .lookup(from, &old)
            .and_then(|node| volume.link(&node, to, &new, &cred)),
        5 => volume.unlink(from, &old),
        6 => volume.rmdir(from, &old),
        _ => volume.rename(from, &old, to, &new, flags, &cred),
    };
    // The numbers of removed inodes are used again.
    volume.wait_for_background_work();
    format!("{:?}", done.map_err(|error| error.to_string()))
}

fn directories(volume: &Volume) -> Vec<Node> {
    let root = volume.root().unwrap();
    let mut dirs = vec![root.clone()];
    for number in 0..DIRS {
        let name = format!("dir{number}");
        let made = volume.mkdir(&root, name.as_bytes(), 0o755, &Cred::root());
        dirs.push(made.unwrap());
    }
    dirs
}

#[test]
fn a_volume_with_the_cache_and_one_without_answer_alike() {
    let image = image();
    // With room for all names, for too few long ones, and for six in all.
    for bytes in [1 << 20, 20_000, 1000] {
        let (with, without) = (mounted(&image, bytes), mounted(&image, 0));
        let (dirs, plain) = (directories(&with), directories(&without));
        let (mut rng, mut same) = (Rng::new(7), Rng::new(7));
        for step in 0..3000 {
            let answer = change(&with, &dirs, &mut rng);
            assert_eq!(answer, change(&without, &plain, &mut same), "step {step}");
            for (dir, plain) in dirs.iter().zip(&plain) {
                for number in 0..NAMES {
                    let name = short_or_long(number);
                    assert_eq!(
                        looked_up(&with, dir, &name),
                        looked_up(&without, plain, &name),
                        "step {step}: {answer}"
                    );
                }
            }
        }
        let stats = counters(&with);
        assert!(stats["name_hits"] > 1000 && stats["name_negative_hits"] > 1000);
        assert_eq!(stats["name_evictions"] > 0, bytes < 1 << 20, "{bytes}");
        let stats = counters(&without);
        assert_eq!(stats["name_hits"] + stats["name_negative_hits"], 0);
        with.unmount().unwrap();
        without.unmount().unwrap();
    }
}

#[test]
fn lookups_are_counted_by_what_answered() {
    let volume = mounted(&image(), 1 << 20);
    let root = volume.root().unwrap();
    let cred = Cred::root();
    let before = counters(&volume);
    drop(volume.create(&root, b"file", 0o644, &cred).unwrap());
    assert_eq!(
        grown(&volume, &before, "name_misses"),
        1,
        "it was not there"
    );
    volume.lookup(&root, b"file").unwrap();
    assert_eq!(grown(&volume, &before, "name_hits"), 1);
    for _ in 0..2 {
        let missing = volume.lookup(&root, b"missing");
        assert!(matches!(missing, Err(Error::NotFound)));
    }
    assert_eq!(grown(&volume, &before, "name_misses"), 2);
    assert_eq!(grown(&volume, &before, "name_negative_hits"), 1);
    volume.unlink(&root, b"file").unwrap();
    assert!(matches!(
        volume.lookup(&root, b"file"),
        Err(Error::NotFound)
    ));
    assert_eq!(grown(&volume, &before, "name_misses"), 3, "forgotten");
    volume.unmount().unwrap();
}

#[test]
fn a_path_is_found_at_once_or_left_to_a_walk() {
    let volume = mounted(&image(), 1 << 20);
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    let dir = volume.mkdir(&root, b"dir", 0o755, &cred).unwrap();
    let file = volume.create(&dir, b"file", 0o644, &cred).unwrap();
    let link = volume.symlink(&dir, b"link", b"file", &cred).unwrap();
    let find = |path: &'static str, follow| {
        let names = path.split('/').map(str::as_bytes);
        let found = volume.find_cached(names, follow).unwrap();
        found.map(|node| node.ino())
    };
    let stat = |path: &'static str, follow| {
        let names = path.split('/').map(str::as_bytes);
        volume
            .stat_cached(names, follow)
            .unwrap()
            .map(|attr| attr.ino)
    };
    assert_eq!(find("dir", true), Some(dir.ino()));
    assert_eq!(find("dir/file", true), Some(file.ino()));
    assert_eq!(find("dir/link", false), Some(link.ino()));
    assert_eq!(stat("dir/link", false), Some(link.ino()));
    for (path, follow) in [
        ("dir/link", true),
        ("dir/missing", true),
        ("dir/..", true),
        ("dir/file/x", true),
        ("dir/link/x", false),
    ] {
        assert_eq!(find(path, follow), None, "{path}");
        assert_eq!(stat(path, follow), None, "{path}");
    }
    let flags = RenameFlags::empty();
    volume
        .rename(&root, b"dir", &root, b"other", flags, &cred)
        .unwrap();
    assert_eq!(find("dir/file", true), None);
    assert_eq!(find("other/file", true), Some(file.ino()));
    assert_eq!(stat("dir/file", true), None);
    assert_eq!(stat("other/file", true), Some(file.ino()));
    volume.unmount().unwrap();
}

/// Each file has the number of its name as its permissions. A lookup that came to the file of
/// another name, which has the same inode number now, would find other ones.
#[test]
fn threads_find_no_file_of_another_name() {
    const ROUNDS: u64 = 400;
    let volume = mounted(&image(), 16 << 10);
    let dirs = directories(&volume);
    let done = AtomicBool::new(false);
    let names = |number: u64| format!("{number}").into_bytes();
    std::thread::scope(|scope| {
        let changers: Vec<_> = dirs
            .iter()
            .enumerate()
            .map(|(seed, dir)| {
                let volume = &volume;
                scope.spawn(move || {
                    let mut rng = Rng::new(seed as u64);
                    for _ in 0..ROUNDS {
                        let number = rng.below(NAMES);
                        let perm = u16::try_from(number).unwrap() << 6;
                        let name = names(number);
                        match volume.create(dir, &name, perm, &Cred::root()) {
                            Ok(_) => {}
                            Err(Error::Exists) => volume.unlink(dir, &name).unwrap(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        for seed in 0..2 {
            let (volume, dirs, done) = (&volume, &dirs, &done);
            scope.spawn(move || {
                let mut rng = Rng::new(100 + seed);
                while !done.load(Ordering::Relaxed) {
                    let number = rng.below(NAMES);
                    let at = rng.index(dirs.len());
                    let (dir, name) = (&dirs[at], names(number));
                    let parent = at.checked_sub(1).map(|dir| format!("dir{dir}"));
                    let path = parent.iter().map(String::as_bytes).chain([&name[..]]);
                    if let Some(attr) = volume.stat_cached(path, false).unwrap() {
                        assert_eq!(u64::from(attr.perm >> 6), number);
                    }
                    match volume.lookup(dir, &name) {
                        Ok(node) => {
                            let attr = volume.getattr(&node).unwrap();
                            assert_eq!(u64::from(attr.perm >> 6), number);
                        }
                        Err(Error::NotFound) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        let _stop = Stop::at_end(&done);
        for changer in changers {
            changer.join().unwrap();
        }
    });
    assert_eq!(counters(&volume)["faults"], 0);
    volume.unmount().unwrap();
}

/// The directory is known and the file in it is not: one lookup under the directory's lock, which
/// brings no inode to memory.
#[test]
fn attributes_of_an_unknown_name_are_found_without_its_inode() {
    let image = image();
    let device = Arc::new(MemoryDevice::from_bytes(&image));
    let cred = Cred::root();
    let open = || {
        let mut options = VolumeOptions::new();
        options.write(true).open_on(device.clone()).unwrap()
    };
    let volume = open();
    let root = volume.root().unwrap();
    let dir = volume.mkdir(&root, b"dir", 0o755, &cred).unwrap();
    let file = volume.create(&dir, b"file", 0o640, &cred).unwrap();
    volume.symlink(&dir, b"link", b"file", &cred).unwrap();
    let expected = volume.getattr(&file).unwrap();
    drop((root, dir, file));
    volume.unmount().unwrap();

    let volume = open();
    let path = |name: &'static [u8]| [&b"dir"[..], name].into_iter();
    let stat = |name, follow| volume.stat_cached(path(name), follow).unwrap();
    assert!(stat(b"file", true).is_none(), "the directory is not known");
    let dir = volume.lookup(&volume.root().unwrap(), b"dir").unwrap();
    let before = counters(&volume);
    assert_eq!(stat(b"file", true), Some(expected));
    assert_eq!(grown(&volume, &before, "name_misses"), 1);
    assert_eq!(grown(&volume, &before, "inode_loads"), 0);
    assert_eq!(stat(b"file", true), Some(expected));
    assert_eq!(grown(&volume, &before, "name_misses"), 1, "known by now");
    assert_eq!(grown(&volume, &before, "inode_loads"), 0);
    for name in [&b"link"[..], b"missing", b".."] {
        assert!(stat(name, true).is_none());
        assert!(volume.find_cached(path(name), true).unwrap().is_none());
    }
    assert!(stat(b"link", false).is_some());
    volume.unlink(&dir, b"file").unwrap();
    assert!(stat(b"file", true).is_none());
    drop(dir);
    volume.unmount().unwrap();
}
