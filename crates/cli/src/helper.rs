//! The helpers of mount(8) and umount(8): `/sbin/mount.fuse.extant` and `/sbin/umount.fuse.extant`,
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

use rustix::process::geteuid;
use tracing::warn;

use crate::args::{Mount, Umount};
use crate::failure::{self, At, Failure, Outcome};
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
    if parsed
        .options
        .iter()
        .any(|words| words.split(',').any(|word| word == "remount"))
    {
        return remount(dir, &parsed.options.join(",")).into();
    }
    let outcome = commands::mount::run(&Mount {
        options: granted(parsed.options),
        read_only: parsed.letters.contains('r'),
        foreground: false,
        image: Some(image.clone()),
        dir: Some(dir.clone()),
        image_fd: None,
        fuse_fd: None,
        daemon: false,
        keeper: false,
        fetcher: false,
        recover: false,
        look: false,
    });
    if let (Outcome::Done, Ok(image), Ok(dir)) =
        (&outcome, image.canonicalize(), dir.canonicalize())
    {
        utab::enter(&image, &dir);
    }
    outcome
}

/// The options with what mount(8) leaves out: `suid` and `dev` are its defaults for root, and those
/// of every file system, so it passes on their opposites alone.
fn granted(mut options: Vec<String>) -> Vec<String> {
    if geteuid().is_root() {
        options.insert(0, "suid,dev".to_owned());
    }
    options
}

/// Changes the flags of the mount on `dir`.
fn remount(dir: &Path, words: &str) -> Result<(), Failure> {
    let location = dir.display();
    let dir = dir.canonicalize().at(&location)?;
    let counters = extant_fuse::stats(&dir).at(&location)?;
    let read_only = counters
        .iter()
        .any(|(name, value)| name == "read_only" && *value == 1);
    let stays = words.split(',').rfind(|word| ["ro", "rw"].contains(word)) == Some("ro");
    if read_only && !stays {
        let what = "the image is open for reading alone: umount it, and mount it with rw";
        return Err(Failure::at(location, what));
    }
    for word in extant_fuse::remount(&dir, words).at(&location)? {
        warn!("{location}: {word}: stays as it was mounted; umount and mount again to change it");
    }
    Ok(())
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
        as_helper: true,
    })
}
