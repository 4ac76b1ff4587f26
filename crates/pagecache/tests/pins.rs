//! Pins are snapshots: later changes of the folio do not show, and no thread waits for a pin.

use std::sync::{Arc, Weak};

use extant_pagecache::*;
use extant_units::{BlockSize, PageIdx, Pos};

struct NoWriteback;

impl Writeback for NoWriteback {
    fn write_back(self: Arc<Self>, _: WritebackReason, _: u64) {}
}

fn mapping(budget: u64) -> (Arc<PageCache>, Arc<AddressSpace>) {
    let cache = PageCache::new(Config {
        flushers: 0,
        ..Config::with_budget(budget)
    });
    let params = AddressSpaceParams {
        block_size: BlockSize::KIB4,
        max_order: 9,
    };
    let owner: Weak<NoWriteback> = Weak::new();
    let mapping = AddressSpace::new(&cache, owner, params);
    (cache, mapping)
}

/// An uptodate folio of `order` at `page`, filled with `byte`.
fn folio(mapping: &AddressSpace, page: u64, order: u32, byte: u8) -> Arc<Folio> {
    let folio = mapping.create(PageIdx::new(page), order, true).unwrap();
    let mut guard = mapping.lock(&folio).unwrap();
    guard.bytes_mut().fill(byte);
    guard.mark_uptodate(0..folio.len());
    drop(guard);
    folio
}

fn overwrite(mapping: &AddressSpace, folio: &Folio, byte: u8) {
    let mut guard = mapping.lock_stable(folio).unwrap();
    guard.bytes_mut().fill(byte);
    guard.mark_dirty(0..folio.len());
}

#[test]
fn a_pin_does_not_see_later_writes_and_costs_nothing_once_it_is_gone() {
    let (_cache, mapping) = mapping(64 << 20);
    let folio = folio(&mapping, 0, 2, 1);
    let at = |mapping: &AddressSpace| mapping.lock(&folio).unwrap().bytes().as_ptr().addr();
    let before = at(&mapping);
    let pin = mapping.pin(&folio, 100, || 9000).unwrap();
    let second = mapping.pin(&folio, 0, || 10).unwrap();
    assert!(pin.is_shared() && second.is_shared());
    assert_eq!(pin.as_ptr().addr(), before + 100, "nothing was copied");
    overwrite(&mapping, &folio, 2);
    assert!(pin.len() == 8900 && pin.iter().all(|&byte| byte == 1));
    assert!(second.iter().all(|&byte| byte == 1));
    let copied = at(&mapping);
    assert_ne!(copied, before);
    drop((pin, second));
    drop(mapping.pin(&folio, 0, || 1).unwrap());
    overwrite(&mapping, &folio, 3);
    assert_eq!(
        at(&mapping),
        copied,
        "a change after the pin copies nothing"
    );
}

#[test]
fn a_pin_outlives_truncation_and_the_cache() {
    let (cache, mapping) = mapping(64 << 20);
    let whole = folio(&mapping, 0, 0, 5);
    let part = folio(&mapping, 4, 2, 6);
    let (a, b) = (
        mapping.pin(&whole, 0, || 4096),
        mapping.pin(&part, 0, || 16384),
    );
    let (a, b) = (a.unwrap(), b.unwrap());
    mapping.drop_range(
        &mapping.invalidate_lock().write(),
        Pos::ZERO,
        Pos::new(4096),
    );
    mapping.drop_range(
        &mapping.invalidate_lock().write(),
        Pos::new(20_000),
        Pos::MAX,
    );
    assert!(mapping.pin(&whole, 0, || 1).is_none(), "it is gone");
    let guard = mapping.lock(&part).unwrap();
    let tail = 20_000 - 16_384..4096;
    assert!(guard.bytes()[tail].iter().all(|&byte| byte == 0));
    assert_eq!(guard.next_uptodate(0, false), Some(4096));
    drop(guard);
    drop((whole, part, mapping, cache));
    assert!(a.iter().all(|&byte| byte == 5) && b.iter().all(|&byte| byte == 6));
}

#[test]
fn only_uptodate_bytes_are_pinned() {
    let (_cache, mapping) = mapping(64 << 20);
    let folio = mapping.create(PageIdx::new(0), 2, true).unwrap();
    mapping.lock(&folio).unwrap().mark_uptodate(4096..12_288);
    assert!(mapping.pin(&folio, 0, || 16_384).is_none());
    assert_eq!(
        mapping.pin(&folio, 5000, || 16_384).unwrap().len(),
        12_288 - 5000
    );
}

/// Pins beyond a quarter of the budget are copies, so that they cannot use up the cache.
#[test]
fn pins_cannot_use_up_the_cache() {
    let (cache, mapping) = mapping(1 << 20);
    let budget = cache.stats().budget_bytes;
    let pages = budget / 4096;
    let mut pins = Vec::new();
    for page in 0..4 * pages {
        let folio = folio(&mapping, page, 0, 9);
        pins.push(mapping.pin(&folio, 0, || 4096).unwrap());
    }
    let shared = pins.iter().filter(|pin| pin.is_shared()).count();
    assert_eq!(shared as u64, pages / 4);
    assert!(cache.stats().used_bytes <= budget);
    assert!(pins.iter().all(|pin| pin.iter().all(|&byte| byte == 9)));
    drop(pins);
    let folio = folio(&mapping, 5 * pages, 0, 9);
    assert!(mapping.pin(&folio, 0, || 1).unwrap().is_shared());
}

/// With all memory in use a change to a pinned folio still succeeds: its copy lies beyond the
/// budget.
#[test]
fn a_full_cache_does_not_stop_a_change_to_a_pinned_folio() {
    let (cache, mapping) = mapping(1 << 20);
    let first = folio(&mapping, 0, 0, 1);
    let pin = mapping.pin(&first, 0, || 4096).unwrap();
    let budget = cache.stats().budget_bytes;
    let mut held = Vec::new();
    for page in 1..budget / 4096 {
        held.push(folio(&mapping, page, 0, 9));
    }
    assert_eq!(cache.stats().used_bytes, budget);
    overwrite(&mapping, &first, 2);
    assert!(pin.iter().all(|&byte| byte == 1));
    assert!(
        mapping
            .lock(&first)
            .unwrap()
            .bytes()
            .iter()
            .all(|&byte| byte == 2)
    );
    assert_eq!(cache.stats().used_bytes, budget);
}
