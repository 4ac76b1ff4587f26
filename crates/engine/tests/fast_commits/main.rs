//! Fast commits that Linux left, replayed: the tree is the one that Linux had, e2fsck and the check
//! find nothing, and a power cut of the replay changes nothing of that.
//!
//! The first oracle is the mounted file system itself: each change was followed by an fsync. The
//! second is Linux's own replay of another copy. It leaves link counts of directories wrong, and
//! refuses logs with a file that was open when its last name went.
//!
//! `EXTANT_SECONDS` repeats the storms with fresh seeds until they are over, from `EXTANT_SEED` on;
//! with it, power cuts visit more states.

mod costs;
mod hostile;
mod inside;
mod kit;
mod other_readers;
mod ours;
mod power_cuts;
mod storm;

use std::time::{Duration, Instant};

use extant_testkit::mount::Subject;
use extant_testkit::tree::Tree;
use extant_testkit::{Context, Image, Result, ensure, need, report};

use kit::{ALIKE, NEEDS, fast_commits, judge, tree_of};
use storm::Storm;

/// Kinds of volumes.
const CASES: &[&str] = &[
    "-b 4096",
    "-b 1024 -O ^metadata_csum,^64bit",
    "-b 1024 -I 128 -O ^orphan_file",
    "-b 2048 -O ^flex_bg,uninit_bg,^metadata_csum",
    "-b 1024 -O bigalloc -C 4096",
];

/// The number in a variable of the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A volume of `args` with room for many fast commits.
fn volume(args: &str) -> Result<Image> {
    let args = format!("{args} -O fast_commit -J size=8,fast_commit_size=512");
    Image::of_mib(64).args(&args).make()
}

/// Replays of Linux and Extant come to the same tree, but for the links of directories.
fn expect_linux_agrees(copy: &Image, ours: &Tree) -> Result<()> {
    let theirs = tree_of(copy, "")?;
    let all = ours.differences(&theirs, ALIKE);
    let more: Vec<&String> = all
        .iter()
        .filter(|line| !line.contains(": links: "))
        .collect();
    ensure!(more.is_empty(), "Linux's replay: {more:?}");
    Ok(())
}

/// Storms on one kind of volume. Returns the number of copies and of fast commits in them.
fn storms(args: &str, seed: u64, only_fast: bool) -> Result<(usize, usize)> {
    let image = volume(args)?;
    let mount = Subject::Ext4.mount(image.path(), "commit=300")?;
    let mut storm = Storm::begin(mount.dir(), seed, only_fast)?;
    let mut seen = (0, 0);
    for round in 0..4 {
        for _ in 0..12 {
            storm.step()?;
        }
        let copy = image.copy()?;
        let live = Tree::take(mount.dir())?;
        let commits = fast_commits(&copy)?;
        seen = (seen.0 + 1, seen.1 + commits);
        let alike = judge(&copy, &live, ALIKE).and_then(|ours| match only_fast {
            // Linux shows attributes of an inode that had the same record before.
            false => Ok(()),
            true => expect_linux_agrees(&copy, &ours),
        });
        alike.context(|| format!("round {round}, {commits} fast commits"))?;
        if round == 1 {
            storm.commit()?;
        }
    }
    mount.unmount()?;
    Ok(seen)
}

#[test]
fn storms_of_linux_are_replayed() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let until = number("EXTANT_SECONDS").map(|secs| Instant::now() + Duration::from_secs(secs));
    let mut seed = number("EXTANT_SEED").unwrap_or(1);
    let mut seen = (0, 0);
    loop {
        for args in CASES {
            seed += 1;
            let only_fast = seed.is_multiple_of(2);
            let (copies, commits) = storms(args, seed, only_fast)
                .context(|| format!("{args}, seed {seed}, only fast: {only_fast}"))?;
            seen = (seen.0 + copies, seen.1 + commits);
        }
        // Each kind of volume gets both kinds of storms in the end.
        seed += 1;
        if until.is_none_or(|until| Instant::now() >= until) {
            break;
        }
    }
    report(&format!(
        "{} logs with {} fast commits replayed",
        seen.0, seen.1
    ));
    ensure!(seen.1 > seen.0 * 4, "few of the changes were fast commits");
    Ok(())
}

/// Files that were removed while they were open, and one that was made without a name and got one.
/// Linux refuses the first and loses the second.
#[test]
fn files_without_a_name_are_gone_and_late_names_are_there() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (seed, args) in (10..).zip(["-b 4096", "-b 1024 -O ^orphan_file"]) {
        let image = volume(args)?;
        let mount = Subject::Ext4.mount(image.path(), "commit=300")?;
        let mut storm = Storm::begin(mount.dir(), seed, true)?;
        // Orphans of the transactions, one of which gets a name by a fast commit.
        storm.unlink_open()?;
        storm.unlink_open()?;
        let late = storm.unnamed()?;
        storm.commit()?;
        storm.name(&late, "late")?;
        let later = storm.unnamed()?;
        storm.name(&later, "one/later")?;
        storm.unlink_open()?;
        // Numbers of orphans get new owners.
        storm.open.remove(0);
        storm.open.remove(0);
        for _ in 0..14 {
            storm.step()?;
        }
        let copy = image.copy()?;
        let live = Tree::take(mount.dir())?;
        let commits = fast_commits(&copy)?;
        ensure!(commits > 8, "{args}: only {commits} fast commits");
        judge(&copy, &live, ALIKE).context(|| args.to_string())?;
        drop((storm, late, later));
        mount.unmount()?;
    }
    Ok(())
}
