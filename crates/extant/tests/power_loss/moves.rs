//! What range operations make of a file: sectors that become holes, sectors that move.

use std::ops::Range;

use crate::ledger::{Claim, File, Ledger, SECTOR, Sector, claims, index};

/// What is taken out of a file or put in, in sectors.
#[derive(Clone, Debug)]
pub(crate) enum Move {
    Out(Range<u64>),
    In(Range<u64>),
}

impl File {
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
        let (root, before) = *self.moved.get(&version).unwrap_or(&(version, 0));
        let now = (root, before + by);
        if root == 0 || now.1 == 0 {
            return root;
        }
        let known = self.moved.iter().find(|(_, what)| **what == now);
        if let Some((known, _)) = known {
            return *known;
        }
        self.newest += 1;
        self.moved.insert(self.newest, now);
        self.newest
    }
}

impl Ledger {
    /// A range operation is about to change the file as `how` does. One that moves its map leaves either that or what was; until the
    /// next fsync nothing else may happen to the file then.
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
    assert_eq!(file.moved[&file.now[16]], (1, 8 * 512));
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
