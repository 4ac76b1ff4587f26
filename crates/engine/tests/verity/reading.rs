//! Sealed files read as they were, by the digest that they should have, and as nothing else.

use extant_engine::{
    Cred, Error, FallocateMode, Node, Result, TreeHash, VerityMetadata, VerityParams, Volume,
};
use extant_testkit::content;

use crate::kit::{
    VERITY, blocks, create, data, digest, find, hash, image, open, params, read, seal, set_size,
};

#[test]
fn a_sealed_file_reads_as_it_was() {
    const SIZES: [usize; 7] = [0, 1, 4096, 4097, 65536, 600 << 10, (2 << 20) + 5];
    for (args, options, how) in [
        ("-b 4096", "", params(TreeHash::Sha256, 4096, b"")),
        ("-b 4096", "", params(TreeHash::Sha512, 1024, b"0123456789")),
        ("-b 1024", "", params(TreeHash::Sha256, 1024, &[7; 32])),
        (
            "-b 2048 -O inline_data",
            "",
            params(TreeHash::Sha256, 1024, b""),
        ),
        (
            "-b 4096",
            "nobuffered_iomap",
            params(TreeHash::Sha256, 2048, b""),
        ),
        (
            "-b 4096",
            "data=journal",
            params(TreeHash::Sha256, 4096, b""),
        ),
        (
            "-b 4096 -O ^has_journal",
            "",
            params(TreeHash::Sha256, 4096, b""),
        ),
        (
            "-b 65536 -O ^resize_inode",
            "",
            params(TreeHash::Sha256, 4096, b""),
        ),
    ] {
        let image = image(64, args);
        let volume = open(&image, options);
        for len in SIZES {
            let name = format!("{len}");
            let node = create(&volume, &name, &data(len));
            seal(&volume, &node, &how).unwrap_or_else(|error| panic!("{args} {len}: {error}"));
            assert_eq!(read(&volume, &node).unwrap(), data(len), "{args} {len}");
            let measured = volume.measure_verity(&node).unwrap();
            assert_eq!(
                measured,
                (how.hash, digest(&data(len), &how)),
                "{args} {len}"
            );
            assert_ne!(volume.flags(&node).unwrap() & VERITY, 0);
        }
        volume.unmount().unwrap();
        image.fsck_clean().unwrap();
        let volume = open(&image, options);
        for len in SIZES {
            let node = find(&volume, &format!("{len}"));
            assert_eq!(read(&volume, &node).unwrap(), data(len), "{args} {len}");
            let mut direct = vec![0; len.min(8192)];
            volume.read_direct(&node, 0, &mut direct).unwrap();
            assert_eq!(direct, data(len)[..direct.len()]);
            let root = volume.root().unwrap();
            volume.unlink(&root, format!("{len}").as_bytes()).unwrap();
        }
        volume.unmount().unwrap();
        image.fsck_clean().unwrap();
    }
}

/// The digest that fsverity(1) and Linux give an empty file.
#[test]
fn an_empty_file_has_the_known_digest() {
    let known = "3d248ca542a24fc62d1c43b916eae5016878e2533c88238480b26128a1f1af95";
    let image = image(16, "-b 4096");
    let volume = open(&image, "");
    let node = create(&volume, "f", b"");
    seal(&volume, &node, &params(TreeHash::Sha256, 4096, b"")).unwrap();
    let (_, digest) = volume.measure_verity(&node).unwrap();
    let text: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text, known);
    volume.unmount().unwrap();
}

