//! Mounting a volume.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, FlushLatch, LatchedDevice};
use extant_failpoint::Failpoint;

use super::build_fs::{build, start};
use super::finish_orphans::finish_orphans;
use super::read_superblock;
use super::replay_log::replay;
use super::unmount::unmount;
use crate::config::{MountOptions, Tuning};
use crate::state::volume::Mmp;
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// Mounts the file system on `dev`: gates its features, replays its journal, finishes its orphans.
///
/// # Errors
/// Not ext4, truncated, damaged, unsupported features, a journal to replay on a read-only device.
pub(crate) fn mount(
    dev: Arc<dyn BlockDevice>,
    mut options: MountOptions,
    mut tuning: Tuning,
) -> Result<Arc<Fs>> {
    if dev.is_read_only() {
        options.set_read_only();
    }
    if options.noload() && !options.read_only() {
        return Err(Error::BadOption("'noload': only together with 'ro'".into()));
    }
    let (dev, latch) = latched(dev, &tuning);
    let sb = read_superblock::read(&dev, &mut options)?;
    let unwritten = dev.is_read_only() || options.noload();
    let protection = if unwritten {
        None
    } else {
        Mmp::take(&dev, &sb)?
    };
    let (mut sb, found) = replay(&dev, sb, &mut options, tuning)?;
    if options.read_only() && !unwritten {
        sb = finish_orphans((&dev, &latch), sb, found.as_ref(), (&options, tuning))?;
    }
    if let Some(path) = options.buffered_path() {
        tuning.buffered_path = path;
    }
    let fs = build((dev, latch), &sb, found.as_ref(), options, tuning)?;
    let protected = protection.map_or(Ok(()), |mmp| protect(&fs, mmp));
    if let Err(error) = protected.and_then(|()| start(&fs)) {
        // The mount is undone in order; the first error is the one to report.
        if let Err(second) = unmount(&fs) {
            tracing::warn!(error = %second, "ending the failed mount");
        }
        return Err(error);
    }
    Ok(fs)
}

/// Makes the loss of the volume to another host shut it down.
fn protect(fs: &Arc<Fs>, mmp: Mmp) -> Result<()> {
    let weak = Arc::downgrade(fs);
    let protected = mmp.protect(Box::new(move |why| {
        if let Some(fs) = weak.upgrade() {
            tracing::error!(why, "the volume is lost to another host");
            fs.fault.shut_down(&fs, why);
        }
    }));
    let first = fs.mmp.set(mmp).is_ok();
    debug_assert!(first, "a new file system has none yet");
    protected.inspect_err(|error| {
        // The volume is another host's: the end of this mount must not mark it clean.
        fs.fault.shut_down(fs, &error.to_string());
    })
}

/// The device as this mount uses it: a failed flush is remembered until the unmount.
fn latched(dev: Arc<dyn BlockDevice>, tuning: &Tuning) -> (Arc<dyn BlockDevice>, Arc<FlushLatch>) {
    if tuning.failpoint.is(Failpoint::FlushFailureForgotten) {
        return (dev, Arc::default());
    }
    let dev = LatchedDevice::new(dev);
    let latch = Arc::clone(dev.latch());
    (Arc::new(dev), latch)
}
