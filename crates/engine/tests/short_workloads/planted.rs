//! Each mistake that short workloads can bring about is found by one: a check that cannot fail
//! counts for nothing.

use extant_failpoint::Failpoint;

use crate::cases::{Case, of_one_operation, sample_of_two, seed};
use crate::explore::Counts;
use crate::setups::Setup;

/// Explores cases with a failpoint, on one setup, until one fails.
fn is_found(failpoint: Failpoint, setup: &str, cases: Vec<Case>) {
    let setup = Setup::named(setup).expect("the name of a setup");
    let mut counts = Counts::default();
    for case in cases {
        let case = Case {
            failpoint: Some(failpoint),
            setup,
            ..case
        };
        match case.run(0, 0) {
            Ok(more) => counts += more,
            Err((why, more)) => {
                counts += more;
                let (name, first) = (failpoint.name(), why.lines().next().unwrap_or_default());
                extant_testkit::report(&format!("failpoint {name}: {counts}: {first}"));
                assert!(why.contains(&format!("EXTANT_FAILPOINT={name}")), "{why}");
                return;
            }
        }
    }
    panic!("{} hides from {counts}", failpoint.name());
}

fn ones() -> Vec<Case> {
    of_one_operation(&["1k"])
}

#[test]
fn flush_left_out_is_found() {
    is_found(Failpoint::FlushLeftOut, "1k", ones());
}

#[test]
fn home_before_commit_is_found() {
    is_found(Failpoint::HomeBeforeCommit, "1k", ones());
}

#[test]
fn checksum_not_updated_is_found() {
    is_found(Failpoint::ChecksumNotUpdated, "1k", ones());
}

#[test]
fn bitmap_bit_not_journalled_is_found() {
    is_found(Failpoint::BitmapBitNotJournalled, "1k", ones());
}

#[test]
fn orphan_not_recorded_is_found() {
    is_found(Failpoint::OrphanNotRecorded, "each_handle", ones());
}

#[test]
fn size_before_data_is_found() {
    is_found(Failpoint::SizeBeforeData, "1k", sample_of_two(seed(), 4000));
}

#[test]
fn mistakes_of_fast_commits_are_found() {
    for failpoint in [
        Failpoint::FlushLeftOut,
        Failpoint::FastCommitOfPast,
        Failpoint::UntoldIgnored,
        Failpoint::RemovalForgotten,
    ] {
        is_found(failpoint, "fast", of_one_operation(&["fast"]));
    }
    // One operation writes to blocks that the file has.
    let two = sample_of_two(seed(), 4000);
    is_found(Failpoint::RangeForgotten, "fast", two);
}

/// The one that a sample comes upon after some hundred others.
#[test]
fn ordered_data_left_out_is_found() {
    let steps = "zero-keep B/x, sync, copy A/x B/x, fsync A/x";
    let setup = Setup::named("ordered").expect("a setup");
    let case = Case::new(setup, steps.parse().expect("steps"));
    case.run(0, 0)
        .map_err(|(why, _)| why)
        .expect("no mistake, no finding");
    is_found(Failpoint::OrderedDataLeftOut, "ordered", vec![case]);
}
