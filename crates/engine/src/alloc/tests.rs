//! The allocators over real images: against a model in memory, and against `dumpe2fs` afterwards.

mod free_space;
mod full_volume;
mod inode_alloc_tests;
mod lost_space;
mod searches;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use extant_disk::group_desc::GroupFlags;
use extant_testkit::{Image, Rng};
use extant_units::{Blocks, Group, Ino, Pblk};

use super::*;
use crate::state::alloc::AllocatorCore;
use crate::test_support::test_mount::TestFs;
use crate::test_support::test_rig::{Rig, dump};

fn image(mib: u64, args: &str) -> Image {
    Image::of_mib(mib).args(args).make().unwrap()
}

impl Rig {
    fn core(&self) -> &Arc<AllocatorCore> {
        &self.alloc.core
    }

    fn take(&self, request: &AllocRequest) -> Result<Run> {
        let mut h = self.journal.start(2).unwrap();
        self.core().allocate(&mut h, request)
    }

    fn give(&self, run: Run) -> Result<()> {
        let mut h = self.journal.start(8).unwrap();
        self.core().free(&mut h, run, false)
    }

    /// Ends the rig: everything is on the image, and no handle spent more than it declared.
    fn finish(self) {
        self.journal.close().unwrap();
        assert_eq!(self.journal.stats().credit_overflows, 0, "J22");
    }
}

fn ask(goal: u64, want: u64) -> AllocRequest {
    AllocRequest::new(Pblk::new(goal), Blocks::new(want))
}

/// Free runs of the whole volume as `dumpe2fs` sees them.
fn free_runs(image: &Image) -> Vec<Range<u64>> {
    dump(image)
        .into_iter()
        .flat_map(|group| group.free)
        .collect()
}

/// The same across the borders of groups.
fn joined(runs: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for run in runs {
        match joined.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => joined.push(run),
        }
    }
    joined
}

fn total(runs: &[Range<u64>]) -> u64 {
    runs.iter().map(|run| run.end - run.start).sum()
}

#[test]
fn runs_begin_at_their_goal_and_are_long() {
    let image = image(256, "-b 4096 -O ^has_journal");
    let rig = Rig::open(&image).unwrap();
    let goal = rig.layout.group_start(Group::new(1)).get() + 1000;
    let first = rig.take(&ask(goal, 2048)).unwrap();
    assert_eq!((first.start.get(), first.len.get()), (goal, 2048));
    let second = rig.take(&ask(goal + 2048, 2048)).unwrap();
    assert_eq!(second.start.get(), goal + 2048);
    // In use: the next run of that length behind it.
    let third = rig.take(&ask(goal + 5, 2048)).unwrap();
    assert_eq!((third.start.get(), third.len.get()), (goal + 4096, 2048));
    assert_eq!(rig.stats.alloc_goal_hits.get(), 2);
    rig.finish();
    let free = free_runs(&image);
    assert!(
        free.iter()
            .all(|run| run.end <= goal || run.start >= goal + 6144)
    );
}

#[test]
fn files_that_grow_together_do_not_interleave() {
    let image = image(256, "-b 4096");
    let rig = Rig::open(&image).unwrap();
    let goal = rig.layout.group_start(Group::new(1));
    let mut ends = [goal; 4];
    let mut fragments = [0u32; 4];
    for _ in 0..64 {
        for (i, end) in ends.iter_mut().enumerate() {
            let request = AllocRequest {
                stream: Ino::new(100 + u32::try_from(i).unwrap()),
                ..ask(end.get(), 16)
            };
            let run = rig.take(&request).unwrap();
            fragments[i] += u32::from(run.start != *end);
            *end = run.start.saturating_add(run.len.get());
        }
    }
    // 1024 blocks each: windows double, so a handful of pieces instead of 64.
    assert!(fragments.iter().all(|&count| count <= 8), "{fragments:?}");
    // Windows are space that any request may still have.
    let before = rig.alloc.counts.available();
    for ino in 100..104 {
        rig.core().release_window(Ino::new(ino).unwrap());
    }
    assert_eq!(rig.alloc.counts.available(), before);
    let usable: u64 = rig
        .layout
        .all_groups()
        .filter_map(|group| {
            rig.groups
                .hints(group)
                .map(|h| u64::from(h.usable.load(Relaxed)))
        })
        .sum();
    assert_eq!(usable, before.get());
    rig.finish();
}

