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
use extant_store::{ReadyLayer, Version};
use tracing::warn;

use crate::failure::{At, Failure, caused};
use crate::fetcher::{Daemon, Fetcher};
use crate::stored::{Lists, Start};
use crate::{source, stored, unreadable};

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
    /// A version in a store, read by this process or by a fetcher, and its layer.
    Stored(Box<(Reader, Option<ReadyLayer>)>),
}

/// The process that reads a version in a store: this one, or a fetcher.
pub(crate) enum Reader {
    Here(Start),
    Fetched(Fetcher),
}

impl Reader {
    fn version(&self) -> &Version {
        match self {
            Reader::Here(start) => start.version(),
            Reader::Fetched(fetcher) => &fetcher.version,
        }
    }

    /// The mount has ended, and the version is read no more.
    pub(crate) fn end(self) -> Result<(), Failure> {
        match self {
            Reader::Here(start) => start.end(),
            // It ends by itself.
            Reader::Fetched(_) => Ok(()),
        }
    }
}

impl MountSource {
    /// Finds and claims the image at `path`. One that is write-protected is mounted read-only, with
    /// a warning, as by mount(8).
    pub(crate) fn find(
        daemon: Daemon<'_>,
        path: &Path,
        options: &mut MountOptions,
    ) -> Result<MountSource, Failure> {
        let real = source::real(path)?;
        let name = real.display().to_string();
        if source::is_stored(path) {
            return Self::find_stored(daemon, path, options);
        }
        let words = [options.layer(), options.record(), options.prefetch()];
        if words.iter().any(Option::is_some) {
            let why = "layer, record and prefetch are for images in an object store";
            return Err(Failure::at(path.display(), why));
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

    /// Finds the image at the address `path`, and claims its layer. Without one it is mounted
    /// read-only.
    fn find_stored(
        daemon: Daemon<'_>,
        path: &Path,
        options: &mut MountOptions,
    ) -> Result<MountSource, Failure> {
        let layer = options.layer().map(PathBuf::from);
        if layer.is_none() {
            options.set_read_only();
        }
        let mode = match options.read_only() {
            true => OpenMode::ReadOnly,
            false => OpenMode::ReadWrite,
        };
        let found = layer.map(|layer| stored::find_layer(path, &layer, mode));
        let (layer, location) = match found.transpose()? {
            Some((layer, location)) => (Some(layer), location),
            None => (None, stored::location(path)?),
        };
        let reader = match options.sandbox() {
            true => Reader::Fetched(Fetcher::start(daemon, path, &location)?),
            false => Reader::Here(
                Start::begin(&location, stored::caches()?, Lists::open(options)?)
                    .map_err(|failure| Failure::at(path.display(), failure))?,
            ),
        };
        let layer = layer.map(|layer| layer.made_for(location.name(), reader.version()));
        let layer = layer.transpose().map_err(|error| caused(path, error))?;
        // It is the version of now, whatever is pushed later.
        let name = location.at(reader.version().number).to_string();
        let journal = journal(options)?;
        Ok(MountSource {
            name,
            kind: Kind::Stored(Box::new((reader, layer))),
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
            // A version needs none by a writer. With a layer it is not written for that.
            Kind::Server(_) | Kind::Stored(..) => Ok(false),
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

    /// Its device, whatever is on it, and what reads it if it is in a store.
    pub(crate) fn device(
        self,
        options: &MountOptions,
    ) -> Result<(Arc<dyn BlockDevice>, Option<Reader>), Failure> {
        let (by, layer) = match self.kind {
            Kind::Device(device) => return Ok((device, None)),
            Kind::Server(address) => return Ok((connect(&self.name, &address, options)?, None)),
            Kind::Stored(stored) => *stored,
        };
        let path = Path::new(&self.name);
        let image: Arc<dyn BlockDevice> = match &by {
            Reader::Here(start) => Arc::clone(&start.image) as _,
            Reader::Fetched(fetcher) => {
                let device = NbdDevice::connect(fetcher.address(), OpenMode::ReadOnly);
                Arc::new(device.map_err(|error| caused(path, error))?)
            }
        };
        let image = match layer {
            Some(layer) => Arc::new(layer.over(image).map_err(|error| caused(path, error))?),
            None => image,
        };
        Ok((image, Some(by)))
    }

    /// Mounts the volume in it. The volume ends before what reads it.
    pub(crate) fn open(
        self,
        options: &MountOptions,
        tuning: Tuning,
    ) -> Result<(Option<Reader>, Volume), Failure> {
        let mut opening = opening(options);
        opening.tuning(tuning);
        if let Some(journal) = &self.journal {
            opening.journal_device(Arc::clone(journal));
        }
        let name = self.name.clone();
        let (device, reader) = self.device(options)?;
        let below = Arc::clone(&device);
        let opened = opening.open_volume_on(device);
        let opened = opened.map_err(|error| unreadable::failure(name, error, || Some(below)))?;
        Ok((reader, opened))
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
        Err(error) => Err(caused(Path::new(name), error)),
    }
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
