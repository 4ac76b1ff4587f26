//! File systems of the host that are not mounted: an image or a directory, and what mounts it.

use std::path::{Path, PathBuf};

use extant_host::{Cmd, Error, Image, LoopDevice, Mount, Result, TempDir, programs};

use crate::feature::Feature;

/// The program that mounts a file system.
#[derive(Clone, Debug)]
pub(crate) enum Driver {
    /// The `extant` command at this path, with options of the mount.
    Extant(PathBuf, &'static str),
    /// A file system of Linux's, on a loop device.
    Linux(&'static str),
    /// e2fsprogs' FUSE driver.
    Fuse2fs,
    /// libfuse's example over a directory.
    Passthrough,
}

/// The storage below an image.
#[derive(Clone, Debug)]
pub(crate) struct Medium {
    /// Bytes of the image, in MiB.
    pub(crate) mib: u64,
    /// Arguments for mke2fs.
    pub(crate) args: String,
    /// The directory of the image; `None` for one in RAM.
    pub(crate) dir: Option<PathBuf>,
    /// The image is read and written past the host's page cache.
    pub(crate) past_cache: bool,
    /// Options for mounts by Linux, comma-separated.
    pub(crate) linux_options: &'static str,
    /// A feature, and the bytes of the file that shows it.
    pub(crate) feature: Option<(Feature, u64)>,
}

impl Medium {
    /// An ext4 image here.
    pub(crate) fn image(&self) -> Result<Image> {
        let maker = Image::of_mib(self.mib).args(&self.args);
        let image = match &self.dir {
            None => maker.make(),
            Some(dir) => maker.below(dir).make(),
        }?;
        if let Some((feature, len)) = self.feature {
            feature.fill(&image, len)?;
        }
        Ok(image)
    }
}

/// A file system of the host that is not mounted.
#[derive(Debug)]
pub(crate) struct Fresh {
    driver: Driver,
    past_cache: bool,
    linux_options: &'static str,
    /// The image, but for a pass-through.
    image: Option<Image>,
    /// The folder that a pass-through passes through to, and its program.
    below: Option<(TempDir, PathBuf)>,
}

/// A mount, and the loop device below it where that is not the mount's own.
#[derive(Debug)]
pub(crate) struct Mounted {
    pub(crate) mount: Mount,
    pub(crate) device: Option<LoopDevice>,
}

/// Generous caching: the strongest the example offers.
const PASSTHROUGH: &str = "writeback,cache=always,timeout=86400,clone_fd";

impl Fresh {
    /// Makes one.
    pub(crate) fn make(driver: Driver, medium: &Medium) -> Result<Fresh> {
        let (mut image, mut below) = (None, None);
        match &driver {
            Driver::Passthrough => {
                let dir = TempDir::new("source")?;
                let bin = programs::passthrough_ll(dir.path())?;
                std::fs::create_dir(dir.join("source"))?;
                below = Some((dir, bin));
            }
            Driver::Linux("xfs") => {
                let made = medium.image()?;
                Cmd::new("mkfs.xfs")
                    .args(["-q", "-f"])
                    .arg(made.path())
                    .ok()?;
                image = Some(made);
            }
            Driver::Linux(_) | Driver::Extant(..) | Driver::Fuse2fs => {
                image = Some(medium.image()?);
            }
        }
        Ok(Fresh {
            driver,
            past_cache: medium.past_cache,
            linux_options: medium.linux_options,
            image,
            below,
        })
    }

    /// Mounts it.
    pub(crate) fn mount(&self) -> Result<Mounted> {
        let mount = match &self.driver {
            Driver::Extant(command, options) => {
                let mut options = (*options).to_owned();
                if self.past_cache {
                    options.push_str(",backend=io_uring");
                }
                Mount::by_extant(command, self.path()?, &options)?
            }
            Driver::Linux(kind) if self.past_cache => {
                let device = LoopDevice::past_cache(self.path()?)?;
                let mount = Mount::by_linux_on(kind, device.path(), self.linux_options)?;
                return Ok(Mounted {
                    mount,
                    device: Some(device),
                });
            }
            Driver::Linux(kind) => Mount::by_linux(kind, self.path()?, self.linux_options)?,
            Driver::Fuse2fs => Mount::by_fuse2fs(self.path()?, "")?,
            Driver::Passthrough => {
                let (dir, bin) = self.below.as_ref().ok_or_else(|| Error::new("no source"))?;
                Mount::passthrough(bin, &dir.join("source"), PASSTHROUGH)?
            }
        };
        Ok(Mounted {
            mount,
            device: None,
        })
    }

    /// Every image must be clean afterwards: speed at any price is not measured.
    pub(crate) fn check(&self) -> Result<()> {
        match (&self.image, &self.driver) {
            (None, _) | (_, Driver::Linux("xfs")) => Ok(()),
            (Some(image), _) => image.fsck_clean(),
        }
    }

    /// Returns whether a mount of it is Extant's.
    pub(crate) fn is_extant(&self) -> bool {
        matches!(self.driver, Driver::Extant(..))
    }

    fn path(&self) -> Result<&Path> {
        let image = self.image.as_ref().map(Image::path);
        image.ok_or_else(|| Error::new("no image"))
    }
}
