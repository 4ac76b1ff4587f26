//! Images with random damage: `check` and `e2fsck -fn` agree on clean or not, and each disagreement
//! is explained.
//!
//! `EXTANT_MUTANTS` (250) is the number of images, `EXTANT_SEED` (0) the first seed. A failure
//! prints the line that repeats it.

mod check_kit;

use std::collections::BTreeMap;
use std::sync::Mutex;

use check_kit::mutants::{Mutant, Mutants, NEEDS};
use check_kit::{
    BASES, CLUSTERS, FeatureSet, LARGE_BLOCKS, READ_ONLY, base, damage, exceptions, verdict,
};
use extant_testkit::{Context, Result, TempDir, ensure, need, report};

#[derive(Default)]
struct Totals {
    damaged: u64,
    clean: u64,
    by_cause: BTreeMap<&'static str, u64>,
    unexplained: Vec<String>,
}

#[test]
fn mutated_images_are_judged_as_e2fsck_judges_them() -> Result<()> {
    agree_on(250, &[BASES, LARGE_BLOCKS].concat())
}

#[test]
fn mutated_images_of_volumes_that_are_only_read_too() -> Result<()> {
    agree_on(250, &[READ_ONLY, CLUSTERS].concat())
}

fn agree_on(count: u64, sets: &[FeatureSet]) -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let mutants = Mutants::new(count, 2, sets)?;
    let count = mutants.count;
    let (seeds, totals) = (Mutex::new(mutants.seeds()), Mutex::new(Totals::default()));
    let work = || -> Result<()> {
        let dir = TempDir::new("mutants")?;
        loop {
            let Some(seed) = seeds.lock().unwrap().next() else {
                return Ok(());
            };
            one(mutants.make(seed), &dir, &totals)?;
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap())
    })?;
    let totals = totals.into_inner().unwrap();
    let explained: u64 = totals.by_cause.values().sum();
    let agreed = count - explained - totals.unexplained.len() as u64;
    report(&format!(
        "{count} mutated images, {} damaged and {} clean by both of {agreed} agreed on; \
         {explained} explained: {:?}",
        totals.damaged, totals.clean, totals.by_cause
    ));
    ensure!(
        totals.unexplained.is_empty(),
        "{} unexplained:\n{}",
        totals.unexplained.len(),
        totals.unexplained.join("\n")
    );
    // Mutations that changed nothing, or none that both call clean, would prove little.
    ensure!(
        totals.damaged * 4 > count,
        "only {} damaged",
        totals.damaged
    );
    Ok(())
}

/// Every exception is real: only one side reports its damage, for that reason.
#[test]
fn each_exception_is_shown() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let mut wrong = Vec::new();
    for exception in exceptions::OURS.iter().chain(exceptions::THEIRS) {
        let (at, request) = exception.shown_by;
        let (_, mib, args, dirty) = [BASES, READ_ONLY, CLUSTERS].concat()[at];
        let image = base(mib, args, dirty)?;
        damage(&image, request).context(|| exception.name.to_owned())?;
        let verdict = verdict(image.path())?;
        let cause = exceptions::explain(&verdict).map(|cause| cause.name);
        if verdict.agree() || cause != Some(exception.name) {
            wrong.push(format!(
                "{} ({}): {verdict:?}",
                exception.name, exception.why
            ));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn one(mutant: Mutant, dir: &TempDir, totals: &Mutex<Totals>) -> Result<()> {
    let Mutant { what, bytes, .. } = mutant;
    let path = dir.join("mutant.img");
    std::fs::write(&path, &bytes)?;
    let verdict = verdict(&path).context(|| what.clone())?;
    let mut totals = totals.lock().unwrap();
    if verdict.agree() {
        match verdict.is_clean() {
            true => totals.clean += 1,
            false => totals.damaged += 1,
        }
        return Ok(());
    }
    match exceptions::explain(&verdict) {
        Some(cause) => *totals.by_cause.entry(cause.name).or_insert(0) += 1,
        None => totals.unexplained.push(format!(
            "{what}\n  e2fsck {:?}: {}\n  check: {:?}",
            verdict.e2fsck,
            verdict
                .said
                .lines()
                .filter(|line| noteworthy(line))
                .take(4)
                .collect::<Vec<_>>()
                .join(" / "),
            verdict.found.iter().take(4).collect::<Vec<_>>()
        )),
    }
    Ok(())
}

fn noteworthy(line: &str) -> bool {
    !line.is_empty() && !line.starts_with("Pass ") && !line.starts_with("e2fsck 1.")
}
