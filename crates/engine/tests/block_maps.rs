//! Volumes without extents, as `mke2fs -t ext2` and `-t ext3` make them: what is written there is
//! what Linux reads, and in the other direction; at every border between the levels of a block map;
//! until space runs out; up to the largest file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use extant_check::{CheckOptions, check_image};
use extant_engine::{Cred, Error, Node, SetAttr, Volume, VolumeOptions};
use extant_testkit::need::{Need, need};
use extant_testkit::{Image, Rng, Subject, content};

/// Arguments of mke2fs.
const KINDS: &[&str] = &[
    "-t ext2 -b 1024",
    "-t ext2 -b 4096",
    "-t ext3 -b 1024",
    "-t ext3 -b 4096",
    "-b 2048 -O ^extent,^64bit",
];

fn mount(image: &Image, options: &str) -> Volume {
    VolumeOptions::new()
        .write(true)
        .mount_options(options)
        .open(image.path())
        .unwrap()
}

/// No handle used more than it had asked for (J22).
fn no_overflow(volume: &Volume) {
    let counters = volume.stats();
    let overflow = counters.iter().find(|(name, _)| *name == "credit_overflow");
    assert_eq!(overflow, Some(&("credit_overflow", 0)));
}

/// Unmounts and lets go of the image. All nodes must be gone.
fn unmount(volume: Volume) {
    volume.unmount().unwrap();
    no_overflow(&volume);
}

fn create(volume: &Volume, name: &str) -> Node {
    let root = volume.root().unwrap();
    let cred = Cred::root();
    volume.create(&root, name.as_bytes(), 0o644, &cred).unwrap()
}

fn find(volume: &Volume, name: &str) -> Node {
    let root = volume.root().unwrap();
    volume.lookup(&root, name.as_bytes()).unwrap()
}

fn truncate(volume: &Volume, node: &Node, size: u64) -> extant_engine::Result<()> {
    let to = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    volume.setattr(node, &to, &Cred::root()).map(drop)
}

