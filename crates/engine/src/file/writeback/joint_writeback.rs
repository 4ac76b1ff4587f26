//! Joint writeback: new small files are written together.
//!
//! A pass over one file costs two handles, two changes of the inode, a search for blocks and a
//! request to the device, however little is dirty. For a file of a few blocks that has none yet all
//! of that can be shared:
//!
//! 1. The dirty folios of many files go under writeback.
//! 2. The allocator holds one run for all of them, in memory ([`alloc::HeldBlocks`]).
//! 3. Their data is written there, in one request.
//! 4. Under one handle the run is marked as in use, and each file gets its part as its first
//!    extent, written, together with its size.
//!
//! # Invariants
//! * The data is on the device before the handle starts. So no crash shows what the blocks held
//!   before, and no size passes its data (J18, J20). Before the handle's transaction is durable the
//!   blocks are free on disk.
//! * A file that cannot go this way, or whose part fails, is written by a pass of its own: that one
//!   gets the error which it reports.
//!
//! # Locks
//! Passes and folios of the files are tried and never waited for, since those of other
//! files are held. A handle is started with folios held shared, as in other writeback.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use extant_failpoint::Failpoint;
use extant_iomap::JointWrite;
use extant_pagecache::{FILES_TOGETHER, Folio, SMALL_FILE_BYTES, Tag};
use extant_units::{Blocks, PAGE_SIZE, Pos, exact_u32};

use crate::alloc::HeldBlocks;
use crate::config::BufferedPath;
use crate::file::error_reporting;
use crate::file::mapping::iomap_ops::FileContext;
use crate::state::alloc::Run;
use crate::state::inode::{Inode, InodeRef};
use crate::types::error::Result;
use crate::volume::{Fs, credits};
use crate::{alloc, map};

/// Dirty folios of a small file at most: single pages.
const MAX_FOLIOS: usize = 16;
const _: () = assert!(SMALL_FILE_BYTES == (MAX_FOLIOS * PAGE_SIZE) as u64);

/// Writes what is dirty of those of `files` that can be written together. Returns the others, which
/// are not referenced: one that is unlinked until its turn comes can be evicted.
pub(in crate::file) fn write(fs: &Fs, files: Vec<Arc<Inode>>) -> Vec<Arc<Inode>> {
    // Files do not share clusters, so one run does not hold several of them.
    if !fs.tuning.joint_writeback || fs.layout.has_clusters() {
        return files;
    }
    let (joint, mut others): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|inode| may_join(inode));
    let mut joint: Vec<InodeRef> = joint
        .iter()
        .filter_map(|inode| fs.inodes.grab(inode))
        .collect();
    // Neighbours in the inode table become neighbours in the data, and share its blocks.
    joint.sort_unstable_by_key(|inode| inode.ino);
    let each = 1 + credits::quota_blocks(&fs.layout);
    let most = extant_units::index(u64::from(fs.journal.max_credits() / 2 / each));
    let group = |inode: &InodeRef| fs.layout.group_of_inode(inode.ino).map(|(group, _)| group);
    for near in joint.chunk_by(|a, b| group(a) == group(b)) {
        for files in near.chunks(most.clamp(1, FILES_TOGETHER)) {
            if let [one] = files {
                others.push(Arc::clone(one.shared()));
            } else {
                write_group(fs, files, &mut others);
            }
        }
    }
    others
}

/// Returns whether all that `inode` needs is a first extent.
fn may_join(inode: &Inode) -> bool {
    let Some(state) = inode.file_state.get() else {
        return false;
    };
    let dirty = state.address_space.dirty_bytes();
    state.data_path.get().kind == BufferedPath::Iomap
        && (1..=SMALL_FILE_BYTES).contains(&dirty)
        && inode.disk_size() == 0
        && map::has_no_extent(inode)
}

/// A file whose dirty folios are under writeback.
struct SmallFile<'a> {
    cx: &'a FileContext<'a>,
    write: JointWrite<'a, FileContext<'a>>,
    /// The dirty bytes, whole blocks from the start of the file; zero if there are others.
    len: u64,
}

impl<'a> SmallFile<'a> {
    /// Tries to put `folios`, the dirty ones of the file, under writeback. `None`, with nothing
    /// changed, if another thread uses one of them or writes the file.
    fn try_start_writeback(cx: &'a FileContext<'a>, folios: &'a [Arc<Folio>]) -> Option<Self> {
        // There may be more: where blocks are smaller than pages, few bytes lie in many folios.
        if folios.len() > MAX_FOLIOS {
            return None;
        }
        let pass = cx.state.address_space.try_writeback_pass()?;
        if cx.state.data_path.get() != cx.data_path || !may_join(cx.inode) {
            return None;
        }
        let write = JointWrite::take(cx, pass, folios)?;
        Some(Self {
            cx,
            len: write.run_from_start().unwrap_or(0),
            write,
        })
    }

    fn blocks(&self) -> Blocks {
        self.cx.fs.layout.block_size.blocks_for(self.len)
    }

    /// Writes the file by itself.
    fn write_alone(self) {
        let (fs, ino) = (self.cx.fs, self.cx.inode.ino);
        if let Err(error) = self.write.write_alone() {
            tracing::warn!(ino = ino.get(), %error, "writeback failed");
            error_reporting::record_writeback_error(fs, &error);
            error_reporting::latch_if_corrupt(fs, &error);
        }
    }
}

