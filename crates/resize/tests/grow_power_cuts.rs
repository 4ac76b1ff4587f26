//! A power cut at each write of a mounted volume that grows while files are written: the size
//! before a step or after it, sound, with all that was there.
//!
//! `EXTANT_CUT_BUDGET=long` visits more states of each run. A failure names the state.

mod resize_kit;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_disk::superblock::Superblock;
use extant_testkit::crash::{Budget, CrashState, Explorer, Totals};
use extant_testkit::limit::Watchdog;
use extant_testkit::{Error, Image, Recorder, Result, ensure, need};
use extant_units::DevOff;
use resize_kit::cuts::{by_e2fsck, is_sound, mounted, recorded, text, told};
use resize_kit::{content, same};

const MIB: u64 = 1 << 20;

/// A run: name, MiB before, arguments of mke2fs, and the sizes in MiB, one after the other.
type Run = (&'static str, u64, &'static str, &'static [u64]);

const RUNS: &[Run] = &[
    (
        "groups and a new block of descriptors",
        6,
        "-b 1024 -g 512 -G 2 -N 200",
        &[7, 11],
    ),
    (
        "a copy of the superblock in group 1",
        12,
        "-b 1024 -N 200",
        &[14, 20],
    ),
    (
        "full groups",
        12,
        "-b 1024 -g 2048 -N 200 -O ^resize_inode",
        &[15, 24],
    ),
    (
        "meta groups",
        12,
        "-b 1024 -g 512 -G 2 -N 200 -O meta_bg,^resize_inode",
        &[14, 20],
    ),
    (
        "block maps",
        12,
        "-b 1024 -g 2048 -N 200 -O ^metadata_csum,^64bit,uninit_bg",
        &[13, 24],
    ),
    (
        "blocks larger than a page",
        24,
        "-b 8192 -g 512 -N 200 -J size=8",
        &[25, 40],
    ),
];

/// Lines of a content that are not about what was written while the volume grew.
fn early(content: &str) -> String {
    let lines = content.lines().filter(|line| !line.starts_with("/late"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Cuts the power while one volume grows.
fn explore(run: &Run, budget: Budget) -> Result<Totals> {
    let (name, mib, args, sizes) = *run;
    let most = sizes.iter().copied().max().unwrap_or(mib) * MIB;
    let (before, recorder) = recorded(mib, args, 60, most)?;
    let right = early(&content(Arc::clone(&recorder) as _)?);
    let fs = mounted(Arc::clone(&recorder) as _)?;
    let mut ends = BTreeSet::from([fs.volume().size()]);
    for size in sizes {
        fs.create_dir_all("/late")?;
        fs.write(format!("/late/{size}"), vec![1; 300_000])?;
        fs.grow(size * MIB)?;
        fs.write(format!("/late/then{size}"), vec![2; 500_000])?;
        fs.sync()?;
        ends.insert(fs.volume().size());
    }
    let last = fs.volume().size();
    fs.unmount()?;
    Image::of_bytes(&recorder.inner().to_bytes())?.fsck_clean()?;
    let (mut seen, mut found) = (0_u64, BTreeSet::new());
    let judge = |state: CrashState| -> std::result::Result<(), String> {
        seen += 1;
        // One state in forty: it costs several processes.
        if !state.cut.tears() && seen % 40 == 1 {
            by_e2fsck(&state, before.len()).map_err(text)?;
        }
        let fs = mounted(Arc::clone(&state.device) as _).map_err(text)?;
        found.insert(fs.volume().size());
        fs.unmount().map_err(text)?;
        is_sound(&state).map_err(|what| format!("after a mount: {what}"))?;
        let now = early(&content(Arc::clone(&state.device) as _).map_err(text)?);
        match now == right {
            true => Ok(()),
            false => Err("the content has changed".to_owned()),
        }
    };
    let explorer = Explorer::new(before.clone(), recorder.events(), 1, budget);
    let totals = explorer.run(judge).map_err(|failure| told(name, failure))?;
    // A last group that was filled up first is a step of its own.
    ensure!(
        found.is_superset(&ends),
        "{name}: {found:?} without some of {ends:?}"
    );
    ensure!(found.last() == Some(&last), "{name}: {found:?} past {last}");
    ensure!(
        found.len() <= ends.len() + sizes.len(),
        "{name}: {found:?}, {ends:?}"
    );
    Ok(totals)
}

/// The bytes of a device.
fn bytes_of(dev: &dyn BlockDevice) -> Result<Vec<u8>> {
    let mut bytes = vec![0; extant_units::index(dev.len())];
    dev.read_at(DevOff::ZERO, &mut bytes)?;
    Ok(bytes)
}

/// Checks that all copies of the superblock have the volume's size, and that the descriptors behind
/// them lead to the same blocks as the volume's own. Blocks have 1 KiB and groups 512 of them.
fn copies_are_right(bytes: &[u8]) -> Result<()> {
    let block = |at: u64| &bytes[extant_units::index(at << 10)..][..1024];
    let own = Superblock::parse(block(1))?;
    let (size, groups) = (own.desc_size(), own.group_count());
    let table =
        |start: u64| (0..own.desc_blocks()).flat_map(move |at| block(start + u64::from(at)));
    let leads_to = |start: u64| -> Vec<u8> {
        let all: Vec<u8> = table(start).copied().collect();
        // Both bitmaps and the inode table.
        let descs = all.chunks(size).take(groups as usize);
        descs.flat_map(|desc| desc[..12].to_vec()).collect()
    };
    // Groups 1 and those of powers of 3, 5 and 7.
    for group in [1, 3, 5, 7, 9, 25, 27]
        .into_iter()
        .filter(|group| *group < groups)
    {
        let start = 1 + 512 * u64::from(group);
        let copy = Superblock::parse(block(start))?;
        let (is, should) = (copy.blocks_count(), own.blocks_count());
        ensure!(
            is == should,
            "the copy in group {group}: {is:?} blocks of {should:?}"
        );
        let same = leads_to(start + 1) == leads_to(2);
        ensure!(same, "the descriptors in group {group} are others");
    }
    Ok(())
}

/// Grows to 7 MiB and cuts the power; grows what the cut left to 11 MiB and cuts the power again.
/// Each state mounts, holds what it held, and is of one size throughout once it was asked to grow
/// to the size that it has. Of the states after the first cut every `nth` is visited.
fn explore_twice(nth: u64, budget: Budget) -> Result<Totals> {
    let (before, recorder) = recorded(6, "-b 1024 -g 512 -G 2 -N 200", 60, 11 * MIB)?;
    let right = content(Arc::clone(&recorder) as _)?;
    let fs = mounted(Arc::clone(&recorder) as _)?;
    fs.grow(7 * MIB)?;
    fs.unmount()?;
    let mut sizes = BTreeSet::new();
    let mut again = Totals::default();
    let mut judge_last = |state: CrashState| -> Result<()> {
        let fs = mounted(Arc::clone(&state.device) as _)?;
        let size = fs.volume().size();
        sizes.insert(size);
        fs.grow(size)?;
        fs.unmount()?;
        is_sound(&state).map_err(Error::new)?;
        copies_are_right(&bytes_of(&*state.device)?)?;
        same(&content(state.device)?, &right)
    };
    let mut seen = 0;
    let mut grow_again = |state: CrashState| -> Result<()> {
        seen += 1;
        if seen % nth != 1 % nth {
            return Ok(());
        }
        let bytes = bytes_of(&*state.device)?;
        let recorder = Arc::new(Recorder::new(MemoryDevice::from_bytes(&bytes)));
        let fs = mounted(Arc::clone(&recorder) as _)?;
        fs.grow(11 * MIB)?;
        fs.unmount()?;
        copies_are_right(&recorder.inner().to_bytes())?;
        let explorer = Explorer::new(bytes, recorder.events(), 2, budget);
        let visited = explorer.run(|state| judge_last(state).map_err(text));
        let visited = visited.map_err(|failure| told("then", failure))?;
        again.cuts += visited.cuts;
        again.subsets += visited.subsets;
        again.torn += visited.torn;
        Ok(())
    };
    let explorer = Explorer::new(before, recorder.events(), 1, budget);
    let first = explorer.run(|state| grow_again(state).map_err(text));
    first.map_err(|failure| told("first", failure))?;
    let ends = [6 * MIB, 7 * MIB, 11 * MIB];
    ensure!(ends.iter().all(|end| sizes.contains(end)), "only {sizes:?}");
    Ok(again)
}

#[test]
fn two_cuts_in_a_row_leave_one_size_and_no_stale_copy() -> Result<()> {
    if !need(resize_kit::NEEDS) {
        return Ok(());
    }
    let _limit = Watchdog::new(Duration::from_secs(500));
    let budget = Budget {
        samples: 1,
        cut_stride: 12,
        torn: 0,
        exhaustive_below: 2,
    };
    let totals = match std::env::var("EXTANT_CUT_BUDGET").as_deref() {
        Ok("long") => explore_twice(1, Budget { torn: 1, ..budget })?,
        _ => explore_twice(9, budget)?,
    };
    println!("{totals:?}");
    Ok(())
}

#[test]
fn a_cut_leaves_the_size_before_a_step_or_after_it() -> Result<()> {
    if !need(resize_kit::NEEDS) {
        return Ok(());
    }
    let _limit = Watchdog::new(Duration::from_secs(500));
    let budget = match std::env::var("EXTANT_CUT_BUDGET").as_deref() {
        Ok("long") => Budget::LONG,
        _ => Budget {
            samples: 1,
            cut_stride: 10,
            ..Budget::SHORT
        },
    };
    for run in RUNS {
        let totals = explore(run, budget)?;
        println!("{}: {totals:?}", run.0);
    }
    Ok(())
}
