//! A power cut at each write of a resize: the old volume or the new one, after the replay that any
//! mount makes.
//!
//! `EXTANT_CUT_BUDGET=long` visits more states of each run. A failure names the state.

mod resize_kit;

use std::collections::BTreeSet;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice};
use extant_check::{Remedy, Repair, check};
use extant_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extant_resize::{Target, resize};
use extant_testkit::crash::{Budget, CrashState, Explorer, Totals};
use extant_testkit::{Context, Image, Result, bail, ensure, need, report};
use extant_units::DevOff;
use resize_kit::cuts::{by_e2fsck, is_sound, mounted, recorded, text, told};
use resize_kit::{content, options};

/// A run: name, MiB before, arguments of mke2fs, the share that is filled, and bytes after.
type Run = (&'static str, u64, &'static str, u64, Target);

const RUNS: &[Run] = &[
    ("grow", 6, "-b 1024 -N 200", 60, Target::Bytes(19 << 20)),
    (
        "grow, with a copy of the superblock in group 1",
        12,
        "-b 1024 -N 200",
        60,
        Target::Bytes(20 << 20),
    ),
    (
        "shrink, the journal moves",
        24,
        "-b 1024 -g 4096 -N 400",
        25,
        Target::Bytes(14 << 20),
    ),
    (
        "grow past the reserve, the journal is small",
        6,
        "-b 1024 -g 512 -N 200 -O ^resize_inode",
        60,
        Target::Bytes(40 << 20),
    ),
    (
        "grow, meta groups",
        6,
        "-b 1024 -g 256 -N 200 -O meta_bg,^resize_inode -J size=1",
        40,
        Target::Bytes(14 << 20),
    ),
    (
        "to the least",
        16,
        "-b 1024 -g 2048 -N 400 -O orphan_file",
        40,
        Target::Least,
    ),
    (
        "block maps",
        16,
        "-b 1024 -g 2048 -N 400 -O ^metadata_csum,^64bit,uninit_bg -J size=1",
        40,
        Target::Bytes(11 << 20),
    ),
    (
        "grow, blocks larger than a page",
        24,
        "-b 8192 -g 1024 -N 200 -J size=8",
        60,
        Target::Bytes(40 << 20),
    ),
    (
        "shrink, blocks larger than a page",
        40,
        "-b 16384 -g 1024 -N 200 -J size=16",
        20,
        Target::Bytes(30 << 20),
    ),
];

fn blocks(dev: &dyn BlockDevice) -> std::result::Result<u64, String> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let read = dev.read_at(DevOff::new(SUPERBLOCK_OFFSET), &mut bytes);
    read.map_err(|error| error.to_string())?;
    let sb = Superblock::parse(&bytes).map_err(|error| error.to_string())?;
    Ok(sb.blocks_count().get())
}

/// Cuts the power while one volume is resized.
fn explore(run: &Run, budget: Budget) -> Result<Totals> {
    let (name, mib, args, share, target) = *run;
    let len = match target {
        Target::Bytes(bytes) => bytes,
        _ => 0,
    };
    let (before, recorder) = recorded(mib, args, share, len)?;
    let right = content(Arc::clone(&recorder) as _)?;
    let done = resize(Arc::clone(&recorder) as _, target, &options())?;
    let ends = [done.blocks_before, done.blocks];
    ensure!(done.blocks != done.blocks_before, "{done:?}");
    ensure!(
        content(Arc::clone(&recorder) as _)? == right,
        "the content has changed"
    );
    Image::of_bytes(&recorder.inner().to_bytes())?.fsck_clean()?;
    let (mut seen, mut sizes) = (0_u64, BTreeSet::new());
    let judge = |state: CrashState| -> std::result::Result<(), String> {
        seen += 1;
        if !state.cut.tears() {
            is_sound(&state)?;
            // One state in twelve: it costs several processes.
            if seen % 12 == 1 {
                by_e2fsck(&state, before.len()).map_err(text)?;
            }
        }
        let fs = mounted(Arc::clone(&state.device) as _).map_err(text)?;
        fs.unmount().map_err(text)?;
        is_sound(&state).map_err(|what| format!("after a mount: {what}"))?;
        let size = blocks(&*state.device)?;
        sizes.insert(size);
        match content(Arc::clone(&state.device) as _).map_err(text)? == right {
            true => Ok(()),
            false => Err(format!("{size} blocks, and the content has changed")),
        }
    };
    let explorer = Explorer::new(before.clone(), recorder.events(), 1, budget);
    let totals = explorer.run(judge).map_err(|failure| told(name, failure))?;
    let known = target == Target::Least || sizes.iter().all(|size| ends.contains(size));
    ensure!(known && sizes.len() > 1, "{sizes:?} instead of {ends:?}");
    Ok(totals)
}

