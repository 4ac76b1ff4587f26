//! The daemon of a mount, from its start to its end.
//!
//! # Responsibility
//! 1. Everything that needs paths, names or privileges: the image, the log, the keeper, what the
//!    host says of itself.
//! 2. The process confines itself, unless an option says otherwise.
//! 3. The bytes of the image are read from here on: the volume is opened, mounted by the keeper,
//!    and served.
//!
//! # Concurrency
//! Until the second step there is one thread, so that all of them are confined.

use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use extant_fuse::{
    Connection, HostSide, Keeper, Left, Mount as Session, MountError, MountOptions, Unmounter,
    is_dead, would_replace_dead,
};
use rustix::io::Errno;
use rustix::process::setsid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{error, warn};

use crate::args::Mount;
use crate::failure::{At, Failure};
use crate::logging::SystemLog;
use crate::mount_source::{MountSource, Reader};
use crate::printable::print_error_line;
use crate::supervisor::Supervisor;
use crate::{address_space, key_files, mount_point, mount_settings, program, recovery, source};

/// The daemon's message when the mount answers.
pub(crate) const READY: &[u8] = b"ready\n";

/// Mounts, and serves until the mount is gone.
pub(crate) fn serve(args: &Mount) -> Result<(), Failure> {
    address_space::prepare()?;
    let handed = extant_fuse::take_inherited_and_close_rest([args.image_fd, args.fuse_fd]);
    let [image, fuse] = handed.map_err(Failure::new)?;
    let mut options = mount_settings::mount_options(args)?;
    let tuning = mount_settings::tuning(&options)?;
    let dir = match &args.dir {
        Some(dir) => directory(dir)?,
        None => PathBuf::from("the mount that was handed over"),
    };
    let mut source = found(args, image, &dir, &mut options)?;
    let replaces_dead = match &args.dir {
        Some(_) => would_replace_dead(source.name.as_ref(), &dir).at(dir.display())?,
        None => false,
    };
    let (signals, nothing_mounted) = signals().map_err(Failure::new)?;
    let mut host = HostSide::take().map_err(Failure::new)?;
    let supervisor = (!args.daemon).then(Supervisor::of_environment).flatten();
    let name = source.name.clone();
    let keeper = match options.sandbox() && (fuse.is_none() || source.is_remote()) {
        true => Some(start_keeper(args, &name, &dir)?),
        false => None,
    };
    // After the keeper has begun: the path of a server's socket may be relative.
    let detachment = args.daemon.then(Detachment::prepare).transpose()?;
    let ended = End(keeper.clone());
    if let Some(keeper) = keeper.as_ref().filter(|_| source.is_remote()) {
        let dialer = keeper.dialer();
        source.connect_by(Arc::new(dialer.map_err(Failure::new)?));
    }

    let rings = host.make_rings(&options, mount_settings::memory(&options)?);
    let report = recovery::confine(&options, rings)?;
    let (reader, volume) = source.open(&options, tuning)?;
    key_files::add_to(&volume)?;
    nothing_mounted.store(false, Ordering::SeqCst);
    if volume.read_only() {
        options.set_read_only();
    }
    let failure_of = |error| failure_of(&name, error);
    let connection = connect((&name, &dir), fuse, keeper.as_ref(), &options);
    let connection = connection.at(dir.display())?;
    if replaces_dead {
        let dir = dir.display();
        warn!("{dir}: the mount whose process has died is taken off");
    }
    let mut session = Session::new(volume, connection, host, &options).map_err(failure_of)?;
    session.add_facts(report.counters());
    session.add_facts([("read_only", options.read_only().into())]);
    watch_signals(signals, session.unmounter()).map_err(Failure::new)?;
    let requests = session.requests();
    let mut read = Ok(());
    let ready = || {
        if let Some(supervisor) = supervisor {
            supervisor.ready();
        }
        detachment.map_or(Ok(()), Detachment::detach)
    };
    let served = session.run(ready, || read = reader.map_or(Ok(()), Reader::end));
    drop(ended);
    print_requests(requests.list());
    served.map_err(|failed| {
        if args.daemon {
            error!("{failed}");
        }
        failure_of(failed)
    })?;
    read
}

