//! `extant-bench sidebyside`: Extant's mount beside its peers, on the same RAM-backed storage. `extant-bench device`: the ways to
//! read and write an image.
#![forbid(unsafe_code)]

mod device;
mod sidebyside;

use std::process::ExitCode;

const USAGE: &str = "\
usage: extant-bench sidebyside [--quick] [--runs N] [--json FILE] [--only VARIANT,...]
       extant-bench device [--quick] [--runs N] [--json FILE] [--dir DIR]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let measured = match args.split_first() {
        Some((name, rest)) if name == "sidebyside" => {
            sidebyside::Plan::parse(rest).map(|plan| sidebyside::run(&plan))
        }
        Some((name, rest)) if name == "device" => {
            device::Plan::parse(rest).map(|plan| device::run(&plan))
        }
        _ => None,
    };
    let Some(measured) = measured else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("extant-bench: {e}");
            ExitCode::FAILURE
        }
    }
}
