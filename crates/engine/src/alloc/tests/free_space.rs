//! Free space as callers are told of it that choose their blocks themselves, and blocks they hold.

use super::*;
use crate::alloc;

/// Sixteen groups of 1024 blocks.
const GROUPS: &str = "-b 1024 -m 0 -g 1024 -N 256 -O ^has_journal,^resize_inode";

fn take(fs: &TestFs, request: &AllocRequest) -> Run {
    let mut h = fs.start(2).unwrap();
    allocate_blocks(fs, &mut h, request).unwrap()
}

fn ends(runs: &[Run]) -> Vec<Range<u64>> {
    let ends = |run: &Run| run.start.get()..run.start.get() + run.len.get();
    runs.iter().map(ends).collect()
}

#[test]
fn free_runs_are_told_in_order_and_across_groups() {
    let image = image(16, GROUPS);
    let expected = joined(free_runs(&image));
    let fs = TestFs::mount(image.path(), "");
    let told = |minimum| ends(&alloc::free_runs(&fs, minimum).unwrap());
    assert_eq!(told(1), expected);
    let longest = expected.iter().map(|run| run.end - run.start).max();
    let longest = longest.unwrap();
    assert!(longest > 1024 && expected.len() > 1, "{expected:?}");
    let those = expected
        .iter()
        .filter(|run| run.end - run.start == longest)
        .cloned();
    assert_eq!(told(longest), those.collect::<Vec<_>>());
    assert_eq!(told(longest + 1), []);

    // What is kept for a file that grows is free.
    let goal = fs.layout.group_start(Group::new(9)).get() + 300;
    let stream = |goal| AllocRequest {
        stream: Ino::new(77),
        ..ask(goal, 50)
    };
    let first = take(&fs, &stream(goal));
    assert_eq!(take(&fs, &stream(goal + 50)).start.get(), goal + 50);
    assert_eq!(total(&told(1)), fs.alloc.counts.free_blocks().get());
    assert!(!told(1).iter().any(|run| run.contains(&(goal + 99))));
    assert!(told(1).iter().any(|run| run.start == goal + 100));

    // What was freed is free after the commit.
    let mut h = fs.start(2).unwrap();
    free_blocks(&fs, &mut h, first, false).unwrap();
    drop(h);
    assert!(!told(1).iter().any(|run| run.contains(&goal)));
    fs.journal.force_commit().unwrap();
    assert!(told(1).iter().any(|run| run.end == goal + 50));

    // Nothing is told of a group whose bitmap is damaged, and a run ends at it.
    fs.groups.lock(Group::new(9)).unwrap().give_up();
    let (start, end) = (goal - 300, goal + 724);
    assert!(
        told(1)
            .iter()
            .all(|run| run.end <= start || end <= run.start)
    );
    assert!(told(1).iter().any(|run| run.start == end));
}

/// A bitmap of the group turns out damaged while its blocks are held, or marked and not yet used:
/// what goes back there is no free space.
#[test]
fn what_goes_back_to_a_group_that_is_out_of_use_is_not_free() {
    for is_marked in [false, true] {
        let fs = TestFs::mount(image(16, GROUPS).path(), "errors=continue");
        let counts = &fs.alloc.counts;
        let group = Group::new(9);
        let give_up = || fs.groups.lock(group).unwrap().give_up();
        let free = counts.free_blocks().get();
        let of_group = u64::from(fs.groups.lock(group).unwrap().state.desc.free_blocks);
        let mut reservation = reserve(&fs, &fs.root(), Blocks::new(100), true).unwrap();
        let goal = fs.layout.group_start(group).plus(300);
        let held = hold_blocks(&fs, goal, (100, 100)).unwrap().unwrap();
        let run = held.run();
        let mut h = fs.start(4).unwrap();
        if !is_marked {
            give_up();
        }
        let marked = held.mark(&mut h).unwrap();
        if is_marked {
            give_up();
        }
        fs.alloc.core.count_lost();
        let used = Blocks::new(60);
        marked.use_for(used);
        reservation.consume(used);
        let rest = Run {
            start: run.start.plus(60),
            len: Blocks::new(40),
        };
        marked.give_back(&mut h, rest).unwrap();
        drop(h);
        reservation.give_back(reservation.blocks());
        assert_eq!(counts.free_blocks().get(), free - of_group, "{is_marked}");
        assert_eq!(counts.available(), counts.free_blocks(), "{is_marked}");
        fs.unmount();
    }
}

#[test]
fn held_blocks_are_no_other_requests() {
    let image = image(16, GROUPS);
    let fs = TestFs::mount(image.path(), "");
    let counts = &fs.alloc.counts;
    let goal = fs.layout.group_start(Group::new(9)).plus(300);
    let free = counts.free_blocks();
    let hold = |wanted| hold_blocks(&fs, goal, wanted).unwrap();
    let first_at = |at: u64| take(&fs, &ask(at, 1)).start.get();
    let goal_block = goal.get();

    let mut held = hold((100, 200)).unwrap();
    let run = |start, len| Run {
        start,
        len: Blocks::new(len),
    };
    assert_eq!(held.run(), run(goal, 200));
    assert_eq!(first_at(goal_block), goal_block + 200);
    held.truncate(Blocks::new(150));
    assert_eq!(held.run(), run(goal, 150));
    assert_eq!(first_at(goal_block), goal_block + 150);
    // On disk and in the counters they are free.
    assert_eq!(counts.free_blocks().get(), free.get() - 2);
    drop(held);
    assert_eq!(first_at(goal_block), goal_block);

    // What is marked is in use; a part of it that has no use goes back with the commit.
    let held = hold((100, 100)).unwrap();
    let start = goal.plus(1);
    assert_eq!(held.run(), run(start, 100));
    let mut reservation = reserve(&fs, &fs.root(), Blocks::new(60), true).unwrap();
    let mut h = fs.start(4).unwrap();
    let marked = held.mark(&mut h).unwrap();
    marked.use_for(Blocks::new(60));
    reservation.consume(Blocks::new(60));
    marked.give_back(&mut h, run(start.plus(60), 40)).unwrap();
    drop(h);
    assert_eq!(counts.free_blocks().get(), free.get() - 3 - 60);
    assert_eq!(first_at(goal_block), goal_block + 101);
    fs.journal.force_commit().unwrap();
    assert_eq!(first_at(goal_block), goal_block + 61);
    assert_eq!(counts.available(), counts.free_blocks());

    // No run is as long as this: a group is shorter.
    assert!(hold((1025, 2000)).is_none());
    fs.unmount();
    let used = 3 + 60 + 2;
    assert_eq!(total(&free_runs(&image)), free.get() - used);
}
