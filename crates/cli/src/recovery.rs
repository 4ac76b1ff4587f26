//! Recovery of an image that is to be mounted read-only, by processes of their own.
//!
//! The daemon of such a mount opens the image for reading alone, and reads nothing of it before it
//! has confined itself. So two other processes, each confined like it, come first: one looks
//! whether the image has to be recovered, the other recovers it.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::Stdio;

use extant_fuse::MountOptions;
use extant_sandbox::{Profile, Report};
use tracing::warn;

use crate::args::Mount;
use crate::failure::{Failure, Outcome};
use crate::key_files;
use crate::mount_source::MountSource;
use crate::{mount_settings, program};

/// Report of the first process on an image that has to be recovered.
const DIRTY: &str = "dirty";
/// The most bytes that are heard of such a process, which reads untrusted ones.
const HEARD: u64 = 64 << 10;

/// Recovers the image at `path`, which is to be mounted on `dir`, if it has to be.
pub(crate) fn recover_apart(args: &Mount, path: &Path, dir: &Path) -> Result<(), Failure> {
    if said_apart(args, "--look", path, dir)? == DIRTY {
        said_apart(args, "--recover", path, dir)?;
    }
    Ok(())
}

/// Starts a process for `part`, and returns what it says once it has ended.
fn said_apart(args: &Mount, part: &str, path: &Path, dir: &Path) -> Result<String, Failure> {
    let mut command = program::mount_part(&args.options, part);
    command.arg("--").arg(path).arg(dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut said = Vec::new();
    let ended = command.spawn().and_then(|mut child| {
        if let Some(pipe) = child.stdout.take() {
            pipe.take(HEARD).read_to_end(&mut said)?;
        }
        child.wait()
    });
    let status = ended.map_err(|error| Failure::at(path.display(), error))?;
    let text = String::from_utf8_lossy(&said);
    match (status.success(), text.trim()) {
        (true, text) => Ok(text.to_owned()),
        (false, "") => {
            let what = format!("looking at it before the mount: {status}");
            Err(Failure::at(path.display(), what))
        }
        (false, text) => Err(Failure::new(text)),
    }
}

/// The first process.
pub(crate) fn look(args: &Mount) -> Outcome {
    told(dirty(args).map(|dirty| if dirty { DIRTY } else { "" }))
}

/// The second process.
pub(crate) fn recover(args: &Mount) -> Outcome {
    told(recovered(args).map(|()| ""))
}

/// Says it on standard output, failures as well.
fn told(outcome: Result<&str, Failure>) -> Outcome {
    let (text, end) = match outcome {
        Ok(text) => (text.to_owned(), Outcome::Done),
        Err(failure) => (failure.to_string(), Outcome::Printed),
    };
    // A parent that has gone away reads nothing.
    let _ = writeln!(io::stdout(), "{text}");
    end
}

fn dirty(args: &Mount) -> Result<bool, Failure> {
    let path = begin(args)?;
    let mut options = mount_settings::mount_options(args)?;
    options.set_read_only();
    let source = MountSource::find(args.into(), path, &mut options)?;
    confine(&options, false)?;
    source.needs_recovery(&options)
}

fn recovered(args: &Mount) -> Result<(), Failure> {
    let path = begin(args)?;
    let options = mount_settings::mount_options(args)?;
    let tuning = mount_settings::tuning(&options)?;
    if let Some(source) = MountSource::to_recover(path, &options)? {
        confine(&options, false)?;
        source.recover(&options, tuning)?;
    }
    Ok(())
}

/// Closes what the caller has left open; returns the path of the image.
fn begin(args: &Mount) -> Result<&Path, Failure> {
    extant_fuse::take_inherited_and_close_rest([]).map_err(Failure::new)?;
    let path = args.image.as_deref();
    path.ok_or_else(|| Failure::new("an image is needed"))
}

/// Confines this process, unless an option says otherwise.
pub(crate) fn confine(options: &MountOptions, rings: bool) -> Result<Report, Failure> {
    let profile = Profile {
        rings,
        ..Profile::default()
    };
    confine_to(options, profile)
}

/// Confines this process to what `profile` says, unless an option says otherwise.
pub(crate) fn confine_to(options: &MountOptions, profile: Profile) -> Result<Report, Failure> {
    if !options.sandbox() {
        return Ok(Report::unconfined());
    }
    // It would have data of files in it, and keys.
    key_files::leave_no_core();
    let report = extant_sandbox::enter(&profile).map_err(|error| {
        let what = format!("{error} (-o nosandbox goes without it)");
        Failure::at("the sandbox", what)
    })?;
    match report.missing() {
        "" => {}
        missing => warn!("the sandbox is incomplete: this kernel has no {missing}"),
    }
    Ok(report)
}
