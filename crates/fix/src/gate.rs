//! Which repairs may be made while other findings stand.
//!
//! # Invariants
//! - A structure gets a new checksum only if nothing else is wrong with it.
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
    /// Inodes whose checksum is wrong.
    unsealed: HashSet<Ino>,
}

/// The findings that may be repaired now, with their repairs.
pub(crate) fn admit(report: &Report) -> impl Iterator<Item = (&Finding, &Repair)> {
    let gate = Gate::of(report);
    let all = report.findings.iter().chain(&report.notes);
    all.filter_map(move |finding| match &finding.remedy {
        Remedy::Repair(repair) if gate.admits(finding, repair) => Some((finding, repair)),
        _ => None,
    })
}

impl Gate {
    fn of(report: &Report) -> Gate {
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
        };
        for finding in &report.findings {
            match &finding.remedy {
                Remedy::Left(doubt) => gate.leave(&finding.place, *doubt),
                Remedy::Repair(Repair::InodeChecksum(ino)) => {
                    gate.unsealed.insert(*ino);
                }
                Remedy::Repair(_) => {}
            }
        }
        // An inode and an entry disagree about its kind, and the inode's checksum is wrong: which
        // of them is right is not known.
        for finding in &report.findings {
            if let Remedy::Repair(Repair::EntryKind { target, .. }) = &finding.remedy
                && gate.unsealed.contains(target)
            {
                gate.leave(&Location::Inode(*target), Doubt::Maps);
            }
        }
        gate
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
            Repair::InodeChecksum(ino) | Repair::Sectors(ino, _) => sound(ino),
            Repair::ExtentChecksum(ino, _) => sound(ino),
            Repair::DirChecksum(place) => sound(&place.dir) && clear,
            Repair::EntryKind { block, target, .. } => {
                sound(&block.dir) && clear && !self.unsealed.contains(target)
            }
            Repair::XattrChecksum(_) => true,
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
