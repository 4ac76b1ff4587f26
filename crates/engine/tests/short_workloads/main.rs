//! Short workloads: whatever one or two operations do on two directories, a crash in any state that
//! they may leave shows what was made durable as it was, and the rest as some number of the
//! operations leaves it.
//!
//! The operations ([`ops`]) run on an abstract model ([`model`], [`content`]), from which the
//! workloads are generated ([`generate`]), and on a recorded volume ([`run`]). A [`timeline`] says
//! which models may be found at each event; each state of a crash is recovered and read as a whole
//! ([`view`]), and has to be one of them ([`explore`]). `docs/POWER_CUTS.md` has the rest.

mod cases;
mod content;
mod explore;
mod generate;
mod linux;
mod model;
mod ops;
mod planted;
mod run;
mod setups;
mod timeline;
mod view;

use extant_testkit::{Need, need};

use cases::{
    Case, control, endless, explore_all, of_one_operation, sample_of_two, seed, soak_time,
};

/// The setups of the workloads of one operation in a short round.
const SHORT: [&str; 2] = ["1k", "fast"];

/// Every how many states e2fsck judges as well.
const E2FSCK: u64 = 150;

#[test]
fn every_workload_of_one_operation_is_recovered() {
    let cases = Case::wanted().map_or_else(|| of_one_operation(&SHORT), |case| vec![case]);
    let counts = explore_all("one operation", cases.into_iter(), E2FSCK, None);
    assert!(counts.states > 0, "there is no such cut");
}

#[test]
fn a_sample_of_two_operations_is_recovered() {
    let cases = sample_of_two(seed(), 120);
    let counts = explore_all("two operations, a sample", cases.into_iter(), E2FSCK, None);
    assert!(counts.states > 600, "{counts}");
}

/// The control: Linux's own ext4 does the same, and what its crashes leave is recovered and judged
/// in the same way.
#[test]
fn what_linux_writes_is_recovered() {
    if !need(&[Need::Root, Need::Fuse, Need::Loop]) {
        return;
    }
    let stride = if soak_time().as_secs() > 1 { 1 } else { 29 };
    let counts = explore_all(
        "Linux, one operation",
        control(stride).into_iter(),
        20,
        None,
    );
    assert!(counts.states > 50, "{counts}");
}

/// All workloads of two operations, and random ones of three, until `EXTANT_SECONDS` are over:
/// `cargo xtask soak` runs this.
#[test]
fn soak() {
    let counts = explore_all("soak", endless(seed()), 1000, Some(soak_time()));
    assert!(counts.states > 0);
}
