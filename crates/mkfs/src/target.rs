//! Files and block devices that a file system is made on.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use extant_blockdev::{BlockDevice, FileDevice, OpenMode, refuse_target_in_use};
use extant_units::DevOff;

use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::journal_device::JournalPlan;
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

/// Result of making a journal on a device of its own.
#[derive(Clone, Debug)]
pub struct MadeJournal {
    /// The journal.
    pub plan: JournalPlan,
    /// The former content, which is overwritten.
    pub overwritten: Vec<Signature>,
}

/// Content of a device or of a file, as it is made.
#[derive(Clone, Copy)]
enum Content<'a> {
    Volume(&'a Layout, &'a Identity),
    Journal(&'a JournalPlan),
}

impl Content<'_> {
    /// Bytes that it takes of its device.
    fn bytes(self) -> u64 {
        match self {
            Self::Volume(layout, _) => layout.bytes(),
            Self::Journal(plan) => plan.bytes(),
        }
    }

    fn write(self, device: &dyn BlockDevice, before: Before) -> Result<()> {
        match self {
            Self::Volume(layout, identity) => write_over(device, layout, identity, before),
            Self::Journal(plan) => plan.write(device),
        }
    }
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
    let overwritten = target.fill(path, size, options, Content::Volume(&layout, &identity))?;
    Ok(Made {
        layout,
        identity,
        existed,
        overwritten,
    })
}

/// Makes a journal on `path`, for a volume elsewhere: as [`make`] makes a volume, where `options`
/// have the feature `journal_dev`.
///
/// # Errors
/// As [`make`].
pub fn make_journal(path: &Path, size: Option<u64>, options: &Options) -> Result<MadeJournal> {
    let target = Target::of(path, OpenMode::ReadWrite)?;
    let plan = JournalPlan::of(options, target.bytes(size)?)?;
    refuse_sectors(path, plan.block_size.into())?;
    let overwritten = target.fill(path, size, options, Content::Journal(&plan))?;
    Ok(MadeJournal { plan, overwritten })
}

/// As [`make_journal`], on any device.
///
/// # Errors
/// As [`make`].
pub fn make_journal_on(
    device: &dyn BlockDevice,
    size: Option<u64>,
    options: &Options,
) -> Result<MadeJournal> {
    let plan = JournalPlan::of(options, size_on(device, size)?)?;
    let overwritten = make_over_device(device, options, Content::Journal(&plan))?;
    Ok(MadeJournal { plan, overwritten })
}

/// The journal that [`make_journal`] would make, without a change.
///
/// # Errors
/// As [`make_journal`], as far as they are known without writing.
pub fn plan_journal(path: &Path, size: Option<u64>, options: &Options) -> Result<MadeJournal> {
    let target = Target::of(path, OpenMode::ReadOnly)?;
    let plan = JournalPlan::of(options, target.bytes(size)?)?;
    refuse_sectors(path, plan.block_size.into())?;
    let overwritten = target.overwritten(path, options)?;
    Ok(MadeJournal { plan, overwritten })
}

/// The journal that [`make_journal_on`] would make, without a change.
///
/// # Errors
/// As [`make_journal_on`], as far as they are known without writing.
pub fn plan_journal_on(
    device: &dyn BlockDevice,
    size: Option<u64>,
    options: &Options,
) -> Result<MadeJournal> {
    Ok(MadeJournal {
        plan: JournalPlan::of(options, size_on(device, size)?)?,
        overwritten: refuse_occupied(device, options)?,
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
    let overwritten = target.overwritten(path, options)?;
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
    let content = Content::Volume(&layout, &identity);
    let overwritten = make_over_device(device, options, content)?;
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

    /// Bytes of what is made there.
    fn bytes(&self, size: Option<u64>) -> Result<u64> {
        match (self, size) {
            (Self::New, None) => Err(Error::NoSize),
            (Self::Device(device), size) => size_on(device, size),
            (_, Some(size)) => Ok(size),
            (Self::File(len), None) => Ok(len / PAGE * PAGE),
        }
    }

    /// The content that would be overwritten.
    fn overwritten(&self, path: &Path, options: &Options) -> Result<Vec<Signature>> {
        match self {
            Self::New => Ok(Vec::new()),
            Self::Device(device) => refuse_occupied(device, options),
            Self::File(_) => refuse_occupied(&FileDevice::open(path, OpenMode::ReadOnly)?, options),
        }
    }

    /// Writes `content`; what was there before.
    fn fill(
        self,
        path: &Path,
        size: Option<u64>,
        options: &Options,
        content: Content<'_>,
    ) -> Result<Vec<Signature>> {
        match self {
            Self::New => {
                let len = size.expect("a new file is planned with a size");
                make_new(path, len, content)?;
                Ok(Vec::new())
            }
            Self::File(len) => {
                let longer = size.filter(|&size| size > len);
                make_over_file(path, longer, options, content)
            }
            Self::Device(device) => make_over_device(&device, options, content),
        }
    }

    fn plan(&self, path: &Path, size: Option<u64>, options: &Options) -> Result<Layout> {
        let layout = Layout::plan(options, self.bytes(size)?)?;
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
    content: Content<'_>,
) -> Result<Vec<Signature>> {
    let found = refuse_occupied(device, options)?;
    if options.discard {
        wipe(device, &found)?;
        // What lies behind the volume is none of its business.
        device.discard(DevOff::ZERO, content.bytes().min(device.len()))?;
    }
    wipe(device, &found)?;
    content.write(device, Before::Unknown)?;
    Ok(found)
}

/// Makes a file that is not there. If that fails, no half-made file stays behind; what another
/// process has put at `path` meanwhile, or a link that leads nowhere, does.
fn make_new(path: &Path, len: u64, content: Content<'_>) -> Result<()> {
    let new = OpenOptions::new().write(true).create_new(true).open(path)?;
    let own = new.metadata()?;
    let made = fill_new(path, new, len, content);
    let is_own = |found: Metadata| (found.dev(), found.ino()) == (own.dev(), own.ino());
    if made.is_err() && path.symlink_metadata().is_ok_and(is_own) {
        // The first error is what counts.
        let _ = std::fs::remove_file(path);
    }
    made
}

fn fill_new(path: &Path, new: File, len: u64, content: Content<'_>) -> Result<()> {
    new.set_len(len)?;
    drop(new);
    let device = FileDevice::open(path, OpenMode::ReadWrite)?;
    content.write(&device, Before::Zeros)
}

/// Makes the volume in a file that is there; `longer` is its new length, if it has to get longer.
fn make_over_file(
    path: &Path,
    longer: Option<u64>,
    options: &Options,
    content: Content<'_>,
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
    device.write_zeroes(DevOff::ZERO, content.bytes())?;
    content.write(&device, Before::Zeros)?;
    Ok(found)
}
