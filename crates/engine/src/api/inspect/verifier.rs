//! A check of the state in memory against itself and against the map on disk, for tests and for
//! debugging.
//!
//! It checks every regular file in memory: its folios (by `pagecache`), its extent status tree, the
//! extent tree, the sizes, and the sums of reservations over all of them. `docs/INVARIANTS.md` says
//! which invariant is asserted here.
//!
//! # Locks
//! Each file's `lock`, invalidate lock and writeback pass, of all files at once. The caller holds
//! nothing, and no operation runs. Flushers and reclaim may run: a flusher holds one pass at a time
//! and waits for no other.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use extant_pagecache::CachedRun;
use extant_units::Ino;

use crate::file::{self, QuiescedFile};
use crate::map::{self, KnownMap};
use crate::state::inode::Inode;
use crate::volume::Fs;

/// The maps of the last check, as a map may only change with its sequence.
#[doc(hidden)]
#[derive(Default)]
pub struct Verifier {
    seen: HashMap<(Ino, u32), KnownMap>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

impl Verifier {
    /// Checks everything; with `synced`, also that nothing is left to be written. No other thread
    /// uses the file system meanwhile.
    ///
    /// # Errors
    /// The first broken invariant, in words.
    pub(crate) fn check(&mut self, fs: &Arc<Fs>, synced: bool) -> Result<(), String> {
        let files: Vec<Arc<Inode>> = fs
            .inodes
            .all()
            .into_iter()
            .filter(|inode| file::has_file_state(inode) && !inode.is_gone())
            .collect();
        // Of all files at once, while no other thread waits for any.
        let _unchecked = extant_lock_order::exempt();
        let still: Vec<QuiescedFile<'_>> = files.iter().map(|inode| file::quiesce(inode)).collect();
        let mut seen = HashMap::new();
        let mut reserved = 0;
        for held in &still {
            let inode = held.inode();
            let known = map::known(fs, inode).and_then(|known| {
                check_sizes(inode, synced)?;
                check_cache(fs, held, &known, synced)?;
                if let Some(before) = self.seen.get(&(inode.ino, inode.generation)) {
                    before.explains(&known)?;
                }
                Ok(known)
            });
            let known = known.map_err(|why| format!("inode {}: {why}", inode.ino))?;
            reserved += known.reserved_blocks();
            seen.insert((inode.ino, inode.generation), known);
        }
        self.seen = seen;
        let counts = &fs.alloc.counts;
        let (free, total) = (counts.free_blocks().get(), counts.reserved_blocks().get());
        if reserved != total {
            return Err(format!(
                "{reserved} blocks are reserved for delayed ones, {total} in all (J9)"
            ));
        }
        if counts.available().get() + total != free {
            let available = counts.available();
            return Err(format!(
                "{free} free blocks, {available} available, {total} reserved (J12)"
            ));
        }
        if synced && total != 0 {
            return Err(format!("{total} blocks reserved after a sync (J11)"));
        }
        match counts.leaked() {
            0 => Ok(()),
            leaked => Err(format!("{leaked} reservations were dropped while full")),
        }
    }
}

fn check_sizes(inode: &Inode, synced: bool) -> Result<(), String> {
    let (disk, size) = (inode.core.read().disk_size, inode.size());
    if disk > size || (synced && disk != size) {
        return Err(format!("{disk} bytes on disk, {size} in memory (J1)"));
    }
    Ok(())
}

/// Every dirty block has space, every reserved block is dirty, every block marked as backed has
/// space (J7, J8).
fn check_cache(
    fs: &Fs,
    held: &QuiescedFile<'_>,
    known: &KnownMap,
    synced: bool,
) -> Result<(), String> {
    let bs = fs.layout.block_size;
    let mut dirty: Vec<Range<u64>> = Vec::new();
    held.verify_cache(|run: CachedRun| {
        let first = run.bytes.start.get() >> bs.log2();
        let end = run.bytes.end.get() >> bs.log2();
        if run.dirty {
            match dirty.last_mut() {
                Some(last) if last.end == first => last.end = end,
                _ => dirty.push(first..end),
            }
        }
        if (run.dirty || run.backed)
            && let Some(hole) = known.first_hole(first..end)
        {
            let what = if run.dirty { "dirty" } else { "backed" };
            return Err(format!("block {hole} is {what}, and a hole (J7)"));
        }
        Ok(())
    })?;
    if synced && let Some(first) = dirty.first() {
        return Err(format!("block {} is dirty after a sync", first.start));
    }
    for range in known.delayed() {
        let (from, to) = (u64::from(range.lblk.get()), range.end());
        if !dirty.iter().any(|run| run.start <= from && to <= run.end) {
            return Err(format!(
                "blocks {from}..{to} are delayed, but not dirty (J8); dirty: {dirty:?}"
            ));
        }
    }
    Ok(())
}
