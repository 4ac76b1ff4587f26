//! Effects of range operations and copies on a file: sectors that become holes, sectors that move.

use std::ops::Range;

use crate::ledger::{Claim, File, Ledger, SECTOR, Sector, claims, index};

/// Sectors that are taken out of a file or put in.
#[derive(Clone, Debug)]
pub(crate) enum Move {
    Out(Range<u64>),
    In(Range<u64>),
}

/// Position at which the bytes of a version were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The file, if it is another: they were copied.
    pub(crate) file: Option<u64>,
    pub(crate) version: Sector,
    /// So many bytes before.
    pub(crate) by: i64,
}

impl File {
    /// Returns where `version` was written.
    pub(crate) fn origin(&self, version: Sector) -> Origin {
        let itself = Origin {
            file: None,
            version,
            by: 0,
        };
        *self.moved.get(&version).unwrap_or(&itself)
    }

    /// Copies from `origins` arrive at sector `first`, piece by piece.
    fn copy(&mut self, first: u64, origins: &[Origin]) {
        self.lose_space();
        for sector in self.len / SECTOR..first {
            self.push(sector, 0);
        }
        for (sector, origin) in (first..).zip(origins) {
            let version = self.version_of(*origin);
            self.push(sector, version);
        }
        let end = (first + origins.len() as u64) * SECTOR;
        self.resize(self.len.max(end));
    }

    /// The sectors read as zeros, as far as the file has them.
    pub(crate) fn zero(&mut self, sectors: Range<u64>) {
        self.outrun();
        for sector in sectors.start..sectors.end.min(self.len.div_ceil(SECTOR)) {
            self.push(sector, 0);
        }
    }

    /// Nothing is known of its space any more.
    pub(crate) fn lose_space(&mut self) {
        (self.space, self.kept) = (0, 0);
    }

    /// The map moves; all sectors behind it have other places, or none. Sizes move with it.
    pub(crate) fn shift(&mut self, how: &Move) {
        self.outrun();
        self.lose_space();
        let (range, by) = match how {
            Move::Out(range) => (range, -1),
            Move::In(range) => (range, 1),
        };
        let count = range.end - range.start;
        let by = by * i64::try_from(count * SECTOR).expect("files of tests are small");
        let from = match how {
            Move::Out(range) => range.end,
            Move::In(range) => range.start,
        };
        let mut lists = [std::mem::take(&mut self.allowed), Vec::new()];
        lists[1].clone_from(&self.ever);
        for list in &mut lists {
            for versions in list.iter_mut().skip(index(from)) {
                for version in versions.iter_mut() {
                    *version = self.moved_by(*version, by);
                }
            }
        }
        let mut now: Vec<Vec<Sector>> = self.now.iter().map(|version| vec![*version]).collect();
        for versions in now.iter_mut().skip(index(from)) {
            versions[0] = self.moved_by(versions[0], by);
        }
        let [allowed, ever] = &mut lists;
        for list in [allowed, ever, &mut now] {
            let (start, end) = (index(range.start), index(range.end));
            match how {
                Move::Out(_) => drop(list.drain(start.min(list.len())..end.min(list.len()))),
                Move::In(_) => {
                    let holes = std::iter::repeat_n(vec![0], end - start);
                    list.splice(start..start, holes);
                }
            }
        }
        let [allowed, ever] = lists;
        self.allowed = allowed;
        self.now = now.into_iter().map(|versions| versions[0]).collect();
        // What ever was there may still be seen where it was.
        if self.ever.len() < ever.len() {
            self.ever.resize(ever.len(), Vec::new());
        }
        for (list, moved) in self.ever.iter_mut().zip(ever) {
            list.extend(moved);
            list.sort_unstable();
            list.dedup();
        }
        let cuts = |cut: &u64| cut.wrapping_add_signed(if *cut >= from * SECTOR { by } else { 0 });
        self.ever_cut = self
            .ever_cut
            .iter()
            .flat_map(|cut| [*cut, cuts(cut)])
            .collect();
        self.ever_cut.sort_unstable();
        self.ever_cut.dedup();
        self.cuts = self.cuts.iter().map(cuts).collect();
        self.len = self.len.wrapping_add_signed(by);
        (self.min, self.max) = (self.len, self.len);
        self.longest = self.longest.max(self.len);
    }

    /// `version`, written `by` bytes away.
    fn moved_by(&mut self, version: Sector, by: i64) -> Sector {
        let before = self.origin(version);
        self.version_of(Origin {
            by: before.by + by,
            ..before
        })
    }

    /// The version that has these bytes.
    fn version_of(&mut self, origin: Origin) -> Sector {
        if origin.version == 0 || (origin.file, origin.by) == (None, 0) {
            return origin.version;
        }
        let known = self.moved.iter().find(|(_, what)| **what == origin);
        if let Some((known, _)) = known {
            return *known;
        }
        self.newest += 1;
        self.moved.insert(self.newest, origin);
        self.newest
    }
}

