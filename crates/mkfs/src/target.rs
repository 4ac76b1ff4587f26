//! Files and block devices that a file system is made on.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use extant_blockdev::{BlockDevice, FileDevice, OpenMode, refuse_target_in_use};
use extant_units::DevOff;

use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::layout::Layout;
use crate::options::Options;
use crate::signature::{Signature, find_signatures};
use crate::write::{Before, write_over};

/// Sizes taken from a device are whole pages.
const PAGE: u64 = 4096;

/// Result of making a volume.
#[derive(Clone, Debug)]
pub struct Made {
    /// Its layout.
    pub layout: Layout,
    /// Its names and times.
    pub identity: Identity,
    /// Set if the file was there before.
    pub existed: bool,
    /// The former content, which is overwritten.
    pub overwritten: Vec<Signature>,
}

/// The file that the path leads to.
enum Target {
    /// Nothing yet.
    New,
    File(u64),
    Device(FileDevice),
}

/// Makes a file system on `path`: a block device, or a file, which is made and made as long as
/// `size` says. Without a size it takes all of what is there.
///
/// # Errors
/// Every refusal of [`Error`], with nothing changed; or what the host reports, and then there is no
/// file system on `path`, and no file that was not there before.
pub fn make(path: &Path, size: Option<u64>, options: &Options) -> Result<Made> {
    let identity = Identity::of(options)?;
    let target = Target::of(path, OpenMode::ReadWrite)?;
    let layout = target.plan(path, size, options)?;
    let existed = !matches!(target, Target::New);
    let overwritten = match target {
        Target::New => {
            let len = size.expect("a new file is planned with a size");
            make_new(path, len, &layout, &identity)?;
            Vec::new()
        }
        Target::File(len) => {
            let longer = size.filter(|&size| size > len);
            make_over_file(path, longer, options, &layout, &identity)?
        }
        Target::Device(device) => make_over_device(&device, options, &layout, &identity)?,
    };
    Ok(Made {
        layout,
        identity,
        existed,
        overwritten,
    })
}

/// The volume that [`make`] would make, without a change.
///
/// # Errors
/// As [`make`], as far as they are known without writing.
pub fn plan(path: &Path, size: Option<u64>, options: &Options) -> Result<Made> {
    let identity = Identity::of(options)?;
    let target = Target::of(path, OpenMode::ReadOnly)?;
    let layout = target.plan(path, size, options)?;
    let overwritten = match &target {
        Target::New => Vec::new(),
        Target::Device(device) => refuse_occupied(device, options)?,
        Target::File(_) => refuse_occupied(&FileDevice::open(path, OpenMode::ReadOnly)?, options)?,
    };
    Ok(Made {
        layout,
        identity,
        existed: !matches!(target, Target::New),
        overwritten,
    })
}

/// As [`make`], on any device. Without a size it takes all of it.
///
/// # Errors
/// As [`make`].
pub fn make_on(device: &dyn BlockDevice, size: Option<u64>, options: &Options) -> Result<Made> {
    let identity = Identity::of(options)?;
    let layout = Layout::plan(options, size_on(device, size)?)?;
    let overwritten = make_over_device(device, options, &layout, &identity)?;
    Ok(Made {
        layout,
        identity,
        existed: true,
        overwritten,
    })
}

/// The volume that [`make_on`] would make, without a change.
///
/// # Errors
/// As [`make_on`], as far as they are known without writing.
pub fn plan_on(device: &dyn BlockDevice, size: Option<u64>, options: &Options) -> Result<Made> {
    Ok(Made {
        layout: Layout::plan(options, size_on(device, size)?)?,
        identity: Identity::of(options)?,
        existed: true,
        overwritten: refuse_occupied(device, options)?,
    })
}

/// The size of a volume on `device`.
fn size_on(device: &dyn BlockDevice, size: Option<u64>) -> Result<u64> {
    let found = device.len();
    match size {
        Some(wanted) if wanted > found => Err(Error::DeviceTooSmall { wanted, found }),
        Some(size) => Ok(size),
        None => Ok(found / PAGE * PAGE),
    }
}

impl Target {
    fn of(path: &Path, mode: OpenMode) -> Result<Self> {
        let metadata = match path.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::New),
            other => other?,
        };
        if metadata.is_file() {
            return Ok(Self::File(metadata.len()));
        }
        Ok(Self::Device(FileDevice::open(path, mode)?))
    }

    fn plan(&self, path: &Path, size: Option<u64>, options: &Options) -> Result<Layout> {
        let bytes = match (self, size) {
            (Self::New, None) => return Err(Error::NoSize),
            (Self::Device(device), size) => size_on(device, size)?,
            (_, Some(size)) => size,
            (Self::File(len), None) => len / PAGE * PAGE,
        };
        let layout = Layout::plan(options, bytes)?;
        refuse_sectors(path, layout.geometry.block_size.bytes_u64())?;
        Ok(layout)
    }
}

