use super::*;

/// A small, right superblock: 4 KiB blocks, two groups, checksums.
fn sample() -> Box<RawSuperblock> {
    let mut raw = RawSuperblock::zeroed();
    raw.magic.set(MAGIC);
    raw.rev_level.set(1);
    raw.log_block_size.set(2);
    raw.log_cluster_size.set(2);
    raw.blocks_per_group.set(32768);
    raw.clusters_per_group.set(32768);
    raw.blocks_count_lo.set(40000);
    raw.inodes_per_group.set(8192);
    raw.inodes_count.set(16384);
    raw.inode_size.set(256);
    raw.first_ino.set(11);
    raw.desc_size.set(64);
    raw.feature_incompat
        .set((Incompat::SIXTY_FOUR_BIT | Incompat::EXTENTS).bits());
    raw.feature_ro_compat
        .set((RoCompat::METADATA_CSUM | RoCompat::SPARSE_SUPER).bits());
    raw.checksum_type = 1;
    raw.uuid = *b"0123456789abcdef";
    raw.seal();
    raw
}

fn parse(raw: &RawSuperblock) -> Result<Superblock, SuperblockError> {
    Superblock::parse(zerocopy::IntoBytes::as_bytes(raw))
}

/// A group has as many clusters as its blocks make, also where a cluster is a block.
#[test]
fn clusters_make_up_their_group() {
    for (cluster, clusters, fits) in [(2, 32768, true), (2, 2048, false), (4, 8192, true)] {
        let mut raw = sample();
        raw.feature_ro_compat
            .set((RoCompat::BIGALLOC | RoCompat::SPARSE_SUPER).bits());
        raw.log_cluster_size.set(cluster);
        raw.clusters_per_group.set(clusters);
        assert_eq!(parse(&raw).is_ok(), fits, "{cluster}, {clusters}");
    }
}

#[test]
fn geometry_comes_out() {
    let sb = parse(&sample()).unwrap();
    assert_eq!(sb.group_count(), 2);
    assert_eq!(sb.desc_blocks(), 1);
    assert_eq!(sb.block_size(), BlockSize::KIB4);
    assert_eq!(sb.want_extra_isize(), 32);
    assert_eq!(
        sb.check_device_len(40000 * 4096 - 1),
        Err(SuperblockError::Truncated {
            wanted: 40000 * 4096,
            device: 40000 * 4096 - 1
        })
    );
    assert!(sb.check_device_len(40000 * 4096).is_ok());
}

#[test]
fn backups_sit_where_the_features_say() {
    let groups = |sb: &Superblock| -> Vec<u32> {
        (0..60)
            .filter(|&group| sb.has_backup(Group::new(group)))
            .collect()
    };
    let mut raw = sample();
    assert_eq!(
        groups(&parse(&raw).unwrap()),
        [0, 1, 3, 5, 7, 9, 25, 27, 49]
    );
    raw.feature_ro_compat.set(RoCompat::METADATA_CSUM.bits());
    raw.seal();
    assert_eq!(groups(&parse(&raw).unwrap()).len(), 60);
    raw.feature_compat.set(Compat::SPARSE_SUPER2.bits());
    raw.backup_bgs = [1.into(), 40.into()];
    raw.seal();
    assert_eq!(groups(&parse(&raw).unwrap()), [0, 1, 40]);
}

#[test]
fn every_flipped_bit_is_noticed() {
    let bytes = zerocopy::IntoBytes::as_bytes(&*sample()).to_vec();
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        // The bit that says "there is a checksum" cannot protect itself.
        if bit != 0x64 * 8 + 10 {
            assert!(Superblock::parse(&bad).is_err(), "bit {bit}");
        }
    }
}

/// Sets each 16-bit word of the superblock to each of several values, seals it, and parses:
/// whatever comes out must hold the invariants, and nothing may panic.
#[test]
fn hostile_fields_never_break_the_invariants() {
    let good = sample();
    let bytes = zerocopy::IntoBytes::as_bytes(&*good);
    let mut accepted = 0;
    for at in (0..bytes.len()).step_by(2) {
        for value in [
            0u16, 1, 2, 7, 8, 31, 63, 0x7F, 0x100, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF,
        ] {
            for span in [2, 4] {
                let mut bad = bytes.to_vec();
                for piece in bad[at..].chunks_mut(2).take(span / 2) {
                    piece.copy_from_slice(&value.to_le_bytes());
                }
                let mut raw = RawSuperblock::copy_from(&bad).unwrap();
                raw.seal();
                let Ok(sb) = parse(&raw) else { continue };
                accepted += 1;
                check_invariants(&sb);
            }
        }
    }
    assert!(
        accepted > 1000,
        "the loop reached real superblocks: {accepted}"
    );
}

fn check_invariants(sb: &Superblock) {
    assert!(sb.group_count() >= 1);
    assert!((128..=sb.block_size().bytes()).contains(&sb.inode_size()));
    assert!(sb.want_extra_isize() as usize + 128 <= sb.inode_size());
    assert!(sb.desc_blocks() >= 1);
    assert!(sb.reserved_blocks() <= sb.blocks_count());
    assert!(sb.log_groups_per_flex() < 32);
    let _ = (
        sb.label(),
        sb.last_mounted(),
        sb.made_at(),
        sb.checksum_seed(),
    );
    let _ = (
        sb.has_backup(Group::new(u32::MAX)),
        sb.check_device_len(u64::MAX),
    );
    if !sb.features().has_incompat(Incompat::JOURNAL_DEV) {
        let inodes = u64::from(sb.group_count()) * u64::from(sb.inodes_per_group());
        assert_eq!(inodes, u64::from(sb.inodes_count()));
        assert!(sb.first_inode() <= sb.inodes_count());
    }
}
