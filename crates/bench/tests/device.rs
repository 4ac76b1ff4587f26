//! The device cases, once and tiny: every case has its row. Times are not asserted.

use extant_bench::{Bench, Plan};
use extant_testkit::{Need, Result, TempDir, ensure, need};

#[test]
fn every_way_to_an_image_is_measured() -> Result<()> {
    if !need(&[Need::IoUring]) {
        return Ok(());
    }
    // Not in memory, where nothing can be gone past.
    let dir = TempDir::new_in(std::env::temp_dir().as_path(), "bench-device")?;
    let plan = Plan {
        benches: vec![Bench::Device],
        dir: dir.path().to_owned(),
        ..Plan::tiny("/nonexistent".into())
    };
    let report = extant_bench::run(&plan, &mut |_| {})?.complete()?;
    let all = report.json();
    let rows = all["rows"].as_array().cloned().unwrap_or_default();
    for op in ["write", "read"] {
        for how in ["calls", "1", "16", "64"] {
            let case = format!("device/{op}/4K/{how}");
            let cpu = format!("{case}/cpu");
            for variant in ["threads", "io_uring", "threads-cached", "io_uring-cached"] {
                let has = |case: &str| {
                    rows.iter()
                        .any(|r| r["case"] == case && r["variant"] == variant)
                };
                ensure!(has(&case) && has(&cpu), "no {case} of {variant} in {all}");
            }
        }
    }
    // Devices run cases of devices, and nothing else does.
    ensure!(rows.len() == 2 * 4 * 4 * 2, "{} rows", rows.len());
    ensure!(dir.path().read_dir()?.next().is_none(), "something is left");
    Ok(())
}
