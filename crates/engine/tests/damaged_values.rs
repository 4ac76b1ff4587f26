//! Attributes whose values are in inodes of their own (`ea_inode`), in damaged tables: the inode
//! that has them is evicted all the same, and no value goes that another attribute may have.

use extant_engine::{Cred, Volume, VolumeOptions, XattrMode};
use extant_testkit::{Image, content};

const LONG: usize = 5000;

fn open(image: &Image) -> Volume {
    let mut options = VolumeOptions::new();
    let options = options.write(true).mount_options("errors=continue");
    options.open(image.path()).unwrap()
}

/// A volume with the files `a` and `b`, which share a long value and have a short one.
fn image() -> Image {
    let args = "-b 1024 -I 128 -O ea_inode,^metadata_csum";
    let image = Image::of_mib(16).args(args).make().unwrap();
    let volume = open(&image);
    let root = volume.root().unwrap();
    for name in [&b"a"[..], b"b"] {
        let node = volume.create(&root, name, 0o644, &Cred::root()).unwrap();
        let set = |key: &[u8], value: &[u8]| {
            let mode = XattrMode::Either;
            let done = volume.setxattr(&node, key, value, mode, &Cred::root());
            done.unwrap();
        };
        set(b"user.long", &content::fill(1, 0, LONG));
        // Else both would share the block.
        set(b"user.short", name);
    }
    drop(root);
    volume.unmount().unwrap();
    image
}

/// Changes the bytes of the image at each place of `pattern`.
fn change(image: &Image, pattern: &[u8], change: impl Fn(&mut [u8])) -> usize {
    let mut bytes = std::fs::read(image.path()).unwrap();
    let found: Vec<usize> = bytes
        .windows(pattern.len())
        .enumerate()
        .filter(|(_, part)| *part == pattern)
        .map(|(at, _)| at)
        .collect();
    for at in &found {
        change(&mut bytes[at - 16..]);
    }
    std::fs::write(image.path(), bytes).unwrap();
    found.len()
}

/// The walk over the table ends in front of the damage, and finds a value each time.
#[test]
fn a_damaged_table_does_not_keep_its_inode() {
    let image = image();
    // The entry's place of its value, in front of its name.
    let damaged = change(&image, b"short", |entry| entry[2..4].fill(0xff));
    assert!(damaged >= 2, "{damaged}");
    let volume = open(&image);
    let root = volume.root().unwrap();
    volume.unlink(&root, b"a").unwrap();
    volume.wait_for_background_work();
    assert!(volume.lookup(&root, b"a").is_err());
    drop(root);
    let _ = volume.unmount();
}

/// A count of zero is none of Lustre's where the inode has a time: others may have the value.
#[test]
fn a_value_without_a_count_stays() {
    let image = image();
    let said = image.debugfs("stat <13>").unwrap();
    assert!(said.contains(&format!("Size: {LONG}")), "{said}");
    image.debugfs_write("sif <13> version 0").unwrap();
    image.debugfs_write("sif <13> ctime @0").unwrap();
    let volume = open(&image);
    let root = volume.root().unwrap();
    volume.unlink(&root, b"a").unwrap();
    volume.wait_for_background_work();
    let node = volume.lookup(&root, b"b").unwrap();
    let value = volume.getxattr(&node, b"user.long").unwrap();
    assert_eq!(value, content::fill(1, 0, LONG));
    drop((node, root));
    volume.unmount().unwrap();
}
