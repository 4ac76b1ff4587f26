//! The two parts of what is known of a map, together: random operations against a state per block.

use std::sync::Arc;

use extant_extent_io_tree::TreeTuning;
use extant_units::{BlockSize, Blocks, Lblk, Pblk};

use crate::state::alloc::{Reservation, SpaceCounts};
use crate::state::map::{
    BlockMapping, DelayedTrees, KnownBlocks, MapState, MapView, ReservationFate, SharedMaps,
    Status, StatusCache,
};
use crate::test_support::test_rng::Rng;

/// Blocks of the file.
const SPAN: u32 = 200;
/// Free blocks of the volume.
const ROOM: u64 = 1 << 30;

fn space() -> Arc<SpaceCounts> {
    let room = Blocks::new(ROOM);
    Arc::new(SpaceCounts::new(Blocks::ZERO, room, Blocks::ZERO, 0, 0))
}

fn trees(counts: &Arc<SpaceCounts>, trim_on_clear: bool, cluster_bits: u32) -> DelayedTrees {
    let tuning = TreeTuning {
        trim_on_clear,
        ..TreeTuning::default()
    };
    let block_size = BlockSize::from_log2(12).unwrap();
    DelayedTrees::new(counts, block_size, tuning).in_clusters(cluster_bits)
}

/// `state` for the block that lies `skip` behind the one that it is said of.
fn advanced(state: MapState, skip: u64) -> MapState {
    match state {
        MapState::Written(at) => MapState::Written(Pblk::new(at.get() + skip)),
        MapState::Unwritten(at) => MapState::Unwritten(Pblk::new(at.get() + skip)),
        other => other,
    }
}

/// A file's map without a disk, and the state that each of its blocks must have.
struct Course {
    rng: Rng,
    counts: Arc<SpaceCounts>,
    shared: SharedMaps,
    known: KnownBlocks,
    blocks: Vec<MapState>,
    /// log2 of the blocks of a cluster.
    cluster_bits: u32,
    /// Blocks that were allocated from a reservation.
    consumed: u64,
    /// Blocks that were reserved when they were freed.
    kept: u64,
    /// A mapping that was handed out, and what the blocks were then.
    handed_out: Option<BlockMapping>,
}

impl Course {
    fn new(seed: u64, trim_on_clear: bool) -> Self {
        Self::in_clusters(seed, trim_on_clear, 0)
    }

    fn in_clusters(seed: u64, trim_on_clear: bool, cluster_bits: u32) -> Self {
        let counts = space();
        Self {
            rng: Rng::new(seed),
            shared: SharedMaps {
                // Forgets all that may be forgotten when it is asked to shrink.
                status: StatusCache::with_limit(0),
                delayed: trees(&counts, trim_on_clear, cluster_bits),
            },
            known: KnownBlocks::default(),
            counts,
            blocks: vec![MapState::Hole; SPAN as usize],
            cluster_bits,
            consumed: 0,
            kept: 0,
            handed_out: None,
        }
    }

