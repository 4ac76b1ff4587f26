//! Errors told to handles, and data that counts as dirty.

use super::*;

const NOTHING: Allowance = Allowance {
    by_file: 0,
    in_all: 0,
};

#[test]
fn each_handle_gets_failures_after_its_open_once() {
    let open = OpenFiles::default();
    let (a, b) = (open.open(12, 0), open.open(12, 0));
    assert_eq!(open.untold(12, a), None);
    open.fail(12, Errno::NOSPC);
    let late = open.open(12, 0);
    assert_eq!(open.untold(12, a), Some(Refusal::Lost(Errno::NOSPC)));
    assert_eq!(open.untold(12, a), None);
    assert_eq!(open.untold(12, late), None);
    open.fail(12, Errno::IO);
    assert_eq!(open.untold(12, b), Some(Refusal::Lost(Errno::IO)));
    assert_eq!(open.untold(12, late), Some(Refusal::Lost(Errno::IO)));
    for handle in [a, b, late] {
        open.close(12, handle);
    }
    open.forget(12);
    assert!(open.inner.lock().files.is_empty());
}

#[test]
fn without_handles_a_failure_is_reported_once_and_ends_with_its_node() {
    let open = OpenFiles::default();
    open.fail(7, Errno::NOSPC);
    assert_eq!(open.untold(7, 0), Some(Refusal::Lost(Errno::NOSPC)));
    assert_eq!(open.untold(7, 0), None);
    open.forget(7);
    assert!(open.inner.lock().files.is_empty());
}

fn drain(open: &OpenFiles) {
    open.begin_drain();
    open.end_drain(true);
}

#[test]
fn a_grant_counts_until_the_second_drain_or_the_last_close() {
    let open = OpenFiles::default();
    let (a, b) = (open.open(1, 0), open.open(2, 0));
    open.grant(1, 5);
    open.grant(2, 10);
    assert_eq!(open.exposed(), 15);
    drain(&open);
    open.grant(1, 1);
    assert_eq!(open.exposed(), 16);
    open.close(2, b);
    assert_eq!(open.exposed(), 6);
    drain(&open);
    assert_eq!(open.exposed(), 1);
    open.close(1, a);
    assert_eq!(open.exposed(), 0);
}

#[test]
fn a_drain_that_does_not_end_in_time_takes_nothing_off() {
    let open = OpenFiles::default();
    let (a, b) = (open.open(1, 0), open.open(2, 0));
    open.grant(1, 100);
    drain(&open);
    open.grant(2, 10);
    for _ in 0..3 {
        open.begin_drain();
        open.grant(1, 1);
        open.end_drain(false);
    }
    assert_eq!(open.exposed(), 113);
    // The drain that is under way may be over before the pages are written.
    open.begin_drain();
    assert_eq!(open.exposed(), 113);
    open.end_drain(true);
    assert_eq!(open.exposed(), 13, "what was granted before the first one");
    open.begin_drain();
    open.close(2, b);
    assert_eq!(open.exposed(), 3);
    open.end_drain(true);
    assert_eq!(open.exposed(), 0);
    open.close(1, a);
}

const LONG: Duration = Duration::from_secs(3600);

/// The table of a mount whose writers may take long.
fn patient() -> OpenFiles {
    OpenFiles {
        grace: LONG,
        ..OpenFiles::default()
    }
}

/// Lets that much time pass.
fn pass_time(open: &OpenFiles, time: Duration) {
    let mut inner = open.inner.lock();
    let Inner {
        files, last_late, ..
    } = &mut *inner;
    let granted = files.values_mut().map(|file| &mut file.granted);
    for moment in granted.chain([last_late]).flatten() {
        *moment -= time;
    }
}

#[test]
fn a_grant_counts_until_its_writer_asks_again_or_has_had_time() {
    let open = patient();
    let (a, b) = (open.open(1, 0), open.open(2, 0));
    open.grant(1, 5);
    open.grant(2, 10);
    for _ in 0..5 {
        drain(&open);
    }
    assert_eq!(open.bounded(), 15, "both may be writing");
    open.ask(1, a);
    for _ in 0..5 {
        drain(&open);
    }
    assert_eq!(open.bounded(), 15, "the other still may");
    open.ask(2, a);
    assert!(!open.until_late().is_zero(), "of another file");
    open.ask(2, b);
    assert!(open.until_late().is_zero());
    drain(&open);
    drain(&open);
    assert_eq!(open.bounded(), 0);

    open.grant(1, 7);
    pass_time(&open, LONG);
    drain(&open);
    drain(&open);
    assert_eq!(open.bounded(), 0);
}

#[test]
fn a_grant_of_a_file_with_two_handles_counts_until_its_writer_has_had_time() {
    let open = patient();
    let (a, b) = (open.open(1, 0), open.open(1, 0));
    open.grant(1, 5);
    open.ask(1, a);
    open.ask(1, b);
    drain(&open);
    drain(&open);
    assert_eq!(open.bounded(), 5);
    open.close(1, a);
    open.ask(1, b);
    drain(&open);
    drain(&open);
    assert_eq!(open.bounded(), 0);
}

#[test]
fn writers_that_never_pause_do_not_keep_old_grants() {
    let open = patient();
    open.open(1, 0);
    open.grant(1, 5);
    for (newer, exposed) in [(1, 6), (2, 2), (3, 3)] {
        pass_time(&open, LONG);
        open.grant(1, newer);
        drain(&open);
        drain(&open);
        assert_eq!(open.bounded(), exposed);
    }
}

