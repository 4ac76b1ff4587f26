//! The bench of stored images, tiny: that it runs, and that its counts fit one another.

use extant_bench::{Bench, Plan};
use extant_testkit::{Need, Result, ensure, need, tools};

#[test]
fn starts_and_transfers_are_measured() -> Result<()> {
    if !need(&[Need::Fuse]) {
        return Ok(());
    }
    let plan = Plan {
        benches: vec![Bench::Remote],
        ..Plan::tiny(tools::extant()?)
    };
    let report = extant_bench::run(&plan, &mut |_| {})?.complete()?;
    let rows = report.json()["rows"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let median = |case: &str, variant: &str| {
        let row = rows
            .iter()
            .find(|row| row["case"] == case && row["variant"] == variant);
        row.and_then(|row| row["median"].as_f64()).unwrap_or(-1.0)
    };
    let (all, changed) = (
        median("chunks/image", "extant"),
        median("chunks/changed", "extant"),
    );
    ensure!(changed >= 1.0 && changed < all, "{changed} of {all}");
    ensure!(
        median("bytes/changed", "extant") < median("bytes/image", "extant"),
        "{rows:?}"
    );
    for line in ["0ms", "5ms"] {
        let case = |what: &str| format!("start/{line}{what}");
        let touched = median(&case("/chunks"), "store");
        ensure!(touched >= 1.0 && touched <= all, "{touched} of {all}");
        // A pull asks for each chunk of the second version, as for its list, the version and its
        // manifest.
        let pulled = median(&case("/chunks"), "pull-mount");
        let fits = pulled >= touched && pulled <= all + changed;
        ensure!(fits, "{pulled} of {all} and {changed}");
        let requests = median(&case("/requests"), "pull-mount");
        ensure!(requests == pulled + 3.0, "{requests} for {pulled}");
        let requests = median(&case("/requests"), "store");
        ensure!(requests == touched + 3.0, "{requests} for {touched}");
    }
    ensure!(
        median("push", "extant") > 0.0 && median("pull", "cp") > 0.0,
        "{rows:?}"
    );
    Ok(())
}
