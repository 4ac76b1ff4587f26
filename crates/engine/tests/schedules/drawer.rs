//! Draws the calls of a program.
//!
//! Calls that have nothing to do with each other disturb each other never, so a program has few
//! kinds of calls: those of a row that meet in one mechanism, some of them, or a swarm, which is a
//! few kinds of each of some classes. Mostly it has one file, and two ranges that most calls aim
//! at. What comes first leaves the pages of that region in different states: a hole, allocated and
//! unwritten, delayed, dirty, clean, partly cached, not cached. Short programs are drawn more often
//! than long ones: they have fewer orders, and what two calls can show needs no third.

use extant_testkit::Rng;

use crate::model::PAGE;
use crate::program::{FILES, NAMES, Op, Protection, Setup};

/// Cells that calls aim at.
const SPAN: usize = 4 * PAGE;

/// A kind of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Write,
    Vectored,
    Edit,
    Long,
    Append,
    Copy,
    Direct,
    Queued,
    Read,
    ReadPast,
    ReadDirect,
    View,
    Punch,
    Zero,
    Allocate,
    Collapse,
    Insert,
    Truncate,
    Size,
    Seek,
    Fsync,
    Sync,
    Drop,
    DropAll,
    Evict,
    Protect,
    Defragment,
    Switch,
    Trim,
    Grow,
    Lookup,
    LookupAll,
    Rename,
    Exchange,
    Link,
    Unlink,
    Links,
    SetAttr,
    BigAttr,
    RemoveAttr,
    GetAttr,
}

use Kind::*;

/// All kinds.
const ALL: &[Kind] = &[
    Write, Vectored, Edit, Long, Append, Copy, Direct, Queued, Read, ReadPast, ReadDirect, View,
    Punch, Zero, Allocate, Collapse, Insert, Truncate, Size, Seek, Fsync, Sync, Drop, DropAll,
    Evict, Protect, Defragment, Switch, Trim, Grow, Lookup, LookupAll, Rename, Exchange, Link,
    Unlink, Links, SetAttr, BigAttr, RemoveAttr, GetAttr,
];

/// Kinds that meet in one mechanism.
const MEETING: &[&[Kind]] = &[
    // Data that leaves the cache, and what looks at the map and at the cache.
    &[Write, Punch, Zero, Evict, Evict],
    &[Write, Write, Edit, Evict, Read, View],
    &[Seek, Read, Write, Punch, Evict, Fsync, DropAll],
    // The end of a file.
    &[
        Write, Append, Read, Size, Direct, Insert, Truncate, Truncate,
    ],
    // Past the cache, and through it.
    &[Write, Read, Direct, Queued, ReadDirect, ReadPast, Evict],
    // Data that moves within the file, or on the device.
    &[Write, Read, Collapse, Insert, Evict],
    &[Write, Read, Seek, Insert, Collapse, Punch],
    &[Write, Read, Direct, Defragment, Switch, Fsync],
    // Overwrites beside what has the file alone.
    &[
        Write, Write, Read, Collapse, Punch, Truncate, Direct, Switch,
    ],
    // Names.
    &[
        LookupAll, LookupAll, LookupAll, Rename, Rename, Exchange, Link, Unlink,
    ],
];

/// Kinds that meet where space is short.
const TIGHT: &[&[Kind]] = &[
    &[
        Write, Append, Allocate, Direct, Punch, Fsync, Sync, Truncate, Grow,
    ],
    &[Write, Write, Allocate, Allocate, Evict, Fsync, Sync],
    // Writes that let go of their front.
    &[Long, Long, Long, Write, Read],
];

/// Kinds that meet in what a power cut leaves.
const DURABLE: &[&[Kind]] = &[
    // Delayed blocks: where they are allocated, and what drops them.
    &[Write, Fsync, Allocate, Truncate, Punch, Sync],
    &[Write, Append, Vectored, Long, Fsync, Sync, Truncate],
    // Data that is written while another thread commits.
    &[Write, Append, Direct, Fsync, SetAttr, Sync],
    // Names, attributes and what makes them durable.
    &[
        Rename, Link, Unlink, Unlink, Sync, Fsync, SetAttr, Write, Truncate,
    ],
    // Blocks of metadata that become blocks of data.
    &[BigAttr, RemoveAttr, Write, Fsync, Sync],
    &[Write, Punch, Truncate, Fsync, Sync, Trim, Grow],
];

