use super::*;
use crate::{Cmd, Image, Need, need};
use std::collections::BTreeSet;

const NEEDS: &[Need] = &[Need::Tool("mke2fs"), Need::Tool("debugfs")];

/// A small image with every structure that mke2fs and debugfs can make.
fn image(args: &str) -> Vec<u8> {
    let tree = crate::TempDir::new("tree").unwrap();
    std::fs::create_dir(tree.join("d")).unwrap();
    for i in 0..90 {
        let name = format!(
            "d/a-name-that-fills-a-block-soon-{i:03}-{}",
            "x".repeat(100)
        );
        std::fs::write(tree.join(name), b"").unwrap();
    }
    std::fs::write(tree.join("file"), vec![7; 300_000]).unwrap();
    let image = Image::of_mib(4)
        .args(args)
        .args("-d")
        .args(tree.path().to_str().unwrap())
        .make()
        .unwrap();
    std::fs::write(tree.join("value"), vec![9; 700]).unwrap();
    let value = tree.join("value");
    image
        .debugfs_write(&format!("ea_set -f {} file user.large", value.display()))
        .unwrap();
    image.debugfs_write("ea_set file user.small x").unwrap();
    // This makes the index of the directory.
    Cmd::new("e2fsck")
        .arg("-fyD")
        .arg(image.path())
        .run()
        .unwrap();
    if !args.contains("^has_journal") {
        std::fs::write(tree.join("value"), vec![5; 3 * 1024]).unwrap();
        let log = format!(
            "jo -c -v 3\njw -b 3000,3001,3002 {}\njw -r 3001,7\njc\n",
            value.display()
        );
        std::fs::write(tree.join("commands"), log).unwrap();
        let commands = tree.join("commands");
        Cmd::new("debugfs")
            .args(["-w", "-f"])
            .arg(commands)
            .arg(image.path())
            .ok()
            .unwrap();
    }
    std::fs::read(image.path()).unwrap()
}

const SHAPES: [&str; 9] = [
    "-b 1024 -N 256",
    "-b 1024 -N 256 -O ^metadata_csum,uninit_bg",
    "-b 1024 -N 256 -O orphan_file",
    "-b 4096 -N 256 -O ^has_journal",
    "-b 2048 -N 256 -O quota,project",
    "-b 1024 -N 256 -O ^has_journal,^extents,^64bit",
    "-b 1024 -N 256 -g 1024 -O ^has_journal,^resize_inode,meta_bg",
    "-b 1024 -N 256 -g 256 -C 4096 -O bigalloc,^has_journal,^resize_inode,meta_bg",
    "-b 1024 -N 256 -I 128 -O ^has_journal,^metadata_csum,^dir_index",
];

/// Images of mke2fs and e2fsck are right by their arithmetic, so sealing must change nothing.
#[test]
fn sealing_a_sound_image_changes_nothing() {
    if !need(NEEDS) {
        return;
    }
    let mut kinds = BTreeSet::new();
    for args in SHAPES {
        let before = image(args);
        let mut after = before.clone();
        seal(&mut after);
        let map = Map::of(&before);
        let at = before.iter().zip(&after).position(|(a, b)| a != b);
        let whose = at.and_then(|at| map.found().iter().find(|f| f.at <= at && at < f.at + f.len));
        assert_eq!(at, None, "{args}: {whose:?}");
        kinds.extend(map.kinds().iter().copied());
    }
    for kind in [
        Kind::Superblock,
        Kind::Backup,
        Kind::Descriptor,
        Kind::BlockBitmap,
        Kind::InodeBitmap,
        Kind::Inode,
        Kind::ExtentRoot,
        Kind::Indirect,
        Kind::DirLeaf,
        Kind::DirRoot,
        Kind::XattrArea,
        Kind::XattrBlock,
        Kind::OrphanBlock,
        Kind::QuotaHeader,
        Kind::QuotaNode,
        Kind::QuotaEntries,
        Kind::JournalSuper,
        Kind::JournalDescriptor,
        Kind::JournalRevoke,
        Kind::JournalCommit,
        Kind::JournalCopy,
    ] {
        assert!(kinds.contains(&kind), "no {kind:?} was found");
    }
}

#[test]
fn a_broken_checksum_of_each_structure_is_made_right() {
    if !need(NEEDS) {
        return;
    }
    let sound = image(SHAPES[0]);
    for found in Map::of(&sound).found() {
        // (kind, byte of a checksum)
        let at = match found.kind {
            Kind::Superblock | Kind::Backup => 0x3fc,
            Kind::Descriptor => 0x1e,
            Kind::Inode => 0x7c,
            Kind::DirLeaf => found.len - 4,
            Kind::XattrBlock => 16,
            Kind::DirRoot => found.len - 4,
            Kind::JournalSuper => 0xfc,
            Kind::JournalDescriptor | Kind::JournalRevoke => found.len - 1,
            Kind::JournalCommit => 16,
            _ => continue,
        };
        let mut bad = sound.clone();
        bad[found.at + at] ^= 0x55;
        seal(&mut bad);
        assert!(bad == sound, "{found}");
    }
}

#[test]
fn the_same_seed_does_the_same_and_says_what() {
    if !need(NEEDS) {
        return;
    }
    let sound = image(SHAPES[0]);
    let (mut changed, mut listed) = (0, 0);
    for seed in 0..200 {
        let (mut a, mut b) = (sound.clone(), sound.clone());
        let (of_a, of_b) = (mutate(&mut a, seed), mutate(&mut b, seed));
        assert!(a == b && of_a.to_string() == of_b.to_string());
        changed += usize::from(a != sound);
        listed += usize::from(!of_a.changes.is_empty());
    }
    // A field may get the value that it has; nearly always it gets another.
    assert!(
        changed > 180 && listed > 190,
        "{changed} changed, {listed} listed"
    );
}

/// Mutations on top of mutations, of every shape and of bytes that never were an image.
#[test]
fn mutated_images_are_mutated_without_panic() {
    if !need(NEEDS) {
        return;
    }
    let mut images: Vec<Vec<u8>> = SHAPES.iter().map(|args| image(args)).collect();
    images.extend([vec![], vec![0; 1500], vec![0xff; 1 << 16]]);
    for (i, image) in images.iter_mut().enumerate() {
        let sound = image.clone();
        for seed in 0..300 {
            if seed % 20 == 0 {
                image.clone_from(&sound);
            }
            mutate(image, seed + 1000 * i as u64);
        }
    }
}
