//! Reading the device while others write it past the cache.
//!
//! A read of a block that is being written past the cache may be torn, or bring into the cache what the block held before: an
//! old block after its newer one was read. So as soon as a file is written that way at all
//! ([`IomapOps::has_direct_writes`]), whoever reads its device holds the range against such writes.
//!
//! # Locks
//! A hold comes before the invalidate lock and all folio locks. What a writer reads for itself, at the edges of its range, it
//! holds already, and does not come here.

use std::ops::Range;

use extant_pagecache::AddressSpace;
use extant_units::{PAGE_SHIFT, Pos};

use crate::ops::IomapOps;

/// What keeps a range held until it is dropped.
pub trait Keeper {}

impl<T> Keeper for T {}

/// A range in which nobody writes past the cache, until this is dropped.
pub struct FillGuard<'a> {
    range: Range<Pos>,
    _keeper: Option<Box<dyn Keeper + 'a>>,
}

impl<'a> FillGuard<'a> {
    /// `range`, for as long as `keeper` lives.
    pub fn new(range: Range<Pos>, keeper: impl Sized + 'a) -> Self {
        Self {
            range,
            _keeper: Some(Box::new(keeper)),
        }
    }

    /// `range`, which nobody else can write anyway.
    pub fn without_lock(range: Range<Pos>) -> Self {
        Self {
            range,
            _keeper: None,
        }
    }
}

/// The right to read the device under `range`: neither are its blocks taken away, nor is it written past the cache.
pub(crate) struct Entered<'a, G> {
    /// What may be read, whole blocks.
    pub(crate) range: Range<Pos>,
    // Dropped in this order.
    _blocks_stay: G,
    _hold: Option<FillGuard<'a>>,
}

/// Takes the invalidate lock shared, and before it a hold where one is needed. `None` only without `needed`, if somebody
/// writes there.
pub(crate) fn enter<'a, O: IomapOps + ?Sized>(
    ops: &'a O,
    wanted: Range<Pos>,
    needed: Option<Pos>,
) -> Option<Entered<'a, impl Sized + 'a>> {
    let pages: &'a AddressSpace = ops.address_space();
    let bs = pages.block_size();
    loop {
        let hold = if ops.has_direct_writes() {
            // Whole pages at least: a read copies what is uptodate in one step.
            let unit = bs.bytes_u64().max(1 << PAGE_SHIFT) - 1;
            let down = |pos: Pos| Pos::new(pos.get() & !unit);
            let up = |pos: Pos| Pos::new(pos.get().saturating_add(unit) & !unit);
            let wanted = down(wanted.start)..up(wanted.end);
            let needed = needed.map(|pos| down(pos)..up(pos.saturating_add(1)));
            Some(ops.lock_fill(wanted, needed)?)
        } else {
            None
        };
        let blocks_stay = pages.invalidate_lock().read();
        if hold.is_some() || !ops.has_direct_writes() {
            let all = Pos::ZERO..Pos::MAX;
            return Some(Entered {
                range: hold.as_ref().map_or(all, |hold| hold.range.clone()),
                _blocks_stay: blocks_stay,
                _hold: hold,
            });
        }
    }
}
