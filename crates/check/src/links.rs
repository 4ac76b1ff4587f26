//! Pass 3: connectivity and link counts.

use std::collections::{BTreeSet, HashMap, HashSet};

use extant_disk::features::RoCompat;
use extant_disk::file_kind::FileKind;
use extant_disk::location::Location;
use extant_units::Ino;

use crate::dirs::Tree;
use crate::findings::Findings;
use crate::inodes::{Facts, Scan};
use crate::volume::Volume;

/// From this number of links on a directory's count is 1, which means "many" (`dir_nlink`).
const MANY_LINKS: u32 = 65_000;

/// Compares links and connectivity with what the directories say.
pub(crate) fn compare(
    volume: &Volume,
    scan: &Scan,
    tree: &Tree,
    orphans: &BTreeSet<Ino>,
    findings: &Findings,
) {
    connectivity(scan, tree, orphans, findings);
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
            findings.add(
                Location::Inode(facts.ino),
                format_args!("no name leads to it, its link count is {stored}"),
            );
        } else if stored != found && !(is_dir && dir_nlink && stored == 1 && may_overflow) {
            findings.add(
                Location::Inode(facts.ino),
                format_args!("link count {stored}, found {found}"),
            );
        }
    }
}

/// Checks that a way leads from the root to each directory, and that its ".." leads to its parent.
fn connectivity(scan: &Scan, tree: &Tree, orphans: &BTreeSet<Ino>, findings: &Findings) {
    if !matches!(
        scan.facts_of(Ino::ROOT),
        Some(Facts {
            kind: Some(FileKind::Directory),
            ..
        })
    ) {
        findings.add(Location::Inode(Ino::ROOT), "the root is no directory");
    }
    let mut connected = HashSet::from([Ino::ROOT]);
    for dir in &scan.dirs {
        let ino = dir.ino;
        if ino != Ino::ROOT && !orphans.contains(&ino) && !reaches_root(ino, tree, &mut connected) {
            findings.add(
                Location::Inode(ino),
                "directory without a way from the root",
            );
        }
        let parent = if ino == Ino::ROOT {
            Some(&ino)
        } else {
            tree.parents.get(&ino)
        };
        if let (Some(parent), Some(dotdot)) = (parent, tree.dotdots.get(&ino))
            && parent != dotdot
        {
            findings.add(
                Location::Inode(ino),
                format_args!("\"..\" leads to inode {dotdot}, the parent is {parent}"),
            );
        }
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
