//! Check and repair in turns, on the private copy.
//!
//! Each round ends with a check of everything, so what a repair changes elsewhere (a name in
//! lost+found is a link more) is found and repaired in the next. The number of rounds is bounded:
//! past a few, each must leave fewer findings than the one before.

use std::collections::HashSet;
use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_check::{Doubt, Finding, Remedy, Report as Checked};
use extant_disk::damage::{CorruptKind, SuperblockDamage};
use extant_disk::features::Compat;
use extant_disk::location::Location;
use extant_disk::superblock::{RawSuperblock, State, SuperblockError};

use crate::error::{Error, Result};
use crate::image::{Image, Overlay};
use crate::lost_found::LostFound;
use crate::options::FixOptions;
use crate::primary::Standing;
use crate::quotas::QuotaFiles;
use crate::{apply, gate};

/// Rounds that need not leave fewer findings than the one before.
const ROUNDS: u32 = 8;

/// The outcome of the rounds.
pub(crate) struct Outcome {
    /// Findings of the first check.
    pub(crate) before: u64,
    /// The last check.
    pub(crate) last: Checked,
    /// Findings that were repaired: as many as a check collects.
    pub(crate) fixed: Vec<Finding>,
    /// Orphans that were finished.
    pub(crate) orphans: u64,
}

/// Checks the copy and repairs it until nothing more can be. `standing` is that of the superblock.
pub(crate) fn run(dev: &Overlay, standing: Standing, options: &FixOptions<'_>) -> Result<Outcome> {
    let last = check(Arc::clone(dev) as _, options)?;
    let mut outcome = Outcome {
        before: last.found,
        last,
        fixed: Vec::new(),
        orphans: 0,
    };
    repair(dev, standing, &mut outcome, options)?;
    Ok(outcome)
}

/// Checks everything on `dev`.
pub(crate) fn check(dev: Arc<dyn BlockDevice>, options: &FixOptions<'_>) -> Result<Checked> {
    Ok(extant_check::check(dev, &options.check)?)
}

fn repair(
    dev: &Overlay,
    standing: Standing,
    outcome: &mut Outcome,
    options: &FixOptions<'_>,
) -> Result<()> {
    let limit = options.check.max_findings;
    for round in 0.. {
        let before = outcome.last.found;
        let mut image = Image::open(dev)?;
        let journal = image.sb.features().has_compat(Compat::HAS_JOURNAL);
        let whole_writes = journal || image.sb.raw().state().contains(State::VALID);
        let mut lost_found = LostFound::of(&outcome.last);
        let mut quotas = QuotaFiles::default();
        let mut applied = Vec::new();
        for (finding, repair) in gate::admit(&outcome.last, whole_writes, standing) {
            if apply::apply(&mut image, repair, &mut lost_found, &mut quotas)? {
                applied.push(Finding {
                    remedy: Remedy::Left(Doubt::Nothing),
                    ..finding.clone()
                });
            }
        }
        if applied.is_empty() {
            break;
        }
        outcome.last = check(Arc::clone(dev) as _, options)?;
        let room = limit.saturating_sub(outcome.fixed.len());
        outcome.fixed.extend(applied.into_iter().take(room));
        assert!(outcome.fixed.len() <= limit, "memory is bounded");
        if round >= ROUNDS && outcome.last.found >= before {
            break;
        }
    }
    // A finding that stands is not repaired.
    let key = |finding: &Finding| (finding.place, finding.kind.clone());
    let found = outcome.last.findings.iter().chain(&outcome.last.notes);
    let left: HashSet<(Location, CorruptKind)> = found.map(key).collect();
    outcome
        .fixed
        .retain(|finding| !left.contains(&key(finding)));
    Ok(())
}

impl Outcome {
    /// Takes in that the superblock, whose checksum was wrong, got a new one.
    ///
    /// # Errors
    /// Nothing confirms the superblock.
    pub(crate) fn note_resealed(
        &mut self,
        wrong: SuperblockError,
        standing: Standing,
    ) -> Result<()> {
        if standing != Standing::Confirmed && !self.last.is_clean() {
            return Err(wrong.into());
        }
        self.note(wrong);
        Ok(())
    }

    /// Clears the superblock's marks and record of errors, and the mark of a volume in use: nothing
    /// is wrong any more.
    pub(crate) fn mark_clean(&mut self, image: &mut Image) -> Result<()> {
        let (state, errors) = (image.sb.raw().state(), image.sb.raw().error_count.get());
        if state.contains(State::ERROR) {
            self.note(SuperblockDamage::MarkedWithErrors);
        }
        if !state.contains(State::VALID) {
            self.note(SuperblockDamage::NotMarkedClean);
        }
        if errors > 0 {
            self.note(SuperblockDamage::ErrorRecord { errors });
        }
        image.edit_super(|raw| {
            raw.set_state((state | State::VALID) - State::ERROR);
            if errors > 0 {
                raw.copy_error_record(&RawSuperblock::zeroed());
            }
        })
    }

    /// Takes in a repair of the superblock.
    pub(crate) fn note(&mut self, kind: impl Into<CorruptKind>) {
        self.fixed.push(Finding {
            place: Location::Superblock,
            kind: kind.into(),
            remedy: Remedy::Left(Doubt::Nothing),
        });
    }

    /// Fails if the last check found more than the first.
    pub(crate) fn refuse_worse(&self) -> Result<()> {
        let (before, after) = (self.before, self.last.found);
        match after > before {
            true => Err(Error::Worse { before, after }),
            false => Ok(()),
        }
    }
}
