//! Suites of other projects on a mount, by `scripts/suites/run`: all that passes on Linux's ext4
//! passes here, but for what the lists beside the script name with a reason.
//!
//! Stages of the soak: nothing is done unless `EXTANT_SUITES=1` asks for it. Variables name the
//! folders where the suites were built.

use std::time::Duration;

use extant_testkit::{Cmd, Need, Result, ensure, need, report, tools};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Tool("mke2fs"),
    Need::Tool("unshare"),
    Need::Tool("python3"),
];

/// Runs `suite`, whose folder `variable` names.
fn run(suite: &str, variable: &'static str, folder: &'static str) -> Result<()> {
    if std::env::var_os("EXTANT_SUITES").is_none() {
        eprintln!("other projects' suites are for the soak: EXTANT_SUITES=1 asks for them");
        return Ok(());
    }
    if !need(NEEDS) || !need(&[Need::Named(variable, folder)]) {
        return Ok(());
    }
    let output = Cmd::new(tools::workspace().join("scripts/suites/run"))
        .arg("--results")
        .arg(tools::target_dir().join("suites/extant"))
        .arg(suite)
        .arg(std::env::var_os(variable).unwrap_or_default())
        .env("EXTANT", tools::extant()?)
        .limit(Duration::from_secs(4 * 3600))
        .run()?;
    let totals = output.out.lines().last().unwrap_or_default();
    report(&format!("{suite}: {totals}"));
    ensure!(output.code == Some(0), "{}", output.describe());
    Ok(())
}

#[test]
fn soak_sqlite() -> Result<()> {
    let folder = "SQLite's sources with testfixture built";
    run("sqlite", "EXTANT_SQLITE", folder)
}

#[test]
fn soak_lmdb() -> Result<()> {
    run("lmdb", "EXTANT_LMDB", "liblmdb with its programs built")
}
