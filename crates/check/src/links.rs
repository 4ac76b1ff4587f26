//! Pass 3: connectivity and link counts.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use extant_disk::damage::{AttributeDamage, LinkDamage};
use extant_disk::features::RoCompat;
use extant_disk::file_kind::FileKind;
use extant_disk::htree::IndexKind;
use extant_disk::location::Location;
use extant_units::{Ino, Lblk, Pblk};

use crate::dirs::Tree;
use crate::facts::Facts;
use crate::findings::Findings;
use crate::inodes::{Dir, Scan};
use crate::maps::blocks_of;
use crate::remedy::{DirPlace, Repair};
use crate::role::Role;
use crate::volume::Volume;

/// From this number of links on a directory's count is 1, which means "many" (`dir_nlink`).
const MANY_LINKS: u32 = 65_000;
/// Blocks of lost+found in which a repair looks for room.
const LOST_FOUND_BLOCKS: usize = 64;

/// Compares links and connectivity with what the directories say.
pub(crate) fn compare(
    volume: &Volume,
    scan: &Scan,
    tree: &Tree,
    orphans: &BTreeSet<Ino>,
    findings: &Findings,
) {
    let lost_found = lost_found(scan, tree);
    connectivity(scan, tree, orphans, &lost_found, findings);
    let dir_nlink = volume.sb.features().has_ro_compat(RoCompat::DIR_NLINK);
    let leaving = leaving(scan, tree, orphans);
    let ordinary =
        |facts: &&Facts| facts.ino == Ino::ROOT || facts.ino.get() >= volume.sb.first_inode();
    let known = scan
        .facts
        .iter()
        .flatten()
        .filter(|facts| !facts.unreadable);
    for facts in known.filter(ordinary) {
        let leaving = leaving.get(&facts.ino).copied().unwrap_or(0);
        let references = facts.references();
        debug_assert!(
            leaving <= references,
            "a \"..\" counts among the references"
        );
        let found = references - leaving;
        let stored = u32::from(facts.links);
        let is_dir = facts.kind == Some(FileKind::Directory);
        if stored == 0 && orphans.contains(&facts.ino) && (found == 0 || is_dir) {
            continue;
        }
        if matches!(
            Role::of(&volume.sb, facts.ino),
            Role::OrphanFile | Role::Quota
        ) {
            continue;
        }
        if facts.is_value {
            value(facts, scan, findings);
            continue;
        }
        let links = LinkCount {
            stored,
            found,
            may_be_many: is_dir && dir_nlink,
            overflown: facts.overflown,
        };
        if found == 0 {
            let damage = LinkDamage::NoName { links: stored };
            lost(facts, damage, &lost_found, findings);
        } else if !links.is_right() {
            let place = Location::Inode(facts.ino);
            let damage = LinkDamage::Count { stored, found };
            match links.right() {
                Some(count) => {
                    findings.add_repairable(place, damage, || Repair::Links(facts.ino, count));
                }
                None => findings.add_alone(place, damage),
            }
        }
    }
}

/// Checks that attributes have the value of an inode. However many have it, they are one link.
fn value(facts: &Facts, scan: &Scan, findings: &Findings) {
    let place = Location::Inode(facts.ino);
    let values = scan.values.as_ref();
    if values.is_some_and(|values| values.binary_search(&facts.ino).is_err()) {
        findings.add_alone(place, AttributeDamage::UnusedValue);
    } else if facts.links != 1 {
        let (stored, found) = (u32::from(facts.links), 1);
        let repair = || Repair::Links(facts.ino, 1);
        findings.add_repairable(place, LinkDamage::Count { stored, found }, repair);
    }
}

/// The link count of an inode, beside the references to it.
struct LinkCount {
    stored: u32,
    found: u32,
    /// Set for a directory of a volume with `dir_nlink`.
    may_be_many: bool,
    /// Set for a directory that had too many links to be counted: it keeps its count of one.
    overflown: bool,
}