#[test]
fn what_is_kept_of_a_file_can_be_read() {
    let image = image(16, "-b 1024");
    let volume = open(&image, "");
    let node = create(&volume, "f", &data(40 << 10));
    let how = VerityParams {
        signature: vec![9; 3000],
        ..params(TreeHash::Sha256, 1024, b"salt")
    };
    let part = |part, at, len| {
        let mut buf = vec![0; len];
        let read = volume.read_verity(&node, part, at, &mut buf)?;
        buf.truncate(read);
        Result::Ok(buf)
    };
    let none: Error = part(VerityMetadata::Tree, 0, 1).unwrap_err();
    assert_eq!(none.errno(), 61);
    seal(&volume, &node, &how).unwrap();
    assert_eq!(part(VerityMetadata::Signature, 0, 9000).unwrap(), [9; 3000]);
    assert_eq!(
        part(VerityMetadata::Signature, 2990, 9000).unwrap(),
        [9; 10]
    );
    let descriptor = part(VerityMetadata::Descriptor, 0, 9000).unwrap();
    assert_eq!((descriptor.len(), &descriptor[80..84]), (256, &b"salt"[..]));
    let tree = part(VerityMetadata::Tree, 0, 9000).unwrap();
    assert_eq!(
        tree.len(),
        3 << 10,
        "two blocks of digests, and one of theirs"
    );
    assert_eq!(hash(how.hash, b"salt", &tree[..1024]), descriptor[16..48]);
    assert_eq!(
        part(VerityMetadata::Tree, 2048, 100).unwrap(),
        tree[2048..2148]
    );
    assert_eq!(part(VerityMetadata::Tree, 1 << 40, 100).unwrap(), []);
    let measured = digest(&data(40 << 10), &how);
    assert_eq!(volume.measure_verity(&node).unwrap().1, measured);
    let other = create(&volume, "g", b"");
    seal(&volume, &other, &params(TreeHash::Sha256, 1024, b"")).unwrap();
    let mut buf = [0; 10];
    let none = volume.read_verity(&other, VerityMetadata::Signature, 0, &mut buf);
    assert_eq!(none.unwrap_err().errno(), 61);
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

/// A large hole costs its tree's blocks, and no time to speak of.
#[test]
fn a_large_hole_is_sealed() {
    let image = image(64, "-b 4096");
    let volume = open(&image, "");
    let node = create(&volume, "f", b"begins");
    set_size(&volume, &node, 3 << 30).unwrap();
    let how = params(TreeHash::Sha256, 4096, b"");
    seal(&volume, &node, &how).unwrap();
    let tree = (3 << 30) / 4096 / 128 + 48 + 1;
    assert_eq!(
        blocks(&volume, &node) / 8,
        1 + tree + 1,
        "data, tree and descriptor"
    );
    let mut end = [1; 10];
    volume.read(&node, (3 << 30) - 10, &mut end).unwrap();
    assert_eq!(end, [0; 10]);
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

/// The descriptor is found by the last block: what lies behind the end goes.
#[test]
fn blocks_behind_the_end_go() {
    let image = image(16, "-b 1024");
    let volume = open(&image, "");
    let node = create(&volume, "f", &data(5000));
    let mode = FallocateMode::Allocate { keep_size: true };
    volume
        .fallocate(&node, mode, 0, 2 << 20, &Cred::root())
        .unwrap();
    let how = params(TreeHash::Sha256, 1024, b"");
    seal(&volume, &node, &how).unwrap();
    assert_eq!(
        blocks(&volume, &node) / 2,
        5 + 1 + 1,
        "data, tree, descriptor"
    );
    assert_eq!(
        volume.measure_verity(&node).unwrap().1,
        digest(&data(5000), &how)
    );
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

/// The tree of a removed file may stay in memory: a later one in the same blocks is read anew.
#[test]
fn a_tree_in_blocks_of_an_older_one_is_read_anew() {
    let image = image(8, "-b 1024 -N 64");
    let volume = open(&image, "");
    let root = volume.root().unwrap();
    let how = params(TreeHash::Sha256, 1024, b"");
    for round in 0..8 {
        let bytes = content::fill(round, 0, 2 << 20);
        let node = create(&volume, "f", &bytes);
        seal(&volume, &node, &how).unwrap();
        assert_eq!(read(&volume, &node).unwrap(), bytes, "round {round}");
        volume.unlink(&root, b"f").unwrap();
        drop(node);
        volume.sync().unwrap();
    }
    drop(root);
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

/// The bytes at `at` of the file, on the device.
fn device_offset(volume: &Volume, node: &Node, at: u64) -> u64 {
    let extent = volume.map(node, at).next().unwrap().unwrap();
    extent.physical.unwrap() + (at - extent.logical)
}

/// Changed bytes of data and tree are errors, also of a reader that had the file open before.
#[test]
fn altered_bytes_are_errors() {
    let image = image(16, "-b 4096");
    let bytes = content::fill(3, 0, 900 << 10);
    let how = params(TreeHash::Sha256, 4096, b"");
    for (at, bad) in [(300_000, 300_000), (983_040, 0), (983_040 + 4096, 0)] {
        let volume = open(&image, "");
        let name = format!("{at}");
        let node = create(&volume, &name, &bytes);
        // Cached from before the protection.
        assert_eq!(read(&volume, &node).unwrap(), bytes);
        seal(&volume, &node, &how).unwrap();
        let on_device = device_offset(&volume, &node, at);
        image.patch(on_device, 1, |bytes| bytes[0] ^= 1).unwrap();
        let mut page = [0; 4096];
        for _ in 0..2 {
            let read = volume.read(&node, bad, &mut page);
            assert_eq!(read.map_err(|error| error.errno()), Err(5), "{at}");
            let read = volume.read_uncached(&node, bad, &mut page);
            assert_eq!(read.map_err(|error| error.errno()), Err(5), "{at}");
            let read = volume.read_direct(&node, bad, &mut page);
            assert_eq!(read.map_err(|error| error.errno()), Err(5), "{at}");
        }
        volume.unmount().unwrap();
    }
}
