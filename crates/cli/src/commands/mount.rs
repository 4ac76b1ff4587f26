//! `extant mount`: a mount and the daemon that serves it.
//!
//! The command starts itself again in a session of its own and waits for it: what goes wrong until
//! the mount answers, the child prints on the terminal, and the exit status is a failure. Once the
//! mount answers, the child says so through a pipe, lets go of the terminal, and serves.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

use signal_hook::consts::SIGSYS;

use crate::args::Mount;
use crate::failure::{Failure, Outcome};
use crate::serve::{self, READY};
use crate::{fetcher, key_files, mount_point, program, recovery, source};

pub(crate) fn run(args: &Mount) -> Outcome {
    if args.keeper {
        serve::keep(args).into()
    } else if args.fetcher {
        fetcher::run(args).into()
    } else if args.recover {
        recovery::recover(args)
    } else if args.look {
        recovery::look(args)
    } else if args.foreground || args.daemon {
        serve::serve(args).into()
    } else {
        start_daemon(args)
    }
}

/// Starts the daemon and waits until its mount answers, or it failed.
fn start_daemon(args: &Mount) -> Outcome {
    if args.dir.is_none() && key_files::are_given() {
        return Outcome::Usage("--key needs the directory of the mount".to_owned());
    }
    let mut command = Command::new(program::own_path());
    command.arg0("extant").args(["mount", "--daemon"]);
    if args.read_only {
        command.arg("-r");
    }
    for options in &args.options {
        command.arg("-o").arg(options);
    }
    for (word, number) in [("--image-fd", args.image_fd), ("--fuse-fd", args.fuse_fd)] {
        if let Some(number) = number {
            command.arg(word).arg(number.to_string());
        }
    }
    command.arg("--").args(&args.image).args(&args.dir);
    let was_dead = args.dir.as_deref().is_some_and(extant_fuse::is_dead);
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
    if !matches!(outcome, Ok(None)) && !was_dead {
        take_off_dead_mount(args);
    }
    match outcome {
        Ok(None) => match &args.dir {
            Some(dir) => key_files::add_to_mount(dir).into(),
            None => Outcome::Done,
        },
        Ok(Some(status)) => match status.signal() {
            // It has said why.
            None => Outcome::Printed,
            Some(signal) => {
                let hint = match signal {
                    SIGSYS => ": its sandbox refused a call, which the kernel's log names",
                    _ => "",
                };
                let what =
                    format!("the daemon was ended by signal {signal} before it mounted{hint}");
                Outcome::Failed(Failure::at(name(args), what))
            }
        },
        Err(error) => Outcome::Failed(Failure::at(name(args), error)),
    }
}

/// The name of the image in messages.
fn name(args: &Mount) -> String {
    let image = args.image.as_ref();
    image.map_or_else(|| "the image".into(), |image| image.display().to_string())
}

/// Takes off what a daemon has left that died between mounting and answering, as for lack of
/// memory. It cannot do so itself.
fn take_off_dead_mount(args: &Mount) {
    let (Some(image), Some(dir)) = (&args.image, &args.dir) else {
        return;
    };
    if let (Ok(image), Ok(dir)) = (source::real(image), mount_point::path_of(dir)) {
        // The daemon's failure is the one to report.
        let _ = extant_fuse::take_off_dead(&image, &dir);
    }
}