#[test]
fn a_cut_leaves_the_old_volume_or_the_new_one() -> Result<()> {
    if !need(resize_kit::NEEDS) {
        return Ok(());
    }
    let (budget, runs) = match std::env::var("EXTANT_CUT_BUDGET").as_deref() {
        Ok("long") => (Budget::LONG, RUNS),
        _ => {
            let short = Budget {
                samples: 1,
                cut_stride: 40,
                ..Budget::SHORT
            };
            (short, RUNS.get(..3).unwrap_or(RUNS))
        }
    };
    let mut all = Totals::default();
    for run in runs {
        all += explore(run, budget).context(|| run.0)?;
    }
    report(&format!("resizes with power cuts: {all}"));
    if all.torn < 5 {
        bail!("{all}");
    }
    Ok(())
}

/// Checks that the check has nothing to say of copies of superblock and descriptors on `dev`.
fn copies_are_right(dev: Arc<dyn BlockDevice>) -> std::result::Result<(), String> {
    let checked = check(dev, &options().check).map_err(text)?;
    let mut notes = checked.notes.iter().chain(&checked.findings);
    let stale = |remedy: &Remedy| {
        let Remedy::Repair(repair) = remedy else {
            return false;
        };
        matches!(
            repair,
            Repair::SuperblockCopies(_) | Repair::DescriptorCopies(_)
        )
    };
    match notes.find(|note| stale(&note.remedy)) {
        None => Ok(()),
        Some(note) => Err(note.to_string()),
    }
}

/// Cuts the power while the copies of superblock and descriptors are written, or right before that.
/// A resize to the size that the volume has then writes all of them, and so does a mount that is
/// asked to grow to it.
#[test]
fn the_same_resize_again_writes_the_copies_that_a_cut_left() -> Result<()> {
    if !need(resize_kit::NEEDS) {
        return Ok(());
    }
    // Writes and flushes from the end of the recovery on.
    const LAST: usize = 24;
    let budget = Budget {
        samples: 1,
        cut_stride: 1,
        torn: 1,
        exhaustive_below: 1,
    };
    let args = "-b 1024 -g 1024 -N 400";
    for (mib, to) in [(8, 14 << 20), (14, 8 << 20)] {
        let (before, recorder) = recorded(mib, args, 20, 14 << 20)?;
        let right = content(Arc::clone(&recorder) as _)?;
        let done = resize(Arc::clone(&recorder) as _, Target::Bytes(to), &options())?;
        let events = recorder.events();
        resize(Arc::clone(&recorder) as _, Target::Bytes(to), &options())?;
        let more = recorder.events().len() - events.len();
        ensure!(more == 0, "{more} writes though no copy is stale");
        let first = events.len() - LAST;
        let (mut stale, mut sizes) = (0_u64, BTreeSet::new());
        let judge = |state: CrashState| -> std::result::Result<(), String> {
            if state.completed < first {
                return Ok(());
            }
            let fs = mounted(Arc::clone(&state.device) as _).map_err(text)?;
            fs.unmount().map_err(text)?;
            let blocks = blocks(&*state.device)?;
            sizes.insert(blocks);
            stale += u64::from(copies_are_right(Arc::clone(&state.device) as _).is_err());
            let copy = || Arc::new(CowDevice::new(Arc::clone(&state.device)));
            let dev = copy();
            let target = Target::Bytes(blocks * done.block_size);
            let again = resize(Arc::clone(&dev) as _, target, &options()).map_err(text)?;
            if again.blocks != blocks || again.blocks_before != blocks {
                return Err(format!("{again:?}"));
            }
            copies_are_right(Arc::clone(&dev) as _).map_err(|what| format!("resized: {what}"))?;
            if content(dev).map_err(text)? != right {
                return Err("the content has changed".into());
            }
            let dev = copy();
            let fs = mounted(Arc::clone(&dev) as _).map_err(text)?;
            fs.grow(blocks * done.block_size).map_err(text)?;
            fs.unmount().map_err(text)?;
            copies_are_right(dev).map_err(|what| format!("grown: {what}"))
        };
        let visited = Explorer::new(before, events, 1, budget).run(judge);
        visited.map_err(|failure| told(&format!("{mib} MiB"), failure))?;
        ensure!(
            stale > 10 && sizes.contains(&done.blocks),
            "{stale}, {sizes:?}"
        );
    }
    Ok(())
}
