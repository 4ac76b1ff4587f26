//! What mount(8) and umount(8) call: `/sbin/mount.fuse.extant` and `/sbin/umount.fuse.extant`,
//! links to `extant`.
//!
//! `mount.fuse.extant SOURCE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`
//! `umount.fuse.extant DIR [-nlfvr] [-N NAMESPACE] [-t TYPE]`
//!
//! They call the commands `mount` and `umount`: by the second a plain umount(8) waits until the
//! image is closed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::args::{Mount, Umount};
use crate::failure::{self, Outcome};
use crate::{commands, logging, utab};

/// Runs as a helper if the program was called by a helper's name.
pub(crate) fn run(arguments: &[OsString]) -> Option<ExitCode> {
    let (program, rest) = arguments.split_first()?;
    let name = Path::new(program).file_name()?.to_str()?;
    let (command, outcome): (_, fn(&[OsString]) -> Outcome) = match name {
        "mount.fuse.extant" | "mount.extant" => ("mount", mount),
        "umount.fuse.extant" | "umount.extant" => ("umount", umount),
        _ => return None,
    };
    logging::set_command(command);
    Some(failure::exit(command, outcome(rest)))
}

/// The arguments of both, by the same rules.
#[derive(Default)]
struct Parsed {
    operands: Vec<PathBuf>,
    letters: String,
    options: Vec<String>,
}

fn parse(arguments: &[OsString]) -> Result<Parsed, String> {
    let mut parsed = Parsed::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let Some(word) = argument.to_str().and_then(|text| text.strip_prefix('-')) else {
            parsed.operands.push(argument.into());
            continue;
        };
        match word {
            "o" | "t" | "N" => {
                let value = arguments.next().and_then(|value| value.to_str());
                let value = value.ok_or_else(|| format!("-{word}: a value is missing"))?;
                if word == "o" {
                    parsed.options.push(value.to_owned());
                }
            }
            _ => parsed.letters.push_str(word),
        }
    }
    Ok(parsed)
}

fn mount(arguments: &[OsString]) -> Outcome {
    let parsed = match parse(arguments) {
        Ok(parsed) => parsed,
        Err(what) => return Outcome::Usage(what),
    };
    let [image, dir] = parsed.operands.as_slice() else {
        return Outcome::Usage("an image and a directory are needed".into());
    };
    if parsed.letters.contains('f') {
        return Outcome::Done;
    }
    let outcome = commands::mount::run(&Mount {
        options: parsed.options,
        read_only: parsed.letters.contains('r'),
        foreground: false,
        image: Some(image.clone()),
        dir: Some(dir.clone()),
        image_fd: None,
        fuse_fd: None,
        daemon: false,
        keeper: false,
        recover: false,
    });
    if let (Outcome::Done, Ok(image), Ok(dir)) =
        (&outcome, image.canonicalize(), dir.canonicalize())
    {
        utab::enter(&image, &dir);
    }
    outcome
}

fn umount(arguments: &[OsString]) -> Outcome {
    let parsed = match parse(arguments) {
        Ok(parsed) => parsed,
        Err(what) => return Outcome::Usage(what),
    };
    let [dir] = parsed.operands.as_slice() else {
        return Outcome::Usage("a directory is needed".into());
    };
    commands::umount::run(&Umount {
        lazy: parsed.letters.contains('l'),
        dirs: vec![dir.clone()],
    })
}
