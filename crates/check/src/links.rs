//! Pass 3: connectivity and link counts.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use extant_disk::features::RoCompat;
use extant_disk::file_kind::FileKind;
use extant_disk::htree::IndexKind;
use extant_disk::location::Location;
use extant_units::{Ino, Lblk, Pblk};

use crate::dirs::Tree;
use crate::findings::Findings;
use crate::inodes::{Dir, Facts, Scan};
use crate::maps::blocks_of;
use crate::remedy::{DirPlace, Repair};
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
    for facts in scan.facts.iter().flatten().filter(ordinary) {
        let count = |of: &HashMap<Ino, u32>| of.get(&facts.ino).copied().unwrap_or(0);
        let (references, leaving) = (count(&tree.references), count(&leaving));
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
        let own = volume.sb.orphan_file_inode();
        if own == Some(facts.ino) {
            continue;
        }
        // A directory that once had too many links to be counted keeps its count of one.
        let may_overflow = facts.overflown || found >= MANY_LINKS;
        if found == 0 {
            let what = format_args!("no name leads to it, its link count is {stored}");
            lost(facts, what, &lost_found, findings);
        } else if stored != found && !(is_dir && dir_nlink && stored == 1 && may_overflow) {
            let place = Location::Inode(facts.ino);
            let what = format_args!("link count {stored}, found {found}");
            let count = match is_dir && dir_nlink && found >= MANY_LINKS {
                true => Some(1),
                false => u16::try_from(found).ok().filter(|_| found <= MANY_LINKS),
            };
            match count {
                Some(count) => {
                    findings.add_repairable(place, what, || Repair::Links(facts.ino, count));
                }
                None => findings.add_alone(place, what),
            }
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
        findings.add_hiding_inodes(Location::Inode(Ino::ROOT), "the root is no directory");
    }
    let mut connected = HashSet::from([Ino::ROOT]);
    for dir in &scan.dirs {
        let ino = dir.ino;
        if ino != Ino::ROOT && !orphans.contains(&ino) && !reaches_root(ino, tree, &mut connected) {
            let what = "directory without a way from the root";
            match scan.facts_of(ino) {
                // Without an entry it is the top of what is cut off.
                Some(facts) if !tree.parents.contains_key(&ino) => {
                    lost(facts, what, lost_found, findings);
                }
                _ => findings.add_alone(Location::Inode(ino), what),
            }
        }
        let parent = if ino == Ino::ROOT {
            Some(&ino)
        } else {
            tree.parents.get(&ino)
        };
        if let (Some(parent), Some(dotdot)) = (parent, tree.dotdots.get(&ino))
            && parent != dotdot
        {
            let what = format_args!("\"..\" leads to inode {dotdot}, the parent is {parent}");
            match first_block(dir) {
                Some(block) => {
                    let parent = *parent;
                    let repair = || Repair::Parent { block, parent };
                    findings.add_repairable(Location::Inode(ino), what, repair);
                }
                None => findings.add_alone(Location::Inode(ino), what),
            }
        }
    }
}

/// Reports an inode that no name leads to; a repair gives it one in lost+found.
fn lost(
    facts: &Facts,
    what: impl std::fmt::Display,
    lost_found: &Arc<[DirPlace]>,
    findings: &Findings,
) {
    let place = Location::Inode(facts.ino);
    match facts.kind {
        Some(kind) if !lost_found.is_empty() => {
            let repair = || Repair::Reattach {
                ino: facts.ino,
                kind: kind.file_type() as u8,
                into: Arc::clone(lost_found),
            };
            findings.add_repairable(place, what, repair);
        }
        _ => findings.add_alone(place, what),
    }
}

/// The blocks of a lost+found that has no index.
fn lost_found(scan: &Scan, tree: &Tree) -> Arc<[DirPlace]> {
    let dir = scan
        .dirs
        .iter()
        .find(|dir| Some(dir.ino) == tree.lost_found);
    let runs = dir.into_iter().filter(|dir| !dir.indexed).flat_map(|dir| {
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
    for dir in scan.dirs.iter().filter(|dir| orphans.contains(&dir.ino)) {
        let unlinked = scan.facts_of(dir.ino).is_some_and(|f| f.links == 0);
        if let Some(parent) = tree.dotdots.get(&dir.ino).filter(|_| unlinked) {
            *leaving.entry(*parent).or_insert(0) += 1;
        }
    }
    leaving
}

/// Follows parents up to a directory that is known to be connected. Bounded: it visits no directory
/// twice.
fn reaches_root(from: Ino, tree: &Tree, connected: &mut HashSet<Ino>) -> bool {
    let mut way = HashSet::new();
    let mut at = from;
    while !connected.contains(&at) {
        if !way.insert(at) {
            return false;
        }
        match tree.parents.get(&at) {
            Some(parent) => at = *parent,
            None => return false,
        }
    }
    connected.extend(way);
    true
}