/// Classes that a swarm is drawn from: how many kinds of each, at least and at most.
const CLASSES: &[(&[Kind], u64, u64)] = &[
    (
        &[
            Write, Write, Vectored, Edit, Long, Append, Copy, Direct, Queued,
        ],
        1,
        2,
    ),
    (&[Read, Read, ReadPast, ReadDirect, View, Size, Seek], 0, 1),
    (
        &[Punch, Zero, Allocate, Collapse, Insert, Truncate, Truncate],
        0,
        2,
    ),
    (&[Fsync, Sync, Evict, Evict, DropAll], 1, 1),
];
/// Kinds of which a swarm has one now and then.
const OTHERS: &[Kind] = &[
    Drop, Protect, Protect, Defragment, Switch, Trim, Grow, Unlink, Rename, SetAttr, BigAttr,
    RemoveAttr,
];

/// Some kinds of each class.
fn swarm(rng: &mut Rng) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for (class, least, most) in CLASSES {
        let count = rng.between(*least, *most);
        kinds.extend((0..count).map(|_| class[rng.index(class.len())]));
    }
    if rng.chance(20) {
        kinds.push(OTHERS[rng.index(OTHERS.len())]);
    }
    kinds
}

/// A row of kinds that fit the volume, or some of it.
fn row(rng: &mut Rng, setup: &Setup) -> Vec<Kind> {
    let rows = if setup.cuts.is_some() && rng.chance(75) {
        DURABLE
    } else if setup.left.is_some() && rng.chance(60) {
        TIGHT
    } else {
        MEETING
    };
    let row = rows[rng.index(rows.len())];
    if rng.chance(50) {
        let count = rng.between(2, 4);
        return (0..count).map(|_| row[rng.index(row.len())]).collect();
    }
    row.to_vec()
}

pub(crate) struct Drawer<'a> {
    rng: &'a mut Rng,
    block: usize,
    /// Space may run out.
    is_tight: bool,
    /// The power goes: what is made durable before that counts as much as what runs then.
    has_cuts: bool,
    kinds: Vec<Kind>,
    files: usize,
    /// Cell at which most calls begin.
    near: usize,
    /// Ranges that calls aim at exactly, and how many calls in a hundred do.
    hot: [(usize, usize); 2],
    aimed: u64,
}

impl<'a> Drawer<'a> {
    pub(crate) fn new(rng: &'a mut Rng, setup: &Setup) -> Self {
        let is_swarm = rng.chance(50);
        let kinds = if is_swarm {
            swarm(rng)
        } else {
            row(rng, setup)
        };
        let files = if rng.chance(80) { 1 } else { FILES };
        // Files are mostly written from the start.
        let near = if rng.chance(30) { 0 } else { rng.index(SPAN) };
        let mut drawer = Self {
            rng,
            block: setup.block_cells(),
            is_tight: setup.left.is_some(),
            has_cuts: setup.cuts.is_some(),
            kinds,
            files,
            near,
            hot: [(0, 1); 2],
            aimed: 0,
        };
        // A few cells, and the blocks or the page around them, or what comes next.
        let (at, len) = drawer.range();
        let unit = if drawer.rng.chance(50) {
            drawer.block
        } else {
            PAGE
        };
        let around = (at / unit * unit, (at % unit + len).next_multiple_of(unit));
        drawer.hot = match drawer.rng.below(4) {
            0 => [around, (around.0 + around.1, around.1)],
            1 => [around, drawer.blocks()],
            _ => [around, (at, len)],
        };
        drawer.aimed = [0, 70, 95, 95][drawer.rng.index(4)];
        drawer
    }

