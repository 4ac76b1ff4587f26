use std::sync::Arc;

use extant_units::{Blocks, Lblk, Pblk};

use super::*;
use crate::alloc::{Reservation, SpaceCounts};
use crate::map::MapState;
use crate::test_support::test_rng::Rng;

fn range(lblk: u32, len: u32, state: MapState) -> Status {
    Status {
        lblk: Lblk::new(lblk),
        len,
        state,
    }
}

fn written(pblk: u64) -> MapState {
    MapState::Written(Pblk::new(pblk))
}

const ROOM: u64 = 1 << 30;

fn reservation_of(counts: &Arc<SpaceCounts>, n: u32) -> Reservation {
    Reservation::take(counts, Blocks::new(u64::from(n)), false).unwrap()
}

fn room() -> Arc<SpaceCounts> {
    let room = Blocks::new(ROOM);
    Arc::new(SpaceCounts::new(Blocks::ZERO, room, Blocks::ZERO, 0, 0))
}

/// A state per block, `None` for unknown; the tree is compared with it after every operation.
struct Model {
    blocks: Vec<Option<MapState>>,
}

impl Model {
    fn delayed(&self) -> u64 {
        self.blocks
            .iter()
            .filter(|b| **b == Some(MapState::Delayed))
            .count() as u64
    }

    fn state_at(range: &Status, at: u32) -> MapState {
        let skip = u64::from(at - range.lblk.get());
        match range.state {
            MapState::Written(p) => MapState::Written(Pblk::new(p.get() + skip)),
            MapState::Unwritten(p) => MapState::Unwritten(Pblk::new(p.get() + skip)),
            other => other,
        }
    }

    fn compare(&self, tree: &StatusTree) {
        tree.check();
        let mut known = 0;
        for status in tree.iter() {
            for at in status.lblk.get()..u32::try_from(status.end()).unwrap() {
                assert_eq!(
                    self.blocks[at as usize],
                    Some(Self::state_at(&status, at)),
                    "block {at}"
                );
                known += 1;
            }
        }
        assert_eq!(known, self.blocks.iter().flatten().count());
        assert_eq!(tree.delayed(), self.delayed());
    }
}

fn some_state(rng: &mut Rng) -> MapState {
    // Few places, chosen by the block, so that ranges meet and merge often.
    match rng.below(5) {
        0 => MapState::Hole,
        1 | 2 => written(10_000 * u64::from(1 + rng.below(2))),
        _ => MapState::Unwritten(Pblk::new(10_000)),
    }
}

/// What is learnt, forgotten, looked up or already known makes no mapping stale that was handed
/// out.
#[test]
fn iomap_12_sequence_grows_with_changes_alone() {
    let counts = room();
    let mut tree = StatusTree::default();
    let mut last = 0;
    let mut grew =
        |tree: &StatusTree| std::mem::replace(&mut last, tree.sequence()) < tree.sequence();
    tree.fill(range(0, 100, MapState::Hole));
    tree.fill(range(100, 50, written(7000)));
    tree.find(Lblk::new(30));
    assert!(!grew(&tree));
    tree.set_delayed(Lblk::new(10), 20, reservation_of(&counts, 20));
    assert!(grew(&tree), "a reservation");
    tree.fill(range(0, 200, MapState::Hole));
    tree.set(range(110, 5, written(7010)), ReservationFate::GiveBack);
    tree.set(range(0, 10, MapState::Hole), ReservationFate::GiveBack);
    assert!(!grew(&tree), "it was so before");
    assert_eq!(tree.drop_delayed(40, 90), 0);
    assert!(!grew(&tree), "nothing there to drop");
    tree.set(
        range(10, 20, MapState::Unwritten(Pblk::new(50))),
        ReservationFate::Consume,
    );
    assert!(grew(&tree), "an allocation");
    tree.set(range(10, 5, written(50)), ReservationFate::GiveBack);
    assert!(grew(&tree), "a conversion");
    while tree.forget_some(3) > 0 || tree.reclaimable() > 0 {}
    assert!(!grew(&tree), "forgotten");
    tree.set(range(10, 5, MapState::Hole), ReservationFate::GiveBack);
    assert!(grew(&tree), "whatever it was, it is nothing known");
    tree.forget(500, 600);
    assert!(grew(&tree), "the disk is going to say something else");
    tree.check();
}

/// Blocks of the file of [`Pair`].
const SPAN: u32 = 200;

