//! The seeds' own workloads, tiny: which pairs have figures, and what is counted of them.

mod kit;

use extant_bench::Bench;
use extant_testkit::{Need, Result, ensure, need};

use kit::{counted, plan, row};

/// Requests of the seed's workload have a record each, which no clear trims; calls that share one
/// with the bytes behind them trim it.
#[test]
fn trims_act_where_ranges_share_a_record() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let names = ["iomap", "notrim", "noslots", "noslots-notrim"];
    let mut plan = plan(&names, "/nonexistent".into());
    plan.benches = vec![Bench::Randwrite];
    plan.only = ["randwrite/sparse/", "randwrite/shared/"]
        .map(str::to_owned)
        .to_vec();
    let report = extant_bench::run(&plan, &mut |_| {})?.complete()?;
    let all = report.json();
    let rows = all["rows"].as_array().cloned().unwrap_or_default();
    ensure!(rows.len() == 3 * (3 + 2), "{all}");
    for variant in ["noslots", "noslots-notrim"] {
        let r = row(&rows, "randwrite/sparse/4K", variant);
        // A record for each request that is on the way to the device, or is written by a call.
        ensure!(counted(r, "tree_clears") >= counted(r, "calls"), "{r}");
        ensure!(counted(r, "direct_allocations") > 0, "{r}");
        for counter in ["direct_slots", "trim_first", "trim_last", "prealloc_allocs"] {
            ensure!(counted(r, counter) == 0, "{counter}: {r}");
        }
        ensure!(
            counted(r, "clear_ns_at_median") <= counted(r, "processor_ns"),
            "{r}"
        );
        ensure!(counted(r, "clear_ns_at_median") > 0, "{r}");
        let timed = r["times"]["count"].as_u64().unwrap_or_default();
        ensure!(timed >= counted(r, "calls"), "{r}");
    }
    let [with, without] = ["iomap", "notrim"].map(|v| row(&rows, "randwrite/shared/4M", v));
    // A call has 16 pieces; at its end its lock and its fill lock go as a whole.
    for (r, trims) in [(with, "trim_last"), (without, "prealloc_allocs")] {
        let (calls, trims) = (counted(r, "calls"), counted(r, trims));
        ensure!(trims + 2 * calls == counted(r, "tree_clears"), "{r}");
        ensure!(trims > 12 * calls, "{r}");
    }
    ensure!(counted(with, "prealloc_allocs") == 0, "{with}");
    ensure!(counted(without, "trim_last") == 0, "{without}");
    for case in ["randwrite/sparse/4K", "randwrite/shared/4M"] {
        for beside in ["requests", "clear"] {
            let r = row(&rows, &format!("{case}/{beside}"), "iomap");
            ensure!(r["median"].as_f64() > Some(0.0), "{r}");
        }
    }
    Ok(())
}

/// At the seeds' size the pairs of the seeds are measured, and no more.
#[test]
fn large_cases_have_the_pairs_of_the_seeds() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let names = ["iomap", "bufferhead", "base", "base-dirty-inode"];
    let mut plan = plan(&names, "/nonexistent".into());
    plan.benches = vec![Bench::Large];
    let report = extant_bench::run(&plan, &mut |_| {})?.complete()?;
    let all = report.json();
    let rows = all["rows"].as_array().cloned().unwrap_or_default();
    let of = |case: &str| {
        let of_case = rows.iter().filter(|r| r["case"] == case);
        let mut variants: Vec<_> = of_case.filter_map(|r| r["variant"].as_str()).collect();
        variants.sort_unstable();
        variants.join(" ")
    };
    for (case, expected) in [
        ("large/read/ram/1M", "base iomap"),
        ("large/write/ram/new+sync/1M", "base bufferhead iomap"),
        (
            "large/write/ram/overwrite+sync/64K",
            "base bufferhead iomap",
        ),
        ("large/append/32x1KiB", "base base-dirty-inode iomap"),
    ] {
        ensure!(of(case) == expected, "{case}: {}", of(case));
    }
    Ok(())
}
