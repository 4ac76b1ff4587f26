use std::sync::Arc;

use extant_units::{Lblk, Pblk};

use super::*;
use crate::state::map::MapState;
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

/// A state per block, `None` for unknown; the tree is compared with it after every operation.
struct Model {
    blocks: Vec<Option<MapState>>,
}

impl Model {
    fn state_at(range: &Status, at: u32) -> MapState {
        let skip = u64::from(at - range.lblk.get());
        match range.state {
            MapState::Written(p) => MapState::Written(Pblk::new(p.get() + skip)),
            MapState::Unwritten(p) => MapState::Unwritten(Pblk::new(p.get() + skip)),
            other => other,
        }
    }

    /// Has `tree` look at up to `count` ranges: what it forgets is unknown then.
    fn forget_some(&mut self, tree: &mut StatusTree, count: usize) {
        let known = tree.len();
        let forgotten = tree.forget_some(count);
        assert_eq!(tree.len(), known - forgotten);
        for (at, block) in (0..).zip(&mut self.blocks) {
            let known = tree
                .iter()
                .any(|status| u64::from(status.lblk.get()) <= at && at < status.end());
            if !known {
                *block = None;
            }
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

/// Blocks that are learnt, forgotten, looked up or already known make no mapping stale that was
/// handed out.
#[test]
fn iomap_12_sequence_grows_with_changes_alone() {
    let mut tree = StatusTree::default();
    let mut last = 0;
    let mut grew =
        |tree: &StatusTree| std::mem::replace(&mut last, tree.sequence()) < tree.sequence();
    tree.fill(range(0, 100, MapState::Hole));
    tree.fill(range(100, 50, written(7000)));
    tree.find(Lblk::new(30));
    tree.fill(range(0, 200, MapState::Hole));
    tree.set(range(110, 5, written(7010)));
    tree.set(range(0, 10, MapState::Hole));
    assert!(!grew(&tree), "it was so before");
    tree.set(range(10, 20, MapState::Unwritten(Pblk::new(50))));
    assert!(grew(&tree), "an allocation");
    tree.set(range(10, 5, written(50)));
    assert!(grew(&tree), "a conversion");
    while tree.forget_some(3) > 0 || tree.len() > 0 {}
    assert!(!grew(&tree), "forgotten");
    tree.set(range(10, 5, MapState::Hole));
    assert!(grew(&tree), "whatever it was, it is nothing known");
    tree.forget(500, 600);
    assert!(grew(&tree), "the disk is going to say something else");
    tree.check();
}

#[test]
fn random_operations_equal_a_state_per_block() {
    const SPAN: u32 = 200;
    let mut rng = Rng::new(11);
    let mut tree = StatusTree::default();
    let mut model = Model {
        blocks: vec![None; SPAN as usize],
    };
    for _ in 0..60_000 {
        let lblk = rng.below(SPAN);
        let len = 1 + rng.below(SPAN - lblk).min(rng.below(30));
        let slice = lblk as usize..(lblk + len) as usize;
        let state = match some_state(&mut rng) {
            MapState::Written(p) => written(p.get() + u64::from(lblk)),
            MapState::Unwritten(p) => MapState::Unwritten(Pblk::new(p.get() + u64::from(lblk))),
            other => other,
        };
        let new = range(lblk, len, state);
        let before = tree.sequence();
        match rng.below(6) {
            0 | 1 => {
                tree.set(new);
                let states = slice.clone().map(|at| {
                    let at32 = u32::try_from(at).unwrap();
                    (at, Some(Model::state_at(&new, at32)))
                });
                let changes = states.into_iter().any(|(at, s)| model.blocks[at] != s);
                assert_eq!(tree.sequence() > before, changes, "{new:?}");
                for at in slice {
                    model.blocks[at] = Some(Model::state_at(&new, u32::try_from(at).unwrap()));
                }
            }
            2 | 3 => {
                tree.fill(new);
                assert_eq!(tree.sequence(), before, "learning is no change");
                for at in slice {
                    let state = Model::state_at(&new, u32::try_from(at).unwrap());
                    model.blocks[at].get_or_insert(state);
                }
            }
            4 => {
                tree.forget(u64::from(lblk), u64::from(lblk + len));
                assert!(tree.sequence() > before);
                model.blocks[slice].fill(None);
            }
            _ => {
                model.forget_some(&mut tree, rng.below(6) as usize);
                assert_eq!(tree.sequence(), before, "forgetting is no change");
            }
        }
        model.compare(&tree);
        let probe = rng.below(SPAN);
        let found = tree
            .find(Lblk::new(probe))
            .map(|status| Model::state_at(&status, probe));
        assert_eq!(found, model.blocks[probe as usize]);
    }
    tree.forget(0, u64::from(SPAN));
    assert_eq!(tree.len(), 0);
}

#[test]
fn ranges_reach_the_last_block() {
    let mut tree = StatusTree::default();
    tree.fill(range(0, u32::MAX, MapState::Hole));
    tree.set(range(u32::MAX - 1, 1, written(5)));
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
    let inode = ExtentStatus::default();
    inode.lock(&cache).fill(range(0, 9, MapState::Hole));
    assert_eq!((inode.sequence(), cache.known()), (0, 1));
    inode.lock(&cache).set(range(2, 3, written(40)));
    assert_eq!((inode.sequence(), cache.known()), (1, 3));
    drop(inode);
    assert_eq!(cache.known(), 0);
}

/// Over its limit the cache forgets what was not looked up lately.
#[test]
fn the_cache_stays_within_its_limit() {
    let cache = Arc::new(StatusCache::with_limit(1000));
    let inodes: Vec<ExtentStatus> = (0..10).map(|_| ExtentStatus::default()).collect();
    let mut missed = 0;
    for round in 0..400u32 {
        for inode in &inodes {
            let at = round * 10;
            inode
                .lock(&cache)
                .fill(range(at, 2, written(u64::from(at) * 3)));
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
        inode.lock(&cache).check();
    }
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
