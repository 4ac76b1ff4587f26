//! A power cut at each write of a mounted volume that grows while files are written: the size
//! before a step or after it, sound, with all that was there.
//!
//! `EXTANT_CUT_BUDGET=long` visits more states of each run. A failure names the state.

mod resize_kit;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use extant_testkit::crash::{Budget, CrashState, Explorer, Totals};
use extant_testkit::limit::Watchdog;
use extant_testkit::{Image, Result, ensure, need};
use resize_kit::content;
use resize_kit::cuts::{by_e2fsck, is_sound, mounted, recorded, text, told};

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
        "block maps",
        12,
        "-b 1024 -g 2048 -N 200 -O ^metadata_csum,^64bit,uninit_bg",
        &[13, 24],
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
