//! Planted bugs: mends of defects that reading or rounds found, switched off by a failpoint. Each
//! must be found by seed.

use std::time::{Duration, Instant};

use extant_failpoint::Failpoint;

use crate::program::{Op, Program, Setup};
use crate::run::run;
use crate::{Round, number};

/// The bugs that schedules find.
const PLANTED: &[Failpoint] = &[
    Failpoint::PunchLooksOnce,
    Failpoint::StaleMappingUsed,
    Failpoint::RetryUndoesWrite,
    Failpoint::HalfRenameShown,
    Failpoint::NameTicketIgnored,
    Failpoint::FillBesideDirectWrite,
    Failpoint::RangeChangeWithoutDrain,
    Failpoint::AllocationTakesReservation,
    Failpoint::CutNotRecorded,
    Failpoint::FlushLeftOut,
    Failpoint::HomeBeforeCommit,
    Failpoint::RevokeLeftOut,
    Failpoint::SizeBeforeData,
    Failpoint::SizeAtSubmission,
    Failpoint::ConversionBeforeData,
    Failpoint::OrphanNotRecorded,
    Failpoint::ChecksumNotUpdated,
    Failpoint::OrderedDataLeftOut,
    Failpoint::BitmapBitNotJournalled,
];

/// Those that are found by one of the first programs.
const QUICK: &[Failpoint] = &[
    Failpoint::HomeBeforeCommit,
    Failpoint::ChecksumNotUpdated,
    Failpoint::BitmapBitNotJournalled,
];

/// Searches for planted bugs from `EXTANT_SEED` on, and says what that took: for all of them,
/// `EXTANT_SECONDS` each at most, if those are given.
#[test]
fn planted_bugs_are_found_by_random_programs() {
    let first = number("EXTANT_SEED").unwrap_or(1);
    let seconds = number("EXTANT_SECONDS");
    let most = Duration::from_secs(seconds.unwrap_or(300));
    let only = crate::failpoint();
    let bugs = match seconds.is_some() || only.is_some() {
        true => PLANTED,
        false => QUICK,
    };
    let mut missed = Vec::new();
    for &bug in bugs
        .iter()
        .filter(|bug| only.is_none_or(|only| **bug == only))
    {
        let begin = Instant::now();
        let mut round = Round::default();
        // Without the bug the same schedule must go well.
        let found = (first..)
            .take_while(|_| begin.elapsed() < most)
            .find_map(|seed| {
                let failing = round.run(seed, Some(bug)).err()?;
                Round::default()
                    .run(seed, None)
                    .is_ok()
                    .then_some((seed, failing))
            });
        match found {
            Some((seed, failing)) => {
                let why = failing.why.lines().next().unwrap_or_default();
                println!(
                    "{}: seed {seed}, {} schedules, {:.1?}: {why}",
                    bug.name(),
                    seed - first + 1,
                    begin.elapsed()
                );
            }
            None => {
                println!(
                    "{}: not found in {} schedules",
                    bug.name(),
                    round.all.schedules
                );
                missed.push(bug.name());
            }
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// Schedules in which a bug shows in a program that its mechanisms meet in.
const MOST: u64 = 3000;

/// A bug, the blocks of the volume, and a program: what comes first, and two or three threads.
type Meeting = (Failpoint, u32, &'static [Op], &'static [&'static [Op]]);

/// Programs in which the mechanisms of a bug meet.
const MEETINGS: &[Meeting] = &[
    (
        Failpoint::PunchLooksOnce,
        4096,
        &[Op::Allocate(0, 0, 16, false), Op::Write(0, 0, 16)],
        &[&[Op::Punch(0, 1, 2)], &[Op::Fsync(0, true), Op::DropAll]],
    ),
    (
        Failpoint::StaleMappingUsed,
        1024,
        &[Op::Write(0, 0, 4)],
        &[&[Op::Write(0, 1, 8)], &[Op::Fsync(0, true), Op::DropAll]],
    ),
    (
        Failpoint::HalfRenameShown,
        1024,
        &[Op::Lookup(0), Op::Lookup(2)],
        &[&[Op::Rename(0, 2)], &[Op::Lookup(2), Op::Lookup(0)]],
    ),
    (
        Failpoint::FillBesideDirectWrite,
        1024,
        &[Op::Direct(0, 0, 8), Op::DropAll],
        &[&[Op::Direct(0, 0, 8)], &[Op::Read(0, 0, 8)]],
    ),
];

/// Each bug shows where its mechanisms meet, and without it the same schedules go well.
#[test]
fn each_bug_shows_where_its_mechanisms_meet() {
    let mut missed = Vec::new();
    for &(bug, block, first, threads) in MEETINGS {
        let program = |failpoint| Program {
            setup: Setup {
                failpoint,
                ..Setup::plain(block)
            },
            first: first.to_vec(),
            threads: threads.iter().map(|ops| ops.to_vec()).collect(),
        };
        let (with, without) = (program(Some(bug)), program(None));
        match (1..=MOST).find(|schedule| run(&with, *schedule).is_err()) {
            Some(schedule) => {
                println!("{}: {schedule} schedules", bug.name());
                run(&without, schedule).unwrap();
            }
            None => missed.push(bug.name()),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