#[test]
fn freed_blocks_come_back_with_the_commit_and_not_before() {
    let image = image(64, "-b 4096 -m 0 -O ^has_journal");
    let rig = Rig::open(&image).unwrap();
    let pool = AllocRequest {
        pool: true,
        ..ask(0, 1 << 20)
    };
    let mut runs = Vec::new();
    while let Ok(run) = rig.take(&pool) {
        runs.push(run);
    }
    assert_eq!(rig.alloc.counts.free_blocks(), Blocks::ZERO);
    assert!(rig.core().pending.is_empty());
    // Small metadata groups first: a few pieces per group.
    assert!(runs.len() <= 8, "{runs:?}");
    rig.journal.force_commit().unwrap();

    let run = runs[0];
    rig.give(run).unwrap();
    assert_eq!(rig.alloc.counts.free_blocks(), run.len);
    assert_eq!(rig.core().pending.blocks(), run.len);
    assert!(matches!(rig.take(&pool), Err(Error::NoSpace)));
    assert_eq!(
        rig.alloc.counts.available(),
        run.len,
        "the claim was returned"
    );
    rig.journal.force_commit().unwrap();
    assert!(rig.core().pending.is_empty());
    assert_eq!(rig.take(&pool).unwrap(), run);
    rig.finish();
    assert_eq!(total(&free_runs(&image)), 0);
}

#[test]
fn kept_blocks_are_given_before_no_space_is_said() {
    let image = image(16, "-b 1024 -m 0 -O ^has_journal");
    let rig = Rig::open(&image).unwrap();
    let stream = |goal, want| AllocRequest {
        stream: Ino::new(77),
        ..ask(goal, want)
    };
    let first = rig.take(&stream(5000, 1000)).unwrap();
    let next = first.start.get() + first.len.get();
    let second = rig.take(&stream(next, 1000)).unwrap();
    assert_eq!(second.start.get(), next);
    let mut pool = ask(0, 1 << 20);
    pool.pool = true;
    while rig.take(&pool).is_ok() {}
    assert_eq!(rig.alloc.counts.free_blocks(), Blocks::ZERO);
    rig.finish();
}

#[test]
fn roots_reserve_is_roots() {
    let image = image(64, "-b 1024 -m 10 -O ^has_journal");
    let rig = Rig::open(&image).unwrap();
    let free = rig.totals.free_blocks;
    let (root, pool) = (rig.layout.root_reserved.get(), rig.layout.end().get() / 50);
    assert_eq!(root, 6553);
    let mut request = ask(0, 4096);
    let drain = |request: &AllocRequest| -> u64 {
        std::iter::from_fn(|| rig.take(request).ok())
            .map(|run| run.len.get())
            .sum()
    };
    assert_eq!(drain(&request), free - root - pool);
    request.privileged = true;
    assert_eq!(drain(&request), root);
    request.pool = true;
    assert_eq!(drain(&request), pool);
    rig.finish();
}

#[test]
fn promised_space_is_there_for_those_it_was_promised() {
    let image = image(32, "-b 1024 -m 0 -O ^has_journal");
    let rig = Rig::open(&image).unwrap();
    let counts = &rig.alloc.counts;
    let most = counts.available_to_users();
    let mut reservation = Reservation::take(counts, most, false).unwrap();
    assert!(matches!(rig.take(&ask(0, 1)), Err(Error::NoSpace)));
    assert!(Reservation::take(counts, Blocks::ONE, false).is_none());
    let mut goal = 0;
    while !reservation.blocks().is_zero() {
        let request = AllocRequest {
            reserved: true,
            ..ask(goal, reservation.blocks().get().min(2048))
        };
        let run = rig.take(&request).unwrap();
        reservation.consume(run.len);
        goal = run.start.get() + run.len.get();
        assert!(counts.free_blocks() >= counts.reserved_blocks(), "J12");
    }
    assert_eq!(counts.reserved_blocks(), Blocks::ZERO, "J11");
    assert_eq!(counts.available(), counts.free_blocks());
    assert_eq!(
        counts.free_blocks().get(),
        rig.totals.free_blocks - most.get()
    );
    rig.finish();
}

#[test]
fn a_minimum_is_kept_or_refused() {
    let image = image(16, "-b 1024 -m 0 -g 1024 -O ^has_journal,^resize_inode");
    let rig = Rig::open(&image).unwrap();
    // Leave single free blocks only, in group 5.
    let group = Group::new(5);
    let start = rig.layout.group_start(group).get();
    let all = rig.take(&ask(start + 200, 800)).unwrap();
    for block in (all.start.get()..all.start.get() + all.len.get()).step_by(2) {
        let run = Run {
            start: Pblk::new(block),
            len: Blocks::ONE,
        };
        rig.give(run).unwrap();
    }
    rig.journal.force_commit().unwrap();
    let two = AllocRequest {
        min: Blocks::new(2),
        ..ask(all.start.get(), 2)
    };
    let run = rig.take(&two).unwrap();
    assert_eq!(run.len.get(), 2);
    assert!(run.start < all.start || run.start.get() >= all.start.get() + all.len.get());
    let too_long = AllocRequest {
        min: Blocks::new(1025),
        ..ask(0, 4000)
    };
    assert!(matches!(rig.take(&too_long), Err(Error::NoSpace)));
    // Nor is less than the least held for files that are written together.
    let held = rig
        .core()
        .find_and_hold(Pblk::new(0), (1025, 4000))
        .unwrap();
    assert_eq!(held, None);
    rig.finish();
}

