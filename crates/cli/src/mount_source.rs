//! Source of a mount: an image that was found and claimed, and nothing of it read yet.
//!
//! Finding needs paths, names and the network; mounting what was found does not, so the daemon
//! confines itself between the two.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant::device::{BlockDevice, FileDevice, OpenMode};
use extant::{Error, Options, Tuning, Volume};
use extant_fuse::MountOptions;
use extant_nbd::{Address, Dial, NbdDevice};
use tracing::warn;

use crate::args::Mount;
use crate::failure::{At, Failure};
use crate::{size, source, unreadable};

/// The least memory that caches work with.
const LEAST_MEMORY: u64 = 16 << 20;

/// An image that can be mounted.
pub(crate) struct MountSource {
    /// Its name in the table of mounts and in messages.
    pub(crate) name: String,
    kind: Kind,
    /// The device that `journal_path=` names.
    journal: Option<Arc<dyn BlockDevice>>,
}

enum Kind {
    Device(Arc<dyn BlockDevice>),
    Server(Box<Address>),
    /// An image in a store. Without a layer it needs no recovery by a writer, with one it is not
    /// written for that.
    Stored(Arc<dyn BlockDevice>),
}

impl MountSource {
    /// Finds and claims the image at `path`. One that is write-protected is mounted read-only, with
    /// a warning, as by mount(8).
    pub(crate) fn find(path: &Path, options: &mut MountOptions) -> Result<MountSource, Failure> {
        let real = source::real(path)?;
        let name = real.display().to_string();
        if options.layer().is_some() && !source::is_stored(path) {
            let why = "a layer is for images in an object store";
            return Err(Failure::at(path.display(), why));
        }
        if source::is_stored(path) {
            if options.sandbox() {
                let why = "a confined daemon reaches no object store: mount with -o nosandbox";
                return Err(Failure::at(path.display(), why));
            }
            let layer = options.layer().map(PathBuf::from);
            if layer.is_none() {
                options.set_read_only();
            }
            let mode = match options.read_only() {
                true => OpenMode::ReadOnly,
                false => OpenMode::ReadWrite,
            };
            let image = source::stored(path, mode, layer.as_deref())?;
            let number = image.version;
            // It is the version of now, whatever is pushed later.
            let name = match name.ends_with(&format!("@{number}")) {
                true => name,
                false => format!("{name}@{number}"),
            };
            let (kind, journal) = (Kind::Stored(image.device), journal(options)?);
            return Ok(MountSource {
                name,
                kind,
                journal,
            });
        }
        if source::is_remote(path) {
            // A confined daemon can read no files later.
            let address = if options.sandbox() {
                source::with_certificates(path)?
            } else {
                source::address(path)?
            };
            let address = Box::new(address);
            let (kind, journal) = (Kind::Server(address), journal(options)?);
            return Ok(MountSource {
                name,
                kind,
                journal,
            });
        }
        let device = match opening(options).claim(&real) {
            Err(Error::ReadOnly) if !options.read_only() => {
                warn!("{name}: write-protected, mounted read-only");
                options.set_read_only();
                opening(options).claim(&real)
            }
            other => other,
        };
        let kind = Kind::Device(device.at(path.display())?);
        let journal = journal(options)?;
        Ok(MountSource {
            name,
            kind,
            journal,
        })
    }

    /// Finds and claims the image at `path` for writing, to recover it; `None` if it cannot be
    /// written.
    pub(crate) fn to_recover(
        path: &Path,
        options: &MountOptions,
    ) -> Result<Option<MountSource>, Failure> {
        let mut opening = Options::new();
        opening.write(true).mount_options(&options.engine());
        let device = match opening.claim(path) {
            Err(Error::AccessDenied | Error::ReadOnly | Error::NotPermitted) => return Ok(None),
            other => other.at(path.display())?,
        };
        let name = path.display().to_string();
        let kind = Kind::Device(device);
        let journal = journal(options)?;
        Ok(Some(MountSource {
            name,
            kind,
            journal,
        }))
    }

    /// Takes over the image that another process has opened as `fd`.
    pub(crate) fn handed_over(fd: OwnedFd, options: &mut MountOptions) -> Result<Self, Failure> {
        let name = "the image that was handed over".to_owned();
        let device = FileDevice::from_file(File::from(fd), PathBuf::from(&name));
        let device = device.map_err(|error| {
            let what = error.to_string();
            Failure::caused_by(error, what)
        })?;
        if device.is_read_only() {
            options.set_read_only();
        }
        let kind = Kind::Device(Arc::new(device));
        let journal = journal(options)?;
        Ok(MountSource {
            name,
            kind,
            journal,
        })
    }

