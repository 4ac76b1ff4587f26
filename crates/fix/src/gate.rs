//! Which repairs may be made while other findings stand.
//!
//! # Invariants
//! - A structure gets a new checksum only if nothing else is wrong with it, and nothing that it
//!   leads to contradicts it: bitmaps and sectors agree with what owns blocks, link counts and ".."
//!   with the directories. Else the flipped bit may be in what the checksum covers.
//! - Without a journal, a cut in a write leaves a directory block with a wrong checksum beside
//!   wrong link counts, also a write of a repair. Such a block gets a new checksum nevertheless.
//! - Bitmaps and counts follow the maps only while no map, inode or descriptor is in doubt: what
//!   cannot be read may own what seems to be free.
//! - Link counts follow the names, and lost inodes get one, only while no directory is in doubt
//!   either.
//! - Of two structures that contradict each other none wins because its checksum was just wrong.

use std::collections::HashSet;

use extant_check::{Doubt, Finding, Remedy, Repair, Report};
use extant_disk::location::Location;
use extant_units::{Group, Ino, Lblk};

/// What is left in doubt by findings that have no repair.
struct Gate {
    doubt: Doubt,
    inodes: HashSet<Ino>,
    blocks: HashSet<(Ino, Lblk)>,
    groups: HashSet<Group>,
    /// Inodes of which the checksum is wrong, their own or that of a node of their extent tree.
    unsealed: HashSet<Ino>,
    /// Blocks of directories whose checksum is wrong, and not because a write was cut.
    unsealed_blocks: HashSet<(Ino, Lblk)>,
    /// Whether the checksum of an attribute block is wrong.
    unsealed_attrs: bool,
    /// Whether the volume has a journal.
    journal: bool,
}

/// The findings that may be repaired now, with their repairs. `journal` says whether the volume has
/// one.
pub(crate) fn admit(report: &Report, journal: bool) -> impl Iterator<Item = (&Finding, &Repair)> {
    let gate = Gate::of(report, journal);
    let all = report.findings.iter().chain(&report.notes);
    all.filter_map(move |finding| match &finding.remedy {
        Remedy::Repair(repair) if gate.admits(finding, repair) => Some((finding, repair)),
        _ => None,
    })
}

impl Gate {
    fn of(report: &Report, journal: bool) -> Gate {
        let mut gate = Gate {
            // Findings past the limit may be of any kind.
            doubt: match report.found > report.findings.len() as u64 {
                true => Doubt::Maps,
                false => Doubt::Nothing,
            },
            inodes: HashSet::new(),
            blocks: HashSet::new(),
            groups: HashSet::new(),
            unsealed: HashSet::new(),
            unsealed_blocks: HashSet::new(),
            unsealed_attrs: false,
            journal,
        };
        for finding in &report.findings {
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
    fn reseal(&mut self, place: &Location, repair: &Repair) {
        match (repair, place) {
            (Repair::InodeChecksum(ino) | Repair::ExtentChecksum(ino, _), _) => {
                self.unsealed.insert(*ino);
            }
            (Repair::DirChecksum(_), Location::DirBlock(ino, lblk)) if self.journal => {
                self.unsealed_blocks.insert((*ino, *lblk));
            }
            (Repair::XattrChecksum(_), _) => self.unsealed_attrs = true,
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
            Repair::Sectors(ino, _) if self.unsealed.contains(ino) => {
                self.leave(&Location::Inode(*ino), Doubt::Maps);
            }
            Repair::BlockBitmap(..) | Repair::InodeBitmap(..)
                if self.unsealed_attrs || !self.unsealed.is_empty() =>
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

    /// Takes in a finding that stays.
    fn leave(&mut self, place: &Location, doubt: Doubt) {
        self.doubt = self.doubt.max(doubt);
        match *place {
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
        let sound = |ino: &Ino| !self.inodes.contains(ino);
        let clear = match finding.place {
            Location::DirBlock(ino, lblk) => !self.blocks.contains(&(ino, lblk)),
            _ => true,
        };
        match repair {
            Repair::InodeChecksum(ino) | Repair::ExtentChecksum(ino, _) => {
                self.doubt < Doubt::Maps && sound(ino)
            }
            Repair::Sectors(ino, _) => sound(ino) && !self.unsealed.contains(ino),
            Repair::DirChecksum(place) => {
                let agreed = !self.journal || self.doubt == Doubt::Nothing;
                agreed && sound(&place.dir) && clear
            }
            Repair::EntryKind { block, target, .. } => {
                let sealed = match finding.place {
                    Location::DirBlock(ino, lblk) => !self.unsealed_blocks.contains(&(ino, lblk)),
                    _ => true,
                };
                let settled = sealed || self.doubt == Doubt::Nothing;
                sound(&block.dir) && clear && settled && !self.unsealed.contains(target)
            }
            Repair::XattrChecksum(_) => self.doubt < Doubt::Maps,
            Repair::Descriptor(group) | Repair::UninitFlags(group) => {
                self.doubt < Doubt::Maps && !self.groups.contains(group)
            }
            Repair::Totals { .. }
            | Repair::Counts(..)
            | Repair::BlockBitmap(..)
            | Repair::InodeBitmap(..)
            | Repair::XattrReferences(..) => self.doubt < Doubt::Maps,
            Repair::Links(ino, _) | Repair::Reattach { ino, .. } => {
                self.doubt == Doubt::Nothing && sound(ino)
            }
            Repair::Parent { block, .. } => self.doubt == Doubt::Nothing && sound(&block.dir),
        }
    }
}
