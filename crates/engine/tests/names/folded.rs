//! A world whose directories fold the case of names: every call spells its path in another way.

use std::cell::RefCell;

use extant_casefold::key;
use extant_engine::{Cred, RenameFlags, Volume};
use extant_testkit::Rng;

use super::world::{Answer, Ours, Snapshot, World};

/// `FS_CASEFOLD_FL`.
const CASEFOLD: u32 = 0x4000_0000;

/// A volume of ours, below a folded directory.
pub(crate) struct Folded<'a> {
    ours: Ours<'a>,
    rng: RefCell<Rng>,
}

impl<'a> Folded<'a> {
    pub(crate) fn new(volume: &'a Volume, seed: u64) -> Self {
        Self {
            ours: Ours(volume),
            rng: RefCell::new(Rng::new(seed)),
        }
    }

    /// Makes the directory `top`, which folds names, as all do that are made below it.
    pub(crate) fn make_top(&self, top: &str) {
        let volume = self.ours.0;
        let root = volume.root().unwrap();
        let cred = Cred::root();
        let top = volume.mkdir(&root, top.as_bytes(), 0o755, &cred).unwrap();
        let flags = volume.flags(&top).unwrap();
        volume.set_flags(&top, flags | CASEFOLD, &cred).unwrap();
    }

    /// Another spelling of all of `path` below its first name.
    fn spell(&self, path: &str) -> String {
        let mut rng = self.rng.borrow_mut();
        let (top, below) = path.split_once('/').unwrap_or((path, ""));
        let mut spelled = top.to_owned();
        if !below.is_empty() {
            spelled.push('/');
        }
        for c in below.chars() {
            match (c, rng.below(4)) {
                ('ä', 0) => spelled.push('Ä'),
                ('ä', 1) => spelled.push_str("a\u{308}"),
                ('ä', 2) => spelled.push_str("\u{ad}A\u{308}"),
                (c, 0 | 1) => spelled.extend(c.to_uppercase()),
                (c, _) => spelled.push(c),
            }
        }
        spelled
    }
}

/// A snapshot under the keys of its paths.
pub(crate) fn by_key(snapshot: Snapshot) -> Snapshot {
    let count = snapshot.len();
    let key = |path: String| String::from_utf8(key(path.as_bytes()).into_owned()).unwrap();
    let by_key: Snapshot = snapshot.into_iter().map(|(p, t)| (key(p), t)).collect();
    assert_eq!(by_key.len(), count, "no name stands twice");
    by_key
}

impl World for Folded<'_> {
    fn mkdir(&self, path: &str, perm: u16) -> Answer {
        self.ours.mkdir(&self.spell(path), perm)
    }

    fn create(&self, path: &str, perm: u16) -> Answer {
        self.ours.create(&self.spell(path), perm)
    }

    fn fifo(&self, path: &str, perm: u16) -> Answer {
        self.ours.fifo(&self.spell(path), perm)
    }

    fn symlink(&self, target: &str, path: &str) -> Answer {
        self.ours.symlink(target, &self.spell(path))
    }

    fn link(&self, old: &str, new: &str) -> Answer {
        self.ours.link(&self.spell(old), &self.spell(new))
    }

    fn unlink(&self, path: &str) -> Answer {
        self.ours.unlink(&self.spell(path))
    }

    fn rmdir(&self, path: &str) -> Answer {
        self.ours.rmdir(&self.spell(path))
    }

    fn rename(&self, old: &str, new: &str, flags: RenameFlags) -> Answer {
        self.ours.rename(&self.spell(old), &self.spell(new), flags)
    }

    fn snapshot(&self, path: &str) -> Snapshot {
        by_key(self.ours.snapshot(path))
    }
}
