//! Each failpoint is found by a case: a check that cannot fail counts for nothing.

use extant_failpoint::Failpoint;

use crate::cases::{Case, Depth, seed};

/// The case that finds each failpoint.
const FINDERS: &[(Failpoint, &str, &str)] = &[
    (Failpoint::FlushLeftOut, "appends", "4k"),
    (
        Failpoint::HomeBeforeCommit,
        "metadata_storm",
        "tiny_journal",
    ),
    (Failpoint::RevokeLeftOut, "reused_metadata", "1k"),
    (Failpoint::SizeBeforeData, "appends", "4k"),
    (Failpoint::SizeAtSubmission, "grouped_fsyncs", "2k"),
    (Failpoint::ConversionBeforeData, "grouped_fsyncs", "2k"),
    (Failpoint::OrphanNotRecorded, "open_and_unlinked", "1k"),
    (Failpoint::ChecksumNotUpdated, "appends", "4k"),
    (Failpoint::OrderedDataLeftOut, "appends", "ordered_at_once"),
    (Failpoint::BitmapBitNotJournalled, "appends", "4k"),
    (Failpoint::DiscardBeforeCommit, "punches", "discarding"),
    (Failpoint::FastCommitOfPast, "appends", "fast_4k"),
    (Failpoint::UntoldIgnored, "attributes", "fast_1k"),
    (Failpoint::RangeForgotten, "appends", "fast_4k"),
    (Failpoint::RemovalForgotten, "rename_over", "fast_1k"),
    (Failpoint::FastAreaWraps, "appends", "fast_small_area"),
    (Failpoint::CommitBeforeVolumeFlush, "appends", "external_4k"),
    (Failpoint::TailBeforeVolumeFlush, "remounts", "external"),
];

fn is_found(failpoint: Failpoint) {
    let found = FINDERS.iter().find(|(of, ..)| *of == failpoint);
    let (_, workload, setup) = found.expect("every failpoint has a case that finds it");
    // Two of them show only if threads meet at the wrong moment, which one run in a great many does
    // not bring about.
    let mut missed = Vec::new();
    for seed in seed()..seed() + 3 {
        let case = Case {
            failpoint: Some(failpoint),
            ..Case::new(workload, setup, seed)
        };
        match case.explore_mounted(Depth::SHORT, "") {
            Ok(totals) => missed.push(format!("{totals} of {} with seed {seed}", case.name())),
            Err((why, states)) => {
                let (name, first) = (failpoint.name(), why.lines().next().unwrap_or_default());
                extant_testkit::report(&format!("failpoint {name}: state {states} of {first}"));
                println!("{why}");
                assert!(why.contains(&format!("EXTANT_FAILPOINT={name}")), "{why}");
                return;
            }
        }
    }
    panic!("{} hides from {}", failpoint.name(), missed.join(", "));
}

#[test]
fn flush_left_out_is_found() {
    is_found(Failpoint::FlushLeftOut);
}

#[test]
fn home_before_commit_is_found() {
    is_found(Failpoint::HomeBeforeCommit);
}

#[test]
fn revoke_left_out_is_found() {
    is_found(Failpoint::RevokeLeftOut);
}

#[test]
fn size_before_data_is_found() {
    is_found(Failpoint::SizeBeforeData);
}

#[test]
fn size_at_submission_is_found() {
    is_found(Failpoint::SizeAtSubmission);
}

#[test]
fn conversion_before_data_is_found() {
    is_found(Failpoint::ConversionBeforeData);
}

#[test]
fn orphan_not_recorded_is_found() {
    is_found(Failpoint::OrphanNotRecorded);
}

#[test]
fn checksum_not_updated_is_found() {
    is_found(Failpoint::ChecksumNotUpdated);
}

#[test]
fn bitmap_bit_not_journalled_is_found() {
    is_found(Failpoint::BitmapBitNotJournalled);
}

#[test]
fn ordered_data_left_out_is_found() {
    is_found(Failpoint::OrderedDataLeftOut);
}

#[test]
fn discard_before_commit_is_found() {
    is_found(Failpoint::DiscardBeforeCommit);
}

#[test]
fn fast_commit_of_past_is_found() {
    is_found(Failpoint::FastCommitOfPast);
}

#[test]
fn untold_ignored_is_found() {
    is_found(Failpoint::UntoldIgnored);
}

#[test]
fn range_forgotten_is_found() {
    is_found(Failpoint::RangeForgotten);
}

#[test]
fn removal_forgotten_is_found() {
    is_found(Failpoint::RemovalForgotten);
}

#[test]
fn fast_area_wraps_is_found() {
    is_found(Failpoint::FastAreaWraps);
}

#[test]
fn commit_before_volume_flush_is_found() {
    is_found(Failpoint::CommitBeforeVolumeFlush);
}

#[test]
fn tail_before_volume_flush_is_found() {
    is_found(Failpoint::TailBeforeVolumeFlush);
}

/// A fast commit has data and records in front of its last block, as a commit record has.
#[test]
fn flush_left_out_is_found_with_fast_commits() {
    let case = Case {
        failpoint: Some(Failpoint::FlushLeftOut),
        ..Case::new("appends", "fast_4k", seed())
    };
    let explored = case.explore_mounted(Depth::SHORT, "");
    assert!(explored.is_err(), "{explored:?}");
}

/// Data that is not on the device when its blocks count as written.
#[test]
fn conversion_before_data_is_found_with_fast_commits() {
    let found = |seed| {
        let case = Case {
            failpoint: Some(Failpoint::ConversionBeforeData),
            ..Case::new("grouped_fsyncs", "fast_1k", seed)
        };
        case.explore_mounted(Depth::SHORT, "").is_err()
    };
    assert!((seed()..seed() + 3).any(found), "it hides");
}

/// Tries the cases of the round in which a flush fails, with each of their first flushes. What the
/// threads of a run do decides which flush covers what: a few seeds, should one run hide it.
fn is_found_by_a_failed_flush(failpoint: Failpoint, workload: &str, setup: &str) {
    for (nth, flush) in (0..5).flat_map(|nth| (0..60).map(move |flush| (nth, flush))) {
        let case = Case {
            failpoint: Some(failpoint),
            lost: Some((flush, flush)),
            ..Case::new(workload, setup, seed().wrapping_add(nth))
        };
        if let Err((why, states)) = case.explore_mounted(Depth::SHORT, "") {
            let (name, first) = (failpoint.name(), why.lines().next().unwrap_or_default());
            extant_testkit::report(&format!(
                "failpoint {name}: flush {flush}, state {states} of {first}"
            ));
            assert!(why.contains(&format!("EXTANT_LOST={flush}:")), "{why}");
            return;
        }
    }
    panic!("{} hides from {workload}/{setup}", failpoint.name());
}

#[test]
fn flush_failure_forgotten_is_found() {
    is_found_by_a_failed_flush(Failpoint::FlushFailureForgotten, "direct_overwrites", "4k");
}

#[test]
fn tail_after_failed_flush_is_found() {
    is_found_by_a_failed_flush(Failpoint::TailAfterFailedFlush, "remounts", "1k");
}
