//! Block maps (files without extents) that grow, that are removed in part and as a whole, and that
//! become extent trees.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

use extant_disk::extent::MAX_END;
use extant_testkit::need::{Need, need};
use extant_testkit::{Cmd, Image, Subject};
use extant_units::{Blocks, Ino, Lblk, at_most_u32};

use super::maps_of_linux::ino_of;
use super::mounted::{MapMount, empty_file};
use crate::map::disk_nodes::DiskNodes;
use crate::map::extent_tree::{self, Limit};
use crate::map::locked_map::{ExclusiveMap, SharedMap};
use crate::map::{indirect, migrate};
use crate::state::inode::{Inode, InodeRef};
use crate::state::map::{AllocateMode, MapState};
use crate::test_support::test_rng::Rng;
use crate::types::error::Error;
use crate::volume::credits;
use crate::{alloc, map};

/// A volume of 1 KiB blocks without extents, and an empty file on it.
fn with_empty_file(mib: u64) -> (Image, MapMount, Ino) {
    let args = "-b 1024 -O ^extents,^64bit,^metadata_csum";
    let image = Image::of_mib(mib).args(args).make().unwrap();
    let ino = empty_file(&image, "f");
    let mounted = MapMount::new(&image, true);
    (image, mounted, ino)
}

/// Unmounts, gives the file a size of `blocks`, and has e2fsck look.
fn finish(image: &Image, mounted: MapMount, inode: InodeRef, blocks: u64) {
    drop(inode);
    mounted.close();
    image
        .debugfs_write(&format!("sif f size {}", blocks * 1024))
        .unwrap();
    // What was converted asks for it; nothing else changes.
    Cmd::new("tune2fs")
        .args(["-O", "extent"])
        .arg(image.path())
        .ok()
        .unwrap();
    image.fsck_clean().unwrap();
}

/// Allocates up to `len` blocks from `at` on; returns how many there were.
fn allocate(mounted: &MapMount, inode: &Inode, at: u32, len: u32) -> u32 {
    let how = AllocateMode {
        unwritten: false,
        only_delayed: false,
        metadata: false,
        privileged: false,
        goal: None,
    };
    let mut h = mounted.start(credits::allocate(&mounted.fs));
    let found = map::allocate(&mounted.fs, &mut h, inode, Lblk::new(at), len, how).unwrap();
    assert!(found.new, "block {at} was a hole");
    found.len
}

/// The mapped blocks of a file.
fn mapped(mounted: &MapMount, ino: Ino) -> BTreeSet<u64> {
    let inode = mounted.inode(ino);
    let mut all = BTreeSet::new();
    let (ranges, ended) = map::ranges(&mounted.fs, &inode);
    ended.unwrap();
    for range in ranges {
        if matches!(range.state, MapState::Written(_)) {
            all.extend(u64::from(range.lblk.get())..range.end());
        }
    }
    all
}

