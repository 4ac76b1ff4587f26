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

use check_kit::{BASES, base};
use extant_blockdev::MemoryDevice;
use extant_check::check;
use extant_resize::{Target, resize};
use extant_testkit::mutate::{Map, Script};
use extant_testkit::{Context, Need, Result, Rng, bail, ensure, need, report};
use resize_kit::options;

const NEEDS: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
    Need::Tool("e2fsck"),
];

#[derive(Default, Debug)]
struct Totals {
    resized: u64,
    refused: u64,
}

fn from_env(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn random_damage_is_refused_or_does_no_harm() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let first = from_env("EXTANT_SEED", 0) << 20;
    let count = from_env("EXTANT_MUTANTS", 120);
    let mut bases = Vec::new();
    for (name, mib, args, dirty) in BASES {
        let image = base(*mib, args, *dirty).context(|| (*name).to_owned())?;
        let bytes = std::fs::read(image.path())?;
        let map = Map::of(&bytes);
        bases.push((*name, bytes, map));
    }
    let (mut totals, mut wrong) = (Totals::default(), Vec::new());
    for seed in first..first + count {
        let mut rng = Rng::new(seed);
        let (name, bytes, map) = &bases[rng.index(bases.len())];
        let mut bytes = bytes.clone();
        let mutation = map.apply(&mut bytes, &Script::random(&mut rng, 1));
        let what = || format!("seed {seed}, {name}: {mutation}");
        if let Err(error) = one(bytes, &mut rng, &mut totals).context(what) {
            wrong.push(error.to_string());
        }
    }
    report(&format!("{count} mutated images: {totals:?}"));
    ensure!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    // Damage that was all refused, or none of it, would prove little.
    let some = count / 20;
    ensure!(totals.resized > some && totals.refused > some, "{totals:?}");
    Ok(())
}

fn one(mut bytes: Vec<u8>, rng: &mut Rng, totals: &mut Totals) -> Result<()> {
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
    let run = || resize(Arc::clone(&device) as _, target, &options());
    let Ok(outcome) = catch_unwind(AssertUnwindSafe(run)) else {
        bail!("the resize panicked");
    };
    let Err(error) = outcome else {
        totals.resized += 1;
        let checked = check(device, &options().check)?;
        ensure!(checked.is_clean(), "{:?}", checked.findings);
        return Ok(());
    };
    totals.refused += 1;
    // What was sound before is sound still: only blocks that are not used may have been written.
    let before = check(Arc::new(MemoryDevice::from_bytes(&bytes)), &options().check);
    if before.is_ok_and(|report| report.is_clean()) {
        let checked = check(device, &options().check)?;
        ensure!(checked.is_clean(), "{error}: {:?}", checked.findings);
    }
    Ok(())
}