    fn view(&self) -> MapView<'_> {
        MapView::lock(&self.shared, &self.known)
    }

    fn some_range(&mut self) -> (u32, u32) {
        let from = self.rng.below(SPAN);
        let len = 1 + self.rng.below(SPAN - from).min(self.rng.below(30));
        (from, len)
    }

    /// The known range of `at`, after a look at the "disk" if nothing is known.
    fn learn(&self, at: u32) -> Status {
        let mut view = self.view();
        if let Some(found) = view.find(Lblk::new(at)) {
            return found;
        }
        let on_disk = |state: MapState| match state {
            MapState::Delayed => MapState::Hole,
            other => other,
        };
        let state = on_disk(self.blocks[at as usize]);
        let same = |&(skip, &other): &(u64, &MapState)| on_disk(other) == advanced(state, skip);
        let run = (0..).zip(&self.blocks[at as usize..]).take_while(same);
        view.fill(Status {
            lblk: Lblk::new(at),
            len: u32::try_from(run.count()).unwrap(),
            state,
        });
        view.find(Lblk::new(at)).unwrap()
    }

    /// As much of the range as the first block's state has.
    fn part(&mut self) -> (u32, u32, MapState) {
        let (from, len) = self.some_range();
        let found = self.learn(from);
        let part = found.cut(u64::from(from), u64::from(from + len)).unwrap();
        (from, part.len, part.state)
    }

    fn put(&mut self, from: u32, len: u32, state: MapState) {
        for skip in 0..len {
            self.blocks[(from + skip) as usize] = advanced(state, u64::from(skip));
        }
    }

    fn reserve(&mut self) {
        let (from, len, state) = self.part();
        if state == MapState::Hole {
            let clusters = self.clusters(from, len);
            let mut allocated = vec![*clusters.start(), *clusters.end()];
            allocated.retain(|&cluster| self.is_mapped(cluster));
            let mut view = self.view();
            let blocks = view.to_reserve(Lblk::new(from), len, &allocated);
            let reservation = Reservation::take(&self.counts, blocks, false).unwrap();
            view.set_delayed(Lblk::new(from), len, (reservation, &allocated));
            drop(view);
            self.put(from, len, MapState::Delayed);
        }
    }

    /// Allocates what is delayed or a hole, or converts what is unwritten.
    fn allocate(&mut self) {
        let (from, len, before) = self.part();
        let place = Pblk::new(10_000 * u64::from(1 + self.rng.below(3)) + u64::from(from));
        let (state, fate) = match before {
            MapState::Delayed => {
                let new = self.clusters(from, len);
                let new = new.filter(|&cluster| !self.is_mapped(cluster)).count() as u64;
                self.consumed += new << self.cluster_bits;
                (MapState::Unwritten(place), ReservationFate::Consume)
            }
            MapState::Hole => (MapState::Unwritten(place), ReservationFate::GiveBack),
            MapState::Unwritten(at) => (MapState::Written(at), ReservationFate::GiveBack),
            MapState::Written(_) => return,
        };
        let lblk = Lblk::new(from);
        self.view().set(Status { lblk, len, state }, fate);
        self.put(from, len, state);
    }

    fn end(&mut self) {
        let (from, len) = self.some_range();
        let (first, behind) = (u64::from(from), u64::from(from + len));
        let within = &self.blocks[from as usize..(from + len) as usize];
        let delayed = within.iter().filter(|s| **s == MapState::Delayed).count() as u64;
        let keeps = match self.rng.below(3) {
            0 => {
                assert_eq!(self.view().drop_delayed(first, behind), delayed);
                true
            }
            1 => {
                let hole = Status::hole(Lblk::new(from), behind);
                self.view().set(hole, ReservationFate::GiveBack);
                false
            }
            _ => {
                self.view().forget(first, behind);
                false
            }
        };
        for block in &mut self.blocks[from as usize..(from + len) as usize] {
            if !keeps || *block == MapState::Delayed {
                *block = MapState::Hole;
            }
        }
        self.keep_reserved();
    }

    /// The clusters that are delayed, and of which nothing is mapped any more, are reserved again.
    fn keep_reserved(&mut self) {
        let shared = self.view().shared_clusters();
        for cluster in shared {
            if !self.is_mapped(cluster) {
                let blocks = Blocks::new(1 << self.cluster_bits);
                let reservation = Reservation::of_freed(&self.counts, blocks);
                self.kept += blocks.get();
                self.view().reserve_again(cluster, reservation);
            }
        }
    }

    /// The clusters that `len` blocks from `from` on touch.
    fn clusters(&self, from: u32, len: u32) -> std::ops::RangeInclusive<u64> {
        let of = |block: u32| u64::from(block >> self.cluster_bits);
        of(from)..=of(from + len - 1)
    }

    /// The states of the blocks of a cluster.
    fn states(&self, cluster: u64) -> impl Iterator<Item = MapState> {
        let start = usize::try_from(cluster << self.cluster_bits).unwrap();
        let blocks = self.blocks[start..].iter().take(1 << self.cluster_bits);
        blocks.copied()
    }

    fn is_mapped(&self, cluster: u64) -> bool {
        let mapped = |state| matches!(state, MapState::Written(_) | MapState::Unwritten(_));
        self.states(cluster).any(mapped)
    }

    /// The clusters with a delayed block, and those of them with a mapped one.
    fn delayed_clusters(&self) -> (Vec<u64>, Vec<u64>) {
        let all = self.clusters(0, SPAN);
        let is_delayed =
            |&cluster: &u64| self.states(cluster).any(|state| state == MapState::Delayed);
        let delayed: Vec<u64> = all.filter(is_delayed).collect();
        let shared = delayed.iter().copied();
        let shared = shared.filter(|&cluster| self.is_mapped(cluster)).collect();
        (delayed, shared)
    }

    /// Hands a mapping out, if there is none.
    fn hand_out(&mut self) {
        let (from, len, state) = self.part();
        let seq = self.view().cookie(state);
        self.handed_out = Some(BlockMapping {
            lblk: Lblk::new(from),
            len,
            state,
            new: false,
            seq,
        });
    }

    fn step(&mut self) {
        match self.rng.below(10) {
            0..=3 => self.reserve(),
            4..=5 => self.allocate(),
            6..=7 => self.end(),
            8 => self.hand_out(),
            _ => {
                self.shared.status.shrink();
                assert_eq!(
                    self.shared.status.known(),
                    0,
                    "all of the status tree may be forgotten"
                );
            }
        }
    }

    fn is_true(&self, from: u32, len: u32, state: MapState) -> bool {
        (0..len).all(|skip| self.blocks[(from + skip) as usize] == advanced(state, u64::from(skip)))
    }

    fn compare(&mut self) {
        let probe = self.rng.below(SPAN);
        let found = self.view().find(Lblk::new(probe));
        if let Some(found) = found {
            let part = found.cut(u64::from(probe), u64::from(SPAN)).unwrap();
            assert!(
                self.is_true(probe, part.len, part.state),
                "{probe}: {part:?}"
            );
        } else {
            assert_ne!(self.blocks[probe as usize], MapState::Delayed, "J15");
        }
        let runs = self.view().verify().unwrap();
        let listed = runs
            .iter()
            .flat_map(|run| u64::from(run.lblk.get())..run.end());
        let blocks = (0..).zip(&self.blocks);
        let delayed: Vec<u64> = blocks
            .filter(|(_, state)| **state == MapState::Delayed)
            .map(|(at, _)| at)
            .collect();
        assert!(
            listed.eq(delayed.iter().copied()),
            "{runs:?}, not {delayed:?}"
        );
        let (clusters, shared) = self.delayed_clusters();
        assert_eq!(
            self.view().shared_clusters(),
            match self.cluster_bits {
                0 => Vec::new(),
                _ => shared.clone(),
            }
        );
        let needed = ((clusters.len() - shared.len()) as u64) << self.cluster_bits;
        let counted = (
            self.known.delayed().blocks(),
            self.known.delayed().reserved(),
            self.counts.reserved_blocks().get(),
        );
        assert_eq!(counted, (delayed.len() as u64, needed, needed), "J9, J10");
        if let Some(map) = self.handed_out
            && map.seq == self.view().cookie(map.state)
        {
            assert!(
                self.is_true(map.lblk.get(), map.len, map.state),
                "J16: {map:?}"
            );
        }
    }
}

