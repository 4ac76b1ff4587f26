//! Volumes of random combinations of features, made by either side: a storm by Extant, which Linux
//! shows as it was, and one by Linux, which Extant shows; both checkers judge after each. Some are
//! copied before they are unmounted, and the other side replays the copy.
//!
//! `EXTANT_SEED` is the first combination, and `EXTANT_COMBINATIONS` says how many there are.

mod crash;
mod draw;
mod guest;
mod host;
mod listing;
mod storm;
mod volume;

use std::path::Path;

use extant_testkit::{Need, Result, ensure, need, report};

use volume::Key;

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Loop,
    Need::Tool("mke2fs"),
    Need::Tool("xfs_io"),
    Need::Tool("lsattr"),
];

/// Those of the virtual machine, and of features that its kernel knows.
const NEEDS_OF_GUEST: &[Need] = &[
    Need::Tool("qemu-system-x86_64"),
    Need::Tool("cpio"),
    Need::Tool("apt-get"),
    Need::Tool("dpkg-deb"),
    Need::Tool("chattr"),
    Need::Tool("fsverity"),
];

/// Combinations that share a boot of the virtual machine.
const BATCH: u64 = 20;

fn number(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn random_combinations_of_features() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (first, count) = (number("EXTANT_SEED", 1), number("EXTANT_COMBINATIONS", 4));
    let key = Key::new()?;
    let (mut counts, mut wrong) = (host::Counts::default(), Vec::new());
    for seed in first..first + count {
        if let Err(error) = host::one(seed, &key, &mut counts) {
            wrong.push(error.to_string());
        }
    }
    let made = counts.volumes;
    report(&format!(
        "{made} of {count} combinations of features were volumes; of {} crashes {} were replayed \
         and {} refused; Linux lost {} fsynced files and miscounted {}; fast commits: {} \
         by Extant, {} by Linux",
        counts.crashes,
        counts.replays,
        counts.refused,
        counts.lost_by_linux,
        counts.miscounted,
        counts.fast_commits[0],
        counts.fast_commits[1]
    ));
    ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    ensure!(made * 2 > count, "only {made} of {count} were volumes");
    Ok(())
}

/// The same with Debian's kernel as Linux's side. It boots a kernel that `scripts/guest` downloads,
/// so it does nothing but where a soak asks for it.
#[test]
fn random_combinations_for_debian() -> Result<()> {
    if std::env::var_os("EXTANT_GUEST").is_none() {
        eprintln!(
            "combinations for Debian's kernel are for the soak: EXTANT_GUEST=1 asks for them"
        );
        return Ok(());
    }
    if !need(NEEDS) || !need(NEEDS_OF_GUEST) {
        return Ok(());
    }
    let (first, count) = (
        number("EXTANT_SEED", 1),
        number("EXTANT_COMBINATIONS", BATCH),
    );
    let key = Key::new()?;
    let (mut counts, mut wrong) = (guest::Counts::default(), Vec::new());
    let end = first + count;
    for start in (first..end).step_by(usize::try_from(BATCH)?) {
        let seeds = start..end.min(start + BATCH);
        guest::batch(seeds, (&key, &mut counts), &mut wrong)?;
    }
    let made = counts.volumes;
    report(&format!(
        "{made} of {count} combinations were volumes for Debian's kernel: {} entries, {} fold, \
         {} are sealed, {} have a project's mark; Linux miscounted {}",
        counts.entries, counts.folding, counts.sealed, counts.of_projects, counts.miscounted
    ));
    ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    ensure!(made * 2 > count, "only {made} of {count} were volumes");
    ensure!(counts.folding > 0 || count < BATCH, "no directory folds");
    ensure!(counts.sealed > 0 || count < BATCH, "no file is sealed");
    ensure!(counts.of_projects > 0 || count < BATCH, "no project");
    Ok(())
}

/// Linux's side of the test above, where that runs it.
#[test]
fn in_the_virtual_machine() -> Result<()> {
    match std::env::var_os(guest::SIDE) {
        Some(work) => guest::linux_side(Path::new(&work)),
        None => Ok(()),
    }
}
