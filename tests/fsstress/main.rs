//! fsstress, the storm of xfstests and LTP, on a mount whose daemon is killed or whose disk loses
//! its power.
//!
//! A stage of the soak: the test does nothing unless `EXTANT_FSSTRESS` names the program. It
//! repeats all layouts for `EXTANT_SECONDS`, at least once.
//!
//! # Invariants
//! * Beside fsstress a storm with a ledger runs. Every file that it fsynced is whole after the cut,
//!   and no other one shows a foreign byte.
//! * `extant check` finds nothing in what the cut left. Neither does e2fsck after a replay by
//!   itself, by Linux, and by Extant.

mod disk;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use disk::{Cut, Disk};
use extant_testkit::cmd::Running;
use extant_testkit::storm::{Storm, check_noise};
use extant_testkit::{
    Cmd, Context, Error, Image, Mount, Need, Result, Rng, Subject, ensure, need, report, tools,
};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Loop,
    Need::Tool("mke2fs"),
    Need::Tool("nbdkit"),
    Need::NbdkitPlugin("python"),
];

/// Longest time from the beginning of fsstress to the cut.
const LONGEST_MS: u64 = 2500;

/// Volumes that differ in their blocks, their journals and their checksums.
const LAYOUTS: [&str; 4] = [
    "-b 4096 -J size=4",
    "-b 1024 -J size=4",
    "-b 1024 -J size=4 -O ^metadata_csum,^64bit",
    "-b 2048 -J size=4 -O ^extent,^64bit",
];

/// Sums over all cuts.
#[derive(Default)]
struct Totals {
    cuts: usize,
    unflushed: usize,
    lost: usize,
    replays: usize,
    operations: u64,
    whole: usize,
    noise: usize,
}

/// fsstress in a directory of its own, without operations that FUSE does not have.
fn fsstress(program: &Path, dir: &Path, seed: u64) -> Result<Running> {
    std::fs::create_dir(dir)?;
    let seed = (seed % (1 << 31)).to_string();
    Cmd::new(program)
        .args(["-p", "3", "-n", "1000000", "-s", &seed, "-d"])
        .arg(dir)
        .spawn()
}

/// Storms on `mount` until a moment that `rng` chooses; `cut` is then called.
fn storm_until(
    cut: impl FnOnce() -> Result<()>,
    mount: Mount,
    program: &Path,
    (storm, rng): (&Storm, &mut Rng),
) -> Result<()> {
    let seed = rng.below(1 << 40);
    let mut stress = fsstress(program, &mount.join("fsstress"), seed)?;
    let root = mount.dir().to_owned();
    let after = Duration::from_millis(rng.between(50, LONGEST_MS));
    std::thread::scope(|scope| -> Result<()> {
        let raging = scope.spawn(|| storm.rage(&root, 2, seed));
        std::thread::sleep(after);
        // One that has ended by itself has met an error.
        let early = stress.poll()?;
        storm.doomed.store(true, Ordering::SeqCst);
        let ended = cut().and_then(|()| mount.crash());
        storm.stop.store(true, Ordering::SeqCst);
        let _ = stress.kill();
        let raged = raging
            .join()
            .map_err(|_| Error::new("the storm panicked"))?;
        if let Some(early) = early {
            extant_testkit::bail!("fsstress ended: {}", early.describe());
        }
        ended.and(raged)
    })
}

/// Looks at what a cut has left.
fn judge(image: &Image, storm: &Storm, totals: &mut Totals) -> Result<()> {
    totals.replays += usize::from(image.needs_recovery()?);
    totals.operations += storm.operations.load(Ordering::Relaxed);
    Cmd::new(tools::extant()?)
        .arg("check")
        .arg(image.path())
        .ok()
        .context(|| "extant check before a replay")?;
    let copy = image.copy()?;
    copy.fsck_replay().context(|| "replay by e2fsck")?;
    copy.fsck_clean().context(|| "after replay by e2fsck")?;
    let copy = image.copy()?;
    let linux = Subject::Ext4.mount(copy.path(), "")?;
    storm
        .ledger
        .check(linux.dir())
        .context(|| "after replay by Linux")?;
    linux.unmount()?;
    copy.fsck_clean().context(|| "after replay by Linux")?;
    let again = Subject::Extant.mount(image.path(), "")?;
    totals.whole += storm.ledger.check(again.dir())?;
    totals.noise += check_noise(again.dir())?;
    // fsstress' files are read as well: none may be an error.
    Cmd::new("tar")
        .args(["-cf", "/dev/null", "--sparse", "-C"])
        .arg(again.dir())
        .arg(".")
        .ok()?;
    again.unmount()?;
    image.fsck_clean().context(|| "after its own replay")
}

/// A kill of the daemon, or a cut of the disk's power.
fn one(layout: &str, by_power: bool, rng: &mut Rng, totals: &mut Totals) -> Result<()> {
    let program = program();
    let image = Image::of_mib(96).args(layout).junk().make()?;
    let storm = Storm::default();
    if by_power {
        let mut disk = Disk::serve(image.path())?;
        let mount = Subject::Extant.mount(Path::new(&disk.address()), "commit=1")?;
        storm_until(|| disk.kill(), mount, &program, (&storm, rng))?;
        let Cut { unflushed, lost } = disk.lose_cache(rng)?;
        totals.unflushed += unflushed;
        totals.lost += lost;
    } else {
        let mount = Subject::Extant.mount(image.path(), "commit=1")?;
        storm_until(|| Ok(()), mount, &program, (&storm, rng))?;
    }
    totals.cuts += 1;
    judge(&image, &storm, totals)
}

fn program() -> PathBuf {
    std::env::var_os("EXTANT_FSSTRESS").map_or_else(PathBuf::new, PathBuf::from)
}

#[test]
fn soak_fsstress_and_power_cuts() -> Result<()> {
    if std::env::var_os("EXTANT_SUITES").is_none() {
        eprintln!("fsstress is for the soak: EXTANT_SUITES=1 asks for it");
        return Ok(());
    }
    if !need(NEEDS)
        || !need(&[Need::Named(
            "EXTANT_FSSTRESS",
            "fsstress, of xfstests or LTP",
        )])
    {
        return Ok(());
    }
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let end = Instant::now() + Duration::from_secs(number("EXTANT_SECONDS").unwrap_or(0));
    let seed = number("EXTANT_SEED").unwrap_or(1);
    let mut totals = Totals::default();
    for round in 0.. {
        let layout = LAYOUTS[round % LAYOUTS.len()];
        for by_power in [true, false] {
            let seed = seed
                .wrapping_mul(1_000_003)
                .wrapping_add(totals.cuts as u64);
            let how = if by_power { "power" } else { "daemon" };
            one(layout, by_power, &mut Rng::new(seed), &mut totals)
                .context(|| format!("{how}, {layout}, round {round}"))?;
        }
        if round + 1 >= LAYOUTS.len() && Instant::now() >= end {
            break;
        }
    }
    report(&format!(
        "fsstress: {} cuts, half of them of the power: of {} unflushed writes {} lost in part; {} \
         journals replayed, {} operations beside it, {} fsynced files whole, {} others without a \
         foreign byte",
        totals.cuts,
        totals.unflushed,
        totals.lost,
        totals.replays,
        totals.operations,
        totals.whole,
        totals.noise,
    ));
    ensure!(totals.lost > 0 && totals.whole > 0, "the cuts cost nothing");
    Ok(())
}