/// Both parts, their account and the cookies, with trees that trim and trees that split.
#[test]
fn j38_delayed_and_known_ranges_equal_a_state_per_block() {
    let run = |trim_on_clear| {
        let mut course = Course::new(11, trim_on_clear);
        for _ in 0..30_000 {
            course.step();
            course.compare();
        }
        course.view().forget(0, u64::from(SPAN));
        assert_eq!(course.counts.reserved_blocks().get(), 0, "J11");
        assert_eq!(course.counts.available().get(), ROOM - course.consumed);
        assert!(course.consumed > 1000);
        let stats = course.known.delayed().stats();
        drop(course.known);
        assert_eq!(course.counts.leaked(), 0);
        assert_eq!(
            course.shared.delayed.past(),
            stats,
            "counted when the tree is gone"
        );
        stats
    };
    let (trims, splits) = (run(true), run(false));
    assert_eq!((splits.trim_first, splits.trim_last), (0, 0));
    assert!(trims.trim_first > 100 && trims.trim_last > 100, "{trims:?}");
    let saved = trims.trim_first + trims.trim_last;
    assert_eq!(trims.prealloc_allocs + saved, splits.prealloc_allocs);
    assert_eq!((trims.sets, trims.clears), (splits.sets, splits.clears));
    assert_eq!((trims.wakes, trims.wakes_skipped), (0, 0), "no lock ends");
}

