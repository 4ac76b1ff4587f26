//! Sizes and counts, new groups and the resize inode, on volumes of small groups.

use extant_units::Group;
use zerocopy::IntoBytes;

use super::*;
use crate::features::{Compat, Incompat, RoCompat};
use crate::superblock::State;

/// A volume of `groups` groups of 2048 blocks of 1 KiB, with tables of 16 blocks and 10 blocks
/// reserved behind one of descriptors.
pub(super) fn volume_of(groups: u32) -> Geometry {
    let mut raw = RawSuperblock::zeroed();
    raw.magic = 0xef53.into();
    raw.rev_level = 1.into();
    raw.set_state(State::VALID);
    raw.blocks_count_lo = (1 + 2048 * groups).into();
    raw.r_blocks_count_lo = (102 * groups).into();
    raw.first_data_block = 1.into();
    raw.blocks_per_group = 2048.into();
    raw.clusters_per_group = 2048.into();
    raw.inodes_per_group = 128.into();
    raw.inodes_count = (128 * groups).into();
    raw.first_ino = 11.into();
    raw.inode_size = 128.into();
    raw.reserved_gdt_blocks = 10.into();
    let mut features = raw.features();
    features.compat.insert(Compat::RESIZE_INODE);
    features.incompat.insert(Incompat::FILETYPE);
    features.ro_compat.insert(RoCompat::SPARSE_SUPER);
    raw.set_features(features);
    Geometry::of(&Superblock::parse(raw.as_bytes()).unwrap())
}

/// The same, whose groups lie in flex groups of four.
fn flexible(groups: u32, itable_blocks: u32) -> Geometry {
    Geometry {
        log_groups_per_flex: 2,
        itable_blocks,
        ..volume_of(groups)
    }
}

#[test]
fn metadata_is_that_of_all_groups() {
    let geometry = volume_of(8);
    assert_eq!((geometry.head_blocks(0), geometry.itable_blocks), (12, 16));
    // Copies are in groups 1, 3, 5 and 7.
    assert_eq!(geometry.metadata(), 5 * 12 + 8 * (2 + 16));
    let each: u64 = (0..8).map(|group| geometry.overhead(group)).sum();
    assert_eq!(geometry.metadata(), each);
    let grown = geometry.resized(1 + 2048 * 10).unwrap();
    assert_eq!(grown.metadata(), 6 * 12 + 10 * (2 + 16));
}

#[test]
fn a_last_group_without_room_for_its_copies_is_short() {
    let short = |groups: u32, len: u64| {
        let mut geometry = volume_of(groups);
        geometry.blocks = geometry.group_start(groups - 1) + len;
        geometry.last_is_short()
    };
    // Group 7 begins with copies, group 6 does not.
    assert_eq!(
        [11, 12, 2048].map(|len| short(8, len)),
        [true, false, false]
    );
    assert!(!short(7, 1));
}

#[test]
fn a_last_group_stays_if_it_has_room_for_data() {
    let blocks = |blocks: u64| volume_of(4).resized(blocks).unwrap().blocks;
    let five = 1 + 2048 * 5;
    // Group 5 has copies: 12 blocks, two bitmaps, a table of 16, and 50 of data.
    assert_eq!(
        [five + 79, five + 80, five + 2048].map(blocks),
        [five, five + 80, five + 2048]
    );
    assert_eq!(volume_of(4).resized(1), Err(GeometryError::NoGroup));
    let huge = volume_of(4).resized(1 << 33).unwrap_err();
    assert!(matches!(huge, GeometryError::TooLarge { .. }), "{huge}");
}

#[test]
fn descriptors_grow_into_their_reserve_and_shares_stay() {
    let old = volume_of(8);
    // 32 descriptors of 32 bytes fill a block.
    let new = old.resized(1 + 2048 * 33).unwrap();
    assert_eq!((new.desc_blocks, new.reserved_gdt), (2, 9));
    assert_eq!(new.super_blocks(), old.super_blocks());
    assert_eq!(new.reserved_blocks, 816 * new.blocks / old.blocks);
}

