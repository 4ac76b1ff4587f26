//! The operations, and how a list of them is drawn. An operation means the same whatever came
//! before it, so that a list can be cut down.

use extant_engine::FallocateMode;
use extant_testkit::Rng;

use crate::config::Config;

/// Files of an episode.
pub(crate) const FILES: usize = 3;

/// One step.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Write {
        file: usize,
        pos: u64,
        len: u64,
        seed: u64,
    },
    Append {
        file: usize,
        len: u64,
        seed: u64,
    },
    Read {
        file: usize,
        pos: u64,
        len: u64,
    },
    ReadPast {
        file: usize,
        pos: u64,
        len: u64,
    },
    /// Past the cache.
    WriteDirect {
        file: usize,
        pos: u64,
        len: u64,
        seed: u64,
    },
    ReadDirect {
        file: usize,
        pos: u64,
        len: u64,
    },
    /// Requests past the cache, in flight at once, each on pages of its own from `pos` on.
    Queue {
        file: usize,
        pos: u64,
        seed: u64,
    },
    Truncate {
        file: usize,
        size: u64,
    },
    /// Takes a view, does something, and looks at the view: it shows what was there before.
    View {
        file: usize,
        pos: u64,
        len: u64,
        then: Box<Op>,
    },
    /// Changes bytes in place.
    Edit {
        file: usize,
        pos: u64,
        len: u64,
        seed: u64,
    },
    /// Allocates, punches, zeroes, takes out or puts in. Positions for the last two are mostly
    /// those of blocks.
    Fallocate {
        file: usize,
        mode: FallocateMode,
        pos: u64,
        len: u64,
    },
    /// Copies from one file to the same or another.
    Copy {
        file: usize,
        pos: u64,
        to: usize,
        to_pos: u64,
        len: u64,
    },
    Fsync {
        file: usize,
        datasync: bool,
    },
    Sync,
    Seek {
        file: usize,
        pos: u64,
    },
    DropCaches,
    /// Moves the blocks together.
    Defragment {
        file: usize,
    },
    /// Removes the file and makes another of its name.
    Recreate {
        file: usize,
    },
    Remount,
    /// Mounts again with the next path.
    Switch,
    /// Moves the file to the other path, in use as it is.
    SwitchFile {
        file: usize,
    },
    /// Cuts the power: what no flush covers may be lost, in part, in any order.
    Crash {
        seed: u64,
    },
    /// Does it, and cuts the power at some moment of that.
    CrashDuring {
        op: Box<Op>,
        seed: u64,
    },
    Verify,
    /// Does it, without telling the model.
    Lie(Box<Op>),
}

type Make = fn(&mut Draw) -> Op;

/// The operations, each with its weight.
const WEIGHTS: &[(u64, Make)] = &[
    (330, Draw::write),
    (70, Draw::append),
    (300, Draw::read),
    (40, Draw::read_past),
    (60, Draw::write_direct),
    (40, Draw::read_direct),
    (25, Draw::queue),
    (40, Draw::view),
    (60, Draw::edit),
    (60, Draw::truncate),
    (120, Draw::fallocate),
    (30, Draw::copy),
    (50, Draw::fsync),
    (50, Draw::seek),
    (50, |_| Op::Verify),
    (25, |_| Op::DropCaches),
    (12, |_| Op::Sync),
    (8, Draw::defragment),
    (4, |_| Op::Remount),
    (2, |_| Op::Switch),
    (3, Draw::switch_file),
    (5, |draw| Op::Crash {
        seed: draw.rng.next_u64(),
    }),
    (5, Draw::crash_during),
    (4, |draw| Op::Recreate { file: draw.file() }),
];

/// The operations of an episode.
pub(crate) fn list(config: Config) -> Vec<Op> {
    let mut draw = Draw {
        rng: Rng::new(config.seed),
        span: config.span,
        block: config.block.into(),
        cluster: u64::from(config.block * config.cluster()),
    };
    let total = WEIGHTS.iter().map(|(weight, _)| weight).sum();
    let mut one = || {
        let mut left = draw.rng.below(total);
        for (weight, make) in WEIGHTS {
            if left < *weight {
                return make(&mut draw);
            }
            left -= weight;
        }
        Op::Verify
    };
    (0..config.steps).map(|_| one()).collect()
}

struct Draw {
    rng: Rng,
    span: u64,
    /// Bytes of a block.
    block: u64,
    /// Bytes of a cluster.
    cluster: u64,
}

impl Draw {
    fn file(&mut self) -> usize {
        self.rng.index(FILES)
    }

    /// Anywhere, with a liking for the borders of blocks and folios.
    fn pos(&mut self) -> u64 {
        let pos = self.rng.below(self.span);
        match self.rng.below(6) {
            0 => pos & !4095.max(self.block - 1),
            1 => (pos & !4095.max(self.block - 1)).saturating_sub(1),
            2 => pos & !1023,
            3 => pos & !0xffff,
            _ => pos,
        }
    }

