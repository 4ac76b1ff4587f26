//! Images with random damage: a repair ends without a panic and within its memory. It leaves an
//! image that e2fsck calls clean, or says what is left; a clean image is not changed.
//!
//! `EXTANT_MUTANTS` (120) is the number of images, `EXTANT_SEED` (0) the first seed. A failure
//! prints the line that repeats it.

#[path = "../../check/tests/check_kit/mod.rs"]
mod check_kit;
mod fix_kit;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use check_kit::mutants::{Mutants, NEEDS};
use check_kit::{BASES, CLUSTERS, LARGE_BLOCKS, exceptions, kind, verdict};
use extant_blockdev::MemoryDevice;
use extant_check::{CheckOptions, check};
use extant_disk::damage::JournalDamage;
use extant_fix::{FixOptions, fix};
use extant_testkit::{Context, Result, TempDir, bail, ensure, need, report};
use fix_kit::use_mounted;

#[derive(Default, Debug)]
struct Totals {
    /// Nothing to do.
    clean: u64,
    /// Repaired as a whole.
    repaired: u64,
    /// Repaired in part.
    part: u64,
    /// Left as it was.
    left: u64,
    /// Not judged: an error.
    refused: u64,
}

fn options() -> FixOptions<'static> {
    FixOptions {
        check: CheckOptions {
            threads: 1,
            ..CheckOptions::default()
        },
        ..FixOptions::default()
    }
}

#[test]
fn random_damage_is_repaired_or_told() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (mutants, mut totals) = (
        Mutants::new(120, 2, &[BASES, LARGE_BLOCKS, CLUSTERS].concat())?,
        Totals::default(),
    );
    let dir = TempDir::new("mutants")?;
    let tried = mutants.each(|mutant| one(&mutant.bytes, &dir, &mut totals));
    let count = mutants.count;
    report(&format!("{count} mutated images: {totals:?}"));
    tried?;
    // Damage that was all left, or all repaired, would prove little.
    let some = count / 20;
    ensure!(totals.repaired > some && totals.left > some, "{totals:?}");
    Ok(())
}

fn one(bytes: &[u8], dir: &TempDir, totals: &mut Totals) -> Result<()> {
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let run = || fix(Arc::clone(&device) as _, &options());
    let Ok(outcome) = catch_unwind(AssertUnwindSafe(run)) else {
        bail!("the repair panicked");
    };
    let after = device.to_bytes();
    let report = match outcome {
        Ok(report) => report,
        Err(error) => {
            ensure!(
                after == bytes,
                "an image that is refused was written: {error}"
            );
            totals.refused += 1;
            return Ok(());
        }
    };
    let changed = after != bytes;
    ensure!(
        changed == report.has_changed(),
        "changed: {changed}, {report:?}"
    );
    match (report.is_clean(), changed) {
        (true, false) => totals.clean += 1,
        (true, true) => totals.repaired += 1,
        (false, true) => totals.part += 1,
        (false, false) => totals.left += 1,
    }
    if changed {
        let again = fix(Arc::clone(&device) as _, &options())?;
        ensure!(!again.has_changed(), "a second repair goes on: {again:?}");
        ensure!(device.to_bytes() == after, "a second repair writes");
    }
    let checked = check(device, &options().check)?;
    ensure!(checked.found == report.left_in_all, "{checked:?}");
    if report.is_clean() {
        let path = dir.join("mutant.img");
        std::fs::write(&path, &after)?;
        let verdict = verdict(&path)?;
        // e2fsck -n cannot clear an error that the journal remembers, and gives up.
        let remembers = kind!(Journal(JournalDamage::Errno { .. }));
        let remembers = remembers.is_in(report.notes.iter().map(|note| &note.kind));
        let known = remembers || exceptions::explain(&verdict).is_some();
        ensure!(
            verdict.agree() || known,
            "e2fsck: {}\n{report:?}",
            verdict.said
        );
        let used = use_mounted(&after).context(|| format!("{report:?}"))?;
        std::fs::write(&path, &used)?;
        let verdict = self::verdict(&path)?;
        let known = exceptions::explain(&verdict).is_some();
        ensure!(
            verdict.agree() && verdict.is_clean() || known,
            "after a mount: {verdict:?}\n{report:?}"
        );
    }
    Ok(())
}