/// The reservation is that of the delayed clusters of which nothing is mapped, whichever of their
/// blocks come and go.
#[test]
fn j10_delayed_clusters_are_reserved_once_or_shared() {
    for (seed, cluster_bits) in [(3, 1), (4, 2), (5, 4)] {
        let mut course = Course::in_clusters(seed, seed % 2 == 0, cluster_bits);
        for _ in 0..20_000 {
            course.step();
            course.compare();
        }
        course.view().forget(0, u64::from(SPAN));
        assert_eq!(course.counts.reserved_blocks().get(), 0, "J11");
        let left = ROOM - course.consumed + course.kept;
        assert_eq!(course.counts.available().get(), left);
        assert!(
            course.consumed > 1000 && course.kept > 100,
            "{}",
            course.kept
        );
        drop(course.known);
        assert_eq!(course.counts.leaked(), 0);
    }
}

/// A mapping of allocated blocks does not depend on reservations elsewhere, one of a hole does.
#[test]
fn iomap_12_a_cookie_moves_with_what_the_mapping_depends_on() {
    let course = Course::new(1, true);
    let reserve = |from: u32| {
        let reservation = Reservation::take(&course.counts, Blocks::new(5), false).unwrap();
        course
            .view()
            .set_delayed(Lblk::new(from), 5, (reservation, &[]));
    };
    let written = MapState::Written(Pblk::new(70));
    let cookies = || {
        let view = course.view();
        [written, MapState::Hole, MapState::Delayed].map(|state| view.cookie(state))
    };
    let before = cookies();
    reserve(10);
    let reserved = cookies();
    assert_eq!(reserved[0], before[0], "nothing changed on disk");
    assert!(reserved[1] > before[1] && reserved[2] > before[2]);
    assert_eq!(course.view().drop_delayed(40, 90), 0);
    assert_eq!(cookies(), reserved, "nothing there to drop");
    let range = |from: u32, state| Status {
        lblk: Lblk::new(from),
        len: 5,
        state,
    };
    course.view().fill(range(100, written));
    course.shared.status.shrink();
    assert_eq!(cookies(), reserved, "learnt and forgotten");
    course
        .view()
        .set(range(10, written), ReservationFate::Consume);
    let allocated = cookies();
    assert!((0..3).all(|i| allocated[i] > reserved[i]), "an allocation");
    reserve(30);
    course.view().drop_delayed(0, 100);
    assert_eq!(cookies()[0], allocated[0]);
    assert!(cookies()[1] > allocated[1]);
}

/// An inode that goes with a reservation is a leak, which is counted and repaired.
#[test]
fn a_reservation_that_is_left_behind_is_counted() {
    let mut course = Course::new(1, true);
    course.reserve();
    let left = course.counts.reserved_blocks();
    assert!(!left.is_zero());
    drop(course.known);
    assert_eq!(
        (
            course.counts.leaked(),
            course.counts.reserved_blocks().get()
        ),
        (1, 0)
    );
    assert_eq!(course.counts.available().get(), ROOM);
}
