//! The process that fetches chunks for a daemon that confines itself.
//!
//! # Responsibility
//! A confined daemon opens no connection and no file. What it mounts from an object store another
//! process fetches: it has the network and the folder of chunks, but no capability, no other image
//! and no mount, and reads no file system. It serves the version to the daemon by the protocol of
//! NBD, over a socket that both had from their start.
//!
//! ```text
//!   store <-- HTTPS -- fetcher: network, caches  -- NBD -- daemon: volume, layer, mount
//! ```
//!
//! Each says once what the other needs: the fetcher the version, in a line, or why there is none;
//! the daemon by hanging up that it has ended.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use extant_nbd::{Address, Dial, ServeOptions, serve_stream};
use extant_store::{Location, Version};
use parking_lot::Mutex;
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::Mount;
use crate::failure::Failure;
use crate::logging::SystemLog;
use crate::stored::{Lists, Start};
use crate::{mount_settings, program, stored};

/// Requests that the fetcher carries out at a time.
const THREADS: usize = 16;
/// The most bytes of its line.
const LONGEST_LINE: u64 = 64 << 10;
/// How long its end is waited for: it may write a list.
const PATIENCE: Duration = Duration::from_secs(10);
/// The export of the one version, over a socket that is there: requests wait as long as the store
/// is asked, and a fetcher that has died does not come back.
const EXPORT: &str = "nbd+unix:///?socket=/the/fetcher&connections=1&timeout=1000000&reconnect=0";

/// The process that a fetcher is started for.
#[derive(Clone, Copy)]
pub(crate) struct Daemon<'a> {
    /// Its options, as they were given.
    pub(crate) options: &'a [String],
    /// It has no terminal.
    pub(crate) background: bool,
}

impl<'a> From<&'a Mount> for Daemon<'a> {
    fn from(args: &'a Mount) -> Self {
        Self {
            options: &args.options,
            background: args.daemon,
        }
    }
}

/// The daemon's end: a fetcher that was started. Dropped, it ends.
pub(crate) struct Fetcher {
    child: Child,
    /// The version that it fetches.
    pub(crate) version: Version,
    socket: Arc<Mutex<Option<OwnedFd>>>,
}

impl Fetcher {
    /// Starts the fetcher of the version at `image`, for `daemon`.
    pub(crate) fn start(
        daemon: Daemon<'_>,
        image: &Path,
        location: &Location,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::at("starting the process that fetches", error);
        let (socket, its) = UnixStream::pair().map_err(failed)?;
        let mut command = program::mount_part(daemon.options, "--fetcher");
        if !daemon.background {
            command.arg("-f");
        }
        command.arg("--").arg(location.to_string());
        command.stdin(Stdio::from(OwnedFd::from(its)));
        command.stdout(Stdio::piped());
        if daemon.background {
            // It outlives the command, whose caller may wait for the end of its output.
            command.stderr(Stdio::null());
        }
        // A signal to the group of a daemon in the foreground ends the daemon first.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(failed)?;
        let mut line = String::new();
        if let Some(said) = child.stdout.take() {
            let mut said = BufReader::new(said.take(LONGEST_LINE));
            said.read_line(&mut line).map_err(failed)?;
        }
        let version = version_of(&line).map_err(|why| Failure::at(image.display(), why))?;
        Ok(Self {
            child,
            version,
            socket: Arc::new(Mutex::new(Some(socket.into()))),
        })
    }

    /// The address of what it fetches.
    pub(crate) fn address(&self) -> Address {
        let mut address: Address = EXPORT.parse().expect("a constant that was tried");
        let socket = Arc::clone(&self.socket);
        let dial: Dial = Arc::new(move |_| {
            let gone = || io::Error::other("the process that fetches has ended");
            socket.lock().take().ok_or_else(gone)
        });
        address.connect_by(dial);
        address
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        // If the daemon has not connected.
        drop(self.socket.lock().take());
        let until = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The version that a fetcher's line tells of.
fn version_of(line: &str) -> Result<Version, String> {
    let told: Value = serde_json::from_str(line)
        .map_err(|_| "the process that fetches has ended and does not say why".to_owned())?;
    if let Some(why) = told["error"].as_str() {
        return Err(why.to_owned());
    }
    let number = |key: &str| told[key].as_u64();
    let manifest = told["manifest"].as_str().and_then(|text| text.parse().ok());
    let version = (|| {
        Some(Version {
            number: number("number")?,
            manifest: manifest?,
            bytes: number("bytes")?,
            time: number("time")?,
        })
    })();
    version.ok_or_else(|| "the process that fetches tells of no version".to_owned())
}

fn told(version: &Version) -> Value {
    json!({
        "number": version.number,
        "manifest": version.manifest.to_string(),
        "bytes": version.bytes,
        "time": version.time,
    })
}

/// Runs the fetcher, started as above: it ends with its daemon.
pub(crate) fn run(args: &Mount) -> Result<(), Failure> {
    let started = start(args);
    let line = match &started {
        Ok((start, _)) => told(start.version()),
        Err(failure) => json!({ "error": failure.to_string() }),
    };
    let mut out = io::stdout();
    let said = writeln!(out, "{line}").and_then(|()| out.flush());
    let (Ok((start, socket)), Ok(())) = (started, said) else {
        return Ok(());
    };
    let mut options = ServeOptions::default();
    options.read_only = true;
    options.threads = THREADS;
    if let Err(error) = serve_stream(socket, Arc::clone(&start.image) as _, options) {
        tracing::debug!("the daemon of the mount has hung up: {error}");
    }
    let ended = start.end();
    if let Err(failure) = &ended {
        tracing::error!("{failure}");
    }
    ended
}

fn start(args: &Mount) -> Result<(Start, UnixStream), Failure> {
    let Some(image) = &args.image else {
        return Err(Failure::new("an address is needed"));
    };
    if !args.foreground
        && let Some(log) = SystemLog::connect()
    {
        log.take();
    }
    // What ends the daemon ends the fetcher after it.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::default()).map_err(Failure::new)?;
    }
    let socket = io::stdin().as_fd().try_clone_to_owned();
    let socket = UnixStream::from(socket.map_err(Failure::new)?);
    let options = mount_settings::mount_options(args)?;
    let lists = Lists::open(&options)?;
    // They may be files that need a privilege.
    extant_store::read_key().map_err(|error| Failure::new(error.to_string()))?;
    let caches = stored::caches()?;
    let given_up = extant_sandbox::give_up_privileges();
    given_up.map_err(|error| Failure::new(error.to_string()))?;
    let start = Start::begin(&stored::location(image)?, caches, lists)?;
    // Every path has been found.
    std::env::set_current_dir("/").map_err(Failure::new)?;
    Ok((start, socket))
}