    /// Returns whether a server has it.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.kind, Kind::Server(_))
    }

    /// Has another process connect to the server that has it.
    pub(crate) fn connect_by(&mut self, dial: Dial) {
        if let Kind::Server(address) = &mut self.kind {
            address.connect_by(dial);
        }
    }

    /// Returns whether the volume in it has to be recovered before it is mounted with these
    /// options.
    pub(crate) fn needs_recovery(&self, options: &MountOptions) -> Result<bool, Failure> {
        match &self.kind {
            Kind::Device(device) => opening(options).needs_recovery_on(device).at(&self.name),
            Kind::Server(_) | Kind::Stored(_) => Ok(false),
        }
    }

    /// Recovers the volume in it.
    pub(crate) fn recover(self, options: &MountOptions, tuning: Tuning) -> Result<(), Failure> {
        let Kind::Device(device) = self.kind else {
            return Ok(());
        };
        let mut opening = opening(options);
        if let Some(journal) = self.journal {
            opening.journal_device(journal);
        }
        opening.tuning(tuning).recover_on(device).at(self.name)
    }

    /// Mounts the volume in it.
    pub(crate) fn open(self, options: &MountOptions, tuning: Tuning) -> Result<Volume, Failure> {
        let mut opening = opening(options);
        opening.tuning(tuning);
        if let Some(journal) = self.journal {
            opening.journal_device(journal);
        }
        let device = match self.kind {
            Kind::Device(device) => device,
            Kind::Server(address) => connect(&self.name, &address, options)?,
            Kind::Stored(image) => image,
        };
        let below = Arc::clone(&device);
        let opened = opening.open_volume_on(device);
        opened.map_err(|error| unreadable::failure(self.name, error, || Some(below)))
    }
}

/// The device that `journal_path=` names. A confined daemon can open none later.
fn journal(options: &MountOptions) -> Result<Option<Arc<dyn BlockDevice>>, Failure> {
    opening(options).claim_journal().at("journal_path")
}

/// The device of a server. A read-only mount may have a read-only export.
fn connect(
    name: &str,
    address: &Address,
    options: &MountOptions,
) -> Result<Arc<dyn BlockDevice>, Failure> {
    let connect = |mode| NbdDevice::connect(address.clone(), mode);
    let device = match connect(OpenMode::ReadWrite) {
        Err(error) if options.read_only() => connect(OpenMode::ReadOnly).map_err(|_| error),
        other => other,
    };
    match device {
        Ok(device) => Ok(Arc::new(device)),
        Err(error) => Err(source::caused(Path::new(name), error)),
    }
}

/// Mount options of the command.
pub(crate) fn mount_options(args: &Mount) -> Result<MountOptions, Failure> {
    let mut options = MountOptions::default();
    for words in &args.options {
        options.add(words).map_err(Failure::new)?;
    }
    if args.read_only {
        options.set_read_only();
    }
    options.check().map_err(Failure::new)?;
    if args.fuse_fd.is_some() && !options.kernel_checks() {
        // The launcher has mounted, for whichever users it chose, and nothing can be asked of one.
        let what = "mount option nodefault_permissions: not for a mount that was handed over";
        return Err(Failure::new(what));
    }
    Ok(options)
}

/// How the volume is opened.
fn opening(options: &MountOptions) -> Options {
    let mut opening = Options::new();
    opening.write(true).mount_options(&options.engine());
    if options.read_only() {
        opening.mount_options("ro");
    }
    opening
}

/// The switches of the engine, with all that depends on the host's memory decided.
pub(crate) fn tuning(options: &MountOptions) -> Result<Tuning, Failure> {
    let mut tuning = Tuning::default();
    if let Some(bytes) = memory(options)? {
        tuning.bound_memory(bytes);
    }
    tuning.measure_memory();
    Ok(tuning)
}

/// The bound of `-o memory=`, in bytes.
pub(crate) fn memory(options: &MountOptions) -> Result<Option<u64>, Failure> {
    let Some(text) = options.memory() else {
        return Ok(None);
    };
    let word = || format!("mount option memory={text}");
    let bytes = size::parse(text).at(word())?;
    if bytes < LEAST_MEMORY {
        let what = format!("at least {} MiB are needed", LEAST_MEMORY >> 20);
        return Err(Failure::at(word(), what));
    }
    Ok(Some(bytes))
}