impl LinkCount {
    /// Returns whether the count is one that Linux stores for so many references.
    fn is_right(&self) -> bool {
        let many = self.overflown || self.found >= MANY_LINKS;
        self.stored == self.found || self.may_be_many && self.stored == 1 && many
    }

    /// The count that says how many references there are, if there is one.
    fn right(&self) -> Option<u16> {
        match self.may_be_many && self.found >= MANY_LINKS {
            true => Some(1),
            false => u16::try_from(self.found)
                .ok()
                .filter(|_| self.found <= MANY_LINKS),
        }
    }
}

/// Checks that a way leads from the root to each directory, and that its ".." leads to its parent.
fn connectivity(
    scan: &Scan,
    tree: &Tree,
    orphans: &BTreeSet<Ino>,
    lost_found: &Arc<[DirPlace]>,
    findings: &Findings,
) {
    if !matches!(
        scan.facts_of(Ino::ROOT),
        Some(Facts {
            kind: Some(FileKind::Directory),
            ..
        })
    ) {
        // Blocks and inodes that only the root leads to look free.
        findings.add_hiding_inodes(Location::Inode(Ino::ROOT), LinkDamage::Root);
    }
    let mut ways = Ways::new(scan, tree);
    let stands = tree.parents.iter().zip(&tree.dotdots);
    for ((at, dir), (parent, dotdot)) in scan.dirs.iter().enumerate().zip(stands) {
        let ino = dir.ino;
        if ino != Ino::ROOT && !orphans.contains(&ino) && !ways.reach_root(at) {
            let damage = LinkDamage::NoWayFromRoot;
            match scan.facts_of(ino) {
                // Without an entry it is the top of what is cut off.
                Some(facts) if parent.is_none() => lost(facts, damage, lost_found, findings),
                _ => findings.add_alone(Location::Inode(ino), damage),
            }
        }
        let parent = match ino {
            Ino::ROOT => Some(ino),
            _ => *parent,
        };
        if let (Some(parent), Some(dotdot)) = (parent, *dotdot)
            && parent != dotdot
        {
            let damage = LinkDamage::Parent { dotdot, parent };
            match first_block(dir) {
                Some(block) => {
                    let repair = || Repair::Parent { block, parent };
                    findings.add_repairable(Location::Inode(ino), damage, repair);
                }
                None => findings.add_alone(Location::Inode(ino), damage),
            }
        }
    }
}

/// Reports an inode that no name leads to; a repair gives it one in lost+found.
fn lost(facts: &Facts, damage: LinkDamage, lost_found: &Arc<[DirPlace]>, findings: &Findings) {
    let place = Location::Inode(facts.ino);
    match facts.kind {
        Some(kind) if !lost_found.is_empty() => {
            let repair = || Repair::Reattach {
                ino: facts.ino,
                kind: kind.file_type() as u8,
                into: Arc::clone(lost_found),
            };
            findings.add_repairable(place, damage, repair);
        }
        _ => findings.add_alone(place, damage),
    }
}

/// The blocks of a lost+found that has no index, and whose names are not encrypted.
fn lost_found(scan: &Scan, tree: &Tree) -> Arc<[DirPlace]> {
    let dir = scan
        .dirs
        .iter()
        .find(|dir| Some(dir.ino) == tree.lost_found);
    let usable = dir.filter(|dir| !dir.indexed && !dir.encrypted);
    let runs = usable.into_iter().flat_map(|dir| {
        let blocks = dir.runs.iter().flat_map(blocks_of);
        blocks.map(|(_, pblk)| place(dir, pblk))
    });
    runs.take(LOST_FOUND_BLOCKS).collect()
}

/// The block that holds the dots of a directory.
fn first_block(dir: &Dir) -> Option<DirPlace> {
    let run = dir.runs.first().filter(|run| run.lblk == Lblk::new(0))?;
    Some(place(dir, run.pblk))
}