#[test]
fn frees_that_make_no_sense_are_damage() {
    let image = image(32, "-b 1024");
    let rig = Rig::open(&image).unwrap();
    let run = |start: u64, len| Run {
        start: Pblk::new(start),
        len: Blocks::new(len),
    };
    let text = |bad: Run| rig.give(bad).unwrap_err().to_string();
    assert!(text(run(0, 1)).contains("within the volume"));
    assert!(text(run(32768, 1)).contains("within the volume"));
    assert!(text(run(u64::MAX, u64::MAX)).contains("within the volume"));
    assert!(text(run(5000, 0)).contains("within the volume"));
    assert!(text(run(1, 1)).contains("the format itself"));
    let mine = rig.take(&ask(20_000, 10)).unwrap();
    rig.give(mine).unwrap();
    assert!(text(mine).contains("not all of which are in use"));
    rig.journal.force_commit().unwrap();
    assert!(text(run(mine.start.get(), 1)).contains("not all of which are in use"));
    // A group that never had a bitmap has nothing to free.
    let is_uninit = |group: &Group| {
        let flags = rig.groups.lock(*group).unwrap().state.desc.flags;
        flags.contains(GroupFlags::BLOCK_UNINIT)
    };
    let uninit = rig.layout.all_groups().find(is_uninit).unwrap();
    let uninit = rig.layout.group_start(uninit).get() + 4000;
    assert!(text(run(uninit, 1)).contains("none in use"));
    assert_eq!(rig.alloc.counts.free_blocks().get(), rig.totals.free_blocks);
    rig.finish();
}

/// Runs taken by worker threads, checked for overlap as they come and go.
struct Ledger {
    taken: Box<[AtomicBool]>,
}

impl Ledger {
    fn mark(&self, run: Run, used: bool) {
        let start = usize::try_from(run.start.get()).unwrap();
        let len = usize::try_from(run.len.get()).unwrap();
        for cell in &self.taken[start..start + len] {
            assert_eq!(cell.swap(used, Relaxed), !used, "given twice");
        }
    }
}

/// Allocates and frees runs at random.
fn allocate_and_free(rig: &Rig, ledger: &Ledger, worker: u32, rounds: u32) {
    let mut rng = Rng::new(u64::from(worker) + 1);
    let mut mine: Vec<Run> = Vec::new();
    for round in 0..rounds {
        if rng.below(3) > 0 {
            let goal = match mine.last() {
                Some(run) if rng.below(2) == 0 => run.start.get() + run.len.get(),
                _ => rng.below(rig.layout.end().get()),
            };
            let request = AllocRequest {
                stream: Ino::new(worker * 4 + 1 + round % 3).filter(|_| round % 2 == 0),
                ..ask(goal, 1 << rng.below(9))
            };
            match rig.take(&request) {
                Ok(run) => {
                    ledger.mark(run, true);
                    mine.push(run);
                }
                Err(error) => assert!(matches!(error, Error::NoSpace), "{error}"),
            }
        } else if !mine.is_empty() {
            let at = usize::try_from(rng.below(mine.len() as u64)).unwrap();
            let run = mine.swap_remove(at);
            ledger.mark(run, false);
            rig.give(run).unwrap();
        }
        if rng.below(100) == 0 {
            rig.journal.force_commit().unwrap();
        }
    }
}

