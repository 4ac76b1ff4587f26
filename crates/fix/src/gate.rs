//! Which repairs may be made while other findings stand.
//!
//! # Invariants
//! - A structure gets a new checksum only if nothing else is wrong with it, and nothing that it
//!   leads to contradicts it: bitmaps and sectors agree with what owns blocks, bitmaps with the
//!   descriptors, link counts and ".." with the directories. Else the flipped bit may be in what
//!   the checksum covers.
//! - Without a journal, a cut in a write leaves a directory block with a wrong checksum beside
//!   wrong link counts, also a write of a repair. Such a block gets a new checksum nevertheless, on
//!   a volume that is not marked as unmounted cleanly; a repair removes that mark before it writes.
//! - Bitmaps, counts and descriptors follow the maps only while nothing is in doubt: what cannot be
//!   read may own what seems to be free, and a name that cannot be read may lead to an inode that
//!   seems to be unused.
//! - Usage of quotas follows the maps and the owners of all inodes, while nothing is in doubt.
//! - Link counts follow the names, and lost inodes get one, only while nothing is in doubt either.
//! - Of two structures that contradict each other none wins because its checksum was just wrong.
//! - While nothing confirms the superblock, no repair is made that relies on it alone: another UUID
//!   makes every checksum wrong, another feature every kind in an entry, another size the bitmap of
//!   the last group. A copy that contradicts it is not written anew either.
//! - Repairs that only serve a later one (copies, the error of the journal) are made once nothing
//!   is wrong any more.

use std::collections::{HashMap, HashSet};

use extant_check::{Doubt, Finding, Remedy, Repair, Report};
use extant_disk::group_desc::GroupFlags;
use extant_disk::location::Location;
use extant_units::{Group, Ino, Lblk};

use crate::primary::Standing;

/// Doubts that are left by findings that have no repair.
struct Gate {
    doubt: Doubt,
    /// Set if nothing at all was found.
    clean: bool,
    inodes: HashSet<Ino>,
    blocks: HashSet<(Ino, Lblk)>,
    groups: HashSet<Group>,
    /// Inodes of which the checksum is wrong, their own or that of a node of their extent tree.
    unsealed: HashSet<Ino>,
    /// Blocks of directories whose checksum is wrong, and not because a write was cut.
    unsealed_blocks: HashSet<(Ino, Lblk)>,
    /// Set if the checksum of an attribute block is wrong.
    unsealed_attrs: bool,
    /// Groups whose descriptors have a wrong checksum, with the flags that are stored.
    unsealed_groups: HashMap<Group, GroupFlags>,
    /// Set if a wrong checksum of a directory block cannot come from a write that was cut.
    whole_writes: bool,
    standing: Standing,
}

/// The findings that may be repaired now, with their repairs. `whole_writes` says that no write of
/// a directory block can have been cut: a journal, or an unmount, has seen to that. `standing` is
/// that of the superblock.
pub(crate) fn admit(
    report: &Report,
    whole_writes: bool,
    standing: Standing,
) -> impl Iterator<Item = (&Finding, &Repair)> {
    let gate = Gate {
        standing,
        ..Gate::of(report, whole_writes)
    };
    let all = report.findings.iter().chain(&report.notes);
    all.filter_map(move |finding| match &finding.remedy {
        Remedy::Repair(repair) if gate.admits(finding, repair) => Some((finding, repair)),
        _ => None,
    })
}

