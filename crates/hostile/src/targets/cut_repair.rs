//! A repair or a resize that a power cut ends, and the repair after it.
//!
//! A sound image has everything afterwards that it had before, and a resize has given it the old
//! size or the new one. Of a damaged one the second repair ends as the first did where nothing cut
//! it, and whatever it is, the contract is kept.

use std::sync::Arc;

use extant::resize::{ResizeOptions, Target, resize, unshare};
use extant::{CheckOptions, Error, FixOptions, FixReport, fix};
use extant_blockdev::BlockDevice;
use extant_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extant_testkit::mutate::Kind;
use extant_testkit::{Event, Recorder};
use extant_units::DevOff;

use super::census::{Census, census, difference};
use super::power_cut::{AfterCut, PowerCut};
use super::{Cost, Hostile, is_clean};
use crate::feed::Feed;
use crate::{recipe, seeds};

/// The most cuts of one run.
const CUTS: u8 = 2;
/// Bytes of a longer write that arrive by themselves.
const PIECE: u64 = 1024;
/// Findings of a check, and bytes of a copy in memory.
const FINDINGS: usize = 1000;
const COPY: u64 = 8 << 20;

/// Work that the power cut ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Fix,
    Resize(Target),
    /// Of an image whose files share blocks.
    Unshare,
}

impl Work {
    fn read(feed: &mut Feed<'_>) -> Work {
        let (which, size) = (feed.u8(), u64::from(feed.u16()) << 6);
        match which % 4 {
            1 if which % 16 == 5 => Work::Unshare,
            0 | 1 => Work::Fix,
            2 if which == 2 => Work::Resize(Target::Least),
            _ => Work::Resize(Target::Bytes(size)),
        }
    }

    /// Bytes that the device has to have.
    fn len(self) -> usize {
        match self {
            Work::Resize(Target::Bytes(bytes)) => usize::try_from(bytes).unwrap_or(0),
            _ => 0,
        }
    }
}

/// A run without a cut.
struct RepairRun {
    base: Vec<u8>,
    events: Vec<Event>,
    work: Work,
    /// Report of a repair, if it has come to its end.
    fixed: Option<FixReport>,
    /// Names and bytes afterwards, if all is well with the volume.
    census: Option<Census>,
    /// The volume's blocks before and after.
    blocks: [Option<u64>; 2],
}

pub(super) fn run(data: &[u8]) -> Cost {
    let all: Vec<_> = seeds::all().iter().filter(|seed| seed.mounts).collect();
    let Some(prepared) = recipe::prepare(data, &all, &[]) else {
        return Cost::default();
    };
    let mut base = prepared.image.clone();
    let hostile = Hostile::new(prepared);
    let mut feed = Feed::new(hostile.rest);
    let work = Work::read(&mut feed);
    base.resize(base.len().max(work.len()), 0);
    let hostile = hostile.again(base.clone());
    let Some(run) = RepairRun::of(&hostile, base, work) else {
        return hostile.cost();
    };
    let recorded: usize = run.events.iter().map(bytes_of).sum();
    let mut cost = hostile.cost().beside(3 * run.base.len() + 2 * recorded);
    for _ in 0..1 + feed.u8() % CUTS {
        let cut = PowerCut::read(&mut feed);
        let Some(state) = cut.of(run.base.clone(), &run.events) else {
            continue;
        };
        let cut = state.cut;
        match run.judge(&hostile, state) {
            Ok(more) => cost = cost.or(more),
            Err(why) => panic!("{}, {work:?}, {cut}: {why}", hostile.seed.name),
        }
    }
    cost
}

fn bytes_of(event: &Event) -> usize {
    match event {
        Event::Write { data, .. } => data.len(),
        _ => 0,
    }
}

fn options() -> CheckOptions<'static> {
    CheckOptions {
        threads: 1,
        max_findings: FINDINGS,
        replay_bytes: Some(COPY),
        ..CheckOptions::default()
    }
}

fn repair(dev: Arc<dyn BlockDevice>) -> extant::Result<FixReport> {
    let options = FixOptions {
        check: options(),
        ..FixOptions::default()
    };
    fix(dev, &options)
}

