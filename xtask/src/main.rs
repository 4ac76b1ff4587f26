//! Chores of the project, as `cargo xtask NAME`.
//!
//! - `book`: the pages of `docs` and a reference as a site, by mdBook.
//! - `figures`: the tables and pictures of the documentation, from the reports in `docs/figures`.
//! - `tidy`: rules that no compiler checks (layers, circles, lengths, words, names in documents,
//!   manifests). `--api` writes the lists of public items.
//! - `lint`: format, `tidy`, clippy, rustdoc, licences.
//! - `test [ARGS]`: all suites, some at once, or those that arguments of cargo test choose; skips
//!   and totals counted over all of them, and at the end what failed. `test --lint` has `lint` as
//!   well: what takes seconds first, the rest beside the suites.
//! - `rounds N [ARGS]`: all test binaries N times, ten at once.
//! - `soak [MINUTES] [STAGE...]`: the long suites with fresh seeds until the time is up.
#![forbid(unsafe_code)]

mod binaries;
mod book;
mod documented;
mod figures;
mod lint;
mod mutations;
mod outcome;
mod soak;
mod suite;
mod tidy;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    match args.first().map(String::as_str) {
        Some("book") => book::run(&root()),
        Some("figures") => figures::run(&root()),
        Some("tidy") => tidy::run(&root(), rest),
        Some("lint") => lint::run(&root()),
        Some("test") if matches!(rest, [only] if only == "--lint") => test_and_lint(&root()),
        Some("test") => suite::test(&root(), rest, None),
        Some("rounds") => suite::rounds(&root(), rest),
        Some("soak") => soak::run_all(&root(), rest),
        _ => {
            eprintln!(
                "usage: cargo xtask book | figures | tidy | lint | \
                 test [--lint | cargo test's arguments] | rounds N [cargo test's arguments] | \
                 soak [minutes] [stages]"
            );
            ExitCode::from(2)
        }
    }
}

/// Runs the part of the lint that takes seconds, then all suites with the rest of it beside them.
fn test_and_lint(root: &Path) -> ExitCode {
    if !lint::quick(root) {
        return ExitCode::FAILURE;
    }
    suite::test(root, &[], Some(&|| lint::behind_suites(root)))
}

/// The checkout's root.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
