//! Space in clusters (`bigalloc`): what each side writes the other reads, and what blocks that
//! share a cluster cost.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use extant_check::{CheckOptions, check_image};
use extant_engine::{
    Cred, Error, FallocateMode, Node, SetAttr, Verifier, Volume, VolumeOptions, XattrMode,
};
use extant_testkit::{Image, Need, Rng, Subject, content, need};

/// Arguments of mke2fs.
const SHAPES: &[&str] = &[
    "-b 1024 -O bigalloc -C 4096",
    "-b 1024 -O bigalloc -C 65536 -I 512",
    "-b 4096 -O bigalloc -C 16384 -I 128",
    "-b 4096 -O bigalloc,ea_inode,^flex_bg -C 65536",
    "-b 2048 -O bigalloc,inline_data,^has_journal -C 262144",
    "-b 4096 -O bigalloc,^metadata_csum,uninit_bg,^orphan_file -C 1048576",
];
const LINUX: &[Need] = &[Need::Root, Need::Loop, Need::Tool("mke2fs")];
/// Files in each round.
const FILES: u64 = 12;
/// Positions are below this.
const SPAN: u64 = 400_000;

/// The files that there should be.
type Files = BTreeMap<String, Vec<u8>>;

fn open(image: &Image) -> Volume {
    let mut options = VolumeOptions::new();
    options.write(true).open(image.path()).unwrap()
}

fn node(volume: &Volume, name: &str) -> Node {
    volume
        .lookup(&volume.root().unwrap(), name.as_bytes())
        .unwrap()
}

fn put(file: &mut Vec<u8>, pos: usize, data: &[u8]) {
    file.resize(file.len().max(pos + data.len()), 0);
    file[pos..pos + data.len()].copy_from_slice(data);
}

/// Zeros of the bytes from `pos` to `end` that the file has.
fn clear(file: &mut [u8], pos: usize, end: usize) {
    let end = end.min(file.len());
    file.get_mut(pos..end).unwrap_or_default().fill(0);
}

/// Changes files at random, in directories that grow meanwhile, with attributes.
fn storm(volume: &Volume, files: &mut Files, rng: &mut Rng) {
    let cred = Cred::root();
    let root = volume.root().unwrap();
    for step in 0..300 {
        if step % 50 == 0 {
            volume.wait_for_background_work();
            volume.verify(&mut Verifier::default(), false).unwrap();
        }
        let name = format!("f{}", rng.below(FILES));
        if !files.contains_key(&name) {
            volume.create(&root, name.as_bytes(), 0o644, &cred).unwrap();
            files.insert(name.clone(), Vec::new());
        }
        let file = files.get_mut(&name).unwrap();
        let node = node(volume, &name);
        let (pos, len) = (rng.below(SPAN), rng.between(1, 90_000));
        let (at, end) = (
            usize::try_from(pos).unwrap(),
            usize::try_from(pos + len).unwrap(),
        );
        let run = |mode| volume.fallocate(&node, mode, pos, len, &cred);
        match rng.below(20) {
            0..=8 => {
                let most = [500, 5000, 70_000][rng.index(3)];
                let data = content::fill(rng.next_u64(), pos, rng.index(most) + 1);
                let done = match rng.chance(20) {
                    true => volume.write_direct(&node, pos, &data, &cred),
                    false => volume.write(&node, pos, &data, &cred),
                };
                assert_eq!(done.unwrap(), data.len());
                put(file, at, &data);
            }
            9 | 10 => {
                run(FallocateMode::Allocate { keep_size: true }).unwrap();
            }
            11..=13 => {
                run(FallocateMode::PunchHole).unwrap();
                clear(file, at, end);
            }
            14 => {
                run(FallocateMode::ZeroRange { keep_size: true }).unwrap();
                clear(file, at, end);
            }
            15 | 16 => {
                let size = SetAttr {
                    size: Some(pos),
                    ..SetAttr::default()
                };
                volume.setattr(&node, &size, &cred).unwrap();
                file.resize(at, 0);
            }
            17 => {
                let value = vec![7; rng.index(600)];
                let set = volume.setxattr(&node, b"user.a", &value, XattrMode::Either, &cred);
                assert!(matches!(set, Ok(()) | Err(Error::NoSpace)), "{set:?}");
            }
            18 => {
                let number = rng.next_u64();
                let dir = format!("a directory with a long name {number}");
                volume.mkdir(&root, dir.as_bytes(), 0o755, &cred).unwrap();
                volume.fsync(&node, false).unwrap();
            }
            _ => {
                volume.unlink(&root, name.as_bytes()).unwrap();
                files.remove(&name);
            }
        }
    }
}