fn check(image: &Image, what: &str) {
    image
        .fsck_clean()
        .unwrap_or_else(|why| panic!("{what}: {why}"));
    let report = check_image(image.path(), &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{what}: {report:?}");
}

/// Bytes around the borders of every level of the map, the first and the last block of each side.
fn borders(block: u64) -> Vec<u64> {
    let numbers = block / 4;
    let ends = [
        12,
        12 + numbers,
        12 + 2 * numbers,
        12 + numbers + numbers * numbers,
        12 + 2 * numbers + numbers * numbers,
    ];
    let around = |end: u64| [end - 2, end - 1, end, end + 1].map(|at| at * block);
    [0].into_iter()
        .chain(ends.into_iter().flat_map(around))
        .collect()
}

/// The blocks of a file at `borders`, without those that `cut` and `gone` took.
struct Want {
    block: u64,
    size: u64,
    at: Vec<u64>,
}

impl Want {
    fn seed(&self, pos: u64) -> u64 {
        pos / self.block + 3
    }

    fn bytes(&self, pos: u64) -> Vec<u8> {
        content::fill(self.seed(pos), pos, usize::try_from(self.block).unwrap())
    }

    fn write(&self, mut write: impl FnMut(u64, &[u8])) {
        for &pos in &self.at {
            write(pos, &self.bytes(pos));
        }
    }

    /// Compares each block, and the holes beside them.
    fn judge(&self, size: u64, mut read: impl FnMut(u64, &mut [u8]) -> usize) {
        assert_eq!(size, self.size);
        let mut buf = vec![0; usize::try_from(self.block).unwrap()];
        for &pos in &self.at {
            for pos in [pos, pos + self.block] {
                if pos >= size {
                    continue;
                }
                buf.fill(9);
                let done = read(pos, &mut buf);
                assert_eq!(done as u64, self.block.min(size - pos), "{pos}");
                let want = if self.at.contains(&pos) {
                    self.bytes(pos)
                } else {
                    vec![0; buf.len()]
                };
                assert!(buf[..done] == want[..done], "at {pos}");
            }
        }
    }

    fn in_volume(&self, volume: &Volume, name: &str) {
        let node = find(volume, name);
        let size = volume.getattr(&node).unwrap().size;
        self.judge(size, |pos, buf| volume.read(&node, pos, buf).unwrap());
    }

    fn in_linux(&self, dir: &Path, name: &str) {
        let file = File::open(dir.join(name)).unwrap();
        let size = file.metadata().unwrap().len();
        self.judge(size, |pos, buf| {
            file.read_exact_at(buf, pos).unwrap();
            buf.len()
        });
    }
}

#[test]
fn linux_and_extant_read_what_the_other_wrote() {
    if !need(&[Need::Root, Need::Loop]) {
        return;
    }
    for kind in KINDS {
        for options in ["", "nodelalloc", "data=journal"] {
            both_ways(kind, options);
        }
    }
}

fn both_ways(kind: &str, options: &str) {
    let image = Image::of_mib(48).args(kind).junk().make().unwrap();
    let block = image.block_size().unwrap();
    let mut want = Want {
        block,
        at: borders(block),
        size: 0,
    };
    want.size = want.at.last().unwrap() + block;
    let journal = kind.contains("ext2") && options == "data=journal";
    let options = if journal { "" } else { options };

    let volume = mount(&image, options);
    let node = create(&volume, "ours");
    want.write(|pos, bytes| {
        let done = volume.write(&node, pos, bytes, &Cred::root()).unwrap();
        assert_eq!(done, bytes.len());
    });
    want.in_volume(&volume, "ours");
    let long = "t".repeat(70);
    let root = volume.root().unwrap();
    let cred = Cred::root();
    volume
        .symlink(&root, b"link", long.as_bytes(), &cred)
        .unwrap();
    let dir = volume.mkdir(&root, b"dir", 0o755, &cred).unwrap();
    for i in 0..400 {
        let name = format!("{i:0>40}");
        volume.create(&dir, name.as_bytes(), 0o600, &cred).unwrap();
    }
    drop((dir, node, root));
    unmount(volume);
    check(&image, kind);

    let linux = Subject::Ext4.mount(image.path(), "").unwrap();
    want.in_linux(linux.dir(), "ours");
    let target = std::fs::read_link(linux.join("link")).unwrap();
    assert_eq!(target.to_str(), Some(long.as_str()));
    assert_eq!(std::fs::read_dir(linux.join("dir")).unwrap().count(), 400);
    let theirs = File::create(linux.join("theirs")).unwrap();
    want.write(|pos, bytes| theirs.write_all_at(bytes, pos).unwrap());
    // Into a hole of ours, and shorter.
    let ours = OpenOptions::new().write(true).open(linux.join("ours"));
    let ours = ours.unwrap();
    let hole = 100 * block;
    ours.write_all_at(&want.bytes(hole), hole).unwrap();
    let cut = want.at[want.at.len() - 6] + block;
    ours.set_len(cut).unwrap();
    drop((ours, theirs));
    linux.unmount().unwrap();

    let volume = mount(&image, options);
    want.in_volume(&volume, "theirs");
    let theirs = find(&volume, "theirs");
    volume
        .write(&theirs, hole, &want.bytes(hole), &cred)
        .unwrap();
    truncate(&volume, &theirs, cut).unwrap();
    drop(theirs);
    want.at.retain(|&pos| pos < cut);
    want.at.push(hole);
    want.size = cut;
    want.in_volume(&volume, "ours");
    want.in_volume(&volume, "theirs");
    unmount(volume);
    check(&image, kind);
    let linux = Subject::Ext4.mount(image.path(), "ro").unwrap();
    want.in_linux(linux.dir(), "theirs");
    linux.unmount().unwrap();
}

/// The largest file is as large as Linux lets it be, and a block can be written at its end.
#[test]
fn the_largest_file_is_linuxs() {
    if !need(&[Need::Root, Need::Loop]) {
        return;
    }
    let extents = [
        "-b 1024",
        "-b 4096",
        "-b 1024 -O ^huge_file",
        "-b 4096 -O ^huge_file",
    ];
    for kind in KINDS.iter().chain(&extents) {
        let image = Image::of_mib(48).args(kind).make().unwrap();
        let volume = mount(&image, "");
        let node = create(&volume, "f");
        let block = image.block_size().unwrap();
        let (mut fits, mut fails) = (0, 1_u64 << 50);
        while fails - fits > 1 {
            let size = fits + (fails - fits) / 2;
            match truncate(&volume, &node, size) {
                Ok(()) => fits = size,
                Err(Error::FileTooBig) => fails = size,
                Err(error) => panic!("{kind}: {error}"),
            }
        }
        assert_eq!(volume.max_file_size(&node), fits, "{kind}");
        truncate(&volume, &node, 0).unwrap();
        let cred = Cred::root();
        let last = content::fill(1, fits - block, usize::try_from(block).unwrap());
        assert_eq!(
            volume.write(&node, fits - block, &last, &cred).unwrap(),
            last.len()
        );
        let over = volume.write(&node, fits, b"x", &cred);
        assert!(matches!(over, Err(Error::FileTooBig)), "{kind}: {over:?}");
        let part = volume.write(&node, fits - 2, b"four", &cred).unwrap();
        assert_eq!(part, 2, "{kind}");
        drop(node);
        unmount(volume);
        check(&image, kind);

        let linux = Subject::Ext4.mount(image.path(), "").unwrap();
        let mut how = OpenOptions::new();
        let file = how.write(true).read(true).open(linux.join("f")).unwrap();
        assert_eq!(file.metadata().unwrap().len(), fits, "{kind}");
        assert!(file.set_len(fits + 1).is_err(), "{kind}");
        let mut first = [0; 8];
        file.read_exact_at(&mut first, fits - block).unwrap();
        assert_eq!(first, last[..8], "{kind}");
        drop(file);
        linux.unmount().unwrap();
    }
}

/// Files with holes and without until nothing goes any more: what a write took is there, what it
/// could not take it refuses, and everything comes back.
#[test]
fn a_volume_without_extents_runs_full() {
    for (kind, options) in [
        ("-t ext2 -b 1024", ""),
        ("-t ext3 -b 1024", ""),
        ("-t ext3 -b 1024", "nodelalloc"),
        ("-t ext3 -b 1024", "data=journal"),
        ("-t ext3 -b 4096", ""),
        ("-b 1024 -O ^extent,^64bit", "dioread_lock"),
    ] {
        let what = format!("{kind} {options}");
        let image = Image::of_mib(12).args(kind).junk().make().unwrap();
        let volume = mount(&image, options);
        let free = volume.statfs().unwrap().blocks_free;
        let cred = Cred::root();
        let mut rng = Rng::new(5);
        for round in 0..2 {
            let mut files = Vec::new();
            let mut refused = 0;
            for number in 0..200 {
                let node = create(&volume, &format!("f{number}"));
                let sparse = number % 3 == 0;
                let (mut pos, mut written) = (0, Vec::new());
                while written.len() < 30 && refused < 40 {
                    let len = if sparse { 700 } else { 9000 };
                    let bytes = content::fill(number, pos, len);
                    match volume.write(&node, pos, &bytes, &cred) {
                        Ok(done) => written.push((pos, done)),
                        Err(Error::NoSpace) => refused += 1,
                        Err(error) => panic!("{what}: {error}"),
                    }
                    pos += if sparse {
                        rng.below(3_000_000) + 700
                    } else {
                        9000
                    };
                }
                files.push((number, node, written));
                if refused >= 40 {
                    break;
                }
            }
            assert!(refused >= 40, "{what}: the volume is not full");
            let synced = volume.sync();
            assert!(synced.is_ok(), "{what}, round {round}: {synced:?}");
            volume.drop_caches();
            for (number, node, written) in &files {
                for &(pos, done) in written {
                    let mut buf = vec![0; done];
                    assert_eq!(volume.read(node, pos, &mut buf).unwrap(), done);
                    let wrong = content::first_wrong(*number, pos, &buf);
                    assert_eq!(wrong, None, "{what}: file {number} at {pos}");
                }
            }
            let root = volume.root().unwrap();
            for (number, node, _) in files {
                drop(node);
                let name = format!("f{number}");
                volume.unlink(&root, name.as_bytes()).unwrap();
            }
            drop(root);
            volume.sync().unwrap();
            let now = volume.statfs().unwrap().blocks_free;
            // The root directory may have grown.
            assert!(free - now <= 8, "{what}, round {round}: {free} -> {now}");
        }
        unmount(volume);
        check(&image, &what);
    }
}
