//! Geometries of volumes with clusters.

use super::tests::volume_of;
use super::*;
use crate::bitmap;
use crate::features::RoCompat;

/// A volume of `groups` groups of 2048 clusters of four blocks of 1 KiB, which begins with the boot
/// block, with tables of 17 blocks.
fn clustered(groups: u32) -> Geometry {
    let mut geometry = Geometry {
        cluster_bits: 2,
        blocks_per_group: 4 * 2048,
        blocks: 4 * 2048 * u64::from(groups),
        itable_blocks: 17,
        ..volume_of(groups)
    };
    geometry.features.ro_compat.insert(RoCompat::BIGALLOC);
    geometry
}

#[test]
fn group_0_begins_with_the_boot_block() {
    let geometry = clustered(8);
    assert_eq!((geometry.first_block(), geometry.group_start(1)), (0, 8192));
    assert_eq!(
        (geometry.superblock_block(), geometry.desc_block(0)),
        (1, 2)
    );
    // The boot block, the superblock, one block of descriptors, ten reserved.
    assert_eq!((geometry.head(0), geometry.head(1)), (0..13, 8192..8204));
    assert_eq!(geometry.desc_copy(1), Some((8193, 0..1)));
    assert_eq!(geometry.reserved_descriptors(), 3..13);
    assert_eq!(geometry.resize_inode_map()[..3], [0, 3, 4]);
    // One block past the copy.
    let copies = [1, 3, 5, 7].map(|group| 4 + 8192 * group);
    assert_eq!(geometry.copies_of_reserved(4), copies);
    assert_eq!(geometry.resize_inode_blocks(), 4 * (1 + 10 * 5));
}

#[test]
fn runs_take_whole_clusters() {
    let mut geometry = clustered(8);
    geometry.blocks -= 2;
    let last = geometry.blocks - 2;
    assert_eq!(geometry.cluster_start(8193), 8192);
    assert_eq!(geometry.offset_in_cluster(8195), 3);
    assert_eq!(geometry.whole_clusters(&(5..8)), 4..8);
    assert_eq!(geometry.whole_clusters(&(7..9)), 4..12);
    assert_eq!(geometry.whole_clusters(&(9..9)), 9..9);
    // The last cluster has two blocks.
    let end = geometry.blocks;
    assert_eq!(geometry.whole_clusters(&(last + 1..end)), last..end);
    assert_eq!(
        (geometry.clusters_for(9), geometry.in_whole_clusters(9)),
        (3, 12)
    );
    assert_eq!(
        (geometry.group_clusters(0), geometry.group_clusters(7)),
        (2048, 2048)
    );
    assert_eq!(geometry.cluster_bits_of(1, &(8191..8197)), 0..2);
    assert_eq!(geometry.cluster_bits_of(7, &(last..end)), 2047..2048);
    assert_eq!(geometry.cluster_bits_of(0, &(8192..8193)), 0..0);
}

#[test]
fn sizes_are_whole_clusters() {
    let blocks = |blocks: u64| clustered(4).resized(blocks).unwrap().blocks;
    assert_eq!([1000, 1001, 1003].map(blocks), [1000; 3]);
    // A last group without copies: two bitmaps, a table of 17, and 50 of data.
    assert_eq!(
        [4 * 8192 + 68, 4 * 8192 + 72].map(blocks),
        [4 * 8192, 4 * 8192 + 72]
    );
}

#[test]
fn new_groups_count_clusters() {
    let geometry = clustered(4).with_blocks(8192 * 6 + 601).unwrap();
    let plan = NewGroups::plan(&geometry, 4).unwrap();
    let mut free = 0;
    for (group, desc) in plan.descriptors() {
        let len = geometry.group_clusters(group.get());
        let bits = plan.block_bitmap(group);
        assert_eq!(bitmap::count_clear(&bits, len), desc.free_blocks);
        assert_eq!(bitmap::count_set(&bits, len..8192), 8192 - len);
        free += u64::from(desc.free_blocks);
    }
    // Without copies two bitmaps and a table have five clusters; with copies, which end with one,
    // three more.
    let frees: Vec<u32> = plan
        .descriptors()
        .map(|(_, desc)| desc.free_blocks)
        .collect();
    assert_eq!(frees, [2043, 2040, 151 - 5]);
    // The last cluster has one block.
    assert_eq!(plan.free_blocks(), 4 * free - 3);
    let full = geometry.with_blocks(8192 * 6 + 18).unwrap();
    let plan = NewGroups::plan(&full, 6);
    assert!(plan.is_none(), "its table");
    let full = geometry.with_blocks(8192 * 6 + 19).unwrap();
    assert_eq!(NewGroups::plan(&full, 6).unwrap().free_blocks(), 0);
}