#[test]
fn any_part_of_a_block_map_can_be_removed() {
    if !need(&[Need::Loop]) {
        return;
    }
    let image = Image::of_mib(64)
        .args("-b 1024 -O ^extents,^64bit,^metadata_csum")
        .make()
        .unwrap();
    let free = image.header("Free blocks").unwrap();
    let mount = Subject::Ext4.mount(image.path(), "").unwrap();
    let file = File::create(mount.join("f")).unwrap();
    let mut rng = Rng::new(77);
    let triple = 12 + 256 + 65_536;
    let mut blocks: BTreeSet<u64> = (0..2000).collect();
    for _ in 0..600 {
        blocks.insert(u64::from(rng.below(triple + 200_000)));
    }
    blocks.insert(u64::from(triple) + (1 << 24) - 1);
    for &at in &blocks {
        file.write_all_at(&[9; 1024], at * 1024).unwrap();
    }
    drop(file);
    let ino = ino_of(&mount.join("f"));
    mount.unmount().unwrap();

    // Small journal or none: the same.
    let mounted = MapMount::new(&image, true);
    assert_eq!(mapped(&mounted, ino), blocks);
    let inode = mounted.inode(ino);
    let fs = &mounted.fs;
    for round in 0..60 {
        let from = rng.below(if round % 2 == 0 {
            2100
        } else {
            triple + 200_000
        });
        let to = u64::from(from) + 1 + u64::from(rng.below(if round % 2 == 0 { 40 } else { 9000 }));
        let mut h = mounted.start(credits::remove(fs));
        map::remove(fs, &mut h, &inode, Lblk::new(from), to).unwrap();
        drop(h);
        blocks.retain(|&at| at < u64::from(from) || at >= to);
        assert_eq!(mapped(&mounted, ino), blocks, "{from}..{to}");
        if round % 10 == 0 {
            map::evict(fs, &inode);
            assert_eq!(mapped(&mounted, ino), blocks, "{from}..{to}");
        }
    }
    drop(inode);
    mounted.close();
    image.fsck_clean().unwrap();

    let mounted = MapMount::new(&image, true);
    assert_eq!(mapped(&mounted, ino), blocks);
    let inode = mounted.inode(ino);
    let fs = &mounted.fs;
    let mut h = mounted.start(credits::remove(fs) + credits::INODE_UPDATE);
    map::remove(fs, &mut h, &inode, Lblk::ZERO, MAX_END).unwrap();
    inode.update(fs, &mut h, |core| core.disk_size = 0).unwrap();
    assert_eq!(inode.core.read().sectors, 0);
    assert_eq!(inode.core.read().i_block, [0; 60]);
    drop(h);
    drop(inode);
    let left = fs.alloc.counts.free_blocks();
    assert!(left > Blocks::new(50_000));
    mounted.close();
    image.fsck_clean().unwrap();
    assert_eq!(image.header("Free blocks").unwrap(), free);
}

/// One call takes the blocks whose pointers stand in one indirect block, or in the inode.
#[test]
fn an_allocation_ends_where_its_block_of_pointers_does() {
    let (image, mounted, ino) = with_empty_file(16);
    let inode = mounted.inode(ino);
    // All of it is known to be a hole.
    for at in [0, 12, 268] {
        map::lookup(&mounted.fs, &inode, Lblk::new(at), 2000).unwrap();
    }
    assert_eq!(allocate(&mounted, &inode, 5, 1000), 7);
    assert_eq!(allocate(&mounted, &inode, 15, 1000), 253);
    assert_eq!(allocate(&mounted, &inode, 268 + 250, 1000), 6);
    let mut want: BTreeSet<u64> = (5..12).chain(15..268).collect();
    want.extend(518..524);
    assert_eq!(mapped(&mounted, ino), want);
    finish(&image, mounted, inode, 524);
}

/// The runs of data and the emptied indirect blocks are freed under one handle: both count.
#[test]
fn a_removal_takes_as_many_runs_and_indirect_blocks_as_it_may() {
    let (image, mounted, ino) = with_empty_file(16);
    let inode = mounted.inode(ino);
    let fs = &mounted.fs;
    for at in [268, 10, 8, 6, 4, 2, 0] {
        assert_eq!(allocate(&mounted, &inode, at, 1), 1);
    }
    let before = inode.core.read().sectors;
    let mut h = mounted.start(credits::remove(fs));
    let (runs, clear_from, freed) = {
        let limit = Limit {
            extents: 6,
            blocks: 100,
        };
        let map = ExclusiveMap::lock(&inode);
        indirect::remove_some(fs, &mut h, &map, (Lblk::ZERO, MAX_END), limit).unwrap()
    };
    freed.unwrap();
    // The block with two indirect blocks above it, and three more.
    let lengths: Vec<Blocks> = runs.iter().map(|run| run.len).collect();
    assert_eq!(lengths, [Blocks::ONE; 4]);
    assert_eq!(clear_from, 6);
    assert_eq!(before - inode.core.read().sectors, 2 * (4 + 2));
    for run in runs {
        alloc::free_blocks(fs, &mut h, run, false).unwrap();
    }
    drop(h);
    map::evict(fs, &inode);
    assert_eq!(mapped(&mounted, ino), BTreeSet::from([0, 2, 4]));
    finish(&image, mounted, inode, 5);
}

