//! Programs: what the threads of a schedule call, and on which volume, drawn from a seed.

use std::fmt;

use extant_engine::{BufferedPath, Tuning};
use extant_failpoint::{ActiveFailpoint, Failpoint};
use extant_testkit::Rng;

use crate::device::Cut;
use crate::model::{CELL, PAGE};

/// Files of a volume.
pub(crate) const FILES: usize = 2;
/// Names of its root, of which the first have a file in the beginning.
pub(crate) const NAMES: usize = 3;
/// Cells that calls aim at.
const SPAN: usize = 4 * PAGE;

/// A call. Positions and lengths are in cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Write(usize, usize, usize),
    Direct(usize, usize, usize),
    Append(usize, usize),
    Read(usize, usize, usize),
    ReadPast(usize, usize, usize),
    Punch(usize, usize, usize),
    Zero(usize, usize, usize, bool),
    Allocate(usize, usize, usize, bool),
    Collapse(usize, usize, usize),
    Insert(usize, usize, usize),
    Truncate(usize, usize),
    Size(usize),
    Seek(usize, usize),
    Fsync(usize, bool),
    Sync,
    Drop(usize),
    DropAll,
    Lookup(usize),
    Rename(usize, usize),
    Exchange(usize, usize),
    Link(usize, usize),
    Unlink(usize),
    Links(usize),
    SetAttr(usize),
    GetAttr(usize),
}

/// The volume and how it is mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setup {
    pub(crate) block: u32,
    pub(crate) path: BufferedPath,
    pub(crate) options: &'static str,
    pub(crate) order: u8,
    pub(crate) flushers: u8,
    /// Requests of a direct queue complete in threads.
    pub(crate) threads: bool,
    /// Blocks that are left free before the threads begin; all if none is said.
    pub(crate) left: Option<u64>,
    /// The files are durable before the calls begin.
    pub(crate) synced: bool,
    /// When the power goes.
    pub(crate) cut: Option<Cut>,
    /// Draws the switches of the engine that a program has.
    pub(crate) switches: u64,
    pub(crate) failpoint: Option<Failpoint>,
}

/// A program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Program {
    pub(crate) setup: Setup,
    /// Calls of one thread before the others begin.
    pub(crate) first: Vec<Op>,
    pub(crate) threads: Vec<Vec<Op>>,
}

const OPTIONS: &[&str] = &[
    "",
    "",
    "nodelalloc",
    "dioread_lock",
    "nodelalloc,dioread_lock",
    "data=journal",
    "lazytime",
];

impl Setup {
    fn draw(rng: &mut Rng, failpoint: Option<Failpoint>) -> Self {
        Self {
            block: if rng.chance(60) { 1024 } else { 4096 },
            path: if rng.chance(65) {
                BufferedPath::Iomap
            } else {
                BufferedPath::BufferHead
            },
            options: OPTIONS[rng.index(OPTIONS.len())],
            order: [0, 2, 9][rng.index(3)],
            flushers: u8::from(rng.chance(35)),
            threads: rng.chance(50),
            left: rng.chance(30).then(|| rng.below(40)),
            synced: rng.chance(70),
            cut: rng.chance(50).then(|| {
                let within = 4 << rng.below(7);
                Cut {
                    after: rng.below(within),
                    seed: rng.next_u64(),
                }
            }),
            switches: rng.next_u64(),
            failpoint,
        }
    }

    /// A volume with room, mounted without options.
    pub(crate) fn plain(block: u32) -> Self {
        Self {
            block,
            path: BufferedPath::Iomap,
            options: "",
            order: 2,
            flushers: 0,
            threads: false,
            left: None,
            synced: false,
            cut: None,
            switches: 0,
            failpoint: None,
        }
    }

    /// Cells of a block.
    pub(crate) fn block_cells(&self) -> usize {
        self.block as usize / CELL
    }

