//! States of the files that the calls of a program find: pages and blocks that differ.

use crate::drawer::{Drawer, FLOOD, SPAN};
use crate::mixes::Kind::{Flood, Long, Rename};
use crate::mixes::Mix;
use crate::model::PAGE;
use crate::program::{FILES, Op};

/// A state of the blocks of a range, and of its pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BlockState {
    Hole,
    /// Dirty, without blocks.
    Delayed,
    /// Allocated, with nothing in the cache.
    Unwritten,
    /// Allocated and dirty.
    UnwrittenDirty,
    Clean,
    NotCached,
    /// Written, and dirty again.
    Dirty,
}

use BlockState::*;

const STATES: &[BlockState] = &[
    Hole,
    Delayed,
    Unwritten,
    UnwrittenDirty,
    UnwrittenDirty,
    UnwrittenDirty,
    Clean,
    NotCached,
    Dirty,
];

impl Drawer<'_> {
    /// The calls of one thread that come first.
    pub(crate) fn first(&mut self) -> Vec<Op> {
        let mut ops = Vec::new();
        if self.mix == Mix::Reuse {
            self.take_and_give_back(&mut ops);
            return ops;
        }
        let has_own = self.kinds.contains(&Rename) || self.kinds.contains(&Flood);
        if self.mix == Mix::Pair && !has_own && self.rng.chance(75) {
            self.lay_region(&mut ops);
            return ops;
        }
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
        if self.kinds.contains(&Flood) && self.rng.chance(60) {
            return ops.push(Op::Write(file, at, FLOOD + len));
        }
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

    /// Leaves the parts of the region that calls aim at in states of their own, side by side.
    fn lay_region(&mut self, ops: &mut Vec<Op>) {
        let file = self.rng.index(self.files);
        let (begin, len) = self.hot[0];
        let unit = if self.rng.chance(50) {
            self.block
        } else {
            PAGE
        };
        let parts: Vec<_> = (begin..begin + len)
            .step_by(unit)
            .map(|at| (at, STATES[self.rng.index(STATES.len())]))
            .collect();
        let with = |wanted: &[BlockState]| -> Vec<usize> {
            let has = |part: &&(usize, BlockState)| wanted.contains(&part.1);
            parts.iter().filter(has).map(|part| part.0).collect()
        };
        let stored = with(&[Clean, NotCached, Dirty]);
        ops.extend(stored.iter().map(|at| Op::Write(file, *at, unit)));
        if !stored.is_empty() {
            ops.push(Op::Evict(file));
        }
        let cached = with(&[Clean, Dirty]);
        ops.extend(cached.iter().map(|at| Op::Read(file, *at, unit)));
        let allocated = with(&[Unwritten, UnwrittenDirty]);
        ops.extend(
            allocated
                .iter()
                .map(|at| Op::Allocate(file, *at, unit, self.is_tight)),
        );
        let dirty = with(&[Delayed, UnwrittenDirty, Dirty]);
        ops.extend(dirty.iter().map(|at| Op::Write(file, *at, unit)));
        if self.rng.chance(40) {
            ops.push(Op::Truncate(file, begin + len + self.rng.index(PAGE)));
        }
    }

    /// Takes blocks, gives them back and takes others, with or without a commit in between: what
    /// was metadata may become data.
    fn take_and_give_back(&mut self, ops: &mut Vec<Op>) {
        for _ in 0..1 + self.rng.index(2) {
            let file = self.rng.index(FILES);
            let (at, len) = self.range();
            let gives_back = match self.rng.below(4) {
                0 | 1 => {
                    ops.push(Op::BigAttr(file));
                    Op::RemoveAttr(file)
                }
                // So many extents that the map needs a block of its own.
                2 => {
                    let apart = 2 * self.block;
                    ops.extend((0..6).map(|part| Op::Write(file, part * apart, self.block)));
                    Op::Truncate(file, 0)
                }
                _ => {
                    ops.push(Op::Write(file, at, len));
                    [Op::Punch(file, at, len), Op::Truncate(file, at)][self.rng.index(2)]
                }
            };
            self.commit(ops);
            ops.push(gives_back);
            self.commit(ops);
        }
        let (at, len) = self.range();
        let file = self.rng.index(FILES);
        match self.rng.below(4) {
            0 => {}
            1 => ops.push(Op::BigAttr(file)),
            _ => ops.push(Op::Write(file, at, len)),
        }
    }

    /// Makes what came before durable, or not.
    fn commit(&mut self, ops: &mut Vec<Op>) {
        match self.rng.below(4) {
            0 => {}
            1 => ops.push(Op::Fsync(self.rng.index(FILES), false)),
            _ => ops.push(Op::Sync),
        }
    }
}