/// The tables of new groups, in the order of the groups.
fn tables_of(geometry: &Geometry, first: u32) -> Vec<(u64, u64, u64)> {
    let plan = NewGroups::plan(geometry, first).unwrap();
    let tables = plan.descriptors().map(|(_, desc)| {
        let table = desc.inode_table.get();
        (desc.block_bitmap.get(), desc.inode_bitmap.get(), table)
    });
    tables.collect()
}

#[test]
fn tables_of_a_flex_group_lie_together_behind_its_copies() {
    let geometry = flexible(8, 16);
    // Groups 2 and 3 end a flex group. The first one of the next has no copies.
    let (two, four) = (1 + 2048 * 2, 1 + 2048 * 4);
    let mut expected = vec![(two, two + 2, two + 4), (two + 1, two + 3, two + 20)];
    expected.extend((0..4).map(|at| (four + at, four + 4 + at, four + 8 + 16 * at)));
    assert_eq!(tables_of(&geometry, 2), expected);
}

#[test]
fn tables_step_over_copies_and_may_lie_in_two_groups() {
    let geometry = flexible(8, 900);
    let four = 1 + 2048 * 4;
    // Groups 5 and 7 begin with copies, group 6 does not.
    let tables: Vec<u64> = tables_of(&geometry, 4).iter().map(|one| one.2).collect();
    let five = four + 2048 + 12;
    assert_eq!(tables, [four + 8, four + 908, five, five + 900]);
    // One that ends with its group needs no step.
    let tables: Vec<u64> = tables_of(&flexible(8, 1020), 4)
        .iter()
        .map(|one| one.2)
        .collect();
    assert_eq!(tables, [four + 8, four + 1028, five, five + 1020]);
    // The last group but one begins without copies, so that a table goes on in it.
    let geometry = flexible(7, 1900);
    let tables: Vec<u64> = tables_of(&geometry, 5).iter().map(|one| one.2).collect();
    assert_eq!(tables, [five + 4, five + 1904]);
}

#[test]
fn bitmaps_and_counts_of_new_groups_agree() {
    let geometry = flexible(8, 1020).resized(1 + 2048 * 7 + 1500).unwrap();
    let plan = NewGroups::plan(&geometry, 4).unwrap();
    assert_eq!(plan.groups(), 4..8);
    let mut free = 0;
    for (group, desc) in plan.descriptors() {
        let bits = plan.block_bitmap(group);
        let blocks = geometry.group_blocks(group.get());
        let len = u32::try_from(blocks.end - blocks.start).unwrap();
        assert_eq!(crate::bitmap::count_clear(&bits, len), desc.free_blocks);
        assert_eq!(crate::bitmap::count_set(&bits, len..8192), 8192 - len);
        assert_eq!((desc.free_inodes, desc.itable_unused), (128, 0));
        free += u64::from(desc.free_blocks);
    }
    assert_eq!(plan.free_blocks(), free);
    assert_eq!(plan.block_bitmap(Group::new(4))[0], 0xff, "the bitmaps");
}

#[test]
fn groups_without_room_for_their_metadata_have_no_plan() {
    // A flex group's last group alone, too short for its table.
    let mut geometry = flexible(5, 1000);
    geometry.blocks = geometry.group_start(4) + 1001;
    assert!(NewGroups::plan(&geometry, 4).is_none());
    geometry.blocks += 1;
    assert!(NewGroups::plan(&geometry, 4).is_some());
    let mut geometry = volume_of(8);
    geometry.blocks = geometry.group_start(7) + 11;
    assert!(NewGroups::plan(&geometry, 7).is_none(), "its copies");
    // Copies that reach into the next group, as only an image says.
    let mut geometry = flexible(7, 10);
    geometry.reserved_gdt = geometry.blocks_per_group;
    assert!(NewGroups::plan(&geometry, 4).is_none(), "longer copies");
}