fn stress(mib: u64, args: &str, rounds: u32) {
    let image = image(mib, args);
    let before = free_runs(&image);
    let rig = Rig::open(&image).unwrap();
    let end = usize::try_from(rig.layout.end().get()).unwrap();
    let ledger = Ledger {
        taken: (0..end).map(|_| AtomicBool::new(false)).collect(),
    };
    std::thread::scope(|scope| {
        for worker in 0..4u32 {
            let (rig, ledger) = (&rig, &ledger);
            scope.spawn(move || allocate_and_free(rig, ledger, worker, rounds));
        }
    });
    let counts = Arc::clone(&rig.alloc.counts);
    rig.finish();
    let taken = |block: u64| ledger.taken[usize::try_from(block).unwrap()].load(Relaxed);
    let mut expected: Vec<Range<u64>> = Vec::new();
    for block in before.into_iter().flatten().filter(|&block| !taken(block)) {
        match expected.last_mut() {
            Some(run) if run.end == block => run.end += 1,
            _ => expected.push(block..block + 1),
        }
    }
    let merged = joined(free_runs(&image));
    assert_eq!(merged, expected, "{args}");
    assert_eq!(total(&merged), counts.free_blocks().get());
    assert_eq!(counts.available(), counts.free_blocks());
    for group in dump(&image) {
        assert_eq!(u64::from(group.free_blocks), total(&group.free));
    }
    // A second reading agrees with checksums, counts and bitmaps.
    let again = Rig::open(&image).unwrap();
    let disk = again.core().disk();
    for group in again.layout.all_groups() {
        again.groups.lock(group).unwrap().map(&disk).unwrap();
    }
}

#[test]
fn many_threads_never_get_the_same_block_twice() {
    stress(48, "-b 1024", 5000);
    stress(
        64,
        "-b 2048 -O ^metadata_csum,uninit_bg,^64bit -I 128",
        1500,
    );
    stress(
        20,
        "-b 1024 -O ^metadata_csum,^uninit_bg,^flex_bg -g 1024",
        1500,
    );
    stress(300, "-b 4096 -O ^has_journal", 5000);
}

#[test]
fn a_full_and_fragmented_volume_gives_its_last_blocks() {
    let image = image(16, "-b 1024 -m 0 -O ^has_journal");
    let rig = Rig::open(&image).unwrap();
    let mut pool = ask(0, 1);
    pool.pool = true;
    let mut by_start = BTreeMap::new();
    while let Ok(run) = rig.take(&pool) {
        by_start.insert(run.start, run);
    }
    assert_eq!(by_start.len() as u64, rig.totals.free_blocks);
    for run in by_start.values().step_by(2) {
        rig.give(*run).unwrap();
    }
    rig.journal.force_commit().unwrap();
    pool.want = Blocks::new(64);
    let again = std::iter::from_fn(|| rig.take(&pool).ok()).count();
    assert_eq!(again, by_start.values().step_by(2).count());
    rig.finish();
}

#[test]
fn roots_reserve_is_for_the_user_and_the_group_that_the_options_name() {
    let image = image(16, "-b 4096");
    let cred = |uid, gid, groups: &[u32]| Cred {
        uid,
        gid,
        groups: groups.to_vec(),
        privileged: false,
        umask: 0,
    };
    for (options, may, may_not) in [
        ("resuid=7,resgid=9", cred(7, 5, &[]), cred(0, 0, &[5])),
        ("resuid=7,resgid=9", cred(5, 9, &[]), cred(5, 7, &[])),
        ("resuid=7,resgid=9", cred(5, 5, &[4, 9]), cred(9, 5, &[7])),
        // Group 0 stands for none.
        ("", cred(0, 5, &[]), cred(5, 0, &[0])),
    ] {
        let fs = TestFs::mount(image.path(), options);
        assert!(may_use_reserve(&fs, &may), "{options}: {may:?}");
        assert!(!may_use_reserve(&fs, &may_not), "{options}: {may_not:?}");
        let root = Cred {
            privileged: true,
            ..may_not
        };
        assert!(may_use_reserve(&fs, &root), "{options}: root");
    }
}

#[test]
fn a_trim_is_of_one_block_at_least() {
    let image = image(16, "-b 4096");
    let bytes = std::fs::read(image.path()).unwrap();
    let dev = Arc::new(extant_blockdev::MemoryDevice::from_bytes(&bytes));
    let fs = TestFs::on(dev, "").unwrap();
    let last = fs.layout.end().get() * 4096;
    for shorter in [0..4095, 4096..4096, last - 4095..last] {
        let refused = trim(&fs, shorter.clone(), 0);
        assert!(
            matches!(refused, Err(Error::Invalid)),
            "{shorter:?}: {refused:?}"
        );
    }
    assert_eq!(
        trim(&fs, 0..4096, 0).unwrap(),
        0,
        "the superblock is in use"
    );
    assert_eq!(trim(&fs, last - 4096..last, 0).unwrap(), 4096);
    assert_eq!(trim(&fs, last - 5 * 4096..last, 0).unwrap(), 5 * 4096);
    // A group is trimmed as a whole once.
    assert!(trim(&fs, 0..last, 0).unwrap() > 5 * 4096);
    assert_eq!(trim(&fs, 0..last, 0).unwrap(), 0);
}