#[test]
fn what_writers_dirtied_unasked_counts_until_they_are_asked_or_have_had_time() {
    let open = patient();
    let [a, b] = [1, 2].map(|node| open.open(node, 0));
    assert!(open.leave_unasked(100) && !open.leave_unasked(100));
    for _ in 0..3 {
        drain(&open);
    }
    open.ask(1, a);
    drain(&open);
    assert_eq!(open.bounded(), 100, "the other may be writing");
    open.rest(&[2]);
    drain(&open);
    assert_eq!(open.bounded(), 0);

    open.leave_unasked(100);
    drain(&open);
    pass_time(&open, LONG);
    drain(&open);
    assert_eq!(open.bounded(), 0);
    open.close(2, b);
}

#[test]
fn a_file_in_doubt_is_armed_again_and_again() {
    let open = OpenFiles::default();
    open.doubt(3);
    let handle = open.open(3, 0);
    assert_eq!(open.arm_all(), (vec![3], false));
    assert_eq!(open.arm_all(), (Vec::new(), false));
    open.doubt(3);
    for tick in 1..=REARMS {
        assert_eq!(open.arm_all(), (vec![3], tick < REARMS));
    }
    assert_eq!(open.arm_all(), (Vec::new(), false));
    open.doubt(3);
    open.close(3, handle);
    open.open(3, 0);
    assert_eq!(open.arm_all(), (vec![3], false), "closed meanwhile");
}

#[test]
fn a_closed_file_whose_size_is_wrong_stays_until_it_is_forgotten() {
    let open = OpenFiles::default();
    let handle = open.open(3, 0);
    assert_eq!(open.arm_all(), (vec![3], false));
    assert!(open.arm_all().0.is_empty());
    assert!(open.set_armed(3, false) && !open.set_armed(3, false));
    open.fail(3, Errno::NOSPC);
    assert!(open.to_prune().is_empty(), "it is open");
    open.close(3, handle);
    assert_eq!(open.to_prune(), [3]);
    assert!(open.arm_all().0.is_empty());
    open.forget(3);
    assert!(open.to_prune().is_empty());
}

#[test]
fn blocks_are_news_once() {
    let open = OpenFiles::default();
    assert!(!open.shows_blocks(5, 8), "it is not open");
    let handle = open.open(5, 8);
    assert!(!open.shows_blocks(5, 8));
    open.open(5, 16);
    assert!(open.shows_blocks(5, 16) && !open.shows_blocks(5, 16));
    open.close(5, handle);
    assert!(open.shows_blocks(5, 24));
}

#[test]
fn a_closed_file_with_a_wrong_time_is_to_be_dropped() {
    let open = OpenFiles::default();
    open.note_wrong(6);
    assert_eq!(open.to_prune(), [6]);
    open.forget(6);
    assert!(open.to_prune().is_empty());
}

#[test]
fn a_handle_that_takes_the_last_blocks_is_refused_ever_longer() {
    let open = OpenFiles::default();
    let (greedy, other) = (open.open(4, 0), open.open(4, 0));
    let refused = |handle: u64| (0..).find(|_| open.untold(4, handle).is_none());
    for expected in [1, 2, 4, 8] {
        open.admit(4, greedy, true);
        assert!(open.take_last(4, 1, NOTHING));
        assert_eq!(refused(greedy), Some(expected));
        assert_eq!(refused(other), Some(1));
        // An admitted write that takes no space costs nothing.
        open.admit(4, other, true);
        assert_eq!(refused(other), Some(0));
        open.admit(4, other, false);
    }
    open.admit(4, greedy, false);
    assert!(open.take_last(4, 1, NOTHING));
    assert_eq!(refused(greedy), Some(1));
}

#[test]
fn a_little_of_the_last_blocks_is_taken_unreported() {
    let open = OpenFiles::default();
    let writer = open.open(4, 0);
    open.admit(4, writer, true);
    let little = Allowance {
        by_file: 100,
        in_all: 150,
    };
    assert!(!open.take_last(4, 60, little) && !open.take_last(4, 40, little));
    assert_eq!(open.untold(4, writer), None);
    assert!(open.take_last(4, 1, little));
    assert_eq!(open.untold(4, writer), Some(Refusal::Scarce));
    assert!(!open.take_last(5, 50, little), "another file");
    assert!(open.take_last(6, 1, little), "many files together");
    // There is space again.
    open.admit(4, writer, false);
    assert!(!open.take_last(4, 100, little));
    assert_eq!(open.untold(4, writer), None);
}

#[test]
fn the_last_bytes_are_left_to_the_writers_of_other_files() {
    let open = OpenFiles::new(DirtyBound::default(), 100);
    let (a, b) = (open.open(1, 0), open.open(2, 0));
    open.grant(1, 5);
    assert_eq!((open.last_for(1), open.spendable(1)), (0, 5));
    assert_eq!(open.last_for(3), 0);
    open.leave_unasked(1000);
    assert_eq!(open.spendable(1), 5, "other files may have those");
    open.close(2, b);
    assert_eq!((open.last_for(1), open.spendable(1)), (100, 105));
    assert_eq!(open.last_for(3), 0);
    open.close(1, a);
    assert_eq!(open.last_for(3), 100);
}

#[test]
fn a_handle_whose_writes_are_lost_for_want_of_space_is_refused_ever_longer() {
    let open = OpenFiles::default();
    let (greedy, other) = (open.open(4, 0), open.open(4, 0));
    let refused = |handle: u64| (0..).find(|_| open.untold(4, handle).is_none());
    for expected in [1, 2, 4, 8] {
        open.admit(4, greedy, true);
        open.fail(4, Errno::NOSPC);
        assert_eq!(refused(greedy), Some(expected));
        assert_eq!(refused(other), Some(1));
    }
    open.fail(4, Errno::IO);
    assert_eq!(refused(greedy), Some(1), "not for want of space");
}