    /// The calls of one thread that come first.
    pub(crate) fn first(&mut self) -> Vec<Op> {
        let mut ops = Vec::new();
        for _ in 0..[1, 1, 1, 2, 2, 3][self.rng.index(6)] {
            self.prepare(&mut ops);
        }
        // A state that was just prepared, or one that has been made durable and changed.
        let calls = if self.has_cuts {
            [0, 0, 1, 2, 4, 7]
        } else {
            [0, 0, 0, 1, 1, 1]
        };
        for _ in 0..calls[self.rng.index(6)] {
            self.call(&mut ops);
        }
        ops
    }

    /// The calls of the threads.
    pub(crate) fn threads(&mut self) -> Vec<Vec<Op>> {
        let threads = if self.rng.chance(85) { 2 } else { 3 };
        (0..threads)
            .map(|_| {
                let calls = [1, 1, 1, 1, 2, 2, 2, 3][self.rng.index(8)];
                let mut ops = Vec::new();
                (0..calls).for_each(|_| self.call(&mut ops));
                ops
            })
            .collect()
    }

    /// Leaves some pages in a state that calls can meet.
    fn prepare(&mut self, ops: &mut Vec<Op>) {
        if self.kinds.contains(&Rename) && self.rng.chance(75) {
            // Names that the cache has.
            return self.look_up_all(ops);
        }
        let file = self.rng.index(self.files);
        if self.kinds.contains(&Long) && self.rng.chance(60) {
            // A hole, and the end far behind it.
            return ops.push(Op::Truncate(file, SPAN + self.rng.index(2 * SPAN)));
        }
        let (at, len) = self.range();
        let write = Op::Write(file, at, len);
        // Without space a file may get a part of the length.
        let allocate = Op::Allocate(file, at, len + PAGE, self.is_tight);
        match self.rng.below(12) {
            // Delayed, or dirty.
            0 | 1 | 10 => ops.push(write),
            // Clean.
            2 => ops.extend([write, Op::Fsync(file, true)]),
            // Not cached, or some pages.
            3 => ops.extend([write, Op::Evict(file)]),
            4 => {
                let (at, len) = self.range();
                ops.extend([write, Op::Evict(file), Op::Read(file, at, len)]);
            }
            // A part of a page.
            5 => {
                let (at, _) = self.range();
                ops.extend([write, Op::Evict(file), Op::Write(file, at, self.block)]);
            }
            // Unwritten.
            6 => ops.push(allocate),
            7 | 11 => ops.extend([allocate, write]),
            // A hole, and the end far behind it.
            8 => ops.push(Op::Truncate(file, SPAN + self.rng.index(2 * SPAN))),
            _ => ops.push(Op::Direct(file, at, len)),
        }
    }

    fn range(&mut self) -> (usize, usize) {
        if self.rng.chance(self.aimed) {
            return self.hot[self.rng.index(2)];
        }
        let at = if self.rng.chance(80) {
            (self.near + self.rng.index(6)).saturating_sub(3)
        } else {
            self.rng.index(SPAN)
        };
        let len = match self.rng.below(10) {
            0 => 1 + self.rng.index(SPAN),
            1 | 2 => 1 + self.rng.index(2 * PAGE),
            _ => 1 + self.rng.index(PAGE),
        };
        (at, len)
    }

    /// A range of whole blocks.
    fn blocks(&mut self) -> (usize, usize) {
        let (at, len) = self.range();
        let whole = len.div_ceil(self.block) * self.block;
        (at / self.block * self.block, whole)
    }

    /// Looks all names up, in any order.
    fn look_up_all(&mut self, ops: &mut Vec<Op>) {
        let first = self.rng.index(NAMES);
        let back = self.rng.chance(50);
        let names = (0..NAMES).map(|name| (first + if back { NAMES - name } else { name }) % NAMES);
        ops.extend(names.map(Op::Lookup));
    }

