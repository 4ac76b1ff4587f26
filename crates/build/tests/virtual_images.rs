//! Images that are not written: the bytes that a build writes, or an error where a source changed.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use common::fill;
use extant_blockdev::BlockDevice;
use extant_build::{Options, Pattern, Source, VirtualImage, Watch, build};
use extant_testkit::{Cmd, Need, Rng, TempDir, content, need};
use extant_units::DevOff;

const TOOLS: &[Need] = &[Need::Tool("setfattr"), Need::Tool("setfacl")];

/// The number of bytes of contents that were read to plan.
#[derive(Default)]
struct Read(AtomicU64);

impl Watch for Read {
    fn expect(&self, _: u64) {}
    fn copied(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
    fn warn(&self, _: String) {}
}

fn sources(paths: &[&Path]) -> Vec<Source> {
    let paths = paths.iter().map(|path| Source::Path(path.to_path_buf()));
    paths.collect()
}

/// The virtual image of `paths`, after a look whether its bytes are those that a build writes.
fn expect_equal(paths: &[&Path], options: &Options) -> VirtualImage {
    let dir = TempDir::new("built").unwrap();
    let (image, watch) = (dir.join("image"), Read::default());
    let sources = sources(paths);
    let built = build(&sources, &image, options, &watch).unwrap();
    let right = fs::read(&image).unwrap();
    let watch = Read::default();
    let found = VirtualImage::plan(&sources, options, &watch).unwrap();
    assert_eq!(found.len(), right.len() as u64);
    assert_eq!(found.built().entries, built.entries);
    assert_eq!(found.built().data_bytes, built.data_bytes);
    let is_read = watch.0.load(Ordering::Relaxed) > 0;
    assert_eq!(
        is_read,
        options.volume.uuid.is_none() && built.data_bytes > 0
    );
    let mut at = 0;
    let mut buf = vec![1; 1 << 20];
    while at < right.len() {
        let len = buf.len().min(right.len() - at);
        found
            .read_at(DevOff::new(at as u64), &mut buf[..len])
            .unwrap();
        // Which byte is for a debugger: this looks at all of them, for every image.
        assert!(
            buf[..len] == right[at..at + len],
            "{paths:?} {options:?}: at {at}"
        );
        at += len;
    }
    let mut rng = Rng::new(3);
    for _ in 0..300 {
        let at = rng.index(right.len());
        let len = rng.index((right.len() - at).min(50_000));
        found
            .read_at(DevOff::new(at as u64), &mut buf[..len])
            .unwrap();
        assert!(buf[..len] == right[at..at + len], "{len} bytes at {at}");
    }
    found
}

fn volume(block_size: u32, features: &str) -> extant_mkfs::Options {
    extant_mkfs::Options {
        block_size: Some(block_size),
        features: extant_mkfs::parse_features(features).unwrap(),
        ..extant_mkfs::Options::default()
    }
}

fn with_uuid() -> Options {
    let volume = extant_mkfs::Options {
        uuid: Some([7; 16]),
        ..extant_mkfs::Options::default()
    };
    Options {
        volume,
        ..Options::default()
    }
}

#[test]
fn folders_have_the_bytes_of_a_build() {
    if !need(TOOLS) {
        return;
    }
    let dir = TempDir::new("virtual").unwrap();
    let folder = dir.join("folder");
    fill(&folder);
    let of = |volume| Options {
        volume,
        trusted: true,
        ..Options::default()
    };
    expect_equal(&[&folder], &with_uuid());
    for volume in [
        volume(4096, ""),
        volume(1024, "^metadata_csum,^resize_inode"),
        volume(65_536, "orphan_file"),
        volume(4096, "bigalloc"),
        volume(1024, "^has_journal,^64bit,^dir_index"),
    ] {
        expect_equal(&[&folder], &of(volume));
    }
    let list = dir.join("list");
    fs::write(&list, "/small\n/many/a file with a name, number 2000\n").unwrap();
    let manifest = dir.join("manifest");
    let contents = format!(
        "./added type=file contents={}/sparse mode=600\n",
        folder.display()
    );
    fs::write(&manifest, contents).unwrap();
    expect_equal(
        &[&folder],
        &Options {
            size: Some(200 << 20),
            uid: Some(0),
            gid: Some(0),
            newest: Some(1000),
            exclude: vec![Pattern::from(OsString::from("link*"))],
            order: Some(list),
            manifest: Some(manifest),
            ..with_uuid()
        },
    );
    let empty = dir.join("no entries");
    fs::create_dir(&empty).unwrap();
    expect_equal(&[&empty], &Options::default());
}

/// Short files lie in gaps before longer ones that come earlier: data are not in their order.
#[test]
fn files_in_gaps_have_the_bytes_of_a_build() {
    let dir = TempDir::new("virtual").unwrap();
    let folder = dir.join("folder");
    fs::create_dir(&folder).unwrap();
    for (number, len) in (0..).zip([6 << 20, 6 << 20, 3000, 1 << 20, 5000, 7 << 20, 9000]) {
        fs::write(
            folder.join(format!("{number}")),
            content::fill(number, 0, len),
        )
        .unwrap();
    }
    let options = Options {
        volume: volume(1024, "^flex_bg"),
        ..Options::default()
    };
    expect_equal(&[&folder], &options);
}

#[test]
fn archives_images_and_several_sources_have_the_bytes_of_a_build() {
    if !need(TOOLS) {
        return;
    }
    let dir = TempDir::new("virtual").unwrap();
    let (folder, plain, packed) = (dir.join("folder"), dir.join("plain"), dir.join("packed"));
    fill(&folder);
    let script = "tar -S -C folder -cf plain . && gzip -c plain >packed";
    Cmd::new("sh")
        .args(["-c", script])
        .dir(dir.path())
        .ok()
        .unwrap();
    expect_equal(&[&plain], &Options::default());
    let found = expect_equal(&[&plain], &with_uuid());
    let counters = found.counters();
    assert!(
        counters
            .iter()
            .any(|&(name, n)| name == "virtual_data_read" && n > 0)
    );
    expect_equal(&[&packed], &with_uuid());
    let over = dir.join("over");
    fs::create_dir(&over).unwrap();
    fs::write(over.join("small"), b"another one").unwrap();
    expect_equal(&[&folder, &over, &plain], &with_uuid());
    let image = dir.join("image");
    build(
        &sources(&[&folder]),
        &image,
        &Options::default(),
        &Read::default(),
    )
    .unwrap();
    expect_equal(&[&image, &over], &with_uuid());
}

/// A folder of three files, and the image of it.
fn three(dir: &TempDir) -> (PathBuf, VirtualImage, u64) {
    let folder = dir.join("folder");
    fs::create_dir_all(folder.join("inside")).unwrap();
    for (name, seed) in [("a", 1), ("inside/b", 2), ("c", 3)] {
        fs::write(folder.join(name), content::fill(seed, 0, 20_000)).unwrap();
    }
    // Marks of a later change are other ones, whatever the ticks of the host's clock.
    thread::sleep(Duration::from_millis(20));
    let plan = || {
        let sources = sources(&[&folder]);
        VirtualImage::plan(&sources, &with_uuid(), &Read::default()).unwrap()
    };
    let image = plan();
    let mut all = vec![0; usize::try_from(image.len()).unwrap()];
    image.read_at(DevOff::ZERO, &mut all).unwrap();
    let wanted = content::fill(2, 0, 20_000);
    let mut blocks = all.chunks(4096);
    let at = blocks.position(|block| block == &wanted[..4096]).unwrap();
    // One that has no file open yet.
    let image = plan();
    (folder, image, at as u64 * 4096)
}

/// A change of a file.
type Change = fn(&Path);

/// Ways in which a file may change, given its path.
const CHANGES: &[(&str, Change)] = &[
    ("the same size", |b| {
        fs::write(b, content::fill(9, 0, 20_000)).unwrap()
    }),
    ("shorter", |b| fs::write(b, b"short").unwrap()),
    ("longer", |b| {
        fs::write(b, content::fill(2, 0, 20_001)).unwrap()
    }),
    ("gone", |b| fs::remove_file(b).unwrap()),
    ("another one with the same bytes and times", |b| {
        let modified = b.metadata().unwrap().modified().unwrap();
        fs::remove_file(b).unwrap();
        fs::write(b, content::fill(9, 0, 20_000)).unwrap();
        let file = fs::File::options().write(true).open(b).unwrap();
        file.set_modified(modified).unwrap();
    }),
    ("a link to it", |b| {
        fs::rename(b, b.with_file_name("moved")).unwrap();
        symlink("moved", b).unwrap();
    }),
    ("its directory is a link to another", |b| {
        let (inside, other) = (b.parent().unwrap(), b.parent().unwrap().with_file_name("d"));
        fs::create_dir(&other).unwrap();
        fs::write(other.join("b"), content::fill(9, 0, 20_000)).unwrap();
        fs::rename(inside, inside.with_file_name("away")).unwrap();
        symlink(&other, inside).unwrap();
    }),
    ("a pipe", |b| {
        fs::remove_file(b).unwrap();
        Cmd::new("mkfifo").arg(b).ok().unwrap();
    }),
];

#[test]
fn a_file_that_changed_is_an_error_and_never_other_bytes() {
    for (what, change) in CHANGES {
        for is_open in [false, true] {
            let dir = TempDir::new("changed").unwrap();
            let (folder, image, at) = three(&dir);
            let read = |at, len| {
                let mut buf = vec![0; len];
                let read = image.read_at(DevOff::new(at), &mut buf);
                read.map(|()| buf)
            };
            if is_open {
                // The file that was read last stays open.
                read(at + 100, 10).unwrap();
            }
            change(&folder.join("inside/b"));
            // By the open file, from the middle, and all of it: a directory that was moved still
            // has the file of the open one.
            let wanted = content::fill(2, 0, 20_000);
            for (from, len) in [(100, 10), (0, 20_480), (4096, 4096), (19_990, 400)] {
                match read(at + from as u64, len) {
                    Ok(bytes) => {
                        let real = len.min(20_000 - from);
                        let right = bytes[..real] == wanted[from..from + real];
                        assert!(right && is_open && what.contains("directory"), "{what}");
                    }
                    Err(error) => {
                        let told = error.to_string();
                        assert!(told.contains("inside/b"), "{what}: {told}");
                    }
                }
            }
            // Metadata and other files are as they were.
            read(0, 65_536).unwrap();
            let others = [1, 3].map(|seed| content::fill(seed, 0, 20_000));
            let found = (0..image.len() / 4096).filter_map(|block| read(block * 4096, 4096).ok());
            let found: Vec<_> = found.collect();
            for other in others {
                assert!(
                    found.iter().any(|block| block[..] == other[..4096]),
                    "{what}"
                );
            }
        }
    }
}

#[test]
fn an_archive_that_changed_is_an_error() {
    let dir = TempDir::new("virtual").unwrap();
    fs::create_dir(dir.join("folder")).unwrap();
    fs::write(dir.join("folder/file"), content::fill(1, 0, 100_000)).unwrap();
    let tar = ["-C", "folder", "-cf", "archive", "."];
    Cmd::new("tar").args(tar).dir(dir.path()).ok().unwrap();
    thread::sleep(Duration::from_millis(20));
    let archive = dir.join("archive");
    let image = VirtualImage::plan(&sources(&[&archive]), &with_uuid(), &Read::default()).unwrap();
    let mut all = vec![0; usize::try_from(image.len()).unwrap()];
    image.read_at(DevOff::ZERO, &mut all).unwrap();
    let mut bytes = fs::read(&archive).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&archive, bytes).unwrap();
    let error = image
        .read_at(DevOff::ZERO, &mut all)
        .unwrap_err()
        .to_string();
    assert!(error.contains("archive: it changed meanwhile"), "{error}");
    image.read_at(DevOff::ZERO, &mut all[..8192]).unwrap();
    let past = image.read_at(DevOff::new(image.len() - 1), &mut [0; 2]);
    assert_eq!(past.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    assert!(image.is_read_only() && image.write_at(DevOff::ZERO, &[1]).is_err());
}
