//! Repair of a file system where the file system itself leaves no choice.
//!
//! # Responsibility
//! `extant-check` finds what is wrong and says what the right value is where everything else leaves
//! one only. This crate stores those values: checksums of structures that are sound otherwise,
//! counts, bitmaps, link counts, kinds in entries, names in lost+found for inodes without one. It
//! replays the journal and finishes orphans, as a mount does. What a person would have to decide is
//! reported and left.
//!
//! A repair has three steps, and only the last one writes to the device:
//!
//! 1. The journal is replayed into a private copy in memory (`replay`).
//! 2. Check and repair take turns on the copy until nothing more can be repaired (`rounds`). `gate`
//!    refuses repairs that rely on something doubtful, `apply` makes the others on the `image`.
//!    `lost_found` makes room for names, `copies` writes superblock and descriptors a second time,
//!    `log` forgets the journal's error. When nothing is left, a mount of another copy tries to
//!    finish the orphans (`orphans`).
//! 3. `commit` brings what differs to the device: through the journal, or without one in an order
//!    that each cut leaves repairable. Meanwhile `hold` keeps other hosts away. Then a mount of the
//!    device finishes the orphans.
//!
//! # Invariants
//! - A clean image is not written.
//! - Nothing is freed, counted or named while a map, an inode, a descriptor or a directory is in
//!   doubt. So a repair never frees a block that an unreadable structure may own.
//! - The check has judged what is written before it is written. It is never worse than before.
//! - A cut at any write leaves an image on which a repair ends as it would have without. One
//!   exception: without a journal, a cut while orphans are finished leaves what such a mount does,
//!   which the next repair may only tell.
//! - Memory: that of a check, and the blocks that change, within the limit of the private copy.
#![forbid(unsafe_code)]

mod apply;
mod commit;
mod copies;
mod error;
mod gate;
mod hold;
mod image;
mod log;
mod lost_found;
mod options;
mod orphans;
mod primary;
mod quotas;
mod replay;
mod report;
mod rounds;

use std::path::Path;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice, FileDevice, FileIo, OpenMode, memory_share};
use extant_disk::damage::SuperblockDamage;

pub use error::{Error, Result};
pub use options::FixOptions;
pub use report::Report;

use hold::Protection;
use image::{Image, Overlay};
use primary::Primary;
use replay::Means;

/// Repairs the image file or block device at `path`. See [`fix`].
///
/// # Errors
/// [`Error::Open`] if another process uses it or it cannot be opened; else as [`fix`].
pub fn fix_image(path: impl AsRef<Path>, options: &FixOptions<'_>) -> Result<Report> {
    let mode = match options.dry_run {
        true => OpenMode::ReadOnly,
        false => OpenMode::ReadWrite,
    };
    let device = FileDevice::open_with(path.as_ref(), mode, FileIo::SYSCALLS)?;
    fix(Arc::new(device), options)
}

/// Repairs the file system on `dev`, which no other process may use meanwhile.
///
/// # Errors
/// The reason why nothing can be said about the file system, or why it cannot be repaired as a
/// whole; nothing was written then. Or the device failed while it was written: the next repair
/// goes on from there.
pub fn fix(dev: Arc<dyn BlockDevice>, options: &FixOptions<'_>) -> Result<Report> {
    let memory = options.check.replay_bytes.unwrap_or_else(memory_share);
    let overlay: Overlay = Arc::new(CowDevice::with_limit(Arc::clone(&dev), memory));
    let is_repaired = |by: &FixOptions<'_>| fix(Arc::clone(&dev), by).is_ok();
    let restored = primary::restore(&dev, &overlay, options, is_repaired)?;
    let Primary { resealed, standing } = match restored {
        // An old copy decides nothing alone: no repair is made that relies on it.
        Some(_) => Primary::ALONE,
        None => primary::reseal(&overlay)?,
    };
    let image = Image::open(&overlay)?;
    extant_check::require_repaired_features(&image.sb)?;
    let protection = Protection::read(&dev, &image)?;
    let means = Means {
        memory,
        journal: options.check.journal,
    };
    let log = replay::into(&overlay, means)?;
    let mut outcome = rounds::run(&overlay, standing, options)?;
    if log.marked_only {
        outcome.note(SuperblockDamage::EmptyRecovery);
    }
    if let Some(offset) = options.superblock {
        outcome.note(SuperblockDamage::Restored { offset });
    }
    if let Some(wrong) = resealed {
        outcome.note_resealed(wrong, standing)?;
    }
    if outcome.last.is_clean() {
        outcome.mark_clean(&mut Image::open(&overlay)?)?;
        if outcome.last.orphans > 0 {
            orphans::rehearse(&overlay, memory, &mut outcome, options)?;
        }
    }
    outcome.refuse_worse()?;
    let mut blocks = 0;
    if !options.dry_run {
        blocks = commit::commit(&dev, &overlay, means, &protection, restored.as_ref())?;
        if outcome.orphans > 0 {
            orphans::finish(&dev, options.check.journal.cloned())?;
        }
    }
    Ok(Report::new(outcome, &log, blocks))
}