/// A tree and its model.
struct Pair {
    tree: StatusTree,
    model: Model,
    counts: Arc<SpaceCounts>,
    rng: Rng,
    /// Blocks whose reservation was consumed.
    consumed: u64,
}

impl Pair {
    fn new() -> Pair {
        Pair {
            tree: StatusTree::default(),
            model: Model {
                blocks: vec![None; SPAN as usize],
            },
            counts: room(),
            rng: Rng::new(11),
            consumed: 0,
        }
    }

    /// A random range with a random state.
    fn some_status(&mut self) -> Status {
        let lblk = self.rng.below(SPAN);
        let len = 1 + self.rng.below(SPAN - lblk).min(self.rng.below(30));
        let state = match some_state(&mut self.rng) {
            MapState::Written(p) => written(p.get() + u64::from(lblk)),
            MapState::Unwritten(p) => MapState::Unwritten(Pblk::new(p.get() + u64::from(lblk))),
            other => other,
        };
        range(lblk, len, state)
    }

    fn blocks(&mut self, of: &Status) -> &mut [Option<MapState>] {
        let start = of.lblk.get() as usize;
        &mut self.model.blocks[start..start + of.len as usize]
    }

    /// One random operation on both, and a comparison.
    fn step(&mut self) {
        let new = self.some_status();
        let (start, end) = (u64::from(new.lblk.get()), new.end());
        let before = self.tree.sequence();
        match self.rng.below(9) {
            0 | 1 => self.set(&new),
            2 | 3 => self.learn(&new),
            4 | 5 => self.delay(&new),
            8 => {
                self.tree.forget(start, end);
                assert!(self.tree.sequence() > before);
                self.blocks(&new).fill(None);
            }
            6 => {
                let dropped = self.tree.drop_delayed(start, end);
                let mut expected = 0;
                for block in self.blocks(&new) {
                    if *block == Some(MapState::Delayed) {
                        *block = Some(MapState::Hole);
                        expected += 1;
                    }
                }
                assert_eq!(dropped, expected);
            }
            _ => self.shrink(),
        }
        self.model.compare(&self.tree);
        let reserved = self.counts.reserved_blocks().get();
        assert_eq!(reserved, self.model.delayed(), "J9");
        let probe = self.rng.below(SPAN);
        let found = self.tree.find(Lblk::new(probe));
        let found = found.map(|status| Model::state_at(&status, probe));
        assert_eq!(found, self.model.blocks[probe as usize]);
    }

    /// A change of the map on disk.
    fn set(&mut self, new: &Status) {
        let before = self.tree.sequence();
        let delayed = self.blocks(new).iter();
        let delayed = delayed.filter(|b| **b == Some(MapState::Delayed)).count() as u64;
        if self.rng.below(2) == 0 {
            self.tree.set(*new, ReservationFate::Consume);
            self.consumed += delayed;
        } else {
            self.tree.set(*new, ReservationFate::GiveBack);
        }
        let mut changes = false;
        for (at, block) in (new.lblk.get()..).zip(self.blocks(new)) {
            let state = Some(Model::state_at(new, at));
            changes |= std::mem::replace(block, state) != state;
        }
        assert_eq!(self.tree.sequence() > before, changes, "{new:?}");
    }

    /// What a look at the disk has found, where nothing was known.
    fn learn(&mut self, new: &Status) {
        let before = self.tree.sequence();
        self.tree.fill(*new);
        assert_eq!(self.tree.sequence(), before, "learning is no change");
        for (at, block) in (new.lblk.get()..).zip(self.blocks(new)) {
            block.get_or_insert(Model::state_at(new, at));
        }
    }

    /// A delayed write.
    fn delay(&mut self, new: &Status) {
        if self.blocks(new).contains(&Some(MapState::Delayed)) {
            return;
        }
        let before = self.tree.sequence();
        let reservation = reservation_of(&self.counts, new.len);
        self.tree.set_delayed(new.lblk, new.len, reservation);
        assert!(self.tree.sequence() > before);
        self.blocks(new).fill(Some(MapState::Delayed));
    }

    /// Reclaim: what is forgotten is unknown then, and was not delayed.
    fn shrink(&mut self) {
        let (before, known) = (self.tree.sequence(), self.tree.reclaimable());
        let forgotten = self.tree.forget_some(self.rng.below(6) as usize);
        assert_eq!(self.tree.reclaimable(), known - forgotten);
        assert_eq!(self.tree.sequence(), before, "forgetting is no change");
        let mut still = vec![None; SPAN as usize];
        for status in self.tree.iter() {
            for at in status.lblk.get()..u32::try_from(status.end()).unwrap() {
                still[at as usize] = Some(Model::state_at(&status, at));
            }
        }
        for (now, before) in still.iter().zip(&mut self.model.blocks) {
            if now.is_none() {
                assert_ne!(*before, Some(MapState::Delayed), "J15");
                *before = None;
            }
        }
    }
}

