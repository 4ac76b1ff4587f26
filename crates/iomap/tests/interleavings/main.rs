//! The real page cache and the real buffered path under a model checker (shuttle), which chooses
//! every switch between threads: folio lock, cookie and truncation; zeroing and looks for data
//! against writeback and drops; writeback against redirtying; reclaim against lookup; views; direct
//! writes. Built with `--cfg extant_shuttle` only: `cargo
//! xtask test` does that, and `RUSTFLAGS='--cfg extant_shuttle' cargo test -p extant-iomap --test
//! interleavings --target-dir target/interleavings`.
//!
//! Each model runs under random schedules and under schedules with few, well-placed switches; a
//! failing one is printed, to be replayed. A broken twin of each model shows that it can fail: it
//! breaks the protocol and expects the failure. The checker knows sequential consistency only: it
//! finds wrong orders of steps, not wrong memory orderings.
#![cfg(extant_shuttle)]

mod direct;
mod tiny;

use std::sync::Arc;

use direct::Care;
use extant_iomap::{
    IomapKind, IomapOp, IomapOps, Whence, WritebackControl, edit, seek, view, write_back,
    zero_range,
};
use extant_testkit::schedules::{self, check_fails};
use extant_units::Pos;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;
use tiny::{BLOCK, FOREIGN, Tiny};

/// Schedules of each kind for a model.
const SCHEDULES: usize = 400;

fn check(model: impl Fn() + Send + Sync + Copy + 'static) {
    schedules::check(SCHEDULES, model);
}

