//! Programs that failed once: each is run under some hundred schedules.

use crate::program::{Op, Program, Setup};
use crate::run::run;

/// Schedules of a program.
const SCHEDULES: u64 = 150;

fn passes(setup: Setup, first: &[Op], threads: &[&[Op]]) {
    let mut program = Program::of(setup, first, threads);
    for schedule in 1..=SCHEDULES {
        match run(&program, schedule) {
            Ok(count) => program.steps = count.steps,
            Err(why) => panic!("schedule {schedule}: {why}\n{program}"),
        }
    }
}

/// A search for data asks for one mapping after the other: data that inserts moved behind the end
/// that it had read, and so past it, was not found.
#[test]
fn a_search_misses_nothing_that_moves() {
    let inserts: &[Op] = &[Op::Insert(0, 10, 8)];
    let searches: &[Op] = &[Op::Insert(0, 18, 8), Op::Seek(0, 13)];
    passes(
        Setup::plain(1024),
        &[Op::Write(0, 29, 2)],
        &[inserts, searches],
    );
    let collapse: &[Op] = &[Op::Collapse(0, 2, 8), Op::Insert(0, 0, 16)];
    let search: &[Op] = &[Op::Seek(0, 0), Op::Seek(0, 0)];
    passes(
        Setup::plain(1024),
        &[Op::Write(0, 20, 2)],
        &[collapse, search],
    );
}

/// A write found space for its first cells and was tried again. Others had the space by then: the
/// write failed, and its cells were there.
#[test]
fn a_write_that_fails_leaves_nothing() {
    let setup = Setup {
        left: Some(3),
        options: "nodelalloc",
        order: 0,
        ..Setup::plain(4096)
    };
    let others: &[Op] = &[Op::Append(0, 4), Op::Insert(1, 16, 8)];
    passes(
        setup,
        &[Op::Write(1, 5, 2)],
        &[&[Op::Write(1, 21, 6)], others],
    );
}

/// A page of which the cache had one block was read at two moments: what was cached, and then what
/// was filled. In between an insert moved the second.
#[test]
fn a_page_that_is_cached_in_part_is_read_at_one_moment() {
    passes(
        Setup::plain(1024),
        &[Op::Write(0, 13, 31), Op::Write(0, 8, 2)],
        &[&[Op::Read(0, 9, 6)], &[Op::Insert(0, 8, 6)]],
    );
}

/// A write found space for a part, and was tried again as a whole. A reader had seen that part by
/// then, and a later write had changed it: that write was undone.
#[test]
fn a_write_that_waits_for_space_undoes_no_other() {
    let setup = Setup {
        left: Some(10),
        ..Setup::plain(1024)
    };
    let others: &[Op] = &[Op::Read(0, 11, 7), Op::Write(0, 15, 29)];
    passes(setup, &[], &[&[Op::Write(0, 10, 49)], others]);
}
