//! Promises of a run, from which event until which, and what its files may hold.
//!
//! Contents are distinguished by sectors: each sector of a file has a version, and the bytes of a
//! version are a function of file, version and position ([`content`]). Version 0 is zeros: a hole.
//! After an fsync each sector must have the version it had; a later overwrite adds the new version
//! to what is allowed, until the next fsync leaves that one only. A size moves between bounds
//! alike. Appended sectors have no version but their own from the beginning: data that was
//! not written shows neither as junk nor as zeros, because the size moves last.
//!
//! Positions are those of the recorder. A change is entered with the position *before* the
//! operation, a promise with the position *after* it. Files are entered by one thread each at a
//! time; different files by any.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use extant_testkit::content;

use crate::moves::Origin;

/// Bytes that a drive writes whole, and that have a version.
pub(crate) const SECTOR: u64 = 512;

/// The version of a sector.
pub(crate) type Sector = u16;

/// A place in `Vec`s of sectors.
pub(crate) fn index(number: u64) -> usize {
    usize::try_from(number).expect("files of tests are small")
}

/// The bytes of `file` in `pos..pos + len`, which were written there as `version`.
fn bytes(file: u64, version: Sector, pos: u64, len: u64) -> Vec<u8> {
    match version {
        0 => vec![0; index(len)],
        version => content::fill(file << 16 | u64::from(version), pos, index(len)),
    }
}

/// A file of the run, named or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct File {
    /// Its size now, and its bounds since the last fsync.
    pub(crate) len: u64,
    pub(crate) min: u64,
    pub(crate) max: u64,
    /// The version of each sector now.
    pub(crate) now: Vec<Sector>,
    /// The versions since the last fsync that a sector may have.
    pub(crate) allowed: Vec<Vec<Sector>>,
    /// The versions that it ever may have had.
    pub(crate) ever: Vec<Vec<Sector>>,
    /// The largest size ever.
    pub(crate) longest: u64,
    /// Offsets at which it was cut since the last fsync, and where it ended since then; and the
    /// same for all its life. The rest of the last block is written as zeros, in place, while the
    /// size on disk may be the one before the cut.
    pub(crate) cuts: Vec<u64>,
    pub(crate) ever_cut: Vec<u64>,
    /// The newest version.
    pub(crate) newest: Sector,
    /// Versions that are others, written elsewhere.
    pub(crate) moved: BTreeMap<Sector, Origin>,
    /// Bytes that the file has space for at least, since space was given to it ahead of data: now,
    /// and since the last fsync.
    pub(crate) space: u64,
    pub(crate) kept: u64,
    /// Attributes: the seed of the value now, and those allowed since the last fsync.
    pub(crate) attrs: BTreeMap<String, (Option<u64>, Vec<Option<u64>>)>,
}

impl File {
    /// The bytes in `pos..pos + len` of this file, number `id`, whose sector there has `version`.
    pub(crate) fn bytes(&self, id: u64, version: Sector, pos: u64, len: u64) -> Vec<u8> {
        let origin = self.origin(version);
        let written = pos.wrapping_add_signed(-origin.by);
        bytes(origin.file.unwrap_or(id), origin.version, written, len)
    }

    pub(crate) fn push(&mut self, sector: u64, version: Sector) {
        let at = index(sector);
        for list in [&mut self.allowed, &mut self.ever] {
            if list.len() <= at {
                list.resize(at + 1, Vec::new());
            }
            if !list[at].contains(&version) {
                list[at].push(version);
            }
        }
        if self.now.len() <= at {
            self.now.resize(at + 1, 0);
        }
        self.now[at] = version;
    }

    pub(crate) fn resize(&mut self, len: u64) {
        for cuts in [&mut self.cuts, &mut self.ever_cut] {
            if len < self.len || !cuts.is_empty() {
                cuts.push(len);
            }
        }
        self.len = len;
        self.min = self.min.min(len);
        self.max = self.max.max(len);
        self.longest = self.longest.max(len);
    }