/// Blocks of the volume, if its superblock can be read.
fn blocks(dev: &dyn BlockDevice) -> Option<u64> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    dev.read_at(DevOff::new(SUPERBLOCK_OFFSET), &mut bytes)
        .ok()?;
    Some(Superblock::parse(&bytes).ok()?.blocks_count().get())
}

impl RepairRun {
    /// Does the work on a device that records it. `None` if it is of no use: a feature of a sound
    /// image is not known to a repair.
    fn of(hostile: &Hostile<'_>, base: Vec<u8>, work: Work) -> Option<RepairRun> {
        let is_sound = hostile.is_sound();
        let before = match is_sound {
            true => Some(census(base.clone()).unwrap_or_else(|error| panic!("census: {error}"))),
            false => None,
        };
        let device = Arc::new(Recorder::in_pieces(hostile.disk.clone(), PIECE));
        let old = blocks(&*device);
        let mut fixed = None;
        match work {
            Work::Fix => match repair(device.clone()) {
                Ok(report) => fixed = Some(report),
                Err(Error::UnsupportedFeature(_)) => return None,
                Err(error) => assert!(!is_sound, "{}: {error}", hostile.seed.name),
            },
            Work::Resize(target) => {
                let options = ResizeOptions { check: options() };
                // A size that is refused changes nothing: that is judged.
                let _ = resize(device.clone(), target, &options);
            }
            Work::Unshare => {
                let options = ResizeOptions { check: options() };
                // What is refused is as it was: that is judged.
                let _ = unshare(device.clone(), &options);
            }
        }
        let is_fine = is_sound || fixed.as_ref().is_some_and(FixReport::is_clean);
        let after = match is_fine {
            true => Some(census(hostile.disk.to_bytes()).unwrap_or_else(|error| {
                panic!(
                    "{}, {work:?}: census afterwards: {error}",
                    hostile.seed.name
                )
            })),
            false => None,
        };
        if let (Some(before), Some(after)) = (&before, &after)
            && let Some(what) = difference(before, after)
        {
            panic!("{}, {work:?}: {what}", hostile.seed.name);
        }
        hostile.assert_clean("after the work");
        Some(RepairRun {
            base,
            events: device.events(),
            work,
            fixed,
            census: after,
            blocks: [old, blocks(&*device)],
        })
    }

    /// Repairs what a cut has left, and looks at it.
    fn judge(&self, hostile: &Hostile<'_>, state: AfterCut) -> Result<Cost, String> {
        let is_sound = hostile.is_sound();
        let after = hostile.again(state.bytes);
        let report = repair(after.disk.clone());
        // Without a journal a resize promises an image that has to be checked, and no more.
        let is_ordered = self.work == Work::Fix || hostile.seed.has(Kind::JournalSuper);
        let Some(right) = self.census.as_ref().filter(|_| is_ordered) else {
            // Or it was not repaired as a whole: that may be so again.
            let _ = extant::check(after.disk.clone(), &options());
            return Ok(after.cost());
        };
        let report = match report {
            Ok(report) => report,
            Err(Error::UnsupportedFeature(_)) => return Ok(after.cost()),
            Err(error) => return Err(format!("the second repair: {error}")),
        };
        if !report.is_clean() {
            return Err(format!("left: {:?}", report.left));
        }
        let checked = extant::check(after.disk.clone(), &options());
        if !is_clean(&checked) {
            return Err(format!("check: {checked:?}"));
        }
        let cost = after.cost();
        // Without a journal nothing orders what a mount does to orphans.
        let has_orphans = self.fixed.as_ref().is_some_and(|fixed| fixed.orphans > 0);
        if !is_sound && has_orphans && !hostile.seed.has(Kind::JournalSuper) {
            return Ok(cost);
        }
        let found = census(after.disk.to_bytes()).map_err(|error| format!("census: {error}"))?;
        if let Some(what) = difference(right, &found) {
            return Err(what);
        }
        let size = blocks(&*after.disk);
        let is_known = self.blocks.contains(&size) || self.work == Work::Resize(Target::Least);
        match is_known {
            true => Ok(cost),
            false => Err(format!("{size:?} blocks instead of {:?}", self.blocks)),
        }
    }
}