#[test]
fn a_block_map_becomes_a_tree_of_the_same_blocks() {
    let (image, mounted, ino) = with_empty_file(16);
    let inode = mounted.inode(ino);
    let fs = &mounted.fs;
    let mut want = BTreeSet::new();
    // Below the inode, and below one, two and three levels of indirect blocks.
    for (at, len) in [(0, 12), (12, 20), (273, 1), (66_000, 1)] {
        assert_eq!(allocate(&mounted, &inode, at, len), len);
        want.extend(u64::from(at)..u64::from(at + len));
    }
    assert!(!map::is_within_extent(fs, &inode, 5).unwrap());
    let free = fs.alloc.counts.free_blocks().get();
    assert!(migrate::to_extents(fs, &inode).unwrap());
    assert_eq!(mapped(&mounted, ino), want);
    map::evict(fs, &inode);
    assert_eq!(mapped(&mounted, ino), want);
    // Four extents need no node; six indirect blocks are free.
    assert_eq!(inode.core.read().sectors, 2 * 34);
    assert_eq!(fs.alloc.counts.free_blocks().get(), free + 1 + 2 + 3);
    for (at, within) in [(0, false), (1, true), (11, true), (273, false), (40, false)] {
        assert_eq!(
            map::is_within_extent(fs, &inode, at).unwrap(),
            within,
            "{at}"
        );
    }
    assert!(!map::is_within_extent(fs, &inode, MAX_END).unwrap());
    assert!(!migrate::to_extents(fs, &inode).unwrap(), "it has extents");
    finish(&image, mounted, inode, 66_001);
}

/// A map that one transaction can hold is converted; with one more node the map stays as it is.
#[test]
fn a_map_of_more_than_a_transaction_is_not_converted() {
    let (image, mounted, ino) = with_empty_file(30);
    let inode = mounted.inode(ino);
    let fs = &mounted.fs;
    // Of so many single blocks, at every other place: those of the indirect blocks.
    let indirect_blocks = |count: u32| 2 + (2 * (count - 1) - 268) / 256 + 1;
    let nodes = |count: u32| {
        let nodes = extent_tree::nodes_for(fs.layout.block_size, count as usize);
        at_most_u32(nodes as u64)
    };
    let cost = |count| credits::rebuild(fs, nodes(count), indirect_blocks(count));
    let most = fs.journal.max_credits();
    let fits = (200..).take_while(|&count| cost(count) <= most).last();
    let fits = fits.unwrap();
    assert_eq!(cost(fits), most, "all credits of a transaction");
    for i in 0..=fits {
        assert_eq!(allocate(&mounted, &inode, 2 * i, 1), 1);
    }
    let numbers = {
        let map = SharedMap::lock(&inode);
        let nodes = DiskNodes::of(fs, &map, inode.core.read().i_block);
        indirect::numbers(&nodes, u64::MAX).unwrap().unwrap().len()
    };
    assert_eq!(numbers, indirect_blocks(fits + 1) as usize);
    let before = mapped(&mounted, ino);
    let refused = migrate::to_extents(fs, &inode);
    assert!(
        matches!(refused, Err(Error::NotSupported(_))),
        "{refused:?}"
    );
    assert_eq!(mapped(&mounted, ino), before);
    let mut h = mounted.start(credits::remove(fs));
    map::remove(fs, &mut h, &inode, Lblk::new(2 * fits), MAX_END).unwrap();
    drop(h);
    assert!(migrate::to_extents(fs, &inode).unwrap());
    assert_eq!(mapped(&mounted, ino).len(), fits as usize);
    assert_eq!(inode.core.read().sectors, 2 * u64::from(fits + nodes(fits)));
    finish(&image, mounted, inode, u64::from(2 * fits));
}
