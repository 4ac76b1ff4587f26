//! Draws the calls of a program.
//!
//! A mix says which kinds of calls there are ([`crate::mixes`]). Mostly a program has one file, and
//! two ranges that most calls aim at. What comes first leaves the pages of that region in different
//! states ([`crate::states`]). Short programs are drawn more often than long ones: they have fewer
//! orders, and what two calls can show needs no third.

use extant_testkit::Rng;

use crate::mixes::Kind::{self, *};
use crate::mixes::{ALL, Mix};
use crate::model::PAGE;
use crate::program::{FILES, NAMES, Op, Protection, Setup};

/// Cells that calls aim at.
pub(crate) const SPAN: usize = 4 * PAGE;

/// Cells of a write for which a volume of 3 MiB with few blocks left has no space, not even in the
/// fiftieth of its blocks that is for the metadata of accepted data.
pub(crate) const FLOOD: usize = 130;

pub(crate) struct Drawer<'a> {
    pub(crate) rng: &'a mut Rng,
    pub(crate) mix: Mix,
    pub(crate) block: usize,
    /// Space may run out.
    pub(crate) is_tight: bool,
    /// The power goes: what is made durable before that counts as much as what runs then.
    pub(crate) has_cuts: bool,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) files: usize,
    /// Cell at which most calls begin.
    near: usize,
    /// Ranges that calls aim at exactly, and how many calls in a hundred do.
    pub(crate) hot: [(usize, usize); 2],
    aimed: u64,
}

impl<'a> Drawer<'a> {
    pub(crate) fn new(rng: &'a mut Rng, mix: Mix, setup: &Setup) -> Self {
        let kinds = mix.kinds(rng, setup);
        let files = if rng.chance(80) { 1 } else { FILES };
        // Files are mostly written from the start.
        let near = if rng.chance(30) { 0 } else { rng.index(SPAN) };
        let mut drawer = Self {
            rng,
            mix,
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
        if mix == Mix::Pair {
            drawer.aim_at_region(unit);
        }
        drawer
    }

    /// Has calls aim at some neighbouring units, and at any part of these.
    fn aim_at_region(&mut self, unit: usize) {
        let (at, count) = (self.near / unit * unit, 1 + self.rng.index(3));
        let from = self.rng.index(count * unit);
        let part = (at + from, 1 + self.rng.index(count * unit - from));
        self.hot = [(at, count * unit), part];
        self.aimed = 95;
    }

    /// The calls of the threads.
    pub(crate) fn threads(&mut self) -> Vec<Vec<Op>> {
        let threads = if self.rng.chance(85) { 2 } else { 3 };
        (0..threads)
            .map(|thread| {
                let calls = [1, 1, 1, 1, 2, 2, 2, 3][self.rng.index(8)];
                let mut ops = Vec::new();
                let mut left = calls;
                if self.mix.is_narrow() {
                    let own = self.kinds[thread % self.kinds.len()];
                    self.call_of(own, &mut ops);
                    left -= 1;
                }
                (0..left).for_each(|_| self.call(&mut ops));
                ops
            })
            .collect()
    }

    pub(crate) fn range(&mut self) -> (usize, usize) {
        if self.rng.chance(self.aimed) {
            let second = if self.mix == Mix::Pair { 70 } else { 50 };
            return self.hot[usize::from(self.rng.chance(second))];
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
    pub(crate) fn look_up_all(&mut self, ops: &mut Vec<Op>) {
        let first = self.rng.index(NAMES);
        let back = self.rng.chance(50);
        let names = (0..NAMES).map(|name| (first + if back { NAMES - name } else { name }) % NAMES);
        ops.extend(names.map(Op::Lookup));
    }

    pub(crate) fn call(&mut self, ops: &mut Vec<Op>) {
        let kind = if self.rng.chance(92) {
            self.kinds[self.rng.index(self.kinds.len())]
        } else {
            ALL[self.rng.index(ALL.len())]
        };
        self.call_of(kind, ops);
    }

    fn call_of(&mut self, kind: Kind, ops: &mut Vec<Op>) {
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
            Flood => Op::Write(file, at, FLOOD + len),
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
