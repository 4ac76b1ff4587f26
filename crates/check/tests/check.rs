//! `check` against images that mke2fs and Linux make, and against damage: it must agree with
//! e2fsck.

mod check_kit;

use std::sync::Arc;

use check_kit::{BASES, base, verdict};

use extant_blockdev::{FileDevice, MemoryDevice, OpenMode};
use extant_check::{CheckOptions, Report, check};
use extant_engine::{Cred, VolumeOptions};
use extant_testkit::{Cmd, Context, Image, Need, Result, Subject, need};

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

/// A tree with all kinds of entries of a host's directory, put in by mke2fs itself.
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
        let script = "for i in $(seq 1 6000); do \
                          echo $i > a_name_that_is_long_enough_to_split_$i; done; \
                      mkdir sub; ln a_name_that_is_long_enough_to_split_7 sub/seven; rm *_1?; \
                      ln -s /$(printf 'z%.0s' $(seq 100)) sub/link; \
                      setfattr -n user.a -v b sub; sync";
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

/// A crash while a removed directory is open leaves it as an orphan whose ".." still leads to its
/// parent; that is no damage.
#[test]
fn a_removed_directory_that_was_open_is_clean() {
    for args in ["-b 1024 -O orphan_file", "-b 1024 -O ^orphan_file"] {
        let image = Image::of_mib(8).args(args).make().unwrap();
        let bytes = std::fs::read(image.path()).unwrap();
        let dev = Arc::new(MemoryDevice::from_bytes(&bytes));
        let volume = VolumeOptions::new().write(true).open_on(dev.clone());
        let volume = volume.unwrap();
        let root = volume.root().unwrap();
        let open = volume.mkdir(&root, b"d", 0o755, &Cred::root()).unwrap();
        volume.rmdir(&root, b"d").unwrap();
        volume.sync().unwrap();
        let crashed = Arc::new(MemoryDevice::from_bytes(&dev.to_bytes()));
        let report = check(crashed, &CheckOptions::default()).unwrap();
        assert!(report.replayed > 0 && report.is_clean(), "{report:?}");
        let waits = report.notes.iter().any(|note| {
            note.what == "1 inode waits to be deleted or truncated, which the next mount does"
        });
        assert!(waits, "{report:?}");
        drop(open);
    }
}

