//! Images with random damage: a repair ends without a panic and within its memory. It leaves an
//! image that e2fsck calls clean, or says what is left; a clean image is not changed.
//!
//! `EXTANT_MUTANTS` (120) is the number of images, `EXTANT_SEED` (0) the first seed. A failure
//! prints the line that repeats it.

#[path = "../../check/tests/check_kit/mod.rs"]
mod check_kit;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use check_kit::{BASES, base, exceptions, verdict};
use extant_blockdev::MemoryDevice;
use extant_check::{CheckOptions, check};
use extant_fix::{FixOptions, fix};
use extant_testkit::mutate::{Map, Script};
use extant_testkit::{Context, Need, Result, Rng, TempDir, bail, ensure, need, report};

const NEEDS: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
    Need::Tool("e2fsck"),
];

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

fn from_env(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
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
    let first = from_env("EXTANT_SEED", 0) << 20;
    let count = from_env("EXTANT_MUTANTS", 120);
    let mut bases = Vec::new();
    for (name, mib, args, dirty) in BASES {
        let image = base(*mib, args, *dirty).context(|| (*name).to_owned())?;
        let bytes = std::fs::read(image.path())?;
        let map = Map::of(&bytes);
        bases.push((*name, bytes, map));
    }
    let (dir, mut totals) = (TempDir::new("mutants")?, Totals::default());
    let mut wrong = Vec::new();
    for seed in first..first + count {
        let mut rng = Rng::new(seed);
        let (name, bytes, map) = &bases[rng.index(bases.len())];
        let mut bytes = bytes.clone();
        let mutation = map.apply(&mut bytes, &Script::random(&mut rng, 2));
        let what = || format!("seed {seed}, {name}: {mutation}");
        if let Err(error) = one(&bytes, &dir, &mut totals).context(what) {
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
        let mut notes = report.notes.iter();
        let remembers = notes.any(|note| note.what.starts_with("it remembers error"));
        let known = remembers || exceptions::explain(&verdict).is_some();
        ensure!(
            verdict.agree() || known,
            "e2fsck: {}\n{report:?}",
            verdict.said
        );
    }
    Ok(())
}