/// Tells how many requests of each kind came, if `EXTANT_REQUESTS` is set.
fn print_requests(list: Vec<(&'static str, u64)>) {
    if env::var_os("EXTANT_REQUESTS").is_some() {
        for (name, count) in list {
            print_error_line(&format!("{name} {count}"));
        }
    }
}

/// The image of the mount on `dir`, found or handed over.
fn found(
    args: &Mount,
    image: Option<OwnedFd>,
    dir: &Path,
    options: &mut MountOptions,
) -> Result<MountSource, Failure> {
    match (&args.image, image) {
        (Some(path), _) => {
            if options.read_only() && !source::is_remote(path) {
                recovery::recover_apart(args, path, dir)?;
            }
            MountSource::find(args.into(), path, options)
        }
        (None, Some(fd)) => MountSource::handed_over(fd, options),
        (None, None) => Err(Failure::new("an image is needed")),
    }
}

/// The signals that unmount. While the flag is set they end the process, as without a handler.
fn signals() -> io::Result<(Signals, Arc<AtomicBool>)> {
    let nothing_mounted = Arc::new(AtomicBool::new(true));
    for signal in [SIGINT, SIGTERM] {
        let ends = Arc::clone(&nothing_mounted);
        signal_hook::flag::register_conditional_default(signal, ends)?;
    }
    Ok((Signals::new([SIGINT, SIGTERM])?, nothing_mounted))
}

/// Ends the keeper before the daemon does, whatever still refers to it.
struct End(Option<Arc<Keeper>>);

impl Drop for End {
    fn drop(&mut self) {
        if let Some(keeper) = &self.0 {
            keeper.end();
        }
    }
}

/// The mount point; a file or a missing one is an error that says so. One with a dead mount is
/// taken as it is.
fn directory(dir: &Path) -> Result<PathBuf, Failure> {
    let found = dir.canonicalize().and_then(|path| {
        if !path.metadata()?.is_dir() {
            return Err(Errno::NOTDIR.into());
        }
        Ok(path)
    });
    match found {
        Err(_) if is_dead(dir) => mount_point::path_of(dir).at(dir.display()),
        other => other.at(dir.display()),
    }
}

/// Starts the keeper of the mount of `source` on `dir`.
fn start_keeper(args: &Mount, source: &str, dir: &Path) -> Result<Arc<Keeper>, Failure> {
    let mut command = program::mount_part(&args.options, "--keeper");
    command.arg("--").arg(source).arg(dir);
    // Signals to the group of a daemon in the foreground are the daemon's.
    command.process_group(0);
    if args.daemon {
        // It outlives the command, whose caller may wait for the end of its output.
        command.stderr(Stdio::null());
    }
    let keeper = Keeper::start(command);
    keeper.map_err(|error| Failure::at("starting the keeper of the mount", error))
}

/// Runs the keeper, started as above: it ends with its daemon.
pub(crate) fn keep(args: &Mount) -> Result<(), Failure> {
    let (Some(source), Some(dir)) = (&args.image, &args.dir) else {
        return Err(Failure::new("an image and a directory are needed"));
    };
    let options = mount_settings::mount_options(args)?;
    // Before the directory is left, to which its path may be relative.
    // For an image in a store the fetcher connects.
    let server = match source::is_remote(source) && !source::is_stored(source) {
        true => Some(source::address(source)?),
        false => None,
    };
    let dial = move |patience| match &server {
        Some(address) => extant_nbd::dial(address, patience),
        None => Err(io::ErrorKind::Unsupported.into()),
    };
    // What ends the daemon ends the keeper after it.
    let caught = Arc::default();
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&caught)).map_err(Failure::new)?;
    }
    env::set_current_dir("/").map_err(Failure::new)?;
    if let Some(log) = SystemLog::connect() {
        log.take();
    }
    let left = extant_fuse::keep(&source.display().to_string(), dir, &options, dial);
    if left.map_err(Failure::new)? == Left::Dead {
        error!(
            "{}: the process that served it has died; if it made a call that its sandbox refuses, \
             the kernel's log says which (type=1326)",
            dir.display()
        );
    }
    Ok(())
}

/// The connection to the kernel: handed over, by the keeper, or by this process.
fn connect(
    (source, dir): (&str, &Path),
    fuse: Option<OwnedFd>,
    keeper: Option<&Arc<Keeper>>,
    options: &MountOptions,
) -> io::Result<Connection> {
    match (fuse, keeper) {
        (Some(fd), _) => Ok(Connection::handed_over(fd, dir)),
        (None, Some(keeper)) => Connection::by_keeper(keeper, dir, options.read_only()),
        (None, None) => Connection::attach(source, dir, options),
    }
}

/// The failure of a mount, with the directory or the image that it is about.
fn failure_of(image: &str, error: MountError) -> Failure {
    match error {
        MountError::Attach { dir, source } => Failure::at(dir.display(), source),
        MountError::FileSystem(error) => Failure::at(image, error),
    }
}

/// Starts the thread that unmounts at the first signal.
fn watch_signals(mut signals: Signals, unmounter: Unmounter) -> io::Result<()> {
    let thread = thread::Builder::new().name("signals".into());
    thread.spawn(move || {
        if signals.forever().next().is_some()
            && let Err(error) = unmounter.unmount()
        {
            warn!("unmounting: {error}");
        }
    })?;
    Ok(())
}

/// The files that a daemon needs to detach from its caller.
struct Detachment {
    null: File,
    log: Option<SystemLog>,
}

impl Detachment {
    fn prepare() -> Result<Detachment, Failure> {
        let null = File::options().read(true).write(true).open("/dev/null");
        let null = null.at("/dev/null")?;
        // Every path has been found.
        env::set_current_dir("/").map_err(Failure::new)?;
        let log = SystemLog::connect();
        Ok(Detachment { null, log })
    }

    /// Reports to the caller that the mount answers, and closes everything that is the caller's.
    fn detach(self) -> io::Result<()> {
        let mut out = io::stdout();
        out.write_all(READY)?;
        out.flush()?;
        // Fails if the daemon was started by hand and leads a session already.
        let _ = setsid();
        if let Some(log) = self.log {
            log.take();
        }
        rustix::stdio::dup2_stdin(&self.null)?;
        rustix::stdio::dup2_stdout(&self.null)?;
        rustix::stdio::dup2_stderr(&self.null)?;
        Ok(())
    }
}