    fn call(&mut self, ops: &mut Vec<Op>) {
        let kind = if self.rng.chance(92) {
            self.kinds[self.rng.index(self.kinds.len())]
        } else {
            ALL[self.rng.index(ALL.len())]
        };
        if kind == LookupAll {
            self.look_up_all(ops);
        } else {
            let op = self.op(kind);
            ops.push(op);
        }
    }

    fn op(&mut self, kind: Kind) -> Op {
        let file = self.rng.index(self.files);
        let (at, len) = self.range();
        let yes = self.rng.chance(50);
        match kind {
            Write => Op::Write(file, at, len),
            Vectored => Op::Vectored(file, at, len),
            Edit => Op::Edit(file, at, len),
            Long => Op::Write(file, at, 3 * PAGE + len),
            Append => Op::Append(file, len),
            Copy => self.copy(file),
            Protect => {
                let all = [Protection::None, Protection::AppendOnly];
                let mild = all[usize::from(yes)];
                let immutable = self.rng.chance(50);
                Op::Protect(
                    file,
                    if immutable {
                        Protection::Immutable
                    } else {
                        mild
                    },
                )
            }
            Read => Op::Read(file, at, len),
            ReadPast => Op::ReadPast(file, at, len),
            ReadDirect => Op::ReadDirect(file, at, len),
            View => Op::View(file, at, len),
            Punch => Op::Punch(file, at, len),
            Zero => Op::Zero(file, at, len, yes),
            Allocate => Op::Allocate(file, at, len, yes || self.is_tight),
            Truncate => Op::Truncate(file, at),
            Size => Op::Size(file),
            Seek => Op::Seek(file, at),
            // Of any file: its commit takes along what others have changed.
            Fsync if self.has_cuts => Op::Fsync(self.rng.index(FILES), yes),
            Fsync => Op::Fsync(file, yes),
            Sync => Op::Sync,
            Drop => Op::Drop(file),
            DropAll => Op::DropAll,
            Evict => Op::Evict(file),
            Defragment => Op::Defragment(file),
            Switch => Op::Switch(file, yes),
            Trim => Op::Trim,
            Grow => Op::Grow,
            Direct if yes => Op::Direct(file, at, len),
            Queued if yes => Op::Queued(file, at, len),
            Direct | Queued | Collapse | Insert => self.whole_blocks(kind, file),
            other => self.named(other),
        }
    }

    /// A copy of a few cells, to another file or to others of the same.
    fn copy(&mut self, file: usize) -> Op {
        let (at, len) = if self.rng.chance(50) {
            self.blocks()
        } else {
            self.range()
        };
        let len = len.min(PAGE);
        let (to, to_at) = (self.rng.index(FILES), self.range().0);
        match to == file && at.abs_diff(to_at) < len {
            true => Op::Copy(file, (at, len), (to, at + len)),
            false => Op::Copy(file, (at, len), (to, to_at)),
        }
    }

    fn whole_blocks(&mut self, kind: Kind, file: usize) -> Op {
        let (at, len) = self.blocks();
        match kind {
            Collapse => Op::Collapse(file, at, len),
            Insert => Op::Insert(file, at, len),
            Queued => Op::Queued(file, at, len),
            _ => Op::Direct(file, at, len),
        }
    }

    fn named(&mut self, kind: Kind) -> Op {
        let file = self.rng.index(FILES);
        // Mostly one that leads to a file in the beginning, and another one.
        let name = if self.rng.chance(75) {
            self.rng.index(FILES)
        } else {
            self.rng.index(NAMES)
        };
        let other = (name + 1 + self.rng.index(NAMES - 1)) % NAMES;
        match kind {
            Lookup => Op::Lookup(name),
            Rename => Op::Rename(name, other),
            Exchange => Op::Exchange(name, other),
            Link => Op::Link(file, other),
            Unlink => Op::Unlink(name),
            Links => Op::Links(file),
            SetAttr => Op::SetAttr(file),
            BigAttr => Op::BigAttr(file),
            RemoveAttr => Op::RemoveAttr(file),
            _ => Op::GetAttr(file),
        }
    }
}
