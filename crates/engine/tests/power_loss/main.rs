//! Power loss: after a cut at any moment of any workload, the image replays, checks clean, holds
//! everything that was promised, and shows no byte that was not written.
//!
//! Each workload ([`workloads`]) is named and runs on a recorded device ([`run`]) of one of several
//! kinds ([`setups`]), entering in a [`ledger`] what it promises. The crash explorer then visits
//! the states that a cut may leave, and the [`judge`] judges each. A failing state prints one line
//! that reproduces it ([`cases`]). `docs/POWER_CUTS.md` has the rest.

mod cases;
mod failpoints;
mod judge;
mod ledger;
mod moves;
mod notes;
mod run;
mod setups;
mod view;
mod workloads;

use extant_testkit::crash::Budget;
use extant_testkit::{Need, need};

use cases::{Case, Depth, endless, explore_all, losing_round, seed, short_round, soak_time};
use setups::{EXCLUDED, Setup};
use workloads::WORKLOADS;

#[test]
fn every_cut_of_every_workload_is_recovered() {
    let cases = short_round(seed());
    assert!(!cases.is_empty(), "no such workload");
    explore_all(cases.into_iter(), Depth::SHORT, None).report();
}

/// The host fails one flush, reports it to one caller, and goes on: what was promised before and
/// after is there.
#[test]
fn a_failed_flush_costs_nothing_that_was_promised() {
    let cases = losing_round(seed());
    let tally = explore_all(cases, Depth::SHORT, None);
    assert!(tally.report() > 200);
}

#[test]
fn a_sample_is_recovered_by_linux() {
    if !need(&[Need::Loop]) {
        return;
    }
    let first = |nth: usize| {
        let setups = WORKLOADS[nth].setups.iter();
        let known = |name: &&&str| Setup::named(name).is_some_and(Setup::is_for_linux);
        let setups: Vec<&str> = setups.filter(known).copied().collect();
        let setup = setups.get(nth % setups.len().max(1))?;
        Some(Case::new(WORKLOADS[nth].name, setup, seed()))
    };
    let depth = Depth {
        budget: Budget {
            exhaustive_below: 1,
            samples: 1,
            torn: 0,
            cut_stride: 20,
        },
        e2fsck: 0,
        linux: 24,
        unreplayed: 0,
    };
    let external = Case::new("remounts", "external", seed());
    let cases = (0..WORKLOADS.len()).filter_map(first).chain([external]);
    explore_all(cases, depth, None);
}

/// The cuts of volumes with fast commits do look at fast commits.
#[test]
fn runs_on_volumes_with_fast_commits_write_some() {
    let mut total = 0;
    for workload in WORKLOADS {
        for setup in workload.setups {
            if !Setup::named(setup).is_some_and(Setup::has_fast_commits) {
                continue;
            }
            let case = Case::new(workload.name, setup, seed());
            let written = case.fast_commits();
            extant_testkit::report(&format!("{}: {written} fast commits", case.name()));
            total += written;
        }
    }
    assert!(total > 200, "{total} fast commits");
}

/// Cases that are excluded by name lose what was promised: they are not excluded for comfort.
#[test]
fn what_is_excluded_loses_data() {
    for option in EXCLUDED {
        let case = Case::new("appends", "4k", seed());
        let result = case.explore_mounted(Depth::SHORT, option);
        assert!(result.is_err(), "{option} lost nothing in {result:?}");
    }
}

/// All workloads on all setups with fresh seeds, until `EXTANT_SECONDS` are over: `cargo xtask
/// soak` runs this.
#[test]
fn soak() {
    let needs_linux = Need::Loop.missing();
    let depth = Depth {
        linux: if needs_linux.is_none() {
            Depth::LONG.linux
        } else {
            0
        },
        ..Depth::LONG
    };
    let tally = explore_all(endless(seed()), depth, Some(soak_time()));
    assert!(tally.report() > 0);
}
