//! A power cut at each write of a repair: the next repair ends as if there had been none.
//!
//! `EXTANT_CUT_BUDGET=long` visits more states of each run. A failure names the state.

#[path = "../../check/tests/check_kit/mod.rs"]
mod check_kit;

use std::sync::Arc;

use check_kit::{BASES, base, damage};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_check::{CheckOptions, check};
use extant_fix::{FixOptions, Report, fix};
use extant_testkit::crash::{Budget, CrashState, Explorer, Failure, Totals};
use extant_testkit::{Context, Error, Image, Need, Recorder, Result, ensure, need, report};

const NEEDS: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
    Need::Tool("e2fsck"),
];

/// Damage of many kinds at once.
const DAMAGE: &str = "sif file links_count 7\nsif sparse blocks 2\nunlink tiny\nunlink sub\n\
                      unlink fast\nsetb 3500 10\nseti <120>\nssv free_blocks_count 5\n\
                      set_bg 0 used_dirs_count 9\nset_bg 0 checksum calc\nssv state 3";

fn options() -> FixOptions<'static> {
    FixOptions {
        check: CheckOptions {
            threads: 1,
            ..CheckOptions::default()
        },
        ..FixOptions::default()
    }
}

fn run(dev: Arc<dyn BlockDevice>) -> std::result::Result<Report, String> {
    fix(dev, &options()).map_err(|error| error.to_string())
}

/// Damage of many kinds.
fn much() -> String {
    // So many lost inodes that their names cross a sector of lost+found, and then its only block.
    let lost: String = (0..90)
        .map(|number| format!("unlink big/a_rather_long_file_name_to_fill_blocks_{number}\n"))
        .collect();
    format!("rmdir lost+found\nmkdir lost+found\n{lost}{DAMAGE}")
}

/// Two orphans that have no name, and one that was being truncated, in a list.
fn orphans(image: &Image) -> Result<String> {
    let number = |file: &str| -> Result<String> {
        let stat = image.debugfs(&format!("stat {file}"))?;
        Ok(stat
            .split_whitespace()
            .nth(1)
            .unwrap_or_default()
            .to_owned())
    };
    let (file, sparse, slow) = (number("file")?, number("sparse")?, number("slow")?);
    Ok(format!(
        "unlink file\nsif <{file}> links_count 0\nsif <{file}> dtime {sparse}\n\
         sif <{sparse}> size 20000\nsif <{sparse}> dtime {slow}\n\
         unlink slow\nsif <{slow}> links_count 0\nssv last_orphan {file}"
    ))
}

/// Cuts the power while one base is repaired.
fn explore(at: usize, budget: Budget, requests: fn(&Image) -> Result<String>) -> Result<Totals> {
    let (name, mib, args, dirty) = BASES[at];
    let image = base(mib, args, dirty)?;
    damage(&image, &requests(&image)?)?;
    let before = std::fs::read(image.path())?;
    let recorder = Arc::new(Recorder::new(MemoryDevice::from_bytes(&before)));
    let whole = run(Arc::clone(&recorder) as _).map_err(Error::new)?;
    let much = whole.blocks_written > 3 || whole.orphans == 3;
    ensure!(whole.is_clean() && much, "{whole:?}");
    Image::of_bytes(&recorder.inner().to_bytes())?.fsck_clean()?;
    let right = names(&recorder.inner().to_bytes())?;
    let mut seen = 0_u64;
    let judge = |state: CrashState| -> std::result::Result<(), String> {
        seen += 1;
        let report = run(Arc::clone(&state.device) as _)?;
        if !report.is_clean() {
            return Err(format!("left: {:?}", report.left));
        }
        let checked = check(Arc::clone(&state.device) as _, &options().check);
        let checked = checked.map_err(|error| error.to_string())?;
        if !checked.is_clean() {
            return Err(format!("found: {:?}", checked.findings));
        }
        // e2fsck and the names of one state in sixteen: each costs three processes.
        if seen % 16 != 1 {
            return Ok(());
        }
        let mut bytes = vec![0; before.len()];
        let read = state.device.read_at(extant_units::DevOff::ZERO, &mut bytes);
        read.map_err(|error| error.to_string())?;
        let after = Image::of_bytes(&bytes).map_err(|error| error.to_string())?;
        after.fsck_clean().map_err(|error| error.to_string())?;
        let names = names(&bytes).map_err(|error| error.to_string())?;
        match names == right {
            true => Ok(()),
            false => Err(format!("{names}\ninstead of\n{right}")),
        }
    };
    let explorer = Explorer::new(before.clone(), recorder.events(), 1, budget);
    let explored = explorer.run(judge);
    let told = |failure: Failure| Error::new(format!("{name}, {}: {}", failure.cut, failure.why));
    explored.map_err(told)
}

/// The root and lost+found, as debugfs lists them without times.
fn names(bytes: &[u8]) -> Result<String> {
    let image = Image::of_bytes(bytes)?;
    let mut all = String::new();
    for dir in ["/", "/lost+found"] {
        let listed = image.debugfs(&format!("ls -p {dir}"))?;
        let mut lines: Vec<&str> = listed.lines().filter(|line| !line.is_empty()).collect();
        lines.sort_unstable();
        all += &lines.join("\n");
    }
    Ok(all)
}

fn budget() -> Budget {
    match std::env::var("EXTANT_CUT_BUDGET").as_deref() {
        Ok("long") => Budget::LONG,
        _ => Budget {
            samples: 3,
            ..Budget::SHORT
        },
    }
}

#[test]
fn a_repair_goes_on_after_each_cut() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let mut all = Totals::default();
    // With a log, without checksums, and without a log.
    for at in [0, 1, 3] {
        all += explore(at, budget(), |_| Ok(much())).context(|| BASES[at].0)?;
    }
    report(&format!("a repair with power cuts: {all}"));
    ensure!(all.torn > 5 && all.subsets > 5, "{all}");
    Ok(())
}

#[test]
fn finishing_orphans_goes_on_after_each_cut() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let mut all = Totals::default();
    // Without a log the mount that finishes them writes in no order.
    for at in [0, 1] {
        all += explore(at, budget(), orphans).context(|| BASES[at].0)?;
    }
    report(&format!("orphans with power cuts: {all}"));
    Ok(())
}
