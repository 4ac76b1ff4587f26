//! `extant vhost`: an image as a device of a virtual machine.
//!
//! As the daemon of a mount this process finds the image and makes its socket first, confines
//! itself, and reads the image's bytes after that.

use std::io;
use std::path::Path;
use std::thread;

use extant_fuse::{GuestVolume, MountOptions};
use extant_sandbox::Profile;
use extant_vhost::{BlockOptions, FsOptions, Socket, Stopper, fs_workers, serve_block, serve_fs};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::Vhost;
use crate::failure::{At, Failure};
use crate::fetcher::Daemon;
use crate::mount_source::{MountSource, Reader};
use crate::supervisor::Supervisor;
use crate::{address_space, key_files, mount_settings, recovery, source};

/// Queues of a device, where the host has fewer processors.
const LEAST_QUEUES: u16 = 4;

pub(crate) fn run(args: &Vhost) -> Result<(), Failure> {
    address_space::prepare()?;
    extant_fuse::take_inherited_and_close_rest([]).map_err(Failure::new)?;
    let mut options = mount_options(args)?;
    let tuning = mount_settings::tuning(&options)?;
    let is_export = source::is_remote(&args.image) && !source::is_stored(&args.image);
    if options.sandbox() && is_export {
        let why = "a confined process reaches no server of NBD: -o nosandbox goes without it";
        return Err(Failure::at(args.image.display(), why));
    }
    let this = Daemon {
        options: &args.options,
        background: false,
    };
    let source = MountSource::find(this, &args.image, &mut options)?;
    let path = socket_path(args)?;
    let socket = Socket::bind(path).at(path.display())?;
    let stopper = Stopper::new().map_err(Failure::new)?;
    let signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::new)?;
    let supervisor = Supervisor::of_environment();
    let profile = Profile {
        guest: true,
        ..Profile::default()
    };
    recovery::confine_to(&options, profile)?;
    // Threads are confined if they start after that.
    watch_signals(signals, stopper.clone()).map_err(Failure::new)?;
    let (served, reader) = if args.blk.is_some() {
        let (device, reader) = source.device(&options)?;
        let block = BlockOptions {
            queues: queues(args),
            id: file_name(&args.image),
            keep: args.keep,
            write_through: options.layer().is_some(),
        };
        ready(supervisor);
        (serve_block(device, socket, &block, &stopper), reader)
    } else {
        let (reader, volume) = source.open(&options, tuning)?;
        key_files::add_to(&volume)?;
        let volume = GuestVolume::new(volume, fs_workers(), &options).map_err(Failure::new)?;
        let fs = FsOptions {
            queues: queues(args),
            tag: args.tag.clone(),
            keep: args.keep,
        };
        ready(supervisor);
        (serve_fs(volume, socket, &fs, &stopper), reader)
    };
    let read = reader.map_or(Ok(()), Reader::end);
    served.map_err(|error| {
        let what = error.to_string();
        Failure::at(path.display(), Failure::caused_by(error, what))
    })?;
    read
}

/// Tells the service manager that monitors can connect.
fn ready(supervisor: Option<Supervisor>) {
    if let Some(supervisor) = supervisor {
        supervisor.ready();
    }
}

/// The socket of the device that is asked for.
fn socket_path(args: &Vhost) -> Result<&Path, Failure> {
    let path = args.blk.as_deref().or(args.fs.as_deref());
    path.ok_or_else(|| Failure::new("a socket is needed"))
}

fn mount_options(args: &Vhost) -> Result<MountOptions, Failure> {
    let mut options = MountOptions::default();
    for words in &args.options {
        options.add(words).map_err(Failure::new)?;
    }
    if args.read_only {
        options.set_read_only();
    }
    options.check().map_err(Failure::new)?;
    Ok(options)
}

fn queues(args: &Vhost) -> u16 {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let usual = u16::try_from(processors).unwrap_or(u16::MAX);
    args.queues.unwrap_or(usual.clamp(LEAST_QUEUES, 32))
}

/// The last part of the image's name, which the guest sees as the disk's serial number.
fn file_name(image: &Path) -> String {
    let name = image.file_name().unwrap_or(image.as_os_str());
    name.to_string_lossy().into_owned()
}

/// Ends the device at the first signal.
fn watch_signals(mut signals: Signals, stopper: Stopper) -> io::Result<()> {
    let thread = thread::Builder::new().name("signals".into());
    thread.spawn(move || {
        if signals.forever().next().is_some() {
            stopper.stop();
        }
    })?;
    Ok(())
}
