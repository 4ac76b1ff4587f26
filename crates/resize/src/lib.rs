//! Growing and shrinking of a volume that is not mounted.
//!
//! # Responsibility
//! A resize has the steps of a repair, and only the last one changes the volume on the device:
//!
//! 1. A volume that waits for a replay, or has orphans, is mounted and unmounted; then the check
//!    must find nothing (`prepare`).
//! 2. The new geometry is planned ([`Geometry::resized`]); `least` finds the smallest possible one.
//! 3. In a private copy in memory (`volume`), `groups` adds and drops groups, `files`, `extents`
//!    and `pointers` move the blocks of files, `numbers` moves inodes, `log` the journal, and
//!    `quotas` counts what maps have become. `space` has the bitmaps, `store` puts them into the
//!    copy. The blocks of files go at once to blocks
//!    that the old volume does not use.
//! 4. The check judges the copy.
//! 5. `commit` brings it to the device, as one transaction of the journal, and then the copies of
//!    superblock and descriptors.
//!
//! `unshare` takes the same steps, without another geometry, to give files their own blocks.
//!
//! # Invariants
//! - Until the commit, nothing is written that the old volume uses. A cut at any write leaves the
//!   old volume or the new one (see `commit`).
//! - The check has found nothing wrong with what is written.
//! - Memory: that of a check, a bit per block of groups that are changed, and the metadata blocks
//!   that change, within the limit of the private copy.
#![forbid(unsafe_code)]

mod bits;
mod commit;
mod error;
mod extents;
mod files;
mod groups;
mod image;
mod least;
mod log;
mod numbers;
mod options;
mod pointers;
mod prepare;
mod quotas;
mod space;
mod store;
mod unshare;
mod volume;

use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice, memory_share};
use extant_disk::geometry::Geometry;

pub use error::{Error, Result};
pub use image::resize_image;
pub use options::{Report, ResizeOptions, Target};
pub use unshare::{Unshared, unshare, unshare_image};

use volume::{Overlay, Volume, read_super};

/// How often the least size is looked for: what a round frees, the next can use.
const ROUNDS: u32 = 4;

/// Resizes the file system on `dev`, which no other process may use meanwhile.
///
/// # Errors
/// Why it has its old size still; or the device failed.
pub fn resize(
    dev: Arc<dyn BlockDevice>,
    target: Target,
    options: &ResizeOptions<'_>,
) -> Result<Report> {
    resize_on(&dev, target, u64::MAX, options)
}

/// The same; from byte `zeros_from` on, the device is known to hold zeros.
fn resize_on(
    dev: &Arc<dyn BlockDevice>,
    target: Target,
    zeros_from: u64,
    options: &ResizeOptions<'_>,
) -> Result<Report> {
    let has_stale_copies = prepare::prepare(dev, options)?;
    let old = Geometry::of(&read_super(dev)?);
    let mut report = Report {
        block_size: old.block_size.bytes_u64(),
        blocks_before: old.blocks,
        blocks: old.blocks,
        ..Report::default()
    };
    let outcome = match target {
        Target::Least => to_least(dev, &mut report, options),
        Target::Bytes(bytes) => {
            let new = old.resized(bytes >> old.block_size.log2());
            new.map_err(Error::from)
                .and_then(|new| to_geometry(dev, &new, zeros_from, &mut report, options))
        }
    };
    match outcome {
        Ok(()) => {
            if has_stale_copies && report.blocks == report.blocks_before {
                finish_copies(dev, &old)?;
            }
            Ok(report)
        }
        Err(error) if report.blocks == report.blocks_before => Err(error),
        Err(error) => Err(Error::After {
            report,
            error: Box::new(error),
        }),
    }
}

/// Writes the copies that an earlier resize was cut before, of a volume that has its size already.
fn finish_copies(dev: &Arc<dyn BlockDevice>, geometry: &Geometry) -> Result<()> {
    match geometry.last_is_short() {
        true => Ok(()),
        false => open(dev, geometry, u64::MAX)?.commit_copies(),
    }
}

