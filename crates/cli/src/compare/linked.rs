//! Hard links: which names of a tree are one file.
//!
//! # Invariants
//! A file is remembered from its first name to its last, as its link count says. So memory is
//! bounded by the files that wait for another name.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use extant::sides::{Attributes, Id};

use super::difference::Difference;

/// The files with several names of both sides, as far as they were met.
#[derive(Default)]
pub(super) struct Linked {
    left: HashMap<Id, Met>,
    right: HashMap<Id, Met>,
}

/// A file of one side.
struct Met {
    /// The file that had its first path on the other side.
    partner: Id,
    first: Vec<u8>,
    /// Names that are left.
    left: u64,
}

/// The knowledge of two files of the same path.
pub(super) enum Pairing {
    /// They were not met before.
    New,
    /// They were met, and compared, by earlier names.
    Known,
    /// One side has a name here that is another file's on the other side.
    Crossed(Difference),
}

impl Linked {
    /// Notes that both files have the path `below`.
    pub(super) fn meet(&mut self, left: &Attributes, right: &Attributes, below: &Path) -> Pairing {
        if left.links <= 1 && right.links <= 1 {
            return Pairing::New;
        }
        let name = |met: &HashMap<Id, Met>, id: &Id| met.get(id).map(|met| met.first.clone());
        let known = (self.left.get(&left.id)).is_some_and(|met| met.partner == right.id)
            && (self.right.get(&right.id)).is_some_and(|met| met.partner == left.id);
        let names = (name(&self.left, &left.id), name(&self.right, &right.id));
        enter(&mut self.left, left, right.id, below);
        enter(&mut self.right, right, left.id, below);
        match names {
            (None, None) => Pairing::New,
            (Some(_), Some(_)) if known => Pairing::Known,
            (left, right) => Pairing::Crossed(Difference::Links(left, right)),
        }
    }
}

fn enter(met: &mut HashMap<Id, Met>, file: &Attributes, partner: Id, below: &Path) {
    let entry = met.entry(file.id).or_insert_with(|| Met {
        partner,
        first: below.as_os_str().as_bytes().to_vec(),
        left: file.links,
    });
    // A damaged link count may be less than the names that are found.
    entry.left = entry.left.saturating_sub(1);
    if entry.left == 0 {
        met.remove(&file.id);
    }
}

#[cfg(test)]
mod tests {
    use extant::{FileKind, Timestamp};

    use super::*;

    fn file(inode: u64, links: u64) -> Attributes {
        Attributes {
            kind: FileKind::Regular,
            perm: 0o644,
            uid: 0,
            gid: 0,
            size: 0,
            links,
            rdev: 0,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            id: Id { device: 0, inode },
        }
    }

    #[test]
    fn names_of_one_file_are_known_and_forgotten_at_the_last() {
        let mut linked = Linked::default();
        let (left, right) = (file(1, 3), file(9, 3));
        let mut meet = |name: &str| linked.meet(&left, &right, Path::new(name));
        assert!(matches!(meet("a"), Pairing::New));
        assert!(matches!(meet("b"), Pairing::Known));
        assert!(matches!(meet("c"), Pairing::Known));
        assert!(linked.left.is_empty() && linked.right.is_empty());
    }

    #[test]
    fn a_name_that_is_another_file_is_a_difference() {
        let mut linked = Linked::default();
        let one = file(1, 2);
        assert!(matches!(
            linked.meet(&one, &file(8, 1), Path::new("a")),
            Pairing::New
        ));
        let crossed = linked.meet(&one, &file(9, 1), Path::new("b"));
        let Pairing::Crossed(found) = crossed else {
            panic!("not noticed");
        };
        assert_eq!(found, Difference::Links(Some(b"a".to_vec()), None));
        // Two pairs of names, crossed.
        let mut linked = Linked::default();
        let (p, q) = (file(1, 2), file(2, 2));
        let (r, s) = (file(3, 2), file(4, 2));
        assert!(matches!(linked.meet(&p, &r, Path::new("a")), Pairing::New));
        assert!(matches!(linked.meet(&q, &s, Path::new("b")), Pairing::New));
        assert!(matches!(
            linked.meet(&p, &s, Path::new("c")),
            Pairing::Crossed(_)
        ));
    }
}
