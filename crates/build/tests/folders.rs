//! Volumes built of folders: e2fsck finds them sound, Linux finds the same entries.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Once;

use common::{build, expect_equal, fill};
use extant_build::{Options, Source, Watch};
use extant_testkit::{Cmd, Image, Need, TempDir, need};

const MOUNTED: &[Need] = &[
    Need::Loop,
    Need::Tool("e2fsck"),
    Need::Tool("setfattr"),
    Need::Tool("setfacl"),
];

fn volume(block_size: u32, inode_size: u32, features: &str) -> extant_mkfs::Options {
    extant_mkfs::Options {
        block_size: Some(block_size),
        inode_size: Some(inode_size),
        features: extant_mkfs::parse_features(features).unwrap(),
        ..extant_mkfs::Options::default()
    }
}

/// The same with clusters of `bytes` bytes.
fn clusters(volume: extant_mkfs::Options, bytes: u64) -> extant_mkfs::Options {
    extant_mkfs::Options {
        cluster_size: Some(bytes),
        ..volume
    }
}

#[test]
fn linux_finds_every_entry_of_a_folder() {
    if !need(MOUNTED) {
        return;
    }
    let dir = TempDir::new("build").unwrap();
    let folder = dir.join("folder");
    fill(&folder);
    let image = dir.join("image");
    for (volume, size) in [
        (volume(4096, 256, ""), None),
        (volume(1024, 256, "orphan_file,^resize_inode"), None),
        (volume(4096, 1024, "^metadata_csum,^flex_bg"), None),
        (volume(2048, 256, "^dir_index,^has_journal,^64bit"), None),
        (volume(4096, 256, "metadata_csum_seed"), Some(3 << 30)),
        (volume(8192, 128, "orphan_file"), None),
        (volume(65_536, 256, ""), None),
        (volume(65_536, 512, "^metadata_csum"), Some(300 << 20)),
        (volume(4096, 256, "bigalloc"), None),
        (
            volume(1024, 256, "bigalloc,orphan_file,^metadata_csum"),
            None,
        ),
        (clusters(volume(1024, 256, "bigalloc,^flex_bg"), 2048), None),
        (
            clusters(volume(2048, 256, "bigalloc,^has_journal"), 131_072),
            Some(3 << 30),
        ),
    ] {
        let options = Options {
            volume,
            size,
            ..Options::default()
        };
        build(&[&folder], &image, &options).unwrap();
        expect_equal(&image, &folder);
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn the_same_folder_gives_the_same_bytes() {
    if !need(MOUNTED) {
        return;
    }
    let dir = TempDir::new("build").unwrap();
    let (one, two) = (dir.join("one"), dir.join("two/of/them"));
    fill(&one);
    fs::create_dir_all(dir.join("two/of")).unwrap();
    Cmd::new("cp")
        .args(["-a", "--sparse=always"])
        .arg(&one)
        .arg(&two)
        .ok()
        .unwrap();
    let (first, second) = (dir.join("first"), dir.join("second"));
    let threads = |threads| Options {
        threads: Some(threads),
        ..Options::default()
    };
    build(&[&one], &first, &threads(1)).unwrap();
    build(&[&two], &second, &threads(7)).unwrap();
    let (right, found) = (fs::read(&first).unwrap(), fs::read(&second).unwrap());
    assert!(right == found, "two builds differ");
    // Another content, another volume.
    fs::write(two.join("small"), b"hallo\n").unwrap();
    fs::remove_file(&second).unwrap();
    build(&[&two], &second, &threads(2)).unwrap();
    let uuid = |path| {
        Image::of_bytes(&fs::read(path).unwrap())
            .unwrap()
            .header("Filesystem UUID")
    };
    assert_ne!(uuid(&first).unwrap(), uuid(&second).unwrap());
}

#[test]
fn the_smallest_volume_is_full_and_free_space_is_added() {
    if !need(MOUNTED) {
        return;
    }
    let dir = TempDir::new("build").unwrap();
    let folder = dir.join("folder");
    fill(&folder);
    fs::write(folder.join("huge"), vec![7; 40 << 20]).unwrap();
    let image = dir.join("image");
    let built = |options: &Options| {
        build(&[&folder], &image, options).unwrap();
        let free = Image::of_bytes(&fs::read(&image).unwrap()).unwrap();
        Image::fsck_clean_at(&image).unwrap();
        let free: u64 = free.header("Free blocks").unwrap().parse().unwrap();
        let len = image.metadata().unwrap().len();
        fs::remove_file(&image).unwrap();
        (len, free * 4096)
    };
    let (smallest, free) = built(&Options::default());
    assert!(free < 1 << 20, "{free} bytes are free");
    let (larger, free) = built(&Options {
        free: 64 << 20,
        ..Options::default()
    });
    assert!(
        (64 << 20..66 << 20).contains(&free),
        "{free} bytes are free"
    );
    assert!(larger > smallest + (64 << 20));
    let small = Options {
        size: Some(32 << 20),
        ..Options::default()
    };
    let endless = Options {
        free: u64::MAX,
        ..Options::default()
    };
    let refused = build(&[&folder], &image, &endless).unwrap_err().to_string();
    assert_eq!(refused, "no volume is large enough");
    let refused = build(&[&folder], &image, &small).unwrap_err().to_string();
    assert!(refused.contains("bytes are needed for files"), "{refused}");
    assert!(!image.exists());
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        1,
        "nothing stays behind"
    );
}

/// The output of a tool about an image.
fn told(tool: &str, args: &[&str], image: &Path) -> Vec<String> {
    let told = Cmd::new(tool).args(args).arg(image).ok().unwrap();
    told.out.split_whitespace().map(str::to_owned).collect()
}

/// The word behind two others.
fn word_behind(words: &[String], key: [&str; 2]) -> u64 {
    let at = words.windows(3).find(|found| found[..2] == key).unwrap();
    at[2].parse().unwrap()
}

#[test]
fn a_volume_has_more_inodes_than_a_small_one_could() {
    if !need(&[Need::Tool("e2fsck"), Need::Tool("dumpe2fs")]) {
        return;
    }
    let dir = TempDir::new("build").unwrap();
    let (folder, image) = (dir.join("folder"), dir.join("image"));
    fs::create_dir(&folder).unwrap();
    let mut options = Options::default();
    // Their tables take more than 1 GiB.
    options.volume.inodes = Some(4_500_000);
    build(&[&folder], &image, &options).unwrap();
    let inodes = word_behind(&told("dumpe2fs", &["-h"], &image), ["Inode", "count:"]);
    assert!((4_500_000..4_600_000).contains(&inodes), "{inodes}");
    Image::fsck_clean_at(&image).unwrap();
}

#[test]
fn what_no_source_has_is_owned_as_asked_for() {
    if !need(&[Need::Tool("debugfs")]) {
        return;
    }
    let dir = TempDir::new("build").unwrap();
    let (folder, image) = (dir.join("folder"), dir.join("image"));
    fs::create_dir(&folder).unwrap();
    let options = Options {
        uid: Some(7),
        gid: Some(9),
        ..Options::default()
    };
    build(&[&folder], &image, &options).unwrap();
    let words = told("debugfs", &["-R", "stat /lost+found"], &image);
    let owner = |key: [&str; 2]| words.windows(2).any(|found| found == key);
    assert!(owner(["User:", "7"]) && owner(["Group:", "9"]), "{words:?}");
}

/// A change of a file of the source.
type Change = fn(&Path);

/// Changes a file of the source once: before its data are copied, or after the first of them are.
struct Meddler {
    path: PathBuf,
    change: Change,
    before: bool,
    done: Once,
}

impl Watch for Meddler {
    fn expect(&self, _: u64) {
        if self.before {
            self.done.call_once(|| (self.change)(&self.path));
        }
    }

    fn copied(&self, _: u64) {
        self.done.call_once(|| (self.change)(&self.path));
    }

    fn warn(&self, _: String) {}
}

/// Bytes of a file that is copied in several steps.
const LARGE: usize = 4 << 20;

fn cut_to(path: &Path, len: u64) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(len).unwrap();
}