fn to_least(
    dev: &Arc<dyn BlockDevice>,
    report: &mut Report,
    options: &ResizeOptions<'_>,
) -> Result<()> {
    for _ in 0..ROUNDS {
        let before = report.blocks;
        cut_to_least(dev, report, options)?;
        if report.blocks == before {
            break;
        }
    }
    Ok(())
}

fn to_geometry(
    dev: &Arc<dyn BlockDevice>,
    new: &Geometry,
    zeros_from: u64,
    report: &mut Report,
    options: &ResizeOptions<'_>,
) -> Result<()> {
    let old = Geometry::of(&read_super(dev)?);
    if new.blocks < old.blocks {
        let volume = open(dev, &old, zeros_from)?;
        if volume.cuts_stable_inodes(new) {
            return Err(Error::STABLE_INODES);
        }
        let least = volume.least()?;
        if new.blocks < least.blocks {
            let least = least.bytes();
            return Err(Error::TooSmall { least });
        }
    }
    if new.bytes() > dev.len() {
        return Err(Error::DeviceTooShort {
            device: dev.len(),
            wanted: new.bytes(),
        });
    }
    if new.blocks != old.blocks {
        resize_once(dev, new, zeros_from, report, options)?;
    }
    Ok(())
}

/// Cuts the volume to the least size, or to one near it where free blocks are too scattered.
fn cut_to_least(
    dev: &Arc<dyn BlockDevice>,
    report: &mut Report,
    options: &ResizeOptions<'_>,
) -> Result<()> {
    let old = Geometry::of(&read_super(dev)?);
    let least = open(dev, &old, u64::MAX)?.least()?;
    let mut more = 0;
    loop {
        let new = old.resized((least.blocks + more).min(old.blocks))?;
        if new.blocks >= old.blocks {
            return Ok(());
        }
        match resize_once(dev, &new, u64::MAX, report, options) {
            Err(Error::NoRoom(_)) => more = (more * 2).max(SCATTERED),
            outcome => return outcome,
        }
    }
}

/// Blocks by which the first other size is larger than the least.
const SCATTERED: u64 = 64;

/// Gives the volume another geometry, once.
fn resize_once(
    dev: &Arc<dyn BlockDevice>,
    new: &Geometry,
    zeros_from: u64,
    report: &mut Report,
    options: &ResizeOptions<'_>,
) -> Result<()> {
    let mut volume = open(dev, new, zeros_from)?;
    volume.begin()?;
    volume.add_groups()?;
    volume.move_tables()?;
    volume.move_log()?;
    volume.move_files()?;
    volume.move_inodes()?;
    volume.store_usage()?;
    volume.store_resize_inode()?;
    volume.drop_groups()?;
    volume.store()?;
    let log_len = volume.log.as_ref().map(extant_jbd2::LogMap::len);
    if let Some(blocks) = volume.log_shortage()? {
        volume.relocate_log(blocks)?;
        volume.store()?;
    }
    let judged = prepare::judge(&volume.dev, options)?;
    volume.commit(judged)?;
    report.blocks = new.blocks;
    report.blocks_moved += volume.blocks_moved;
    report.inodes_moved += volume.inodes_moved;
    match (log_len, &volume.log) {
        (Some(len), Some(log)) if len != log.len() => match shorten_log(dev, len, options) {
            // A journal that is larger does no harm.
            Err(Error::NoRoom(_)) => Ok(()),
            outcome => outcome,
        },
        _ => Ok(()),
    }
}

/// Gives the journal `len` blocks again, after a transaction that needed more.
fn shorten_log(dev: &Arc<dyn BlockDevice>, len: u64, options: &ResizeOptions<'_>) -> Result<()> {
    let geometry = Geometry::of(&read_super(dev)?);
    let mut volume = open(dev, &geometry, u64::MAX)?;
    volume.relocate_log(len)?;
    volume.store()?;
    let judged = prepare::judge(&volume.dev, options)?;
    volume.commit(judged)
}

/// A private copy of the volume, which becomes `new`.
fn open(dev: &Arc<dyn BlockDevice>, new: &Geometry, zeros_from: u64) -> Result<Volume> {
    let overlay: Overlay = Arc::new(CowDevice::with_limit(Arc::clone(dev), memory_share()));
    Volume::open(&overlay, &read_super(dev)?, new.clone(), zeros_from)
}