    /// More bytes at the end. A sector that was begun keeps its version.
    fn append(&mut self, more: u64) {
        for sector in self.len.div_ceil(SECTOR)..(self.len + more).div_ceil(SECTOR) {
            self.push(sector, 1);
        }
        self.newest = self.newest.max(1);
        self.resize(self.len + more);
    }

    /// The size is set to more. It is durable with that, and what was written behind the durable
    /// end need not be.
    pub(crate) fn grow(&mut self, len: u64) {
        self.outrun();
        self.extend(len);
    }

    /// The size on disk may move past data that has not arrived.
    pub(crate) fn outrun(&mut self) {
        for at in index(self.min / SECTOR)..self.now.len() {
            for list in [&mut self.allowed[at], &mut self.ever[at]] {
                if !list.contains(&0) {
                    list.push(0);
                }
            }
        }
    }

    /// Zeros up to `len`. Both are whole sectors.
    fn extend(&mut self, len: u64) {
        for sector in self.len / SECTOR..len / SECTOR {
            self.push(sector, 0);
        }
        self.resize(len);
    }

    /// A new version in whole sectors. What lies between the old end and `pos` becomes a hole.
    fn overwrite(&mut self, pos: u64, len: u64) -> Sector {
        if pos > self.len {
            self.extend(pos);
        }
        self.newest += 1;
        for sector in pos / SECTOR..(pos + len) / SECTOR {
            self.push(sector, self.newest);
        }
        self.resize(self.len.max(pos + len));
        self.newest
    }

    /// The size is set to less. It is on disk with that, and may be more than it was there.
    fn truncate(&mut self, len: u64) {
        self.lose_space();
        self.now.truncate(index(len.div_ceil(SECTOR)));
        if len > self.min {
            self.outrun();
        }
        self.resize(len);
    }

    /// An fsync returned: what is now is all that is allowed.
    fn acknowledge(&mut self) {
        (self.min, self.max) = (self.len, self.len);
        self.kept = self.space;
        self.cuts.clear();
        self.allowed = self.now.iter().map(|version| vec![*version]).collect();
        for (now, allowed) in self.attrs.values_mut() {
            *allowed = vec![*now];
        }
    }
}

/// Something that may hold after a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// At `path` is `file`, with a size in these bounds, and with allowed sectors.
    Holds {
        path: String,
        file: u64,
        min: u64,
        max: u64,
        cuts: Vec<u64>,
        allowed: Vec<Vec<Sector>>,
    },
    /// The file at `path` has the attribute `key` with a value of one of these seeds, or not at
    /// all.
    Attr {
        path: String,
        file: u64,
        key: String,
        allowed: Vec<Option<u64>>,
    },
    /// The file at `path` has space for so many bytes at least.
    Space { path: String, file: u64, least: u64 },
    /// Nothing is at `path`.
    Gone { path: String },
}

impl Claim {
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Holds { path, .. }
            | Self::Attr { path, .. }
            | Self::Space { path, .. }
            | Self::Gone { path } => path,
        }
    }

    pub(crate) fn is_about(&self, id: u64) -> bool {
        match self {
            Self::Holds { file, .. } | Self::Attr { file, .. } | Self::Space { file, .. } => {
                *file == id
            }
            Self::Gone { .. } => false,
        }
    }
}

/// From event `from` until event `until`, one of the claims holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Promise {
    pub(crate) any: Vec<Claim>,
    pub(crate) from: usize,
    pub(crate) until: usize,
}

/// All that a run promised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    /// Every file there ever was, by number.
    pub(crate) files: BTreeMap<u64, File>,
    /// Files by path.
    names: BTreeMap<String, u64>,
    /// Paths without a file, since the last sync of everything.
    vacant: Vec<String>,
    pub(crate) promises: Vec<Promise>,
    /// The volume refuses changes.
    stopped: bool,
}

impl Ledger {
    /// A sync has failed: the volume refuses what is entered from now on. What was promised stays.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    /// The paths of all files.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    /// The file at `path`.
    pub(crate) fn at(&self, path: &str) -> u64 {
        *self.names.get(path).expect("the workload made it")
    }

    pub(crate) fn file(&self, id: u64) -> &File {
        &self.files[&id]
    }