/// Damages that debugfs can make: base (by its index in [`BASES`]), requests, and a part of the
/// finding.
const DAMAGES: &[(usize, &str, &str)] = &[
    // Superblock.
    (0, "ssv r_blocks_count 3000", "more than half of all"),
    (0, "ssv usr_quota_inum 11", "is a quota without the feature"),
    (
        0,
        "ssv journal_uuid 0f0f0f0f-0000-0000-0000-000000000001",
        "names an external journal",
    ),
    (0, "ssv inodes_count 170", "inodes_count"),
    (0, "ssv first_ino 5", "first_ino"),
    (0, "ssv log_groups_per_flex 40", "groups per flex group"),
    (0, "ssv feature_incompat 0x282", "64bit without extent"),
    (
        2,
        "ssv journal_inum 8",
        "names a journal without the feature",
    ),
    (1, "ssv desc_size 2048", "descriptors of 2048 bytes"),
    // Group descriptors and bitmaps.
    (
        0,
        "set_bg 0 block_bitmap 9999",
        "block bitmap at 9999 lies outside",
    ),
    (2, "set_bg 0 inode_table 5", "overlaps other metadata"),
    (0, "set_bg 0 free_blocks_count 3", "3 free blocks, found"),
    (0, "set_bg 0 free_inodes_count 3", "3 free inodes, found"),
    (0, "set_bg 0 used_dirs_count 3", "3 directories, found"),
    (
        1,
        "set_bg 0 flags 1",
        "marked as never written, for which a feature is missing",
    ),
    (0, "freeb 1118 4", "in use but marked free"),
    (0, "setb 3000 4", "free but marked in use"),
    (0, "freei <12>", "in use but marked free"),
    (0, "seti <150>", "free but marked in use"),
    (2, "freeb 100 2", "block bitmap of group 0"),
    (2, "set_bg 3 itable_unused 3", "inode bitmap of group"),
    // Reserved inodes.
    (0, "sif <1> links_count 3", "list of bad blocks"),
    (
        0,
        "sif <3> links_count 1",
        "not in use, but it holds something",
    ),
    (0, "sif <6> mode 0100644", "reserved, but with mode"),
    (
        0,
        "sif <5> mode 040755",
        "boot loader's inode is a directory",
    ),
    (
        0,
        "sif <7> block[3] 99",
        "outside of its double indirect block",
    ),
    (0, "sif <7> blocks 99", "counts 99 sectors"),
    (0, "sif <8> mode 040755", "the journal has mode"),
    (0, "sif <2> mode 0100755", "the root is no directory"),
    // Fields of inodes.
    (
        0,
        "sif tiny dtime 1700000000",
        "in use, but with a time of deletion",
    ),
    (
        0,
        "sif tiny dtime 20",
        "in use, but with a time of deletion",
    ),
    (0, "sif tiny faddr 7", "i_faddr is 7"),
    (
        1,
        "sif tiny block[1] 0x7fffffff",
        "outside of the file system",
    ),
    (0, "sif tiny mode 0", "no kind of file"),
    (0, "sif tiny mode 0170000", "no kind of file"),
    (
        0,
        "sif tiny flags 0x80800",
        "the flag \"encrypt\" without the feature",
    ),
    (
        0,
        "sif tiny flags 0x40080000",
        "the flag \"casefold\" without the feature",
    ),
    (
        0,
        "sif tiny flags 0x81000",
        "the flag \"index\", but it is no directory",
    ),
    (
        0,
        "sif tiny flags 0x82000",
        "the flag \"imagic\" without the feature",
    ),
    (
        0,
        "sif tiny flags 0x10080000",
        "the flag \"inline data\" without the feature",
    ),
    (0, "sif tiny extra_isize 7", "bad extra inode size 7"),
    (0, "sif tiny links_count 7", "link count 7, found 2"),
    (0, "sif tiny blocks 99", "counts 99 sectors"),
    (0, "sif sparse size 100", "size 100 with written blocks"),
    (
        0,
        "sif tiny file_acl 99999",
        "attribute block 99999 lies outside",
    ),
    (0, "sif fifo size 7", "a special file with a size of 7"),
    (
        0,
        "sif chr flags 0x80000",
        "a special file with an extent tree",
    ),
    (0, "sif fast size 4", "symbolic link with a bad target"),
    (0, "sif slow size 99", "symbolic link with a bad target"),
    (0, "clri tiny", "leads to inode"),
    // Extent trees and block maps.
    (0, "sif tiny block[0] 0x1f30b", "extent node with magic"),
    (0, "sif tiny block[1] 0x1", "extent root for 1 entries only"),
    (0, "sif tiny block[4] 0", "impossible length 0"),
    (
        0,
        "sif tiny block[5] 99999",
        "lie outside of the file system",
    ),
    (0, "sif tiny block[5] 3", "has another owner as well"),
    (
        0,
        "sif sparse block[5] 99999",
        "lie outside of the file system",
    ),
    (
        1,
        "sif sparse block[IND] 99999",
        "lie outside of the file system",
    ),
    (1, "sif tiny block[0] 30", "has another owner as well"),
    // Directories.
    (0, "sif sub size 5", "directory of 5 bytes"),
    (0, "unlink sub/deep/hard", "link count 2, found 1"),
    (0, "unlink slow", "no name leads to it"),
    (0, "unlink sub/deep", "without a way from the root"),
    (0, "ln sub empty/again", "second parent"),
    (0, "ln <150> empty/nothing", "which is not in use"),
    (0, "ln <2> empty/root", "leads to the directory 2"),
    (0, "sif empty flags 0x81000", "index"),
    // Attributes.
    (0, "sif sub file_acl 1140", "attribute block"),
];

/// Each kind of damage is found by both, and `check` says what and where.
#[test]
fn damage_is_found_and_named() -> Result<()> {
    let mut wrong = Vec::new();
    let mut bases = Vec::new();
    for (name, mib, args, dirty) in BASES.iter().take(3) {
        bases.push(base(*mib, args, *dirty).context(|| (*name).to_owned())?);
    }
    for (at, request, says) in DAMAGES {
        let image = bases.get(*at).expect("a base").copy()?;
        image.debugfs_write(request)?;
        let verdict = verdict(image.path())?;
        let named = verdict.found.iter().any(|line| line.contains(says));
        if verdict.e2fsck_is_clean() || !named {
            wrong.push(format!(
                "{request}: {:?}\n  e2fsck {:?} {}",
                verdict.found, verdict.e2fsck, verdict.said
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
