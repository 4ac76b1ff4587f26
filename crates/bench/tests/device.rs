//! The ways to an image, once and tiny: every case has its row. Never how long it took.

use extant_testkit::{Cmd, Need, Result, TempDir, ensure, need};

#[test]
fn every_way_to_an_image_is_measured() -> Result<()> {
    if !need(&[Need::IoUring]) {
        return Ok(());
    }
    let dir = TempDir::new("bench-device")?;
    let ran = Cmd::new(env!("CARGO_BIN_EXE_extant-bench"))
        .args(["device", "--quick", "--dir"])
        .arg(dir.path())
        .ok()?;
    for op in ["write", "read"] {
        for how in ["calls", "1", "16", "64"] {
            let case = format!("device/{op}/4K/{how}");
            let line = ran
                .out
                .lines()
                .find(|line| line.split_whitespace().next() == Some(case.as_str()));
            ensure!(line.is_some(), "no {case} in\n{}", ran.out);
        }
    }
    ensure!(ran.out.contains("io_uring-cached"), "{}", ran.out);
    ensure!(dir.path().read_dir()?.next().is_none(), "something is left");
    Ok(())
}