    /// A new, empty file is about to be made at `path`.
    pub(crate) fn create(&mut self, path: &str, now: usize) -> u64 {
        let id = self.files.len() as u64 + 1;
        self.files.insert(id, File::default());
        self.names.insert(path.to_owned(), id);
        self.occupy(path, now);
        id
    }

    /// `path` may stop to be vacant.
    fn occupy(&mut self, path: &str, now: usize) {
        self.vacant.retain(|vacant| vacant != path);
        self.close(now, |claim| {
            matches!(claim, Claim::Gone { .. }) && claim.path() == path
        });
    }

    /// `more` bytes are about to be appended; returns what they are.
    pub(crate) fn append(&mut self, id: u64, more: u64, now: usize) -> Vec<u8> {
        let old = self.file(id).len;
        self.change(id, now, |file| file.append(more));
        let file = self.file(id);
        let mut out = Vec::new();
        let (mut pos, end) = (old, old + more);
        while pos < end {
            let next = ((pos / SECTOR + 1) * SECTOR).min(end);
            let version = file.now[index(pos / SECTOR)];
            out.extend(file.bytes(id, version, pos, next - pos));
            pos = next;
        }
        out
    }

    /// Whole sectors are about to be written; returns what with.
    pub(crate) fn overwrite(&mut self, id: u64, pos: u64, len: u64, now: usize) -> Vec<u8> {
        let mut version = 0;
        self.change(id, now, |file| version = file.overwrite(pos, len));
        bytes(id, version, pos, len)
    }

    /// The size is about to be set: to less, or, in whole sectors, to more.
    pub(crate) fn resize(&mut self, id: u64, len: u64, now: usize) {
        self.change(id, now, |file| {
            if len > file.len {
                file.grow(len);
            } else {
                file.truncate(len);
            }
        });
    }

    /// An attribute is about to get the value of a seed, or to go.
    pub(crate) fn set_attr(&mut self, id: u64, key: &str, value: Option<u64>, now: usize) {
        self.change(id, now, |file| {
            let attr = file.attrs.entry(key.to_owned());
            let (current, allowed) = attr.or_insert_with(|| (None, vec![None]));
            *current = value;
            allowed.push(value);
        });
    }

    /// `old` is about to be renamed to `new`, over what may be there.
    pub(crate) fn rename(&mut self, old: &str, new: &str, now: usize) {
        let id = self.names.remove(old).expect("the workload made it");
        let there = self.names.insert(new.to_owned(), id);
        self.occupy(new, now);
        let moved = claims(id, new, self.file(id));
        self.split(now, |any| {
            if any.iter().any(|claim| claim.is_about(id)) {
                // What is promised about the file holds at either place.
                let twins: Vec<Claim> = any.iter().filter_map(|c| at_path(c, id, new)).collect();
                any.extend(twins);
            } else if there.is_some_and(|there| any.iter().any(|claim| claim.is_about(there))) {
                match any[0] {
                    Claim::Holds { .. } => any.push(moved[0].clone()),
                    // Nothing is known of the newcomer's attributes.
                    _ => any.clear(),
                }
            }
        });
        self.vacant.push(old.to_owned());
    }

    /// `path` is about to be removed.
    pub(crate) fn unlink(&mut self, path: &str, now: usize) -> u64 {
        let id = self.names.remove(path).expect("the workload made it");
        self.close(now, |claim| claim.is_about(id) || claim.path() == path);
        self.vacant.push(path.to_owned());
        id
    }

    /// An fsync of the file at `path` has returned.
    pub(crate) fn synced(&mut self, path: &str, now: usize) {
        let id = self.at(path);
        self.close(now, |claim| claim.is_about(id));
        let file = self.files.get_mut(&id).expect("every number has a file");
        file.acknowledge();
        for claim in claims(id, path, &self.files[&id]) {
            self.promise(vec![claim], now);
        }
    }

    /// A sync of everything has returned.
    pub(crate) fn all_synced(&mut self, now: usize) {
        for path in self.paths() {
            self.synced(&path, now);
        }
        for path in std::mem::take(&mut self.vacant) {
            self.promise(vec![Claim::Gone { path }], now);
        }
    }

