//! Volumes of random combinations of features, made by either side: a storm by Extant, which Linux
//! shows as it was, and one by Linux, which Extant shows; both checkers judge after each. Some are
//! copied before they are unmounted, and the other side replays the copy.
//!
//! `EXTANT_SEED` is the first combination, and `EXTANT_COMBINATIONS` says how many there are.

mod crash;
mod draw;
mod host;
mod listing;
mod storm;
mod volume;

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