#[test]
fn random_operations_equal_a_state_per_block() {
    let mut pair = Pair::new();
    for _ in 0..60_000 {
        pair.step();
    }
    pair.tree.clear();
    pair.tree.check();
    assert_eq!(pair.counts.reserved_blocks().get(), 0, "J11");
    assert_eq!(pair.counts.available().get(), ROOM - pair.consumed);
    assert!(pair.consumed > 1000);
}

#[test]
fn ranges_reach_the_last_block() {
    let mut tree = StatusTree::default();
    tree.fill(range(0, u32::MAX, MapState::Hole));
    tree.set(
        range(u32::MAX - 1, 1, written(5)),
        ReservationFate::GiveBack,
    );
    tree.check();
    assert_eq!(
        tree.find(Lblk::new(u32::MAX - 1)).unwrap().state,
        written(5)
    );
    assert_eq!(tree.find(Lblk::new(7)).unwrap().len, u32::MAX - 1);
    assert_eq!(tree.next_from(u64::from(u32::MAX)), None);
}

#[test]
fn sequence_and_counts_are_seen_without_the_lock() {
    let cache = Arc::new(StatusCache::default());
    let counts = room();
    let inode = ExtentStatus::default();
    inode.lock(&cache).fill(range(0, 9, MapState::Hole));
    assert_eq!((inode.sequence(), cache.known()), (0, 1));
    inode
        .lock(&cache)
        .set_delayed(Lblk::new(2), 3, reservation_of(&counts, 3));
    assert_eq!(
        (inode.sequence(), inode.delayed_blocks(), cache.known()),
        (1, 3, 2)
    );
    inode
        .lock(&cache)
        .set(range(2, 3, written(40)), ReservationFate::Consume);
    assert_eq!(
        (inode.sequence(), inode.delayed_blocks(), cache.known()),
        (2, 0, 3)
    );
    drop(inode);
    assert_eq!(cache.known(), 0);
}

/// Over its limit the cache forgets what was not looked up lately, and nothing delayed (J15).
#[test]
fn the_cache_stays_within_its_limit() {
    let cache = Arc::new(StatusCache::with_limit(1000));
    let counts = room();
    let inodes: Vec<ExtentStatus> = (0..10).map(|_| ExtentStatus::default()).collect();
    let mut missed = 0;
    for round in 0..400u32 {
        for inode in &inodes {
            let at = round * 10;
            inode
                .lock(&cache)
                .fill(range(at, 2, written(u64::from(at) * 3)));
            inode
                .lock(&cache)
                .set_delayed(Lblk::new(at + 3), 1, reservation_of(&counts, 1));
            // Looked at all the time.
            let hot = inode.lock(&cache).find(Lblk::new(1)).is_some();
            if !hot {
                inode.lock(&cache).fill(range(0, 2, written(0)));
                missed += 1;
            }
            cache.shrink();
            assert!(cache.known() <= 1000);
        }
    }
    assert!(cache.forgotten() >= 3000);
    assert!(missed * 20 < 400 * 10, "{missed} misses of what is in use");
    for inode in &inodes {
        let mut tree = inode.lock(&cache);
        tree.check();
        assert_eq!(tree.delayed(), 400);
        assert_eq!(tree.drop_delayed(0, u64::from(u32::MAX)), 400);
    }
    assert_eq!(counts.reserved_blocks().get(), 0);
}

/// Inodes come and go without end; dropped trees must not stay in the cache's list, whose
/// references hold their memory.
#[test]
fn trees_that_are_gone_leave_the_list() {
    let cache = Arc::new(StatusCache::default());
    let kept: Vec<ExtentStatus> = (0..100).map(|_| ExtentStatus::default()).collect();
    for inode in &kept {
        inode.lock(&cache).fill(range(0, 9, MapState::Hole));
    }
    for _ in 0..20_000 {
        let inode = ExtentStatus::default();
        inode.lock(&cache).fill(range(0, 9, MapState::Hole));
        assert!(cache.listed() <= 1300, "{}", cache.listed());
    }
    assert_eq!(cache.known(), 100);
}