#[test]
fn the_resize_inode_leads_to_the_reserve_and_its_copies() {
    let geometry = volume_of(8);
    assert_eq!(geometry.reserved_descriptors(), 3..13);
    let map = geometry.resize_inode_map();
    assert_eq!(map.len(), 256);
    // The table of descriptors has the slot 0.
    assert_eq!((map[0], map[1], map[10], map[11]), (0, 3, 12, 0));
    let copies = geometry.copies_of_reserved(4);
    assert_eq!(copies, [1, 3, 5, 7].map(|group| 4 + 2048 * group));
    assert_eq!(geometry.resize_inode_blocks(), 1 + 10 * 5);
}

/// A volume of 70 groups, whose meta groups of 32 groups have their own descriptors from `first`
/// on.
fn spread(first: u32) -> Geometry {
    let mut features = volume_of(70).features;
    features.compat.remove(Compat::RESIZE_INODE);
    features.incompat.insert(Incompat::META_BG);
    Geometry {
        features,
        first_meta_bg: Some(first),
        reserved_gdt: 0,
        ..volume_of(70)
    }
}

#[test]
fn a_meta_group_has_its_descriptors_in_its_first_group_and_two_copies() {
    let geometry = spread(0);
    assert_eq!((geometry.desc_blocks, geometry.descs_per_block()), (3, 32));
    let start = |group| geometry.group_start(group);
    let blocks: Vec<u64> = geometry.desc_block_numbers().collect();
    // Group 0 alone of the three begins with a superblock.
    assert_eq!(blocks, [2, start(32), start(64)]);
    let copies: Vec<_> = (0..70)
        .filter_map(|group| geometry.desc_copy(group))
        .collect();
    let expected = [
        (start(1) + 1, 0..1),
        (start(31), 0..1),
        (start(33), 1..2),
        (start(63), 1..2),
        (start(65), 2..3),
    ];
    assert_eq!(copies, expected);
    let heads = [0, 1, 2, 3, 31, 32, 49, 50, 69].map(|group| geometry.head_blocks(group));
    assert_eq!(heads, [2, 2, 0, 1, 1, 1, 1, 0, 0]);
    let each: u64 = (0..70).map(|group| geometry.overhead(group)).sum();
    assert_eq!(geometry.metadata(), each);
}

#[test]
fn meta_groups_before_the_first_have_a_table() {
    let geometry = spread(2);
    let start = |group| geometry.group_start(group);
    let blocks: Vec<u64> = geometry.desc_block_numbers().collect();
    assert_eq!(blocks, [2, 3, start(64)]);
    assert_eq!(geometry.desc_copy(3), Some((start(3) + 1, 0..2)));
    assert_eq!(geometry.desc_copy(31), None);
    let heads = [0, 1, 2, 31, 49, 64, 65, 69].map(|group| geometry.head_blocks(group));
    assert_eq!(heads, [3, 3, 0, 0, 3, 1, 1, 0]);
}

#[test]
fn meta_groups_come_with_new_groups_and_go_with_the_last_of_them() {
    let size = |geometry: &Geometry, groups: u64| geometry.with_blocks(1 + 2048 * groups).unwrap();
    let grown = size(&spread(2), 130);
    assert_eq!((grown.desc_blocks, grown.first_meta_bg), (5, Some(2)));
    let plan = NewGroups::plan(&grown, 70).unwrap();
    assert!(
        plan.parts()
            .iter()
            .any(|part| part.start == grown.desc_block(3))
    );
    // All descriptors are in the table, and then fewer than that.
    let cut = size(&grown, 64);
    assert_eq!((cut.desc_blocks, cut.first_meta_bg), (2, Some(2)));
    let bare = size(&cut, 20);
    assert_eq!((bare.desc_blocks, bare.first_meta_bg), (1, None));
    assert!(!bare.features.has_incompat(Incompat::META_BG));
    let mut raw = RawSuperblock::zeroed();
    raw.set_features(cut.features);
    cut.store_size(&mut raw);
    assert_eq!(raw.first_meta_bg.get(), 2);
    bare.store_size(&mut raw);
    assert_eq!(
        (raw.first_meta_bg.get(), raw.features()),
        (0, bare.features)
    );
}
