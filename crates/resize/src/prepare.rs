//! Conditions that have to hold before a resize, and before its commit.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice, memory_share};
use extant_check::{
    CheckOptions, Finding, Remedy, Repair, Report as Checked, check, require_written_features,
};
use extant_disk::features::{Incompat, RoCompat};
use extant_disk::geometry::Geometry;
use extant_disk::superblock::{SUPERBLOCK_SIZE, State, Superblock};
use extant_engine::{Tuning, VolumeOptions, after_fast_commits};
use extant_units::DevOff;

use crate::error::{Error, Result};
use crate::options::ResizeOptions;

use crate::volume::{Overlay, read_super};

/// Replays the journal, finishes orphans, and checks everything. Returns whether a copy of the
/// superblock is torn or of another size, as a resize that was cut leaves some.
///
/// # Errors
/// A feature that is not supported, or damage; nothing was written then but the replay.
pub(crate) fn prepare(dev: &Arc<dyn BlockDevice>, options: &ResizeOptions<'_>) -> Result<bool> {
    require_written_features(&read_super(dev)?)?;
    put_in_order(dev, options)
}

/// [`prepare`], for a volume whose features were judged.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn put_in_order(
    dev: &Arc<dyn BlockDevice>,
    options: &ResizeOptions<'_>,
) -> Result<bool> {
    let sb = read_super(dev)?;
    let features = sb.features();
    if features.has_incompat(Incompat::MMP) {
        return Err(Error::Unsupported(
            "other hosts may use it (mmp): tune2fs -O ^mmp first",
        ));
    }
    if sb.is_revision_0() {
        return Err(Error::Unsupported("it has the oldest format (revision 0)"));
    }
    let memory = options.check.replay_bytes.unwrap_or_else(memory_share);
    let replayed = after_fast_commits(dev, options.check.journal, memory).map_err(Error::Mount)?;
    let mut checked = match replayed {
        None => run(Arc::clone(dev), &options.check)?,
        Some(after) => {
            let check = CheckOptions {
                journal: after.journal.as_ref(),
                ..options.check
            };
            run(after.device, &check)?
        }
    };
    refuse_damage(&checked)?;
    let waits = features.has_incompat(Incompat::RECOVER)
        || features.has_ro_compat(RoCompat::ORPHAN_PRESENT)
        || checked.orphans > 0;
    if waits {
        // No name is looked up.
        let mut tuning = Tuning::default();
        tuning.name_cache_bytes = 0;
        let mut mount = VolumeOptions::new();
        mount.tuning(tuning);
        mount.write(true).mount_options("ro");
        if let Some(journal) = options.check.journal {
            mount.journal_device(Arc::clone(journal));
        }
        let volume = mount.open_on(Arc::clone(dev)).map_err(Error::Mount)?;
        volume.unmount().map_err(Error::Mount)?;
        checked = run(Arc::clone(dev), &options.check)?;
        refuse_damage(&checked)?;
    }
    let sb = read_super(dev)?;
    // A mount leaves the orphans of such a volume: it is repaired first.
    if sb.raw().state().contains(State::ERROR) {
        return Err(Error::NotClean {
            count: 1,
            first: "superblock: marked as having errors".into(),
        });
    }
    if checked.orphans > 0 || sb.features().has_incompat(Incompat::RECOVER) {
        return Err(Error::Unsupported(
            "deleted files or a journal still wait, though a mount has ended: e2fsck first",
        ));
    }
    has_copy_of_another_size(&**dev, &sb, &checked.notes)
}

/// Copies that say something else for another reason may be right where the volume's superblock is
/// not: they are left to a repair, which judges that.
fn has_copy_of_another_size(
    dev: &dyn BlockDevice,
    sb: &Superblock,
    notes: &[Finding],
) -> Result<bool> {
    let geometry = Geometry::of(sb);
    for note in notes {
        let Remedy::Repair(Repair::SuperblockCopies(groups)) = &note.remedy else {
            continue;
        };
        for group in groups.iter() {
            let mut copy = [0; SUPERBLOCK_SIZE];
            let block = geometry.group_start(group.get());
            dev.read_at(DevOff::new(block << sb.block_size().log2()), &mut copy)?;
            let size = Superblock::parse(&copy).map(|copy| copy.blocks_count());
            if !size.is_ok_and(|size| size == sb.blocks_count()) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn run(dev: Arc<dyn BlockDevice>, options: &CheckOptions<'_>) -> Result<Checked> {
    Ok(check(dev, options)?)
}

fn refuse_damage(report: &Checked) -> Result<()> {
    match report.findings.first() {
        Some(first) => Err(Error::NotClean {
            count: report.found,
            first: first.to_string(),
        }),
        None => Ok(()),
    }
}

/// A volume that the check has judged: nothing else is committed.
pub(crate) struct Judged {
    /// Its blocks.
    pub(crate) blocks: u64,
}

/// Checks the copy that becomes the volume.
///
/// # Errors
/// [`Error::Internal`] if something is wrong with it.
pub(crate) fn judge(copy: &Overlay, options: &ResizeOptions<'_>) -> Result<Judged> {
    let below: Arc<dyn BlockDevice> = Arc::clone(copy) as _;
    let report = run(Arc::new(CowDevice::new(below)), &options.check)?;
    match report.findings.first() {
        Some(first) => Err(Error::Internal {
            count: report.found,
            first: first.to_string(),
        }),
        None => Ok(Judged {
            blocks: read_super(&**copy)?.blocks_count().get(),
        }),
    }
}
