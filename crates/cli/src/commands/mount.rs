//! `extant mount`: a mount and the daemon that serves it.
//!
//! The command starts itself again in a session of its own and waits for it: what goes wrong until
//! the mount answers, the child prints on the terminal, and the exit status is a failure. Once the
//! mount answers, the child says so through a pipe, lets go of the terminal, and serves.

use std::env;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use extant::device::OpenMode;
use extant::{Options, Volume};
use extant_fuse::{Mount as Session, MountEntry, MountError, MountOptions, Unmounter, detach};
use rustix::io::Errno;
use rustix::process::{geteuid, setsid};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{error, warn};

use super::umount;
use crate::args::Mount;
use crate::failure::{At, Failure, Outcome};
use crate::{address_space, logging, program, source};

/// What the child says when the mount answers.
const READY: &[u8] = b"ready\n";

pub(crate) fn run(args: &Mount) -> Outcome {
    if args.foreground || args.daemon {
        serve(args).into()
    } else {
        start_daemon(args)
    }
}

/// Starts the daemon and waits until its mount answers, or it failed.
fn start_daemon(args: &Mount) -> Outcome {
    let mut command = Command::new(program::own_path());
    command.arg0("extant").args(["mount", "--daemon"]);
    if args.read_only {
        command.arg("-r");
    }
    for options in &args.options {
        command.arg("-o").arg(options);
    }
    command.arg("--").arg(&args.image).arg(&args.dir);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let outcome = child.and_then(|mut child| {
        let mut said = Vec::new();
        if let Some(mut pipe) = child.stdout.take() {
            pipe.read_to_end(&mut said)?;
        }
        if said == READY {
            Ok(None)
        } else {
            child.wait().map(Some)
        }
    });
    if !matches!(outcome, Ok(None)) {
        take_off_dead_mount(args);
    }
    match outcome {
        Ok(None) => Outcome::Done,
        Ok(Some(status)) => match status.signal() {
            // It has said why.
            None => Outcome::Printed,
            Some(signal) => {
                let what = format!("the daemon was ended by signal {signal} before it mounted");
                Outcome::Failed(Failure::at(args.image.display(), what))
            }
        },
        Err(error) => Outcome::Failed(Failure::at(args.image.display(), error)),
    }
}

/// Takes off what a daemon has left that died between mounting and answering, as for lack of
/// memory. It cannot do so itself.
fn take_off_dead_mount(args: &Mount) {
    let dead = |error: io::Error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error());
    let (Ok(image), Ok(dir)) = (source::real(&args.image), umount::absolute(&args.dir)) else {
        return;
    };
    let Ok(Some(entry)) = MountEntry::find(&dir) else {
        return;
    };
    if entry.source == image && entry.dir.metadata().is_err_and(dead) {
        // The daemon's failure is the one to report.
        let _ = detach(&dir, true, !geteuid().is_root());
    }
}

fn serve(args: &Mount) -> Result<(), Failure> {
    address_space::prepare()?;
    let mut options = MountOptions::default();
    for words in &args.options {
        options.add(words).map_err(Failure::new)?;
    }
    if args.read_only {
        options.set_read_only();
    }
    let image = source::real(&args.image)?;
    let dir = match directory(&args.dir) {
        Err(error) if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => {
            let what = "a mount whose process has died: extant umount it first";
            return Err(Failure::at(args.dir.display(), what));
        }
        other => other.at(args.dir.display())?,
    };
    let volume = open(&image, &options)?;
    if volume.read_only() {
        options.set_read_only();
    }
    let signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::new)?;
    let source = image.display().to_string();
    let failure_of = |error| failure_of(&args.image, error);
    let session = Session::new(volume, &source, &dir, &options).map_err(failure_of)?;
    watch_signals(signals, session.unmounter()).map_err(Failure::new)?;
    let requests = session.requests();
    let ended = session.run(|| {
        if args.daemon {
            detach_from_caller()?;
        }
        Ok(())
    });
    if env::var_os("EXTANT_REQUESTS").is_some() {
        for (name, count) in requests.list() {
            eprintln!("{name} {count}");
        }
    }
    ended.map_err(|failed| {
        if args.daemon {
            error!("{failed}");
        }
        failure_of(failed)
    })
}

/// Opens the volume in `image`.
fn open(image: &Path, options: &MountOptions) -> Result<Volume, Failure> {
    let mut opening = Options::new();
    opening.write(true).mount_options(&options.engine());
    if options.read_only() {
        opening.mount_options("ro");
    }
    let opened = match source::connect(image, OpenMode::ReadWrite) {
        Ok(None) => opening.open_volume(image),
        Ok(Some(device)) => opening.open_volume_on(device),
        // The export may be read-only as well.
        Err(failure) if options.read_only() => match source::connect(image, OpenMode::ReadOnly) {
            Ok(Some(device)) => opening.open_volume_on(device),
            _ => return Err(failure),
        },
        Err(failure) => return Err(failure),
    };
    opened.at(image.display())
}

/// Where a mount failed, and why.
fn failure_of(image: &Path, error: MountError) -> Failure {
    match error {
        MountError::Attach { dir, source } => Failure::at(dir.display(), source),
        MountError::FileSystem(error) => Failure::at(image.display(), error),
    }
}

/// Starts the thread that unmounts at the first signal.
fn watch_signals(mut signals: Signals, unmounter: Unmounter) -> io::Result<()> {
    let thread = thread::Builder::new().name("signals".into());
    thread.spawn(move || {
        if signals.forever().next().is_some() {
            end(&unmounter);
        }
    })?;
    Ok(())
}

/// The mount point; a file or a missing one is an error that says so.
fn directory(dir: &Path) -> io::Result<PathBuf> {
    let path = dir.canonicalize()?;
    if !path.metadata()?.is_dir() {
        return Err(Errno::NOTDIR.into());
    }
    Ok(path)
}

/// Answers a signal.
fn end(unmounter: &Unmounter) {
    if let Err(error) = unmounter.unmount() {
        warn!("unmounting: {error}");
    }
}

/// Reports to the caller that the mount answers, and closes everything that is the caller's.
fn detach_from_caller() -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(READY)?;
    out.flush()?;
    // Fails if the daemon was started by hand and leads a session already.
    let _ = setsid();
    env::set_current_dir("/")?;
    logging::use_system_log();
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