/// Opens a block device that a volume is to be made on, and takes away what it holds: from here on
/// there is no file system on it.
///
/// # Errors
/// The device is in use; it holds something and `options` do not force; its sectors are larger than
/// `block_size`; or what the host reports.
pub fn take_device(path: &Path, block_size: u64, options: &Options) -> Result<FileDevice> {
    let device = FileDevice::open(path, OpenMode::ReadWrite)?;
    refuse_sectors(path, block_size)?;
    let found = refuse_occupied(&device, options)?;
    wipe(&device, &found)?;
    let head = PAGE.min(device.len());
    device.write_zeroes(DevOff::ZERO, head)?;
    device.flush()?;
    Ok(device)
}

/// Refuses a file that is in use or, unless `options` force, holds something of value.
///
/// # Errors
/// [`Error::Occupied`], [`Error::Open`], or what the host reports.
pub fn refuse_occupied_file(path: &Path, options: &Options) -> Result<()> {
    refuse_target_in_use(path)?;
    refuse_occupied(&FileDevice::open(path, OpenMode::ReadOnly)?, options)?;
    Ok(())
}

fn refuse_sectors(path: &Path, block_size: u64) -> Result<()> {
    if block_size < sector_size(path) {
        let why = "the device's sectors are larger";
        return Err(Error::bad("the block size", block_size, why));
    }
    Ok(())
}

/// Bytes of a logical sector of a block device; 512 of anything else.
fn sector_size(path: &Path) -> u64 {
    let read = || {
        let metadata = path.metadata().ok()?;
        if !metadata.file_type().is_block_device() {
            return None;
        }
        let (major, minor) = (device_major(metadata.rdev()), device_minor(metadata.rdev()));
        let device = format!("/sys/dev/block/{major}:{minor}");
        // A partition has the queue of its disk.
        let texts = ["queue", "../queue"]
            .map(|queue| std::fs::read_to_string(format!("{device}/{queue}/logical_block_size")));
        texts.into_iter().flatten().next()?.trim().parse().ok()
    };
    read().unwrap_or(512)
}

/// The major number in a `dev_t` of Linux.
fn device_major(device: u64) -> u64 {
    device >> 8 & 0xFFF | device >> 32 & 0xFFFF_F000
}

/// The minor number in a `dev_t` of Linux.
fn device_minor(device: u64) -> u64 {
    device & 0xFF | device >> 12 & 0xFFFF_FF00
}

/// Refuses a device that holds something of value, unless it is to be overwritten.
fn refuse_occupied(device: &dyn BlockDevice, options: &Options) -> Result<Vec<Signature>> {
    let found = find_signatures(device)?;
    match found.first() {
        Some(first) if !options.force => Err(Error::Occupied {
            what: first.what.to_owned(),
        }),
        _ => Ok(found),
    }
}

/// Takes the magic numbers away, so that what was overwritten is not found again later.
fn wipe(device: &dyn BlockDevice, found: &[Signature]) -> io::Result<()> {
    for signature in found {
        let zeros = vec![0; signature.len];
        device.write_at(DevOff::new(signature.offset), &zeros)?;
    }
    device.flush()
}

fn make_over_device(
    device: &dyn BlockDevice,
    options: &Options,
    layout: &Layout,
    identity: &Identity,
) -> Result<Vec<Signature>> {
    let found = refuse_occupied(device, options)?;
    if options.discard {
        wipe(device, &found)?;
        // What lies behind the volume is none of its business.
        device.discard(DevOff::ZERO, layout.bytes().min(device.len()))?;
    }
    wipe(device, &found)?;
    write_over(device, layout, identity, Before::Unknown)?;
    Ok(found)
}

/// Makes a file that is not there. If that fails, no half-made file stays behind; what another
/// process has put at `path` meanwhile, or a link that leads nowhere, does.
fn make_new(path: &Path, len: u64, layout: &Layout, identity: &Identity) -> Result<()> {
    let new = OpenOptions::new().write(true).create_new(true).open(path)?;
    let own = new.metadata()?;
    let made = fill_new(path, new, len, layout, identity);
    let is_own = |found: Metadata| (found.dev(), found.ino()) == (own.dev(), own.ino());
    if made.is_err() && path.symlink_metadata().is_ok_and(is_own) {
        // The first error is what counts.
        let _ = std::fs::remove_file(path);
    }
    made
}

fn fill_new(path: &Path, new: File, len: u64, layout: &Layout, identity: &Identity) -> Result<()> {
    new.set_len(len)?;
    drop(new);
    let device = FileDevice::open(path, OpenMode::ReadWrite)?;
    write_over(&device, layout, identity, Before::Zeros)
}

/// Makes the volume in a file that is there; `longer` is its new length, if it has to get longer.
fn make_over_file(
    path: &Path,
    longer: Option<u64>,
    options: &Options,
    layout: &Layout,
    identity: &Identity,
) -> Result<Vec<Signature>> {
    let mut device = FileDevice::open(path, OpenMode::ReadWrite)?;
    let found = refuse_occupied(&device, options)?;
    if let Some(size) = longer {
        // The claim excludes other users while the file grows. It grows before the first byte of
        // what it holds is overwritten: the host may refuse.
        File::options().write(true).open(path)?.set_len(size)?;
        drop(device);
        device = FileDevice::open(path, OpenMode::ReadWrite)?;
    }
    wipe(&device, &found)?;
    // What lies behind the volume is none of its business.
    device.write_zeroes(DevOff::ZERO, layout.bytes())?;
    write_over(&device, layout, identity, Before::Zeros)?;
    Ok(found)
}