    fn promise(&mut self, any: Vec<Claim>, from: usize) {
        self.promises.push(Promise {
            any,
            from,
            until: usize::MAX,
        });
    }

    /// Changes a file, and widens what is promised about it.
    pub(crate) fn change(&mut self, id: u64, now: usize, f: impl FnOnce(&mut File)) {
        let file = self.files.get_mut(&id).expect("every number has a file");
        f(file);
        let file = file.clone();
        self.split(now, |any| {
            for claim in any.iter_mut().filter(|claim| claim.is_about(id)) {
                let fresh = claims(id, claim.path(), &file);
                let same = |other: &&Claim| match (&*claim, other) {
                    (Claim::Attr { key, .. }, Claim::Attr { key: of, .. }) => key == of,
                    (Claim::Holds { .. }, Claim::Holds { .. })
                    | (Claim::Space { .. }, Claim::Space { .. }) => true,
                    _ => false,
                };
                match (fresh.iter().find(same).cloned(), &mut *claim) {
                    (Some(found), claim) => *claim = found,
                    (None, Claim::Space { least, .. }) => *least = 0,
                    (None, claim) => panic!("{claim} is forgotten"),
                }
            }
        });
    }

    /// Lets open promises go on as `f` makes them; one that `f` empties ends.
    pub(crate) fn split(&mut self, now: usize, f: impl Fn(&mut Vec<Claim>)) {
        if self.stopped {
            return;
        }
        let mut fresh = Vec::new();
        for promise in self.promises.iter_mut().filter(|p| p.until == usize::MAX) {
            let mut any = promise.any.clone();
            f(&mut any);
            if any == promise.any {
                continue;
            }
            promise.until = now;
            if !any.is_empty() {
                fresh.push(any);
            }
        }
        fresh.into_iter().for_each(|any| self.promise(any, now));
        self.promises.retain(|p| p.from < p.until);
    }

    /// Ends the open promises with a claim like that.
    fn close(&mut self, now: usize, which: impl Fn(&Claim) -> bool) {
        self.split(now, |any| {
            if any.iter().any(&which) {
                any.clear();
            }
        });
    }

    /// The promises that hold when `completed` events have.
    pub(crate) fn due(&self, completed: usize) -> impl Iterator<Item = &Promise> {
        let promises = self.promises.iter();
        promises.filter(move |p| p.from <= completed && completed < p.until)
    }
}

/// Claims about `file` at `path`: its content first.
pub(crate) fn claims(id: u64, path: &str, file: &File) -> Vec<Claim> {
    let holds = Claim::Holds {
        path: path.to_owned(),
        file: id,
        min: file.min,
        max: file.max,
        cuts: file.cuts.clone(),
        allowed: file.allowed.clone(),
    };
    let attrs = file.attrs.iter().map(|(key, (_, allowed))| Claim::Attr {
        path: path.to_owned(),
        file: id,
        key: key.clone(),
        allowed: allowed.clone(),
    });
    let space = Claim::Space {
        path: path.to_owned(),
        file: id,
        least: file.kept,
    };
    let space = (file.kept > 0).then_some(space);
    std::iter::once(holds).chain(attrs).chain(space).collect()
}

/// The same claim about `id`, at another path.
fn at_path(claim: &Claim, id: u64, to: &str) -> Option<Claim> {
    let mut twin = claim.is_about(id).then(|| claim.clone())?;
    if let Claim::Holds { path, .. } | Claim::Attr { path, .. } | Claim::Space { path, .. } =
        &mut twin
    {
        to.clone_into(path);
    }
    Some(twin)
}

/// A short text for messages.
impl std::fmt::Display for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Holds {
                path,
                file,
                min,
                max,
                ..
            } => {
                write!(f, "{path} is file {file} of {min}..={max} bytes")
            }
            Self::Attr {
                path, key, allowed, ..
            } => write!(f, "{path} has {key} of {allowed:?}"),
            Self::Space { path, least, .. } => write!(f, "{path} has space for {least} bytes"),
            Self::Gone { path } => write!(f, "{path} is gone"),
        }
    }
}