impl Ledger {
    /// `count` sectors of file `from` are about to be copied from sector `first` on to sector
    /// `to_first` of file `to`. Both are of whole sectors.
    pub(crate) fn copy(
        &mut self,
        (from, first): (u64, u64),
        (to, to_first): (u64, u64),
        count: u64,
        now: usize,
    ) {
        let source = self.file(from);
        let by = i64::try_from(to_first).and_then(|to| i64::try_from(first).map(|from| to - from));
        let by = by.expect("files of tests are small") * SECTOR.cast_signed();
        let sectors = source.now[index(first)..].iter().take(index(count));
        let origins: Vec<Origin> = sectors
            .map(|version| {
                let origin = source.origin(*version);
                let file = origin.file.unwrap_or(from);
                Origin {
                    file: (file != to).then_some(file),
                    by: origin.by + by,
                    ..origin
                }
            })
            .collect();
        assert_eq!(origins.len() as u64, count, "whole sectors");
        self.change(to, now, |file| file.copy(to_first, &origins));
    }

    /// A range operation is about to change the file as `how` does. One that moves its map leaves
    /// either that or what was; until the next fsync nothing else may happen to the file then.
    pub(crate) fn range(&mut self, id: u64, now: usize, moves: bool, how: impl Fn(&mut File)) {
        if !moves {
            return self.change(id, now, how);
        }
        let file = self.files.get_mut(&id).expect("every number has a file");
        how(file);
        let file = file.clone();
        self.split(now, |any| {
            let after: Vec<Claim> = any
                .iter()
                .filter(|claim| claim.is_about(id))
                .flat_map(|claim| claims(id, claim.path(), &file))
                .filter(|claim| matches!(claim, Claim::Holds { .. }))
                .collect();
            match any[0] {
                Claim::Holds { .. } => any.extend(after),
                Claim::Space { file, .. } if file == id => any.clear(),
                _ => {}
            }
        });
    }
}

#[test]
fn what_moves_there_and_back_is_what_it_was() {
    let mut file = File {
        newest: 1,
        ..File::default()
    };
    for sector in 0..32 {
        file.push(sector, 1);
    }
    file.resize(32 * SECTOR);
    let before = file.clone();
    file.shift(&Move::In(8..16));
    assert_eq!(file.len, 40 * SECTOR);
    assert_eq!(file.now[7..16], [1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(file.origin(file.now[16]).by, 8 * 512);
    let there = file.bytes(3, file.now[16], 16 * SECTOR, SECTOR);
    assert_eq!(there, before.bytes(3, 1, 8 * SECTOR, SECTOR));
    file.shift(&Move::Out(8..16));
    assert_eq!((&file.now, file.len), (&before.now, before.len));
    let mut file = before.clone();
    file.shift(&Move::Out(0..8));
    file.shift(&Move::In(0..8));
    assert_eq!(file.now[..8], [0; 8]);
    assert_eq!(file.now[8..], before.now[8..]);
}

#[test]
fn a_copy_is_what_it_is_a_copy_of() {
    let mut ledger = Ledger::default();
    let (a, b) = (ledger.create("a", 0), ledger.create("b", 0));
    let data = ledger.overwrite(a, 0, 8 * SECTOR, 1);
    ledger.overwrite(b, 0, 4 * SECTOR, 2);
    ledger.synced("b", 3);
    ledger.copy((a, 2), (b, 6), 3, 4);
    ledger.copy((b, 7), (a, 0), 1, 5);
    let bytes_at = |id, sector: u64| {
        let file = ledger.file(id);
        file.bytes(id, file.now[index(sector)], sector * SECTOR, SECTOR)
    };
    assert_eq!(ledger.file(b).len, 9 * SECTOR);
    assert_eq!(bytes_at(b, 5), [0; 512]);
    assert_eq!(bytes_at(b, 6), data[1024..1536]);
    assert_eq!(bytes_at(b, 8), data[2048..2560]);
    // There and back: sector 3, at 0.
    assert_eq!(bytes_at(a, 0), data[1536..2048]);
    let file = ledger.file(b);
    assert_eq!((file.min, file.max), (4 * SECTOR, 9 * SECTOR));
}

#[test]
fn a_change_after_a_failed_sync_leaves_both_sides_of_a_move() {
    let mut ledger = Ledger::default();
    let id = ledger.create("a", 0);
    ledger.append(id, 32 * SECTOR, 0);
    ledger.synced("a", 1);
    ledger.range(id, 2, true, |file| file.shift(&Move::Out(8..16)));
    let sizes = |ledger: &Ledger| -> Vec<String> {
        let any = ledger.due(9).flat_map(|promise| &promise.any);
        any.map(Claim::to_string).collect()
    };
    let either = sizes(&ledger);
    assert_eq!(either.len(), 2);
    ledger.stop();
    ledger.overwrite(id, 0, SECTOR, 3);
    assert_eq!(sizes(&ledger), either);
}