    fn len(&mut self) -> u64 {
        let limit = match self.rng.below(20) {
            0..7 => 100,
            7..13 => 5000,
            13..18 => 40_000,
            18 => 4096 << self.rng.below(4),
            _ => self.span / 2,
        };
        if self.rng.chance(10) {
            return limit;
        }
        1 + self.rng.below(limit)
    }

    fn write(&mut self) -> Op {
        Op::Write {
            file: self.file(),
            pos: self.pos(),
            len: self.len(),
            seed: self.rng.next_u64(),
        }
    }

    fn append(&mut self) -> Op {
        Op::Append {
            file: self.file(),
            len: self.len().min(self.span / 8),
            seed: self.rng.next_u64(),
        }
    }

    fn read(&mut self) -> Op {
        Op::Read {
            file: self.file(),
            pos: self.pos(),
            len: self.len(),
        }
    }

    fn read_past(&mut self) -> Op {
        Op::ReadPast {
            file: self.file(),
            pos: self.pos(),
            len: self.len(),
        }
    }

    /// A range, mostly of whole blocks.
    fn direct_range(&mut self) -> (u64, u64) {
        let (pos, len) = (self.pos(), self.len());
        let unit = [1, 512, 1024, 2048, 4096, self.block][self.rng.index(6)];
        (pos / unit * unit, len.next_multiple_of(unit))
    }

    fn write_direct(&mut self) -> Op {
        let (pos, len) = self.direct_range();
        Op::WriteDirect {
            file: self.file(),
            pos,
            len,
            seed: self.rng.next_u64(),
        }
    }

    fn read_direct(&mut self) -> Op {
        let (pos, len) = self.direct_range();
        Op::ReadDirect {
            file: self.file(),
            pos,
            len,
        }
    }

    fn queue(&mut self) -> Op {
        Op::Queue {
            file: self.file(),
            pos: self.pos(),
            seed: self.rng.next_u64(),
        }
    }

    fn view(&mut self) -> Op {
        let then = match self.rng.below(10) {
            8.. => self.write_direct(),
            6..8 => self.fallocate(),
            0 => Op::DropCaches,
            1 => self.truncate(),
            2 => self.fsync(),
            3 => self.edit(),
            _ => self.write(),
        };
        Op::View {
            file: self.file(),
            pos: self.pos(),
            len: self.len(),
            then: Box::new(then),
        }
    }

    fn switch_file(&mut self) -> Op {
        Op::SwitchFile { file: self.file() }
    }

    fn defragment(&mut self) -> Op {
        Op::Defragment { file: self.file() }
    }

    fn edit(&mut self) -> Op {
        Op::Edit {
            file: self.file(),
            pos: self.pos(),
            len: self.len(),
            seed: self.rng.next_u64(),
        }
    }

    fn truncate(&mut self) -> Op {
        Op::Truncate {
            file: self.file(),
            size: self.pos(),
        }
    }

    fn fallocate(&mut self) -> Op {
        let keep_size = self.rng.chance(40);
        let mode = match self.rng.below(10) {
            0 | 1 => FallocateMode::Allocate { keep_size },
            2..5 => FallocateMode::PunchHole,
            5..7 => FallocateMode::ZeroRange { keep_size },
            7 | 8 => FallocateMode::CollapseRange,
            _ => FallocateMode::InsertRange,
        };
        let (mut pos, mut len) = (self.pos(), self.len());
        if let FallocateMode::CollapseRange | FallocateMode::InsertRange = mode {
            // Of the middle of the file rather than its end, or little is left of it.
            pos /= 2;
            len = len.min(self.span / 8);
            if !self.rng.chance(5) {
                let unit = [1024, 4096, 4096, self.block, self.cluster][self.rng.index(5)];
                let unit = if self.rng.chance(80) {
                    unit.max(self.cluster)
                } else {
                    unit
                };
                (pos, len) = (pos & !(unit - 1), len.next_multiple_of(unit));
            }
        }
        Op::Fallocate {
            file: self.file(),
            mode,
            pos,
            len,
        }
    }

    fn copy(&mut self) -> Op {
        Op::Copy {
            file: self.file(),
            pos: self.pos(),
            to: self.file(),
            to_pos: self.pos(),
            len: self.len(),
        }
    }

    fn fsync(&mut self) -> Op {
        Op::Fsync {
            file: self.file(),
            datasync: self.rng.chance(50),
        }
    }

    fn crash_during(&mut self) -> Op {
        let op = match self.rng.below(15) {
            14.. => self.defragment(),
            12..14 => self.write_direct(),
            9..12 => self.fallocate(),
            8 => self.copy(),
            0 => self.write(),
            1..3 => self.truncate(),
            3 => Op::Sync,
            _ => self.fsync(),
        };
        Op::CrashDuring {
            op: Box::new(op),
            seed: self.rng.next_u64(),
        }
    }

    fn seek(&mut self) -> Op {
        Op::Seek {
            file: self.file(),
            pos: self.pos(),
        }
    }
}