impl Gate {
    fn of(report: &Report, whole_writes: bool) -> Gate {
        let mut gate = Gate {
            // Findings past the limit may be of any kind.
            doubt: match report.found > report.findings.len() as u64 {
                true => Doubt::Maps,
                false => Doubt::Nothing,
            },
            clean: report.is_clean(),
            inodes: HashSet::new(),
            blocks: HashSet::new(),
            groups: HashSet::new(),
            unsealed: HashSet::new(),
            unsealed_blocks: HashSet::new(),
            unsealed_attrs: false,
            unsealed_groups: HashMap::new(),
            whole_writes,
            standing: Standing::Confirmed,
        };
        for finding in report.findings.iter().chain(&report.notes) {
            match &finding.remedy {
                Remedy::Left(doubt) => gate.leave(&finding.place, *doubt),
                Remedy::Repair(repair) => gate.reseal(&finding.place, repair),
            }
        }
        for finding in &report.findings {
            if let Remedy::Repair(repair) = &finding.remedy {
                gate.contradict(repair);
            }
        }
        gate
    }

    /// Takes in a wrong checksum that a repair would store anew.
    fn reseal(&mut self, location: &Location, repair: &Repair) {
        match (repair, location) {
            (Repair::InodeChecksum(ino) | Repair::ExtentChecksum(ino, _), _) => {
                self.unsealed.insert(*ino);
            }
            (Repair::DirChecksum(_), Location::DirBlock(ino, lblk)) if self.whole_writes => {
                self.unsealed_blocks.insert((*ino, *lblk));
            }
            (Repair::XattrChecksum(_), _) => self.unsealed_attrs = true,
            (Repair::Descriptor(group, flags), _) => {
                self.unsealed_groups.insert(*group, *flags);
            }
            _ => {}
        }
    }

    /// Takes in a repair that contradicts a structure with a wrong checksum: which of the two is
    /// right is not known.
    fn contradict(&mut self, repair: &Repair) {
        match repair {
            Repair::EntryKind { target, .. } if self.unsealed.contains(target) => {
                self.leave(&Location::Inode(*target), Doubt::Maps);
            }
            Repair::Sectors(ino, _) | Repair::Flags(ino, _) if self.unsealed.contains(ino) => {
                self.leave(&Location::Inode(*ino), Doubt::Maps);
            }
            // The entries may be other ones.
            Repair::ValueReferences(ino, _) if self.unsealed_attrs || !self.unsealed.is_empty() => {
                self.leave(&Location::Inode(*ino), Doubt::Maps);
            }
            Repair::BlockBitmap(..)
            | Repair::InodeBitmap(..)
            | Repair::QuotaUsage { .. }
            | Repair::QuotaFile(_)
                if self.unsealed_attrs || !self.unsealed.is_empty() =>
            {
                self.doubt = Doubt::Maps;
            }
            Repair::BlockBitmap(group, _)
                if self.may_have_moved(*group, GroupFlags::BLOCK_UNINIT) =>
            {
                self.doubt = Doubt::Maps;
            }
            Repair::InodeBitmap(group, _)
                if self.may_have_moved(*group, GroupFlags::INODE_UNINIT) =>
            {
                self.doubt = Doubt::Maps;
            }
            Repair::Links(..) | Repair::Reattach { .. } | Repair::Parent { .. }
                if !self.unsealed_blocks.is_empty() =>
            {
                self.doubt = self.doubt.max(Doubt::Names);
            }
            _ => {}
        }
    }

    /// Returns whether a bitmap of `group` may be wrong because a descriptor with a wrong checksum
    /// leads to the wrong blocks. A bitmap that its own descriptor calls `never_written` has to be
    /// wrong once that flag is not relied on.
    fn may_have_moved(&self, group: Group, never_written: GroupFlags) -> bool {
        let own = self.unsealed_groups.get(&group);
        !self.unsealed_groups.is_empty() && own.is_none_or(|flags| !flags.contains(never_written))
    }

    /// Takes in a finding that stays.
    fn leave(&mut self, location: &Location, doubt: Doubt) {
        self.doubt = self.doubt.max(doubt);
        match *location {
            Location::DirBlock(ino, lblk) => {
                self.blocks.insert((ino, lblk));
            }
            Location::GroupDesc(group) => {
                self.groups.insert(group);
            }
            Location::Inode(ino) | Location::ExtentNode(ino, _) if doubt == Doubt::Maps => {
                self.inodes.insert(ino);
            }
            _ => {}
        }
    }