/// Changes before the copy, to a file of any size, and what is said of them.
const CHANGES: &[(Change, &str)] = &[
    (|path| cut_to(path, 1), "it changed meanwhile"),
    (|path| cut_to(path, 0), "it changed meanwhile"),
    (|path| cut_to(path, 5 << 20), "it changed meanwhile"),
    (|path| fs::remove_file(path).unwrap(), "No such file"),
    (
        |path| {
            fs::remove_file(path).unwrap();
            symlink("other", path).unwrap();
        },
        "symbolic link",
    ),
    (
        |path| {
            fs::remove_file(path).unwrap();
            Cmd::new("mkfifo").arg(path).ok().unwrap();
        },
        "",
    ),
    (
        |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        },
        "",
    ),
];

#[test]
fn a_file_that_changes_while_it_is_copied_ends_the_build_and_leaves_nothing() {
    let dir = TempDir::new("build").unwrap();
    let (folder, image) = (dir.join("folder"), dir.join("image"));
    fs::create_dir(&folder).unwrap();
    let path = folder.join("file");
    let refused = |size: usize, change: Change, before: bool, what: &str| {
        let _ = fs::remove_dir_all(&path);
        let _ = fs::remove_file(&path);
        fs::write(&path, vec![7; size]).unwrap();
        let meddler = Meddler {
            path: path.clone(),
            change,
            before,
            done: Once::new(),
        };
        let options = Options {
            threads: Some(1),
            ..Options::default()
        };
        let sources = [Source::Path(folder.clone())];
        let built = extant_build::build(&sources, &image, &options, &meddler);
        let said = built.unwrap_err().to_string();
        assert!(said.contains("/file: ") && said.contains(what), "{said}");
        let left = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 1, "{said}: something stays behind");
    };
    for &(change, what) in CHANGES {
        for size in [4095, 4096, LARGE] {
            refused(size, change, true, what);
        }
    }
    let shorter: Change = |path| cut_to(path, 3 << 20);
    refused(LARGE, shorter, false, "it became shorter meanwhile");
}
