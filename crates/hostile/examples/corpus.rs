//! `corpus TARGET DIR`: writes the inputs that the fuzzer begins with; `corpus seeds DIR`, the
//! images that recipes start from.
//!
//! `corpus TARGET DIR FILE..` instead gives the files to the target, in this process: what a crash
//! was, without a fuzzer. Set `EXTANT_HOSTILE_KEEP=disk.img` to keep the image that the last of
//! them stands for.

use std::path::Path;
use std::process::ExitCode;

use extant_hostile::{Target, run, samples, seeds};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [name, dir] = &args[..]
        && name == "seeds"
    {
        return match seeds::save(Path::new(dir)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let target = args
        .first()
        .and_then(|name| Target::ALL.into_iter().find(|t| t.name() == name));
    let (Some(target), Some(dir)) = (target, args.get(1)) else {
        eprintln!("usage: corpus TARGET DIR [FILE..] | corpus seeds DIR");
        return ExitCode::from(2);
    };
    for file in args.iter().skip(2) {
        match std::fs::read(file) {
            Ok(data) => run(target, &data),
            Err(error) => {
                eprintln!("{file}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    if args.len() > 2 {
        return ExitCode::SUCCESS;
    }
    for (number, sample) in samples::of(target).into_iter().enumerate() {
        let path = Path::new(dir).join(format!("sample-{number:04}"));
        if let Err(error) = std::fs::write(&path, sample) {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