fn join(threads: Vec<thread::JoinHandle<()>>) {
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

/// A write that begins in a dirty block and ends in a hole, while the dirty block is written,
/// converted and dropped from the cache: a mapping taken before that says that nothing is stored
/// there.
fn stale_mapping(cookies: bool) {
    let tiny = Tiny::new(cookies);
    tiny.write(0, &[1; BLOCK]);
    let (a, b, c) = (tiny.clone(), tiny.clone(), tiny.clone());
    join(vec![
        thread::spawn(move || a.write(100, &[2; 1500])),
        thread::spawn(move || b.sync()),
        thread::spawn(move || c.pages.drop_clean(Pos::ZERO, Pos::MAX)),
    ]);
    tiny.check_idle();
    let disk = tiny.on_disk();
    assert!(
        disk[..100] == [1; 100],
        "what was there before the write is there"
    );
    assert!(disk[100..] == [2; 1500]);
}

#[test]
fn j17_a_stale_mapping_is_not_written_through() {
    check(|| stale_mapping(true));
}

#[test]
fn j17_without_the_cookie_data_is_lost() {
    check_fails(|| stale_mapping(false));
}

/// Truncation frees blocks, which become another file's at once, beside a read, a write and
/// writeback.
fn truncation(drops_cache: bool) {
    let tiny = Tiny::new(true);
    tiny.write(0, &[1; 2 * BLOCK]);
    tiny.sync();
    tiny.write(BLOCK as u64 / 2, &[1; BLOCK]);
    let (a, b, c, d) = (tiny.clone(), tiny.clone(), tiny.clone(), tiny.clone());
    join(vec![
        thread::spawn(move || a.truncate(100, drops_cache)),
        thread::spawn(move || b.write(50, &[1; 1500])),
        thread::spawn(move || c.sync()),
        thread::spawn(move || assert!(!d.read(0, 2 * BLOCK).contains(&FOREIGN))),
    ]);
    tiny.check_idle();
    assert!(
        !tiny.on_disk().contains(&FOREIGN),
        "nothing of another file's shows"
    );
}

#[test]
fn truncation_beside_reads_writes_and_writeback() {
    check(|| truncation(true));
}

#[test]
fn folios_left_over_freed_blocks_are_found_out() {
    check_fails(|| truncation(false));
}

/// Writes that take the folio's lock alone, beside truncation and writeback.
fn lockless(polite: bool) {
    let tiny = Tiny::new(true);
    tiny.write(0, &[1; BLOCK]);
    let (a, b, c) = (tiny.clone(), tiny.clone(), tiny.clone());
    join(vec![
        thread::spawn(move || a.truncate(100, true)),
        thread::spawn(move || {
            b.overwrite(90, &[2; 50], polite);
            b.overwrite(10, &[3; 5], polite);
        }),
        thread::spawn(move || c.sync()),
    ]);
    tiny.check_idle();
    assert_eq!(tiny.on_disk().len(), 100);
}

#[test]
fn overwrites_beside_truncation() {
    check(|| lockless(true));
}

#[test]
fn overwrites_that_ignore_range_locks_are_found_out() {
    check_fails(|| lockless(false));
}

/// A part of two blocks is zeroed while their data goes into unwritten space and leaves the cache:
/// the zeroing thread may know the blocks as unwritten, and find them cached no more.
fn zeroing(checks: bool) {
    let tiny = Tiny::new(checks);
    tiny.write(0, &[1; 2 * BLOCK]);
    let (a, b, c, d) = (tiny.clone(), tiny.clone(), tiny.clone(), tiny.clone());
    join(vec![
        thread::spawn(move || {
            let _mine = a.lock_for_write(100, BLOCK);
            zero_range(&*a, Pos::new(100), BLOCK as u64).unwrap();
        }),
        thread::spawn(move || b.sync()),
        thread::spawn(move || c.pages.drop_clean(Pos::ZERO, Pos::MAX)),
        thread::spawn(move || d.cache.shrink(0)),
    ]);
    let mut expected = [1; 2 * BLOCK];
    expected[100..100 + BLOCK].fill(0);
    assert!(tiny.read(0, 2 * BLOCK) == expected, "zeros are read");
    tiny.check_idle();
    assert!(tiny.on_disk() == expected, "zeros are stored");
}

#[test]
fn zeroing_beside_writeback_and_drops() {
    check(|| zeroing(true));
}

#[test]
fn zeroing_by_a_stale_mapping_leaves_what_was_there() {
    check_fails(|| zeroing(false));
}

/// Looks for data and a read, in a file that has no hole, while its data goes into unwritten space
/// and leaves the cache.
fn looking(look: fn(&Tiny) -> Option<Pos>) {
    let tiny = Tiny::new(true);
    tiny.write(0, &[1; 2 * BLOCK]);
    let (a, b, c, d) = (tiny.clone(), tiny.clone(), tiny.clone(), tiny.clone());
    join(vec![
        thread::spawn(move || assert!(d.read(0, 2 * BLOCK) == [1; 2 * BLOCK], "data is read")),
        thread::spawn(move || assert_eq!(look(&a), Some(Pos::ZERO), "data is found")),
        thread::spawn(move || {
            let hole = seek(&*b, Whence::Hole, Pos::ZERO).unwrap();
            assert_eq!(hole, Some(Pos::new(2 * BLOCK as u64)), "no hole is found");
        }),
        thread::spawn(move || {
            c.sync();
            c.pages.drop_clean(Pos::ZERO, Pos::MAX);
        }),
    ]);
    tiny.check_idle();
}

#[test]
fn looks_beside_writeback_and_drops() {
    check(|| looking(|tiny| seek(tiny, Whence::Data, Pos::ZERO).unwrap()));
}

#[test]
fn a_look_at_the_map_first_takes_data_for_a_hole() {
    check_fails(|| {
        looking(|tiny| {
            let map = tiny
                .begin(IomapOp::Report, Pos::ZERO, BLOCK as u64)
                .unwrap();
            match map.kind {
                IomapKind::Unwritten(_) => tiny.pages.seek_cached(Pos::ZERO, map.end(), true),
                _ => Some(Pos::ZERO),
            }
        });
    });
}

/// Two writes to the same blocks, some of which have no space yet, and writeback: the file shows
/// one write, never half of each.
fn overlapping(write: fn(&Tiny, u64, &[u8])) {
    let tiny = Tiny::new(true);
    tiny.write(0, &[1; BLOCK]);
    let (a, b, c) = (tiny.clone(), tiny.clone(), tiny.clone());
    join(vec![
        thread::spawn(move || write(&a, 100, &[2; 2 * BLOCK])),
        thread::spawn(move || write(&b, 100, &[3; 2 * BLOCK])),
        thread::spawn(move || c.sync()),
    ]);
    tiny.check_idle();
    let disk = tiny.on_disk();
    assert!(disk[..100] == [1; 100]);
    assert!(disk[100..] == [2; 2 * BLOCK] || disk[100..] == [3; 2 * BLOCK]);
}

#[test]
fn writes_do_not_interleave() {
    check(|| overlapping(Tiny::write));
}

#[test]
fn writes_without_ranges_interleave() {
    check_fails(|| overlapping(Tiny::write_unlocked));
}

/// Writes of the same bytes of two folios, with a range lock and without, and writeback: the file
/// shows one write, never half of each.
fn spanning(polite: bool) {
    let tiny = Tiny::new(true);
    let folio = 4 * BLOCK;
    tiny.write(0, &vec![1; folio]);
    tiny.write(folio as u64, &vec![1; folio]);
    let quick = move |tiny: &Tiny, byte: u8| {
        let (pos, bytes) = (folio as u64 - 300, [byte; 600]);
        if byte == 3 || !tiny.overwrite(pos, &bytes, polite) {
            tiny.write(pos, &bytes);
        }
    };
    let (a, b, c, d) = (tiny.clone(), tiny.clone(), tiny.clone(), tiny.clone());
    join(vec![
        thread::spawn(move || quick(&a, 2)),
        thread::spawn(move || quick(&b, 3)),
        thread::spawn(move || quick(&c, 4)),
        thread::spawn(move || d.sync()),
    ]);
    tiny.check_idle();
    let disk = tiny.on_disk();
    let part = &disk[folio - 300..folio + 300];
    assert!(part[0] != 1 && part.iter().all(|byte| *byte == part[0]));
}

#[test]
fn writes_to_two_folios_do_not_interleave() {
    check(|| spanning(true));
}

#[test]
fn writes_to_two_folios_that_ignore_range_locks_are_found_out() {
    check_fails(|| spanning(false));
}

/// Writers of different blocks of one folio, one past the end, beside a truncation that concerns
/// only that one, and writeback.
#[test]
fn writers_of_different_blocks_beside_truncation() {
    check(|| {
        let tiny = Tiny::new(true);
        tiny.write(0, &[1; 2 * BLOCK]);
        let (a, b, c, d) = (tiny.clone(), tiny.clone(), tiny.clone(), tiny.clone());
        join(vec![
            thread::spawn(move || a.write(10, &[2; 500])),
            thread::spawn(move || {
                if !b.overwrite(BLOCK as u64 - 100, &[3; 50], true) {
                    b.write(BLOCK as u64 - 100, &[3; 50]);
                }
            }),
            thread::spawn(move || c.write(2 * BLOCK as u64 - 10, &[4; 20])),
            thread::spawn(move || {
                d.truncate(BLOCK as u64 + 100, true);
                d.sync();
            }),
        ]);
        tiny.check_idle();
        let disk = tiny.on_disk();
        let first = [&[1; 10][..], &[2; 500], &[1; 414], &[3; 50], &[1; 150]].concat();
        assert!(disk[..BLOCK + 100] == first);
        let rest = &disk[BLOCK + 100..];
        let zeros = BLOCK - 110;
        assert!(
            rest.is_empty() || (rest[..zeros].iter().all(|&b| b == 0) && rest[zeros..] == [4; 20])
        );
    });
}

/// Writeback beside writes to the same block: data that was written before a sync began is on the
/// device when it ends, and bytes under writeback do not change (the device looks twice).
fn redirtying(sync: fn(&Tiny)) {
    let tiny = Tiny::new(true);
    let written = Arc::new(AtomicU64::new(0));
    let (a, count) = (tiny.clone(), written.clone());
    let (b, c) = (tiny.clone(), tiny.clone());
    join(vec![
        thread::spawn(move || {
            for round in 1..=3u8 {
                if !a.overwrite(10, &[round; 50], true) {
                    a.write(10, &[round; 50]);
                }
                count.store(round.into(), Ordering::SeqCst);
            }
        }),
        thread::spawn(move || {
            for _ in 0..2 {
                let before = written.load(Ordering::SeqCst);
                sync(&b);
                let found = b.on_disk().get(10).copied().unwrap_or(0);
                assert!(
                    u64::from(found) >= before,
                    "{found} after a sync of {before}"
                );
            }
        }),
        thread::spawn(move || c.sync()),
    ]);
    sync(&tiny);
    assert_eq!(tiny.on_disk()[10..60], [3; 50]);
    tiny.check_idle();
}

#[test]
fn writeback_beside_redirtying() {
    check(|| redirtying(Tiny::sync));
}

#[test]
fn cleaning_after_the_write_loses_what_came_meanwhile() {
    check_fails(|| redirtying(Tiny::clean_too_late));
}

/// Reclaim and reuse of memory beside lookups.
#[test]
fn reclaim_beside_lookups() {
    check(|| {
        let tiny = Tiny::new(true);
        tiny.write(0, &[1; 2 * BLOCK]);
        tiny.sync();
        let (a, b, c) = (tiny.clone(), tiny.clone(), tiny.clone());
        join(vec![
            thread::spawn(move || {
                for _ in 0..2 {
                    assert!(a.read(0, 2 * BLOCK) == [1; 2 * BLOCK]);
                }
            }),
            thread::spawn(move || b.cache.shrink(0)),
            thread::spawn(move || {
                let other = Tiny::beside(&c);
                other.write(0, &[9; 3 * BLOCK]);
                other.sync();
                assert!(other.read(0, BLOCK) == [9; BLOCK]);
            }),
        ]);
        tiny.check_idle();
    });
}

/// A folio in an empty cache is dropped as soon as it can be found: the account of folios never
/// falls below zero (an assertion of the page cache).
#[test]
fn a_new_folio_is_counted_before_it_can_be_dropped() {
    check(|| {
        let tiny = Tiny::new(true);
        let (a, b) = (tiny.clone(), tiny.clone());
        join(vec![
            thread::spawn(move || a.write(0, &[1; BLOCK])),
            thread::spawn(move || b.pages.drop_clean(Pos::ZERO, Pos::MAX)),
        ]);
        tiny.check_idle();
    });
}

/// A view shows one moment, whatever is written, edited, cut or synced beside it.
#[test]
fn views_beside_everything() {
    check(|| {
        let tiny = Tiny::new(true);
        tiny.write(0, &[1; BLOCK]);
        let (a, b, c, d) = (tiny.clone(), tiny.clone(), tiny.clone(), tiny.clone());
        join(vec![
            thread::spawn(move || {
                let shown = view(&*a, &a.readahead, Pos::ZERO, BLOCK).unwrap();
                let look = || shown.chunks().flatten().copied().collect::<Vec<u8>>();
                let first = look();
                assert!(
                    first.iter().all(|&byte| byte == first[0]),
                    "one write's bytes"
                );
                thread::yield_now();
                assert!(look() == first, "a snapshot");
            }),
            thread::spawn(move || b.write(0, &[2; BLOCK])),
            thread::spawn(move || {
                let _mine = c.lock_for_write(0, BLOCK);
                let fill = |_: Pos, bytes: &mut [u8]| bytes.fill(3);
                edit(&*c, &c.readahead, Pos::ZERO, BLOCK, fill).unwrap();
            }),
            thread::spawn(move || {
                write_back(
                    &*d,
                    &d.address_space().writeback_pass(),
                    WritebackControl::integrity(Pos::ZERO, Pos::MAX),
                )
                .unwrap();
                d.pages.drop_clean(Pos::ZERO, Pos::MAX);
            }),
        ]);
        tiny.check_idle();
        let disk = tiny.on_disk();
        assert!(disk == [2; BLOCK] || disk == [3; BLOCK]);
    });
}

/// A direct write beside a read of the same block, and a buffered write of the next block, which
/// shares its page.
fn direct_write(care: Care) {
    let tiny = Tiny::new(true);
    tiny.write(0, &[1; 2 * BLOCK]);
    tiny.sync();
    tiny.pages.drop_clean(Pos::ZERO, Pos::MAX);
    let (a, b, c) = (tiny.clone(), tiny.clone(), tiny.clone());
    join(vec![
        thread::spawn(move || a.write_direct(0, 2, care)),
        thread::spawn(move || {
            let read = b.read(0, BLOCK);
            assert!(read == [1; BLOCK] || read == [2; BLOCK], "a torn block");
        }),
        thread::spawn(move || c.write(BLOCK as u64, &[3; BLOCK])),
    ]);
    assert!(tiny.read(0, BLOCK) == [2; BLOCK], "an old block is cached");
    assert!(tiny.read(BLOCK as u64, BLOCK) == [3; BLOCK]);
    tiny.check_idle();
    assert!(tiny.on_disk() == [[2; BLOCK], [3; BLOCK]].concat());
}

#[test]
fn fills_beside_direct_writes() {
    check(|| direct_write(Care::FULL));
}

#[test]
fn direct_writes_that_lock_no_fills_leave_old_blocks_cached() {
    check_fails(|| {
        direct_write(Care {
            locks: false,
            ..Care::FULL
        });
    });
}

#[test]
fn direct_writes_that_wait_for_no_fills_leave_old_blocks_cached() {
    check_fails(|| {
        direct_write(Care {
            waits: false,
            ..Care::FULL
        });
    });
}
