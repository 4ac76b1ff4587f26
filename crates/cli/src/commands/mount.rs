//! `extant mount`: a mount and the daemon that serves it.
//!
//! The command starts itself again in a session of its own and waits for it: what goes wrong until the mount answers, the child
//! prints where the person looks, and its exit status becomes ours. Once the mount answers, the child says so through a pipe, lets go of the terminal, and serves.

use std::env;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use extant::Options;
use extant_fuse::{Mount as Session, MountOptions, Unmounter};
use rustix::io::Errno;
use rustix::process::setsid;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{error, warn};

use crate::args::Mount;
use crate::failure::{At, Failure, Outcome};
use crate::{helper, logging};

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
    let mut command = Command::new(helper::own_path());
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
            Ok(true)
        } else {
            child.wait().map(|_| false)
        }
    });
    match outcome {
        Ok(true) => Outcome::Done,
        // It has said why.
        Ok(false) => Outcome::Printed,
        Err(error) => Outcome::Failed(Failure::at(args.image.display(), error)),
    }
}

fn serve(args: &Mount) -> Result<(), Failure> {
    let mut options = MountOptions::default();
    for words in &args.options {
        options.add(words).map_err(Failure::new)?;
    }
    if args.read_only {
        options.set_read_only();
    }
    let image = args.image.canonicalize().at(args.image.display())?;
    let dir = match directory(&args.dir) {
        Err(error) if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => {
            let what = "a mount whose process has died: extant umount it first";
            return Err(Failure::at(args.dir.display(), what));
        }
        other => other.at(args.dir.display())?,
    };
    let volume = Options::new()
        .write(true)
        .mount_options(&options.engine())
        .mount_options(if options.read_only() { "ro" } else { "" })
        .open_volume(&image)
        .at(args.image.display())?;
    if volume.read_only() {
        options.set_read_only();
    }
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::new)?;
    let source = image.display().to_string();
    let session = Session::new(volume, &source, &dir, &options).map_err(Failure::new)?;
    let unmounter = session.unmounter();
    let requests = session.requests();
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if signals.forever().next().is_some() {
                end(&unmounter);
            }
        })
        .map_err(Failure::new)?;
    if args.daemon {
        detach_from_caller().map_err(Failure::new)?;
    }
    let ended = session.run();
    if env::var_os("EXTANT_REQUESTS").is_some() {
        for (name, count) in requests.list() {
            eprintln!("{name} {count}");
        }
    }
    match ended {
        Ok(()) => Ok(()),
        Err(failed) => {
            if args.daemon {
                error!("{failed}");
            }
            Err(Failure::at(args.image.display(), failed))
        }
    }
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

/// Tells the caller that the mount answers, and lets go of everything that is the caller's.
fn detach_from_caller() -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(READY)?;
    out.flush()?;
    // Already a leader if somebody started the daemon by hand.
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
