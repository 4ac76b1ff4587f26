//! The order in which a repair writes, for a power cut between any two writes.
//!
//! Most wrong orders are mended by the next repair, so that the states of `fix_power_cuts.rs` do
//! not show them. Here the writes themselves are looked at.

#[path = "../../check/tests/check_kit/mod.rs"]
mod check_kit;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use check_kit::{BASES, base, damage};
use extant_blockdev::MemoryDevice;
use extant_fix::{FixOptions, fix};
use extant_testkit::{Event, Image, Need, Recorder, Result, bail, ensure, need};

const NEEDS: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
    Need::Tool("e2fsck"),
];

/// Damage whose repair changes a directory, bitmaps, inodes, descriptors and the superblock.
const DAMAGE: &str = "sif file links_count 7\nunlink tiny\nunlink sub\nsetb 3500 10\n\
                      seti <120>\nssv free_blocks_count 5\nset_bg 0 used_dirs_count 9\n\
                      set_bg 0 checksum calc";

const BLOCK: u64 = 1024;
/// The bytes of the superblock.
const SUPER: Range<u64> = 1024..2048;
/// The byte of it that has the mark for recovery, and the mark.
const RECOVER: (usize, u8) = (0x60, 4);

/// The kind of a block; in the order in which a repair without a log writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Part {
    Content,
    Bitmaps,
    Inodes,
    Descriptors,
}

/// The blocks of the groups' metadata.
struct Layout {
    bitmaps: BTreeSet<u64>,
    tables: Vec<Range<u64>>,
}

impl Layout {
    /// As debugfs has it.
    fn of(image: &Image) -> Result<Layout> {
        let text = image.debugfs("stats")?;
        let after = |line: &str, word: &str| -> Option<u64> {
            let rest = line.split(word).nth(1)?.trim_start();
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse().ok()
        };
        let per_group = text
            .lines()
            .find_map(|line| after(line, "Inode blocks per group:"));
        let per_group = per_group.unwrap_or(0);
        let (mut bitmaps, mut tables) = (BTreeSet::new(), Vec::new());
        for line in text.lines() {
            bitmaps.extend(after(line, "block bitmap at "));
            bitmaps.extend(after(line, "inode bitmap at "));
            tables.extend(after(line, "inode table at ").map(|first| first..first + per_group));
        }
        ensure!(per_group > 0 && bitmaps.len() > 2, "{text}");
        Ok(Layout { bitmaps, tables })
    }

    fn part(&self, block: u64) -> Part {
        if block == SUPER.end / BLOCK {
            Part::Descriptors
        } else if self.bitmaps.contains(&block) {
            Part::Bitmaps
        } else if self.tables.iter().any(|table| table.contains(&block)) {
            Part::Inodes
        } else {
            Part::Content
        }
    }
}

/// Repairs a damaged base; returns its bytes before, and what was written.
fn repaired(at: usize) -> Result<(Image, Vec<u8>, Vec<Event>)> {
    let (_, mib, args, dirty) = BASES[at];
    let image = base(mib, args, dirty)?;
    damage(&image, DAMAGE)?;
    let before = std::fs::read(image.path())?;
    let recorder = Arc::new(Recorder::new(MemoryDevice::from_bytes(&before)));
    let report = fix(Arc::clone(&recorder) as _, &FixOptions::default())?;
    ensure!(report.is_clean() && report.blocks_written > 3, "{report:?}");
    Image::of_bytes(&recorder.inner().to_bytes())?.fsck_clean()?;
    Ok((image, before, recorder.events()))
}

#[test]
fn without_a_log_each_part_is_durable_before_the_next() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for at in [2, 3] {
        let (image, _, events) = repaired(at)?;
        let layout = Layout::of(&image)?;
        let (mut seen, mut flushed) = (Vec::new(), true);
        let (mut is_super, mut supers) = (false, 0);
        for event in &events {
            match event {
                Event::Write { offset, .. } => {
                    is_super = SUPER.contains(&offset.get());
                    if is_super {
                        supers += 1;
                        continue;
                    }
                    ensure!(supers > 0, "the volume still counts as clean");
                    let part = layout.part(offset.get() / BLOCK);
                    if seen.last() != Some(&part) {
                        ensure!(flushed, "{part:?} after {seen:?} that no flush covers");
                        seen.push(part);
                    }
                    flushed = false;
                }
                Event::Flush { .. } => flushed = true,
                other => bail!("{other:?}"),
            }
        }
        let all = [
            Part::Content,
            Part::Bitmaps,
            Part::Inodes,
            Part::Descriptors,
        ];
        ensure!(seen == all, "{}: {seen:?}", BASES[at].0);
        ensure!(is_super && supers > 1, "the superblock is not last");
    }
    Ok(())
}

#[test]
fn with_a_log_the_mark_for_recovery_is_durable_before_anything_else() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_, before, events) = repaired(0)?;
    let start = usize::try_from(SUPER.start)?;
    let is_marked = |bytes: &[u8]| bytes[start + RECOVER.0] & RECOVER.1 != 0;
    let (mut bytes, mut durable) = (before.clone(), before);
    ensure!(!is_marked(&durable), "marked by the damage");
    let mut others = 0;
    for event in &events {
        match event {
            Event::Write { offset, data } => {
                if !SUPER.contains(&offset.get()) {
                    others += 1;
                    ensure!(is_marked(&durable), "write {others} at {offset:?}");
                }
                let at = usize::try_from(offset.get())?;
                bytes[at..at + data.len()].copy_from_slice(data);
            }
            Event::Flush { .. } => durable.clone_from(&bytes),
            other => bail!("{other:?}"),
        }
    }
    ensure!(others > 3, "{others} writes");
    ensure!(!is_marked(&durable), "the mark stays");
    Ok(())
}
