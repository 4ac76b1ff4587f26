//! `check` against images that mke2fs and Linux make, and against damage: it must agree with e2fsck.

use std::sync::Arc;

use extant::{CheckOptions, Cred, Options, Report, check};
use extant_blockdev::{FileDevice, MemoryDevice, OpenMode};
use extant_testkit::{Cmd, Image, Need, Subject, need};

fn run(image: &Image) -> Report {
    let dev = FileDevice::open(image.path(), OpenMode::ReadOnly).unwrap();
    check(Arc::new(dev), &CheckOptions::default()).unwrap()
}

fn assert_clean(image: &Image, what: &str) {
    let report = run(image);
    let lines: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(report.is_clean(), "{what}:\n{}", lines.join("\n"));
    assert_eq!(report.notes, [], "{what}");
}

/// A tree with everything that a directory of the host can hold, put in by mke2fs itself.
fn filled(args: &str) -> Image {
    let tree = extant_testkit::TempDir::new("tree").unwrap();
    for dir in 0..3 {
        let dir = tree.join(format!("dir{dir}"));
        std::fs::create_dir(&dir).unwrap();
        for file in 0..150 {
            std::fs::write(dir.join(format!("file{file}")), vec![7; file * 97]).unwrap();
        }
        std::os::unix::fs::symlink("x".repeat(30), dir.join("short")).unwrap();
        std::os::unix::fs::symlink("y".repeat(200), dir.join("long")).unwrap();
    }
    std::fs::write(tree.join("big"), vec![1; 9 << 20]).unwrap();
    Image::of_mib(48)
        .args(args)
        .args("-d")
        .args(tree.path().to_str().unwrap())
        .make()
        .unwrap()
}

#[test]
fn fresh_and_filled_images_are_clean() {
    for args in [
        "-b 4096",
        "-b 1024",
        "-b 2048 -I 128",
        "-O ^metadata_csum",
        "-O ^metadata_csum,uninit_bg",
        "-O ^64bit,^metadata_csum,^flex_bg",
        "-O ^has_journal",
        "-b 1024 -O ^extents,^64bit,^flex_bg,^resize_inode",
        "-O orphan_file",
        "-b 1024 -g 1024 -O ^resize_inode",
    ] {
        assert_clean(&filled(args), args);
    }
}

#[test]
fn images_that_linux_filled_are_clean_dirty_journal_included() {
    if !need(&[Need::Root, Need::Loop]) {
        return;
    }
    for args in ["-b 1024", "-b 4096 -O orphan_file"] {
        let image = Image::of_mib(96).args(args).make().unwrap();
        let mount = Subject::Ext4.mount(image.path(), "").unwrap();
        let script = "for i in $(seq 1 6000); do echo $i > a_name_that_is_long_enough_to_split_$i; done; \
                      mkdir sub; ln a_name_that_is_long_enough_to_split_7 sub/seven; rm *_1?; \
                      ln -s /$(printf 'z%.0s' $(seq 100)) sub/link; setfattr -n user.a -v b sub; sync";
        Cmd::new("sh")
            .args(["-c", script])
            .dir(mount.dir())
            .ok()
            .unwrap();
        let dirty = image.copy().unwrap();
        mount.unmount().unwrap();
        assert_clean(&image, args);
        let report = run(&dirty);
        assert!(report.is_clean(), "{args}: {:?}", report.findings);
        assert!(report.replayed > 0, "the copy was made while mounted");
    }
}

/// A crash while a removed directory is open leaves it as an orphan whose ".." still leads up; that is no damage.
#[test]
fn a_removed_directory_that_was_open_is_clean() {
    for args in ["-b 1024 -O orphan_file", "-b 1024 -O ^orphan_file"] {
        let image = Image::of_mib(8).args(args).make().unwrap();
        let bytes = std::fs::read(image.path()).unwrap();
        let dev = Arc::new(MemoryDevice::from_bytes(&bytes));
        let volume = Options::new().write(true).open_volume_on(dev.clone());
        let volume = volume.unwrap();
        let root = volume.root().unwrap();
        let open = volume.mkdir(&root, b"d", 0o755, &Cred::root()).unwrap();
        volume.rmdir(&root, b"d", &Cred::root()).unwrap();
        volume.sync().unwrap();
        let crashed = Arc::new(MemoryDevice::from_bytes(&dev.to_bytes()));
        let report = check(crashed, &CheckOptions::default()).unwrap();
        assert!(report.replayed > 0 && report.is_clean(), "{report:?}");
        drop(open);
    }
}

/// Each kind of damage that debugfs can do: e2fsck finds it, so must we, and in the right place.
#[test]
fn damage_is_found_and_placed() {
    for (commands, place) in [
        ("freeb 2000 4", "block bitmap"),
        ("freei <12>", "inode"),
        ("seti <900>", "inode bitmap"),
        ("sif /dir0/file3 links_count 7", "link count 7"),
        ("sif /dir0/file9 blocks 99", "sectors"),
        ("sif /dir1 size 5", "directory of 5 bytes"),
        ("unlink /dir0/file5", "no name leads to it"),
        ("set_bg 0 free_inodes_count 3", "3 free inodes"),
        (
            "sif /dir0/file120 block[5] 0x7fffffff",
            "outside of the file system",
        ),
        ("ln /dir0 /dir1/loop", "second parent"),
        ("clri /dir2/file1", "leads to inode"),
        ("sif /dir0/file7 mode 0170000", "no kind of file"),
    ] {
        let image = filled("-b 1024");
        for command in commands.split(';') {
            Cmd::new("debugfs")
                .args(["-w", "-R", command])
                .arg(image.path())
                .ok()
                .unwrap();
        }
        let e2fsck = Cmd::new("e2fsck")
            .arg("-fn")
            .arg(image.path())
            .run()
            .unwrap();
        assert!(e2fsck.code != Some(0), "{commands}: e2fsck finds nothing");
        let report = run(&image);
        let text: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        assert!(!report.is_clean(), "{commands}: nothing found");
        if place != "file" {
            assert!(
                text.iter().any(|line| line.contains(place)),
                "{commands}: {text:?}"
            );
        }
    }
}