fn place(dir: &Dir, pblk: Pblk) -> DirPlace {
    DirPlace {
        dir: dir.ino,
        pblk,
        index: dir.indexed.then_some(IndexKind::Root),
    }
}

/// For each inode, the directories that were removed while open and whose ".." still leads to it.
/// Its link count does not include them any more.
fn leaving(scan: &Scan, tree: &Tree, orphans: &BTreeSet<Ino>) -> HashMap<Ino, u32> {
    let mut leaving = HashMap::new();
    for orphan in orphans {
        let unlinked = scan.facts_of(*orphan).is_some_and(|f| f.links == 0);
        let dotdot = scan.dir_at(*orphan).and_then(|at| tree.dotdots.get(at));
        if let Some(parent) = dotdot.copied().flatten().filter(|_| unlinked) {
            *leaving.entry(parent).or_insert(0) += 1;
        }
    }
    leaving
}

/// The ways from directories up to the root.
struct Ways<'a> {
    scan: &'a Scan,
    tree: &'a Tree,
    /// For each directory whether a way leads from it to the root, as far as is known.
    known: Vec<Way>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Unknown,
    /// Being followed.
    Open,
    Root,
    Nowhere,
}

impl<'a> Ways<'a> {
    fn new(scan: &'a Scan, tree: &'a Tree) -> Self {
        let mut known = vec![Way::Unknown; scan.dirs.len()];
        if let Some(root) = scan.dir_at(Ino::ROOT).and_then(|at| known.get_mut(at)) {
            *root = Way::Root;
        }
        Self { scan, tree, known }
    }

    /// Follows parents up to a directory of which the way is known. It visits no directory twice.
    fn reach_root(&mut self, from: usize) -> bool {
        let (mut followed, mut at) = (Vec::new(), Some(from));
        let end = loop {
            let Some((way, place)) = at.and_then(|at| Some((self.known.get_mut(at)?, at))) else {
                break Way::Nowhere;
            };
            match way {
                Way::Unknown => *way = Way::Open,
                // A circle.
                Way::Open => break Way::Nowhere,
                Way::Root | Way::Nowhere => break *way,
            }
            followed.push(place);
            let parent = self.tree.parents.get(place).copied().flatten();
            at = parent.and_then(|parent| self.scan.dir_at(parent));
        };
        for place in followed {
            if let Some(way) = self.known.get_mut(place) {
                *way = end;
            }
        }
        end == Way::Root
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Up to 64,999 links of a directory are counted, and up to 65,000 of a file.
    #[test]
    fn many_links_of_a_directory_count_as_one() {
        let links = |may_be_many, overflown, stored, found| LinkCount {
            stored,
            found,
            may_be_many,
            overflown,
        };
        for (may_be_many, overflown, stored, found, is_right, right) in [
            (true, false, 2, 2, true, Some(2)),
            (true, false, 1, 2, false, Some(2)),
            (true, false, 64_999, 64_999, true, Some(64_999)),
            (true, false, 1, 64_999, false, Some(64_999)),
            (true, false, 1, 65_000, true, Some(1)),
            (true, false, 2, 65_000, false, Some(1)),
            (true, false, 1, 70_000, true, Some(1)),
            (true, false, 4464, 70_000, false, Some(1)),
            // Subdirectories were removed.
            (true, true, 1, 2, true, Some(2)),
            (true, true, 3, 2, false, Some(2)),
            // A file, or a volume on which directories are counted like files.
            (false, false, 1, 65_000, false, Some(65_000)),
            (false, false, 65_000, 65_000, true, Some(65_000)),
            (false, true, 1, 65_000, false, Some(65_000)),
            (false, false, 1, 65_001, false, None),
            (false, false, 4464, 70_000, false, None),
        ] {
            let links = links(may_be_many, overflown, stored, found);
            let what = format!("{may_be_many} {overflown}: {stored} of {found}");
            assert_eq!(links.is_right(), is_right, "{what}");
            assert_eq!(links.right(), right, "{what}");
        }
    }
}