/// Changes the same files through a mount of Linux's.
fn storm_of_linux(dir: &Path, files: &mut Files, rng: &mut Rng) {
    for _ in 0..120 {
        let name = format!("f{}", rng.below(FILES));
        let file = files.entry(name.clone()).or_default();
        let mut how = OpenOptions::new();
        let open = how.write(true).create(true).truncate(false);
        let open = open.open(dir.join(&name)).unwrap();
        let pos = rng.below(SPAN);
        let at = usize::try_from(pos).unwrap();
        match rng.below(8) {
            0..=4 => {
                let data = content::fill(rng.next_u64(), pos, rng.index(30_000) + 1);
                open.write_all_at(&data, pos).unwrap();
                put(file, at, &data);
            }
            5 | 6 => {
                open.set_len(pos).unwrap();
                file.resize(at, 0);
            }
            _ => {
                std::fs::remove_file(dir.join(&name)).unwrap();
                files.remove(&name);
            }
        }
    }
}

fn judge(image: &Image, what: &str) {
    image
        .fsck_clean()
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let report = check_image(image.path(), &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{what}: {report:?}");
}

/// Storms in turn; after each, both checkers find nothing, and the other side sees every byte and
/// the same space.
#[test]
fn what_each_side_writes_the_other_reads() {
    if !need(LINUX) {
        return;
    }
    for (seed, args) in (1..).zip(SHAPES) {
        let image = Image::of_mib(120).args(args).make().unwrap();
        let mut rng = Rng::new(seed);
        let mut files = Files::new();
        for round in 0..3 {
            let what = format!("{args}, round {round}");
            let volume = open(&image);
            for (name, bytes) in &files {
                let mut found = vec![1; bytes.len() + 1];
                let len = volume.read(&node(&volume, name), 0, &mut found).unwrap();
                assert!(found[..len] == bytes[..], "{what}: {name} of Linux's");
            }
            storm(&volume, &mut files, &mut rng);
            volume.sync().unwrap();
            volume.verify(&mut Verifier::default(), true).unwrap();
            let space = |name: &String| volume.getattr(&node(&volume, name)).unwrap().blocks;
            let space: Vec<u64> = files.keys().map(space).collect();
            volume.unmount().unwrap();
            judge(&image, &what);
            let mount = Subject::Ext4.mount(image.path(), "").unwrap();
            for ((name, bytes), space) in files.iter().zip(space) {
                let path = mount.dir().join(name);
                assert!(std::fs::read(&path).unwrap() == *bytes, "{what}: {name}");
                assert_eq!(path.metadata().unwrap().blocks(), space, "{what}: {name}");
            }
            storm_of_linux(mount.dir(), &mut files, &mut rng);
            mount.unmount().unwrap();
            judge(&image, &format!("{what}, by Linux"));
        }
    }
}

/// Space of a cluster that is reserved for one of its blocks is there for all of them: on a full
/// volume, in whatever way the next one comes.
#[test]
fn a_reserved_cluster_takes_all_of_its_blocks() {
    let args = "-b 1024 -O bigalloc -C 16384 -m 0";
    for way in ["delayed", "allocated", "direct", "after a sync"] {
        let image = Image::of_mib(16).args(args).make().unwrap();
        let volume = open(&image);
        let (root, cred) = (volume.root().unwrap(), Cred::root());
        let file = volume.create(&root, b"file", 0o644, &cred).unwrap();
        volume.write(&file, 3 << 10, &[1; 1024], &cred).unwrap();
        let filler = volume.create(&root, b"filler", 0o644, &cred).unwrap();
        let mode = FallocateMode::Allocate { keep_size: false };
        let mut at = 0;
        for step in [1 << 20, 1 << 14] {
            while volume.fallocate(&filler, mode, at, step, &cred).is_ok() {
                at += step;
            }
        }
        let next = volume.write(&file, 1 << 20, &[1; 1024], &cred);
        assert!(matches!(next, Err(Error::NoSpace)), "{way}: {next:?}");
        match way {
            "delayed" => assert_eq!(volume.write(&file, 0, &[2; 1024], &cred).unwrap(), 1024),
            "allocated" => volume.fallocate(&file, mode, 0, 16 << 10, &cred).unwrap(),
            "direct" => {
                assert_eq!(
                    volume.write_direct(&file, 0, &[2; 1024], &cred).unwrap(),
                    1024
                );
            }
            _ => {
                volume.fsync(&file, false).unwrap();
                assert_eq!(volume.write(&file, 0, &[2; 1024], &cred).unwrap(), 1024);
            }
        }
        volume.verify(&mut Verifier::default(), false).unwrap();
        volume.sync().unwrap();
        volume.verify(&mut Verifier::default(), true).unwrap();
        assert_eq!(volume.getattr(&file).unwrap().blocks, 32, "{way}");
        volume.unmount().unwrap();
        judge(&image, way);
    }
}