    /// The options of the mount.
    pub(crate) fn options(&self) -> String {
        format!("commit=300,{}", self.options)
    }

    pub(crate) fn tuning(&self) -> Tuning {
        let mut tuning = Tuning::default();
        tuning.buffered_path = self.path;
        tuning.max_folio_order = self.order;
        tuning.page_cache_bytes = Some(4 << 20);
        tuning.block_cache_bytes = 1 << 20;
        tuning.name_cache_bytes = 1 << 14;
        tuning.replay_bytes = Some(1 << 20);
        tuning.flushers = self.flushers;
        tuning.stop_at_range_end = self.switches & 1 == 0;
        tuning.dirty_inode_on_append = self.switches & 6 == 0;
        tuning.trim_on_clear = self.switches & 8 == 0;
        tuning.lock_slots = self.switches & 16 == 0;
        tuning.joint_writeback = self.switches & 32 == 0;
        tuning.release_fronts = self.switches & 64 == 0;
        tuning.failpoint = self
            .failpoint
            .map_or_else(ActiveFailpoint::default, ActiveFailpoint::only);
        tuning
    }
}

impl Program {
    /// The program of `seed`.
    pub(crate) fn draw(seed: u64, failpoint: Option<Failpoint>) -> Self {
        let mut rng = Rng::new(seed ^ 0x7363_6865_6475_6c65);
        let setup = Setup::draw(&mut rng, failpoint);
        let mut drawer = Drawer::new(&mut rng, &setup);
        let first = (0..drawer.rng.between(1, 5))
            .map(|_| drawer.op(true))
            .collect();
        let threads = if drawer.rng.chance(60) { 2 } else { 3 };
        let calls = 1 + drawer.rng.below(3);
        let threads = (0..threads).map(|_| (0..calls).map(|_| drawer.op(false)).collect());
        Self {
            setup,
            first,
            threads: threads.collect(),
        }
    }

    /// Calls in all.
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.threads.iter().map(Vec::len).sum::<usize>()
    }

    /// The program without one of its calls.
    pub(crate) fn without(&self, call: usize) -> Self {
        let mut shorter = self.clone();
        let mut left = call;
        for list in std::iter::once(&mut shorter.first).chain(&mut shorter.threads) {
            if left < list.len() {
                list.remove(left);
                break;
            }
            left -= list.len();
        }
        shorter.threads.retain(|thread| !thread.is_empty());
        shorter
    }
}

/// Calls that meet in one mechanism: a program mostly has calls of one row.
const MEETING: &[&[u64]] = &[
    // Data that arrives and leaves the cache, and what looks at both.
    &[0, 0, 4, 8, 8, 9, 10, 13, 14, 15, 15, 17],
    // Space, where it is short.
    &[0, 0, 2, 3, 3, 7, 8, 13, 14, 16],
    // The end of a file.
    &[0, 2, 4, 5, 7, 12, 16, 16, 18],
    // Past the cache, and through it.
    &[0, 4, 4, 6, 7, 7, 7, 13, 15],
    // Data that moves within the file.
    &[0, 4, 8, 11, 11, 12, 12, 13, 17],
    // Overwrites beside what has the file alone.
    &[0, 0, 0, 4, 8, 10, 11, 16, 7],
    // Names.
    &[19, 19, 19, 20, 20, 21, 22, 23, 24],
    // Names, attributes and what makes them durable.
    &[13, 14, 19, 20, 23, 24, 25, 26, 0],
];
/// Kinds of calls.
const ALL: u64 = 27;

/// Draws calls. Each program has a few kinds of calls, one or two files, and a range that most
/// calls touch: what meets is more often what can disturb each other.
struct Drawer<'a> {
    rng: &'a mut Rng,
    block: usize,
    /// Space may run out.
    is_tight: bool,
    kinds: &'static [u64],
    files: usize,
    /// Cell at which most calls begin.
    near: usize,
}