    fn admits(&self, finding: &Finding, repair: &Repair) -> bool {
        let confirmed = match repair {
            Repair::SuperblockCopies(_) => self.standing != Standing::Contradicted,
            _ => self.standing == Standing::Confirmed || !relies_on_superblock(repair),
        };
        if !confirmed {
            return false;
        }
        let sound = |ino: &Ino| !self.inodes.contains(ino);
        let clear = match finding.place {
            Location::DirBlock(ino, lblk) => !self.blocks.contains(&(ino, lblk)),
            _ => true,
        };
        match repair {
            Repair::InodeChecksum(ino) | Repair::ExtentChecksum(ino, _) => {
                self.doubt < Doubt::Maps && sound(ino)
            }
            Repair::Sectors(ino, _) | Repair::Flags(ino, _) => {
                sound(ino) && !self.unsealed.contains(ino)
            }
            Repair::DirChecksum(place) => {
                let agreed = !self.whole_writes || self.doubt == Doubt::Nothing;
                agreed && sound(&place.dir) && clear
            }
            Repair::EntryKind { block, target, .. } => {
                let sealed = match finding.place {
                    Location::DirBlock(ino, lblk) => !self.unsealed_blocks.contains(&(ino, lblk)),
                    _ => true,
                };
                let decided = sealed || self.doubt == Doubt::Nothing;
                sound(&block.dir) && clear && decided && !self.unsealed.contains(target)
            }
            Repair::XattrReferences(..) | Repair::XattrChecksum(_) => self.doubt < Doubt::Maps,
            Repair::ValueReferences(ino, _) => self.doubt < Doubt::Maps && sound(ino),
            // A descriptor whose flags are cleared needs bitmaps that agree.
            Repair::Descriptor(group, _) | Repair::UninitFlags(group) => {
                self.doubt == Doubt::Nothing && !self.groups.contains(group)
            }
            Repair::Totals { .. }
            | Repair::Counts(..)
            | Repair::BlockBitmap(..)
            | Repair::InodeBitmap(..)
            | Repair::QuotaUsage { .. }
            | Repair::QuotaFile(_) => self.doubt == Doubt::Nothing,
            Repair::Links(ino, _) | Repair::Reattach { ino, .. } => {
                self.doubt == Doubt::Nothing && sound(ino)
            }
            Repair::Parent { block, .. } => self.doubt == Doubt::Nothing && sound(&block.dir),
            Repair::JournalError | Repair::SuperblockCopies(_) | Repair::DescriptorCopies(_) => {
                self.clean
            }
        }
    }
}

/// Returns whether a wrong feature, UUID or size in the superblock may make this repair seem right.
fn relies_on_superblock(repair: &Repair) -> bool {
    match repair {
        Repair::InodeChecksum(_)
        | Repair::ExtentChecksum(..)
        | Repair::DirChecksum(_)
        | Repair::XattrChecksum(_)
        | Repair::EntryKind { .. }
        | Repair::Descriptor(..)
        | Repair::UninitFlags(_)
        | Repair::Counts(..)
        | Repair::BlockBitmap(..)
        | Repair::InodeBitmap(..) => true,
        // They follow maps and names, whose checksums were right.
        Repair::Sectors(..)
        | Repair::Flags(..)
        | Repair::XattrReferences(..)
        | Repair::ValueReferences(..)
        | Repair::QuotaUsage { .. }
        | Repair::QuotaFile(_)
        | Repair::Totals { .. }
        | Repair::Links(..)
        | Repair::Reattach { .. }
        | Repair::Parent { .. }
        | Repair::JournalError
        | Repair::SuperblockCopies(_)
        | Repair::DescriptorCopies(_) => false,
    }
}

#[cfg(test)]
mod tests;
