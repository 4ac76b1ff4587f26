//! Images with random damage: a resize ends without a panic, and what it writes is sound. Damage is
//! refused.
//!
//! `EXTANT_MUTANTS` (120) is the number of images, `EXTANT_SEED` (0) the first seed. A failure
//! prints the line that repeats it.

#[path = "../../check/tests/check_kit/mod.rs"]
mod check_kit;
mod resize_kit;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use check_kit::mutants::{Mutant, Mutants, NEEDS};
use check_kit::{BASES, CLUSTERS, LARGE_BLOCKS, READ_ONLY};
use extant_blockdev::MemoryDevice;
use extant_check::check;
use extant_resize::{Target, resize, unshare};
use extant_testkit::{Result, bail, ensure, need, report};
use resize_kit::options;

#[derive(Default, Debug)]
struct Totals {
    resized: u64,
    refused: u64,
}

#[test]
fn random_damage_is_refused_or_does_no_harm() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (mutants, mut totals) = (
        Mutants::new(120, 1, &[BASES, LARGE_BLOCKS, CLUSTERS].concat())?,
        Totals::default(),
    );
    let tried = mutants.each(|mutant| one(mutant, &mut totals));
    let count = mutants.count;
    report(&format!("{count} mutated images: {totals:?}"));
    tried?;
    // Damage that was all refused, or none of it, would prove little.
    let some = count / 20;
    ensure!(totals.resized > some && totals.refused > some, "{totals:?}");
    Ok(())
}

/// The same of files that get their own blocks.
#[test]
fn random_damage_of_shared_blocks_is_refused_or_does_no_harm() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (mutants, mut totals) = (Mutants::new(60, 1, &READ_ONLY[1..])?, Totals::default());
    let tried = mutants.each(|mutant| {
        let (device, before) = (MemoryDevice::from_bytes(&mutant.bytes), mutant.bytes);
        let device = Arc::new(device);
        let run = || unshare(Arc::clone(&device) as _, &options()).map(drop);
        judge(run, &device, &before, &mut totals)
    });
    let count = mutants.count;
    report(&format!("{count} mutated images, unshared: {totals:?}"));
    tried?;
    let some = count / 20;
    ensure!(totals.resized > some && totals.refused > some, "{totals:?}");
    Ok(())
}

fn one(mutant: Mutant, totals: &mut Totals) -> Result<()> {
    let Mutant {
        mut bytes, mut rng, ..
    } = mutant;
    let len = bytes.len() as u64;
    let target = match rng.below(3) {
        0 => Target::Least,
        1 => Target::Bytes(len * 8 / 10),
        _ => Target::Bytes(len * 3),
    };
    if let Target::Bytes(wanted) = target {
        bytes.resize(bytes.len().max(usize::try_from(wanted)?), 0);
    }
    let device = Arc::new(MemoryDevice::from_bytes(&bytes));
    let run = || resize(Arc::clone(&device) as _, target, &options()).map(drop);
    judge(run, &device, &bytes, totals)
}

/// Runs what changes `device`, which holds `bytes`.
fn judge(
    run: impl Fn() -> extant_resize::Result<()>,
    device: &Arc<MemoryDevice>,
    bytes: &[u8],
    totals: &mut Totals,
) -> Result<()> {
    let Ok(outcome) = catch_unwind(AssertUnwindSafe(run)) else {
        bail!("it panicked");
    };
    let check = |device: &Arc<MemoryDevice>| check(Arc::clone(device) as _, &options().check);
    let Err(error) = outcome else {
        totals.resized += 1;
        let checked = check(device)?;
        ensure!(checked.is_clean(), "{:?}", checked.findings);
        return Ok(());
    };
    totals.refused += 1;
    // What was sound before is sound still: only blocks that are not used may have been written.
    let before = check(&Arc::new(MemoryDevice::from_bytes(bytes)));
    if before.is_ok_and(|report| report.is_clean()) {
        let checked = check(device)?;
        ensure!(checked.is_clean(), "{error}: {:?}", checked.findings);
    }
    Ok(())
}