/// Writes files of one block group. Adds to `others` those that have to be waited for.
fn write_group(fs: &Fs, files: &[InodeRef], others: &mut Vec<Arc<Inode>>) {
    let cx: Vec<_> = files
        .iter()
        .map(|file| FileContext::new(fs, file))
        .collect();
    let dirty = |cx: &FileContext<'_>| {
        let pages = &cx.state.address_space;
        pages.tagged(Pos::ZERO, Pos::MAX, Tag::Dirty, MAX_FOLIOS + 1)
    };
    let folios: Vec<_> = cx.iter().map(dirty).collect();
    let mut parts = VecDeque::with_capacity(files.len());
    for ((file, cx), folios) in files.iter().zip(&cx).zip(&folios) {
        match SmallFile::try_start_writeback(cx, folios) {
            Some(part) if part.len > 0 => parts.push_back(part),
            Some(part) => part.write_alone(),
            None => others.push(Arc::clone(file.shared())),
        }
    }
    while let Some(first) = parts.front() {
        let goal = alloc::goal_for(fs, first.cx.inode);
        let all = parts.iter().map(|part| part.blocks().get()).sum();
        let held = alloc::hold_blocks(fs, goal, (first.blocks().get(), all));
        let Ok(Some(mut held)) = held else {
            // A pass waits for a commit that may free blocks.
            parts.into_iter().for_each(SmallFile::write_alone);
            return;
        };
        let (mut fitting, mut used) = (Vec::new(), Blocks::ZERO);
        while let Some(part) = parts.pop_front() {
            let with_it = used.saturating_add(part.blocks());
            if with_it > held.run().len {
                parts.push_front(part);
                break;
            }
            used = with_it;
            fitting.push(part);
        }
        debug_assert!(!fitting.is_empty(), "the run has room for the first file");
        held.truncate(used);
        write_run_and_link(fs, held, fitting);
    }
}

/// Writes the data of `parts` to the run `held`, which has as many blocks, and links its blocks as
/// their first extents.
fn write_run_and_link(fs: &Fs, held: HeldBlocks, parts: Vec<SmallFile<'_>>) {
    let run = held.run();
    let too_early = fs.tuning.failpoint.is(Failpoint::ConversionBeforeData);
    if !too_early && !write_data(fs, run, &parts) {
        drop(held);
        parts.into_iter().for_each(SmallFile::write_alone);
        return;
    }
    let mut linked = vec![false; parts.len()];
    if let Err(error) = link_first_extents(fs, held, &parts, &mut linked) {
        tracing::warn!(%error, "new files are written one by one");
        error_reporting::latch_if_corrupt(fs, &error);
    }
    if too_early {
        write_data(fs, run, &parts);
    }
    for (part, linked) in parts.into_iter().zip(linked) {
        if linked {
            part.write.finish();
        } else {
            part.write_alone();
        }
    }
}

/// Writes the data of `parts` to `run`. Returns whether the device accepted it.
fn write_data(fs: &Fs, run: Run, parts: &[SmallFile<'_>]) -> bool {
    if fs.tuning.failpoint.is(Failpoint::SizeAtSubmission) {
        for part in parts {
            let moved = part.cx.move_size_early(Pos::new(part.len));
            moved.unwrap_or_else(|error| error_reporting::latch_if_corrupt(fs, &error));
        }
    }
    let slices: Vec<IoSlice<'_>> = parts.iter().flat_map(|part| part.write.slices()).collect();
    debug_assert_eq!(
        Some(slices.iter().map(|slice| slice.len() as u64).sum()),
        fs.layout.block_size.bytes_of(run.len),
        "the run is filled"
    );
    let stats = &fs.files.stats;
    stats.ioends.bump();
    stats
        .written_bytes
        .add(parts.iter().map(|part| part.len).sum());
    stats.joint_files.add(parts.len() as u64);
    let at = fs.layout.block_size.dev_off(run.start);
    let written = at.is_some_and(|at| fs.dev.write_vectored_at(at, &slices).is_ok());
    if !written {
        stats.failed_ioends.bump();
    }
    written
}

/// Links `held`, which has the data of `parts`, as their first extents. Sets `linked` for each that
/// has its blocks; the other blocks are free again.
fn link_first_extents(
    fs: &Fs,
    held: HeldBlocks,
    parts: &[SmallFile<'_>],
    linked: &mut [bool],
) -> Result<()> {
    let (mut at, end) = (
        held.run().start,
        held.run().start.plus(held.run().len.get()),
    );
    let inodes = exact_u32(parts.len() as u64);
    // The bitmap and the descriptor; for each, at most, a block of the inode table, and one of each
    // file of quotas.
    let each = 1 + credits::quota_blocks(&fs.layout);
    let mut h = fs.start(credits::sum([inodes * each, 2, credits::INODE_UPDATE]))?;
    let marked = held.mark(&mut h)?;
    let mut result = Ok(());
    for (part, linked) in parts.iter().zip(linked) {
        let len = part.blocks();
        let run = Run { start: at, len };
        at = at.plus(len.get());
        match map::link_first_extent(fs, &mut h, part.cx.inode, (&marked, run), part.len) {
            Ok(true) => *linked = true,
            // The map changed, or the journal has stopped.
            other => {
                result = result
                    .and(other.map(drop))
                    .and(marked.give_back(&mut h, run))
            }
        }
    }
    debug_assert_eq!(at, end, "each held block is one file's");
    result
}
