//! Planted bugs: mends of defects that reading or rounds found, switched off by a failpoint. Each
//! must be found by seed.

use std::time::Duration;

use extant_failpoint::Failpoint;

use crate::number;
use crate::program::{Op, Program, Setup};
use crate::round::Round;
use crate::run::run;

/// The bugs that schedules are to find. `name_ticket_ignored` is none of them: a lookup then gives
/// an inode to which the name led when the cache was asked, which is a moment of the lookup.
const PLANTED: &[Failpoint] = &[
    Failpoint::PunchLooksOnce,
    Failpoint::StaleMappingUsed,
    Failpoint::RetryUndoesWrite,
    Failpoint::HalfRenameShown,
    Failpoint::FillBesideDirectWrite,
    Failpoint::RangeChangeWithoutDrain,
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
    Failpoint::DiscardBeforeCommit,
];

/// Those that are found within two seconds of a processor.
const QUICK: &[Failpoint] = &[
    Failpoint::HomeBeforeCommit,
    Failpoint::ChecksumNotUpdated,
    Failpoint::BitmapBitNotJournalled,
];

/// Processor time of this thread: other processes count for nothing.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Searches for planted bugs from `EXTANT_SEED` on, and says what that took, as rows of a table:
/// for all of them, `EXTANT_SECONDS` of one processor each at most, if those are given.
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
        let begin = processor_time();
        let mut round = Round::default();
        // Without the bug the same schedule must go well.
        let found = (first..)
            .take_while(|_| processor_time() - begin < most)
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
                    "| `{}` | seed {seed}: {} schedules, {:.1?} |\n  {why}",
                    bug.name(),
                    round.all.schedules,
                    processor_time() - begin
                );
            }
            None => {
                println!(
                    "| `{}` | not in {} schedules, {:.1?} |",
                    bug.name(),
                    round.all.schedules,
                    processor_time() - begin
                );
                missed.push(bug.name());
            }
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// Schedules in which a bug shows in a program that its mechanisms meet in.
const MOST: u64 = 3000;

/// A program in which the mechanisms of a bug meet.
struct Meeting {
    bug: Failpoint,
    setup: Setup,
    /// The calls that come first, and those of two or three threads.
    first: &'static [Op],
    threads: &'static [&'static [Op]],
}

const fn meeting(
    bug: Failpoint,
    setup: Setup,
    first: &'static [Op],
    threads: &'static [&'static [Op]],
) -> Meeting {
    Meeting {
        bug,
        setup,
        first,
        threads,
    }
}

const PLAIN: Setup = Setup::plain(1024);
/// A volume whose power goes.
const CUT: Setup = Setup {
    cuts: Some(1),
    synced: true,
    ..PLAIN
};
/// A volume with few free blocks.
const TIGHT: Setup = Setup {
    left: Some(1),
    ..CUT
};

const MEETINGS: &[Meeting] = &[
    meeting(
        Failpoint::PunchLooksOnce,
        Setup::plain(4096),
        &[Op::Allocate(0, 0, 16, false), Op::Write(0, 0, 16)],
        &[&[Op::Punch(0, 1, 2)], &[Op::Evict(0)]],
    ),
    meeting(
        Failpoint::StaleMappingUsed,
        PLAIN,
        &[Op::Write(0, 0, 4)],
        &[&[Op::Write(0, 1, 8)], &[Op::Evict(0)]],
    ),
    meeting(
        Failpoint::HalfRenameShown,
        PLAIN,
        &[Op::Lookup(0), Op::Lookup(2)],
        &[&[Op::Rename(0, 2)], &[Op::Lookup(2), Op::Lookup(0)]],
    ),
    meeting(
        Failpoint::FillBesideDirectWrite,
        PLAIN,
        &[Op::Direct(0, 0, 8), Op::DropAll],
        &[&[Op::Direct(0, 0, 8)], &[Op::Read(0, 0, 8)]],
    ),
    meeting(
        Failpoint::CutNotRecorded,
        CUT,
        &[Op::Write(0, 0, 16), Op::SetAttr(1)],
        &[&[Op::Fsync(0, true)], &[Op::Truncate(0, 4)]],
    ),
    meeting(
        Failpoint::RevokeLeftOut,
        TIGHT,
        &[
            Op::BigAttr(0),
            Op::Sync,
            Op::RemoveAttr(0),
            Op::Sync,
            Op::Write(1, 0, 2),
        ],
        &[&[Op::Fsync(1, true)], &[Op::Read(1, 0, 2)]],
    ),
    meeting(
        Failpoint::SizeBeforeData,
        CUT,
        &[Op::Write(0, 0, 8)],
        &[&[Op::Fsync(1, true)], &[Op::SetAttr(1)]],
    ),
    meeting(
        Failpoint::SizeAtSubmission,
        CUT,
        &[Op::Write(0, 0, 8), Op::SetAttr(1)],
        &[&[Op::Fsync(0, true)], &[Op::Fsync(1, false)]],
    ),
    meeting(
        Failpoint::OrphanNotRecorded,
        CUT,
        &[Op::Write(0, 0, 8), Op::Sync],
        &[&[Op::Unlink(0)], &[Op::Sync]],
    ),
    meeting(
        Failpoint::RetryUndoesWrite,
        Setup {
            left: Some(24),
            options: "nodelalloc",
            ..PLAIN
        },
        &[Op::Truncate(0, 80)],
        &[
            &[Op::Write(0, 0, 64)],
            &[Op::Read(0, 0, 2), Op::Write(0, 0, 2)],
        ],
    ),
    meeting(
        Failpoint::RangeChangeWithoutDrain,
        PLAIN,
        &[Op::Direct(0, 0, 16)],
        &[
            &[Op::Queued(0, 8, 8)],
            &[Op::Collapse(0, 0, 8), Op::Read(0, 0, 8)],
        ],
    ),
    meeting(
        Failpoint::ConversionBeforeData,
        CUT,
        &[Op::Truncate(0, 16), Op::Write(0, 0, 8), Op::SetAttr(1)],
        &[&[Op::Fsync(0, true)], &[Op::Fsync(1, false)]],
    ),
    meeting(
        Failpoint::DiscardBeforeCommit,
        Setup {
            discards: true,
            ..CUT
        },
        &[Op::Write(0, 0, 8), Op::Sync],
        &[&[Op::Punch(0, 0, 8)], &[Op::SetAttr(1)]],
    ),
];

/// Each bug shows where its mechanisms meet, and without it the same schedules go well.
#[test]
fn each_bug_shows_where_its_mechanisms_meet() {
    let mut missed = Vec::new();
    let only = crate::failpoint();
    for meeting in MEETINGS
        .iter()
        .filter(|meeting| only.is_none_or(|only| meeting.bug == only))
    {
        let program = |failpoint| {
            let setup = Setup {
                failpoint,
                ..meeting.setup
            };
            Program::of(setup, meeting.first, meeting.threads)
        };
        let name = meeting.bug.name();
        let (mut with, mut without) = (program(Some(meeting.bug)), program(None));
        let begin = processor_time();
        let found = (1..=MOST).find(|schedule| match run(&with, *schedule) {
            Ok(count) => {
                with.steps = count.steps;
                false
            }
            Err(why) => {
                println!(
                    "{name}: {schedule} schedules, {:.1?}",
                    processor_time() - begin
                );
                println!("  {}", why.lines().next().unwrap_or_default());
                true
            }
        });
        let Some(schedule) = found else {
            missed.push(name);
            continue;
        };
        without.steps = with.steps;
        run(&without, schedule).unwrap();
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