impl<'a> Drawer<'a> {
    fn new(rng: &'a mut Rng, setup: &Setup) -> Self {
        let is_tight = setup.left.is_some();
        let row = if is_tight && rng.chance(60) {
            1
        } else {
            rng.index(MEETING.len())
        };
        let files = if rng.chance(80) { 1 } else { FILES };
        let near = rng.index(SPAN);
        Self {
            rng,
            block: setup.block_cells(),
            is_tight,
            kinds: MEETING[row],
            files,
            near,
        }
    }

    fn range(&mut self) -> (usize, usize) {
        let at = if self.rng.chance(75) {
            (self.near + self.rng.index(6)).saturating_sub(3)
        } else {
            self.rng.index(SPAN)
        };
        let len = if self.rng.chance(80) {
            1 + self.rng.index(PAGE)
        } else {
            1 + self.rng.index(SPAN)
        };
        (at, len)
    }

    /// A range of whole blocks.
    fn blocks(&mut self) -> (usize, usize) {
        let (at, len) = self.range();
        let whole = len.div_ceil(self.block) * self.block;
        (at / self.block * self.block, whole)
    }

    fn op(&mut self, first: bool) -> Op {
        let kind = if first && self.rng.chance(75) {
            [0, 0, 0, 3, 13, 14][self.rng.index(6)]
        } else if self.rng.chance(90) {
            self.kinds[self.rng.index(self.kinds.len())]
        } else {
            self.rng.below(ALL)
        };
        if kind < 19 {
            self.content(kind)
        } else {
            self.named(kind)
        }
    }

    fn content(&mut self, kind: u64) -> Op {
        let file = self.rng.index(self.files);
        let (at, len) = self.range();
        let (block, blocks) = self.blocks();
        let yes = self.rng.chance(50);
        match kind {
            0 | 1 => Op::Write(file, at, len),
            2 => Op::Append(file, 1 + len % (2 * PAGE)),
            // Without space a file may get a part of the length.
            3 => Op::Allocate(file, at, len, yes || self.is_tight),
            4 | 5 => Op::Read(file, at, len),
            6 => Op::ReadPast(file, at, len),
            7 if yes => Op::Direct(file, block, blocks),
            7 => Op::Direct(file, at, len),
            8 | 9 => Op::Punch(file, at, len),
            10 => Op::Zero(file, at, len, yes),
            11 => Op::Collapse(file, block, blocks),
            12 => Op::Insert(file, block, blocks),
            13 => Op::Fsync(file, yes),
            14 => Op::Sync,
            15 if yes => Op::Drop(file),
            15 => Op::DropAll,
            16 => Op::Truncate(file, at),
            17 => Op::Seek(file, at),
            _ => Op::Size(file),
        }
    }

    fn named(&mut self, kind: u64) -> Op {
        let file = self.rng.index(FILES);
        let (name, other) = (self.rng.index(NAMES), self.rng.index(NAMES));
        let yes = self.rng.chance(50);
        match kind {
            19 => Op::Lookup(name),
            20 | 21 => Op::Rename(name, other),
            22 => Op::Exchange(name, other),
            23 => Op::Link(file, other),
            24 => Op::Unlink(name),
            25 => Op::Links(file),
            _ if yes => Op::SetAttr(file),
            _ => Op::GetAttr(file),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup {
            block,
            path,
            options,
            order,
            flushers,
            left,
            cut,
            ..
        } = self.setup;
        let cut = cut.map_or("never".to_owned(), |cut| cut.after.to_string());
        let left = left.map_or("all".to_owned(), |left| left.to_string());
        writeln!(
            f,
            "  {path:?}, blocks of {block}, folios up to {order}, {flushers} flushers, \
             {left} left, power cut {cut}, {options}"
        )?;
        writeln!(f, "  first: {:?}", self.first)?;
        for (number, thread) in self.threads.iter().enumerate() {
            writeln!(f, "  thread {}: {thread:?}", number + 1)?;
        }
        Ok(())
    }
}
