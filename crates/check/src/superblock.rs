//! The superblock: the fields on which no arithmetic relies, and the totals.

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
pub(crate) fn check(volume: &Volume, findings: &Findings) -> Result<()> {
    let sb = &volume.sb;
    let add = |what: std::fmt::Arguments<'_>| findings.add(Location::Superblock, what);
    let raw = sb.raw();
    let features = sb.features();
    let reserved = sb.reserved_blocks().get();
    if reserved > sb.blocks_count().get() / 2 {
        let what = format_args!("{reserved} reserved blocks, more than half of all");
        findings.add_alone(Location::Superblock, what);
    }
    let bigalloc = features.has_ro_compat(RoCompat::BIGALLOC);
    if !bigalloc && raw.clusters_per_group.get() != sb.blocks_per_group() {
        let clusters = raw.clusters_per_group;
        add(format_args!(
            "{clusters} clusters per group, {} blocks",
            sb.blocks_per_group()
        ));
    }
    let size = raw.desc_size.get();
    if size != 0 && (!size.is_power_of_two() || size > 1024) {
        add(format_args!("descriptors of {size} bytes"));
    }
    if raw.log_groups_per_flex > 31 {
        add(format_args!(
            "2^{} groups per flex group",
            raw.log_groups_per_flex
        ));
    }
    if features.has_incompat(Incompat::SIXTY_FOUR_BIT) && !features.has_incompat(Incompat::EXTENTS)
    {
        add(format_args!("64bit without extent"));
    }
    reserve(sb, &add);
    numbers(volume, &add)?;
    if !features.group_csum() {
        let uninit = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
        for (group, desc) in volume.groups() {
            let unused = (1..=sb.inodes_per_group()).contains(&desc.itable_unused);
            if desc.flags.intersects(uninit) || unused {
                let what = "marked as never written, for which a feature is missing";
                let repair = || Repair::UninitFlags(group);
                findings.add_repairable(Location::GroupDesc(group), what, repair);
            }
        }
    }
    Ok(())
}

/// Checks that blocks kept for descriptors have a resize inode.
fn reserve(sb: &Superblock, add: &dyn Fn(std::fmt::Arguments<'_>)) {
    let kept = sb.reserved_gdt_blocks();
    if kept > 0 && !sb.features().has_compat(Compat::RESIZE_INODE) {
        add(format_args!(
            "{kept} blocks kept for descriptors without resize_inode"
        ));
    }
}

/// Checks the inodes and the journal that it names.
fn numbers(volume: &Volume, add: &dyn Fn(std::fmt::Arguments<'_>)) -> Result<()> {
    let sb = &volume.sb;
    let (raw, features) = (sb.raw(), sb.features());
    let external = raw.journal_dev.get() != 0 || raw.journal_uuid != [0; 16];
    if !features.has_compat(Compat::HAS_JOURNAL) {
        if external || raw.journal_inum.get() != 0 {
            add(format_args!("names a journal without the feature"));
        }
        if features.has_incompat(Incompat::RECOVER) {
            add(format_args!("waits for a recovery without a journal"));
        }
    } else if external {
        add(format_args!("names an external journal beside its own"));
    } else if raw.journal_inum.get() == 0 {
        add(format_args!("names no inode for its journal"));
    }
    let quotas = [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum];
    let quotas = quotas.map(|inode| {
        (
            inode.get(),
            features.has_ro_compat(RoCompat::QUOTA),
            "a quota",
        )
    });
    let orphans = raw.orphan_file_inum.get();
    let has_file = features.has_compat(Compat::ORPHAN_FILE);
    for (number, known, what) in quotas
        .into_iter()
        .chain([(orphans, has_file, "an orphan file")])
    {
        let inode = Ino::new(number).filter(|ino| !known && ino.get() <= sb.inodes_count());
        let Some(ino) = inode else { continue };
        // Without the feature the number alone is harmless; an inode in use is not.
        if volume.inode(ino)?.is_ok_and(|core| core.links != 0) {
            add(format_args!("inode {ino} is {what} without the feature"));
        }
    }
    Ok(())
}

/// Compares the totals with the sums over the groups. Linux lets them lag behind; each mount, and
/// e2fsck, counts anew.
pub(crate) fn totals(volume: &Volume, blocks: u64, inodes: u64, findings: &Findings) {
    let raw = volume.sb.raw();
    let stored = [
        ("blocks", raw.free_blocks_count().get(), blocks),
        ("inodes", u64::from(raw.free_inodes_count.get()), inodes),
    ];
    for (name, stored, found) in stored {
        if stored != found {
            let what =
                format_args!("{stored} free {name}, found {found}: the next mount counts anew");
            // All inodes are below 2^32, as was checked when the superblock was read.
            let inodes = exact_u32(inodes);
            let repair = Repair::Totals { blocks, inodes };
            findings.note_repairable(Location::Superblock, what, repair);
        }
    }
}
