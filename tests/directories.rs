//! Large directories: 100,000 entries are ordinary, and a listing stays true while others create
//! and remove around it.

use extant_testkit::{Image, Need, Result, Stop, Subject, Tree};
use extant_testkit::{ensure, need, report, tree::Compare};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")];
const MANY: u32 = 100_000;

fn names(dir: &Path) -> Result<Vec<String>> {
    fs::read_dir(dir)?
        .map(|e| Ok(e?.file_name().to_string_lossy().into_owned()))
        .collect()
}

#[test]
fn a_hundred_thousand_entries() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    // 1 KiB blocks make the tree of hashes deepest.
    let image = Image::of_mib(256).args("-b 1024 -N 130000").make()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    let dir = mount.join("many");
    fs::create_dir(&dir)?;
    for i in 0..MANY {
        File::create(dir.join(format!("entry-{i}")))?;
    }
    let all = names(&dir)?;
    let distinct: BTreeSet<&String> = all.iter().collect();
    ensure!(all.len() == MANY as usize, "{} entries listed", all.len());
    ensure!(distinct.len() == all.len(), "some entries are listed twice");
    for i in (0..MANY).step_by(997) {
        ensure!(
            dir.join(format!("entry-{i}")).exists(),
            "entry-{i} is not found"
        );
        ensure!(
            !dir.join(format!("entry-{i}x")).exists(),
            "entry-{i}x is found"
        );
    }
    for i in (0..MANY).filter(|i| i % 3 != 0) {
        fs::remove_file(dir.join(format!("entry-{i}")))?;
    }
    let left = names(&dir)?.len();
    ensure!(left == MANY.div_ceil(3) as usize, "{left} entries left");
    mount.unmount()?;
    image.fsck_clean()?;
    let linux = Subject::Ext4.mount(image.path(), "")?;
    ensure!(
        names(&linux.join("many"))?.len() == left,
        "Linux lists another number"
    );
    for i in (0..MANY).step_by(999) {
        ensure!(
            linux.join(format!("many/entry-{i}")).exists() == (i % 3 == 0),
            "Linux on entry-{i}"
        );
    }
    fs::remove_dir_all(linux.join("many"))?;
    linux.unmount()?;
    image.fsck_clean()?;
    report(&format!("a directory of {MANY} entries"));
    Ok(())
}

#[test]
fn a_listing_stays_true_while_others_create_and_remove() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(64).args("-b 1024 -N 30000").make()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    let dir = mount.join("d");
    fs::create_dir(&dir)?;
    // These stay; the rest comes and goes.
    for i in 0..3000 {
        File::create(dir.join(format!("stays-{i}")))?;
    }
    let stop = AtomicBool::new(false);
    let rounds = std::thread::scope(|s| -> Result<usize> {
        let churn: Vec<_> = (0..2)
            .map(|t| {
                let (dir, stop) = (&dir, &stop);
                s.spawn(move || -> Result<()> {
                    let mut n = 0u32;
                    while !stop.load(Ordering::Relaxed) {
                        File::create(dir.join(format!("passes-{t}-{n}-{}", "z".repeat(50))))?;
                        if n >= 100 {
                            let old = n - 100;
                            fs::remove_file(
                                dir.join(format!("passes-{t}-{old}-{}", "z".repeat(50))),
                            )?;
                        }
                        n += 1;
                    }
                    Ok(())
                })
            })
            .collect();
        let at_end = Stop::at_end(&stop);
        let mut rounds = 0;
        let mut wrong = None;
        while rounds < 15 && wrong.is_none() {
            let mut seen: BTreeMap<String, u32> = BTreeMap::new();
            for name in names(&dir)? {
                *seen.entry(name).or_default() += 1;
            }
            let stays = seen.iter().filter(|(n, _)| n.starts_with("stays-"));
            let (mut once, mut other) = (0, 0);
            for (_, count) in stays {
                if *count == 1 { once += 1 } else { other += 1 }
            }
            if once != 3000 || other != 0 {
                wrong = Some(format!(
                    "round {rounds}: {once} listed once, {other} more than once"
                ));
            }
            rounds += 1;
        }
        drop(at_end);
        for c in churn {
            c.join()
                .map_err(|_| extant_testkit::Error::new("churn panicked"))??;
        }
        ensure!(wrong.is_none(), "{}", wrong.unwrap_or_default());
        Ok(rounds)
    })?;
    ensure!(rounds == 15, "only {rounds} rounds");
    mount.unmount()?;
    image.fsck_clean()
}

/// More subdirectories than a link count can hold.
#[test]
fn seventy_thousand_subdirectories() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(300).args("-b 1024 -N 80000").make()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    let dir = mount.join("d");
    fs::create_dir(&dir)?;
    for i in 0..70_000 {
        fs::create_dir(dir.join(i.to_string()))?;
    }
    let links = std::os::unix::fs::MetadataExt::nlink(&fs::metadata(&dir)?);
    ensure!(
        links == 1,
        "a directory with more than 64,998 subdirectories says {links} links, not 1"
    );
    for i in 0..69_990 {
        fs::remove_dir(dir.join(i.to_string()))?;
    }
    let here = Tree::take(mount.dir())?;
    mount.unmount()?;
    image.fsck_clean()?;
    let linux = Subject::Ext4.mount(image.path(), "ro")?;
    here.expect_equal(&Tree::take(linux.dir())?, Compare::default())
}
