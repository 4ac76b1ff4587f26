//! A file of six sectors, and the users of its range lock: each locks a part, has it for a moment
//! and checks that no other thread has it too.

use std::sync::Arc;

use extant_range_lock::{ByteRange, RangeLock, Step};
use extant_sync::RwLock;
use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use shuttle::thread;

const SECTORS: usize = 6;

pub(crate) fn sectors(first: u64, count: u64) -> ByteRange {
    ByteRange::from_len(first * 512, count * 512).unwrap()
}

/// The modelled file and its users.
///
/// A fault is noted and reported when all threads have ended and the lock is gone: a panic under a
/// guard would unwind through steps of the checker, which it cannot schedule.
pub(crate) struct World {
    pub(crate) locks: Arc<RangeLock>,
    pub(crate) inode: RwLock<()>,
    /// Threads that have each sector against changes.
    changing: [AtomicU64; SECTORS],
    /// Threads that have each sector against fills.
    filling: [AtomicU64; SECTORS],
    two_owners: AtomicBool,
}

/// One thread's part in a model.
pub(crate) type Part = fn(&World);

/// Runs each part in a thread of its own; without `omitted`, if that is given.
pub(crate) fn run(omitted: Option<Step>, parts: &'static [Part]) {
    let world = Arc::new(World::new(omitted));
    let start = |&part: &Part| {
        let world = world.clone();
        thread::spawn(move || part(&world))
    };
    let threads: Vec<_> = parts.iter().map(start).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    let left = world.locks.is_any_locked();
    let shared = world.inode.read();
    let is_free = world.locks.try_lock(ByteRange::ALL, &shared).is_some();
    drop(shared);
    let two_owners = world.two_owners.load(Ordering::SeqCst);
    drop(world);
    assert!(!two_owners, "two owners of a sector");
    assert!(!left && is_free, "something is left");
}

fn among(owners: &[AtomicU64], range: ByteRange) -> impl Iterator<Item = &AtomicU64> {
    let all = (0..).zip(owners);
    let mine = all.filter(move |(at, _)| range.contains(at * 512));
    mine.map(|(_, owner)| owner)
}

impl World {
    fn new(omitted: Option<Step>) -> Self {
        let locks = omitted.map_or_else(RangeLock::default, RangeLock::omitting);
        Self {
            locks: Arc::new(locks),
            inode: RwLock::default(),
            changing: std::array::from_fn(|_| AtomicU64::new(0)),
            filling: std::array::from_fn(|_| AtomicU64::new(0)),
            two_owners: AtomicBool::new(false),
        }
    }

    fn arrive(&self, owners: &[AtomicU64], range: ByteRange) {
        for owner in among(owners, range) {
            if owner.fetch_add(1, Ordering::SeqCst) != 0 {
                self.two_owners.store(true, Ordering::SeqCst);
            }
        }
    }

    fn depart(&self, owners: &[AtomicU64], range: ByteRange) {
        for owner in among(owners, range) {
            owner.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Changes `range`.
    fn change(&self, range: ByteRange) {
        self.arrive(&self.changing, range);
        self.depart(&self.changing, range);
    }

    /// Fills `range`.
    fn fill(&self, range: ByteRange) {
        self.arrive(&self.filling, range);
        self.depart(&self.filling, range);
    }

    /// Writes `range` past the cache.
    fn write_direct(&self, range: ByteRange) {
        self.arrive(&self.filling, range);
        self.change(range);
        self.depart(&self.filling, range);
    }

    pub(crate) fn by_record(&self, range: ByteRange) {
        let shared = self.inode.read();
        let held = self.locks.lock(range, &shared);
        self.change(range);
        drop(held);
    }

    pub(crate) fn by_tried_record(&self, range: ByteRange) {
        let shared = self.inode.read();
        if let Some(held) = self.locks.try_lock(range, &shared) {
            self.change(range);
            drop(held);
        }
    }

    /// Hands the record on: the inode's lock is not held any more.
    pub(crate) fn by_direct_record(&self, range: ByteRange) {
        let shared = self.inode.read();
        let held = self.locks.try_lock_direct(range, &shared);
        drop(shared);
        if let Some(held) = held {
            self.write_direct(range);
            drop(held);
        }
    }

    pub(crate) fn by_fill(&self, range: ByteRange) {
        let held = self.locks.lock_fill(range);
        self.fill(range);
        drop(held);
    }

    pub(crate) fn by_slot(&self, range: ByteRange) {
        if let Some(held) = RangeLock::try_lock_slot(&self.locks, range, &self.inode) {
            self.write_direct(range);
            drop(held);
        }
    }

    /// As a short append.
    pub(crate) fn by_eof_alone(&self, sector: u64) {
        if let Some(held) = self.locks.try_lock_eof(sector * 512, &self.inode) {
            self.change(ByteRange::to_infinity(sector * 512));
            drop(held);
        }
    }

    /// As any other append, or a truncation.
    pub(crate) fn by_eof(&self, sector: u64) {
        let shared = self.inode.read();
        let held = self.locks.lock_eof(sector * 512, &shared);
        self.change(ByteRange::to_infinity(sector * 512));
        drop(held);
    }

    /// Has the file as a whole.
    pub(crate) fn by_drain(&self) {
        let exclusive = self.inode.write();
        RangeLock::drain(|| Some(&self.locks), &exclusive);
        self.change(ByteRange::ALL);
        drop(exclusive);
    }
}
