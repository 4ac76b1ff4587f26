//! `kill -9` of the daemon at random moments of a metadata storm. Whatever moment it hits: replay
//! by Extant leaves a clean image, so does replay by e2fsck, every fsynced file is whole, and no
//! file shows a byte that is not its own.

use extant_testkit::storm::{Storm, check_noise};
use extant_testkit::{
    Cmd, Context, Image, Mount, Need, Result, Rng, Subject, TempDir, ensure, need, report,
};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")];

/// Kills in `make test`; `EXTANT_KILLS` asks for more.
const KILLS: usize = 50;
/// Longest time from mount to kill.
const LONGEST_MS: u64 = 700;

/// Images whose paths through the journal differ: block sizes, a log that wraps, one of 32-bit
/// tags without checksums, linked orphans.
const IMAGES: &[&str] = &[
    "-b 1024 -J size=1",
    "-b 4096 -J size=4",
    "-b 1024 -J size=4 -O ^metadata_csum,^64bit",
    "-b 2048 -J size=2 -O ^orphan_file",
    "-b 4096 -I 128 -O ^metadata_csum,uninit_bg -J size=4",
    "-b 1024 -J size=4,fast_commit_size=128 -O fast_commit",
];

#[derive(Default)]
struct Totals {
    whole: AtomicUsize,
    noise: AtomicUsize,
    operations: AtomicUsize,
    replays: AtomicUsize,
}

