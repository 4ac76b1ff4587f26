//! The superblock: the fields on which no arithmetic relies, and the totals.

use extant_disk::damage::{GroupDamage, SuperblockDamage};
use extant_disk::features::{Compat, Incompat, RoCompat};
use extant_disk::group_desc::GroupFlags;
use extant_disk::location::Location;
use extant_disk::superblock::Superblock;
use extant_units::{Ino, exact_u32};

use crate::error::Result;
use crate::findings::Findings;
use crate::remedy::Repair;
use crate::volume::Volume;

/// Checks the fields that no arithmetic relies on, and the flags of the groups that need a feature.
/// A mount refuses none of these, so that they are as a replay leaves them.
pub(crate) fn check(volume: &Volume, findings: &Findings) -> Result<()> {
    let sb = &volume.sb;
    let add = |damage: SuperblockDamage| findings.add(Location::Superblock, damage);
    let raw = sb.raw();
    let features = sb.features();
    let reserved = sb.reserved_blocks().get();
    if reserved > sb.blocks_count().get() / 2 {
        let damage = SuperblockDamage::ReservedBlocks { reserved };
        findings.add_alone(Location::Superblock, damage);
    }
    let bigalloc = features.has_ro_compat(RoCompat::BIGALLOC);
    if !bigalloc && raw.clusters_per_group.get() != sb.blocks_per_group() {
        add(SuperblockDamage::ClustersPerGroup {
            clusters: raw.clusters_per_group.get(),
            blocks: sb.blocks_per_group(),
        });
    }
    let size = raw.desc_size.get();
    if size != 0 && (!size.is_power_of_two() || size > 1024) {
        add(SuperblockDamage::DescriptorSize { bytes: size });
    }
    if features.has_incompat(Incompat::SIXTY_FOUR_BIT) && !features.has_incompat(Incompat::EXTENTS)
    {
        add(SuperblockDamage::WideWithoutExtents);
    }
    if features.has_incompat(Incompat::META_BG) && features.has_compat(Compat::RESIZE_INODE) {
        add(SuperblockDamage::SpreadWithReserve);
    }
    reserve(sb, &add);
    if !features.group_csum() {
        let uninit = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
        for (group, desc) in volume.groups() {
            let unused = (1..=sb.inodes_per_group()).contains(&desc.itable_unused);
            if desc.flags.intersects(uninit) || unused {
                let place = Location::GroupDesc(group);
                let repair = || Repair::UninitFlags(group);
                findings.add_repairable(place, GroupDamage::NeverWritten, repair);
            }
        }
    }
    internal_files(volume, findings)
}

/// Checks that blocks reserved for descriptors have a resize inode.
fn reserve(sb: &Superblock, add: &dyn Fn(SuperblockDamage)) {
    let blocks = sb.reserved_gdt_blocks();
    if blocks > 0 && !sb.features().has_compat(Compat::RESIZE_INODE) {
        add(SuperblockDamage::DescriptorReserve { blocks });
    }
}

/// Checks what has to be right before a replay: the journal that it names, and a field for which
/// e2fsprogs opens no volume.
pub(crate) fn before_replay(sb: &Superblock, findings: &Findings) {
    let add = |damage: SuperblockDamage| findings.add(Location::Superblock, damage);
    let (raw, features) = (sb.raw(), sb.features());
    if raw.log_groups_per_flex > 31 {
        add(SuperblockDamage::FlexGroups {
            log2: raw.log_groups_per_flex,
        });
    }
    let external = raw.journal_dev.get() != 0 || raw.journal_uuid != [0; 16];
    if !features.has_compat(Compat::HAS_JOURNAL) {
        if external || raw.journal_inum.get() != 0 {
            add(SuperblockDamage::JournalWithoutFeature);
        }
        if features.has_incompat(Incompat::RECOVER) {
            add(SuperblockDamage::RecoveryWithoutJournal);
        }
    } else if external && raw.journal_inum.get() != 0 {
        add(SuperblockDamage::ExternalJournal);
    } else if !external && raw.journal_inum.get() == 0 {
        add(SuperblockDamage::NoJournalInode);
    }
}

/// Checks the inodes of quotas and orphans that it names.
///
/// Without the feature Linux refuses such an inode nevertheless, if a name leads to it: also one
/// that is still free, once it is a file. No name leads to a reserved one, so that of these only
/// one that is in use has two roles.
fn internal_files(volume: &Volume, findings: &Findings) -> Result<()> {
    let sb = &volume.sb;
    let raw = sb.raw();
    let quotas = [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum];
    let has_quota = sb.features().has_ro_compat(RoCompat::QUOTA);
    let has_file = sb.features().has_compat(Compat::ORPHAN_FILE);
    let quotas = quotas.map(|number| (number, has_quota, true));
    let numbers = quotas
        .into_iter()
        .chain([(raw.orphan_file_inum, has_file, false)]);
    for (number, known, of_quotas) in numbers {
        let inode = Ino::new(number.get());
        let inode = inode.filter(|ino| !known && ino.get() <= sb.inodes_count());
        let Some(ino) = inode else { continue };
        let named = ino == Ino::ROOT || ino.get() >= sb.first_inode();
        if named || volume.inode(ino)?.is_ok_and(|core| core.links != 0) {
            let damage = match of_quotas {
                true => SuperblockDamage::QuotaWithoutFeature { ino },
                false => SuperblockDamage::OrphanFileWithoutFeature { ino },
            };
            findings.add(Location::Superblock, damage);
        }
    }
    Ok(())
}

/// Compares the totals with the sums over the groups. Linux lets them lag behind; each mount, and
/// e2fsck, counts anew.
pub(crate) fn totals(volume: &Volume, blocks: u64, inodes: u64, findings: &Findings) {
    let raw = volume.sb.raw();
    let (stored_blocks, stored_inodes) = (
        raw.free_blocks_count().get(),
        u64::from(raw.free_inodes_count.get()),
    );
    let wrong_blocks = (stored_blocks != blocks).then_some(SuperblockDamage::FreeBlocks {
        stored: stored_blocks,
        found: blocks,
    });
    let wrong_inodes = (stored_inodes != inodes).then_some(SuperblockDamage::FreeInodes {
        stored: stored_inodes,
        found: inodes,
    });
    for kind in [wrong_blocks, wrong_inodes].into_iter().flatten() {
        // All inodes are below 2^32, as was checked when the superblock was read.
        let inodes = exact_u32(inodes);
        let repair = Repair::Totals { blocks, inodes };
        findings.note_repairable(Location::Superblock, kind, repair);
    }
}
