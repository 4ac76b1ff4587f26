//! Chores of the project, as `cargo xtask NAME`.
//!
//! - `book`: the pages of `docs` and a reference as a site, by mdBook.
//! - `tidy`: rules that no compiler checks (layers, circles, lengths, words, names in documents,
//!   manifests). `--api` writes the lists of public items.
//! - `test [ARGS]`: all suites, some at once, or `cargo test --workspace ARGS`; skips and totals
//!   counted over all of them, and at the end what failed.
//! - `watch BINARY ARGS`: runs a test binary, and ends it when a test hangs. For cargo, in `test`
//!   and `soak`.
//! - `rounds N [ARGS]`: all test binaries N times, ten at once; goes on where it was stopped.
//! - `soak [MINUTES] [STAGE...]`: the long suites with fresh seeds until the time is up.
#![forbid(unsafe_code)]

mod binaries;
mod book;
mod failures;
mod mutations;
mod rounds;
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
        Some("tidy") => tidy::run(&root(), rest),
        Some("test") => suite::test(&root(), rest),
        Some("watch") => watch::run(rest),
        Some("rounds") => rounds::run(&root(), rest),
        Some("note") => binaries::note(rest),
        Some("soak") => soak::run_all(&root(), rest),
        _ => {
            eprintln!(
                "usage: cargo xtask book | tidy | test [cargo test's arguments] | \
                 rounds N [cargo test's arguments] | soak [minutes] [stages]"
            );
            ExitCode::from(2)
        }
    }
}

/// The checkout's root.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