/// The versions of sectors as a text: `1/2*3,0` are three sectors of version 1 or 2 and one that is
/// a hole.
pub(crate) fn sectors_to_text(sectors: &[Vec<Sector>]) -> String {
    let mut out = String::from("-");
    for run in sectors.chunk_by(|a, b| a == b) {
        let versions: Vec<String> = run[0].iter().map(Sector::to_string).collect();
        let _ = write!(out, ",{}*{}", versions.join("/"), run.len());
    }
    out
}

/// The reverse.
pub(crate) fn sectors_from_text(text: &str) -> Option<Vec<Vec<Sector>>> {
    let mut all = Vec::new();
    for run in text.split(',').skip(1) {
        let (versions, count) = run.split_once('*')?;
        let versions = versions.split('/').filter(|v| !v.is_empty());
        let versions: Option<Vec<Sector>> = versions.map(|v| v.parse().ok()).collect();
        all.extend(std::iter::repeat_n(versions?, count.parse().ok()?));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises at an event, as text.
    fn due(ledger: &Ledger, completed: usize) -> Vec<String> {
        let texts = ledger.due(completed).map(|promise| {
            let any = promise.any.iter().map(Claim::to_string);
            any.collect::<Vec<_>>().join(" or ")
        });
        texts.collect()
    }

    #[test]
    fn an_overwrite_leaves_both_versions_until_the_next_fsync() {
        let mut ledger = Ledger::default();
        let id = ledger.create("a", 0);
        ledger.append(id, 2 * SECTOR, 0);
        assert_eq!(due(&ledger, 1), [] as [&str; 0], "nothing before an fsync");
        ledger.synced("a", 5);
        ledger.overwrite(id, SECTOR, SECTOR, 8);
        ledger.synced("a", 12);
        let allowed = |completed| match &ledger.due(completed).next().unwrap().any[0] {
            Claim::Holds { allowed, .. } => allowed.clone(),
            other => panic!("{other}"),
        };
        assert_eq!(allowed(7), [vec![1], vec![1]]);
        assert_eq!(allowed(8), [vec![1], vec![1, 2]]);
        assert_eq!(allowed(11), [vec![1], vec![1, 2]]);
        assert_eq!(allowed(12), [vec![1], vec![2]]);
        assert_ne!(bytes(id, 1, SECTOR, 8), bytes(id, 2, SECTOR, 8));
    }

    #[test]
    fn a_rename_leaves_either_name_and_one_of_two_files() {
        let mut ledger = Ledger::default();
        for (path, len) in [("old", 10), ("new", 20)] {
            let id = ledger.create(path, 0);
            ledger.append(id, len, 0);
            ledger.synced(path, 1);
        }
        ledger.rename("old", "new", 4);
        ledger.append(ledger.at("new"), 5, 6);
        ledger.synced("new", 9);
        ledger.all_synced(11);
        let (old, new) = ("is file 1 of 10..=10 bytes", "is file 2 of 20..=20 bytes");
        assert_eq!(
            due(&ledger, 3),
            [format!("old {old}"), format!("new {new}")]
        );
        let moved = format!("old {old} or new {old}");
        assert_eq!(due(&ledger, 5), [moved, format!("new {new} or new {old}")]);
        let (grown, whole) = ("is file 1 of 10..=15 bytes", "is file 1 of 15..=15 bytes");
        let either = format!("old {grown} or new {grown}");
        assert_eq!(
            due(&ledger, 8),
            [either, format!("new {new} or new {grown}")]
        );
        assert_eq!(due(&ledger, 10), [format!("new {whole}")]);
        assert_eq!(
            due(&ledger, 11),
            ["new is file 1 of 15..=15 bytes", "old is gone"]
        );
    }

    #[test]
    fn sectors_are_text_and_back() {
        let sectors = vec![vec![1], vec![1], vec![0, 3], vec![], vec![1]];
        let text = sectors_to_text(&sectors);
        assert_eq!(text, "-,1*2,0/3*1,*1,1*1");
        assert_eq!(sectors_from_text(&text), Some(sectors));
        assert_eq!(sectors_from_text(&sectors_to_text(&[])), Some(vec![]));
    }
}
