//! The measures of a program.

use std::time::Duration;

use extant_testkit::Rng;

use super::kernel::KernelLimits;
use crate::pool::IdlePolicy;
use crate::uring::simulated::RingShape;

pub(super) const MIB: u64 = 1 << 20;
/// Longer than any answer takes on a busy machine: a request that waits longer hangs.
const LIMIT: Duration = Duration::from_secs(120);
/// Workers beside rings: as a mount has.
const BESIDE_RINGS: usize = 2;

/// See the module's header.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// The volume's size in MiB.
    pub(super) mib: u64,
    /// Bytes of it that are free at first.
    pub(super) free: u64,
    /// Bytes that the kernel holds dirty at most.
    pub(super) dirty_limit: u64,
    /// Workers at `/dev/fuse`.
    pub(super) workers: usize,
    pub(super) policy: IdlePolicy,
    /// The rings that requests come over, if they do.
    pub(super) rings: Option<RingShape>,
    /// Background requests in work by `/dev/fuse`.
    pub(super) background: usize,
    /// The time that a WRITE takes before it is served.
    pub(super) pace: Duration,
    pub(super) processes: usize,
    /// Writes in a hundred that make a new file as long as files are.
    pub(super) whole_files: u64,
    /// Operations of each process.
    pub(super) operations: usize,
    /// The mount ends so early, whatever is under way.
    pub(super) aborts_after: Option<Duration>,
    /// The time after which a request that waits hangs.
    pub(super) patience: Duration,
}

impl Shape {
    pub(super) fn chosen_by(rng: &mut Rng) -> Shape {
        // The larger volume has times of plenty: it is short below 48 MiB more than the limit.
        let (mib, free) = match rng.chance(25) {
            true => (128, (48 * MIB) + rng.between(1, 6) * MIB),
            false => (16, rng.between(1, 6) * MIB),
        };
        let pace = Duration::from_micros([0, 0, 200, 1000][rng.index(4)]);
        let workers = 1 + rng.index(4);
        let background = workers + 1 + rng.index(16);
        let policy = [IdlePolicy::Poll, IdlePolicy::Sleep][rng.index(2)];
        let shape = Shape {
            mib,
            free,
            dirty_limit: rng.between(1, 3) * MIB,
            workers,
            policy,
            rings: None,
            background,
            pace,
            processes: 2 + rng.index(3),
            whole_files: 0,
            operations: 24,
            aborts_after: None,
            patience: LIMIT,
        };
        let shape = match rng.chance(50) {
            true => shape.over_rings(rng),
            false => shape,
        };
        let early = rng.chance(8);
        let after = Duration::from_millis(rng.below(300));
        Shape {
            aborts_after: early.then_some(after),
            ..shape
        }
    }

    /// The same over rings: of one to four queues, each with workers of its own, or the last two
    /// with two workers that serve both.
    pub(super) fn over_rings(self, rng: &mut Rng) -> Shape {
        let queues = 1 + u16::try_from(rng.index(4)).unwrap();
        let shared = if queues > 1 && rng.chance(25) { 2 } else { 0 };
        let mut duties = Vec::new();
        for queue in 0..queues - shared {
            duties.extend((0..rng.between(2, 3)).map(|_| vec![queue]));
        }
        if shared > 0 {
            duties.extend((0..2).map(|_| vec![queues - 2, queues - 1]));
        }
        let entries = duties.iter().flatten().count() as u64;
        let rings = RingShape {
            duties,
            background: rng.between(1, 3 * entries + 8),
            pace: self.pace,
        };
        Shape {
            rings: Some(rings),
            workers: BESIDE_RINGS,
            policy: IdlePolicy::Gather,
            ..self
        }
    }

    pub(super) fn has_plenty(&self) -> bool {
        self.free > 48 * MIB
    }

    pub(super) fn ring_workers(&self) -> usize {
        self.rings.as_ref().map_or(0, |rings| rings.duties.len())
    }

    pub(super) fn limits(&self) -> KernelLimits {
        KernelLimits {
            dirty: self.dirty_limit,
            background: self.background,
            pace: self.pace,
            patience: self.patience,
        }
    }
}
