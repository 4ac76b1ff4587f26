//! Needs that a test has of the machine, and what becomes of it where that is missing.
//!
//! A test that cannot run says so: its name and the reason go to standard error and, for the
//! totals that `cargo xtask test` prints, to the file `$EXTANT_SKIP_LOG`. With `EXTANT_NO_SKIP=1`
//! (as CI sets) a missing need is a failure instead.

use std::io::Write;
use std::path::Path;

pub use extant_host::need::{Need, is_root};

/// True if all of `needs` are met. If not, the test is recorded as skipped and should return.
///
/// # Panics
/// If something is missing while `EXTANT_NO_SKIP=1`.
#[must_use]
pub fn need(needs: &[Need]) -> bool {
    let Some(why) = needs.iter().find_map(|n| n.missing()) else {
        return true;
    };
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("?").to_owned();
    assert!(
        std::env::var_os("EXTANT_NO_SKIP").is_none_or(|v| v != "1"),
        "{test} may not be skipped here (EXTANT_NO_SKIP=1), but: {why}"
    );
    eprintln!("SKIPPED {test}: {why}");
    log_line("EXTANT_SKIP_LOG", &format!("{}\t{test}\t{why}", suite()));
    false
}

/// A figure worth a line at the end of the whole run ("pjdfstest: 389 of 389 as on Linux").
pub fn report(line: &str) {
    eprintln!("REPORT {line}");
    log_line("EXTANT_REPORT_LOG", &format!("{}\t{line}", suite()));
}

/// The test binary's name without cargo's hash.
fn suite() -> String {
    let exe = std::env::current_exe().ok();
    let stem = exe
        .as_deref()
        .and_then(Path::file_stem)
        .map(|s| s.to_string_lossy().into_owned());
    let stem = stem.unwrap_or_default();
    stem.rsplit_once('-')
        .map_or(stem.clone(), |(name, _)| name.to_owned())
}

fn log_line(var: &str, line: &str) {
    let Some(path) = std::env::var_os(var) else {
        return;
    };
    let opened = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path);
    // One write per line: several suites may append at once.
    if let Err(e) = opened.and_then(|mut f| f.write_all(format!("{line}\n").as_bytes())) {
        eprintln!("cannot log to ${var}: {e}");
    }
}
