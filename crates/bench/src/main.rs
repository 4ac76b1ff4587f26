//! `extant-bench sidebyside`: Extant's mount beside its peers, on the same RAM-backed storage.
#![forbid(unsafe_code)]

mod sidebyside;

use std::process::ExitCode;

const USAGE: &str =
    "usage: extant-bench sidebyside [--quick] [--runs N] [--json FILE] [--only VARIANT,...]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let plan = match args.split_first() {
        Some((name, rest)) if name == "sidebyside" => sidebyside::Plan::parse(rest),
        _ => None,
    };
    let Some(plan) = plan else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match sidebyside::run(&plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("extant-bench: {e}");
            ExitCode::FAILURE
        }
    }
}