#[test]
fn kill_at_random_moments() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let subject = Subject::under_test();
    ensure!(
        subject.has_daemon(),
        "{} has no daemon to kill",
        subject.name()
    );
    let kills = std::env::var("EXTANT_KILLS")
        .ok()
        .and_then(|k| k.parse().ok())
        .unwrap_or(KILLS);
    let seed = std::env::var("EXTANT_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1u64);
    let tar = archive()?;
    let totals = Totals::default();
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= kills {
                        return;
                    }
                    let run_seed = seed.wrapping_mul(1_000_003).wrapping_add(n as u64);
                    let args = IMAGES.get(n % IMAGES.len()).copied().unwrap_or_default();
                    let run = one(subject, args, run_seed, &tar.join("tree.tar"), &totals);
                    if let Err(e) = run.context(|| format!("kill {n} ({args}, seed {seed})")) {
                        failures.lock().unwrap().push(e.to_string());
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    ensure!(
        failures.is_empty(),
        "{} of {kills} kills:\n{}",
        failures.len(),
        failures
            .iter()
            .take(5)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n")
    );
    let read = |a: &AtomicUsize| a.load(Ordering::Relaxed);
    report(&format!(
        "{kills} kills after {} operations: {} journals replayed, \
         {} fsynced files whole, {} others without a foreign byte",
        read(&totals.operations),
        read(&totals.replays),
        read(&totals.whole),
        read(&totals.noise)
    ));
    // A storm that never left anything to replay or to check would prove nothing.
    ensure!(read(&totals.replays) * 2 > kills, "too few dirty journals");
    ensure!(read(&totals.whole) > kills, "too few promises");
    Ok(())
}

fn one(subject: Subject, args: &str, seed: u64, tar: &Path, totals: &Totals) -> Result<()> {
    let mut rng = Rng::new(seed);
    let image = Image::of_mib(48).args(args).junk().make()?;
    let mount = subject.mount(
        image.path(),
        if subject == Subject::Extant {
            "commit=1"
        } else {
            ""
        },
    )?;
    let storm = Storm::default();
    let after = Duration::from_millis(rng.between(20, LONGEST_MS));
    let root = mount.dir().to_path_buf();
    let ended = std::thread::scope(|s| {
        let raging = s.spawn(|| storm.rage(&root, 3, seed));
        let taring = s.spawn(|| untar_and_remove(&root, tar, &storm));
        std::thread::sleep(after);
        storm.doomed.store(true, Ordering::SeqCst);
        let killed = mount.crash();
        storm.stop.store(true, Ordering::SeqCst);
        let raged = raging
            .join()
            .map_err(|_| extant_testkit::Error::new("storm panicked"))?;
        taring
            .join()
            .map_err(|_| extant_testkit::Error::new("tar panicked"))??;
        killed.and(raged)
    });
    ended.context(|| "the storm before the kill")?;
    totals.operations.fetch_add(
        usize::try_from(storm.operations.load(Ordering::Relaxed))?,
        Ordering::Relaxed,
    );
    totals
        .replays
        .fetch_add(usize::from(image.needs_recovery()?), Ordering::Relaxed);

    // First, on a copy: e2fsck replays, Linux shows. Of fast commits e2fsck 1.47 loses a part.
    if !args.contains("fast_commit") {
        let copy = image.copy()?;
        copy.fsck_replay().context(|| "replay by e2fsck")?;
        copy.fsck_clean().context(|| "after replay by e2fsck")?;
        look(&Subject::Ext4.mount(copy.path(), "ro")?, &storm, None)
            .context(|| "after e2fsck, through Linux")?;
    }

    // On another, Linux replays by itself.
    if seed.is_multiple_of(3) {
        let copy = image.copy()?;
        let linux = Subject::Ext4.mount(copy.path(), "")?;
        look(&linux, &storm, None).context(|| "after replay by Linux")?;
        linux.unmount()?;
        let judged = match args.contains("fast_commit") {
            true => copy.fsck_clean_but_for_directories(),
            false => copy.fsck_clean(),
        };
        judged.context(|| "after replay by Linux")?;
    }

    // Then the image itself: the subject replays and shows.
    let again = subject
        .mount(image.path(), "")
        .context(|| "mount after the kill")?;
    look(&again, &storm, Some(totals)).context(|| "after its own replay")?;
    again.unmount()?;
    image.fsck_clean().context(|| "after its own replay")
}

fn look(mount: &Mount, storm: &Storm, totals: Option<&Totals>) -> Result<()> {
    let whole = storm.ledger.check(mount.dir())?;
    let noise = check_noise(mount.dir())?;
    if let Some(t) = totals {
        t.whole.fetch_add(whole, Ordering::Relaxed);
        t.noise.fetch_add(noise, Ordering::Relaxed);
    }
    Ok(())
}

/// `tar x` and `rm -r`, one after the other, until the end. Their failures are the kill's.
fn untar_and_remove(root: &Path, tar: &Path, storm: &Storm) -> Result<()> {
    while !storm.stop.load(Ordering::SeqCst) {
        let to = root.join("untarred");
        let steps = [
            Cmd::new("mkdir").arg(&to),
            Cmd::new("tar").arg("-xf").arg(tar).arg("-C").arg(&to),
            Cmd::new("rm").arg("-r").arg(&to),
        ];
        for step in steps {
            let o = step.run()?;
            if storm.doomed.load(Ordering::SeqCst) {
                return Ok(());
            }
            ensure!(o.code == Some(0), "{}", o.describe());
        }
    }
    Ok(())
}

/// An archive of a few hundred small files.
fn archive() -> Result<TempDir> {
    let dir = TempDir::new("tar")?;
    let tree = dir.join("tree");
    for d in 0..20 {
        let sub = tree.join(format!("dir{d}"));
        std::fs::create_dir_all(&sub)?;
        for f in 0..15u64 {
            let seed = d * 100 + f;
            let name = format!("n-{seed:016x}-{}", "q".repeat(usize::try_from(f * 3)?));
            std::fs::write(
                sub.join(name),
                extant_testkit::content::fill(seed, 0, usize::try_from(seed)?),
            )?;
        }
    }
    Cmd::new("tar")
        .arg("-cf")
        .arg(dir.join("tree.tar"))
        .arg("-C")
        .arg(&tree)
        .arg(".")
        .ok()?;
    Ok(dir)
}
