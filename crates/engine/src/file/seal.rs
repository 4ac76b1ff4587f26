//! Sealing a file: fs-verity's protection begins.
//!
//! The Merkle tree and its descriptor are made behind the end of the data, in blocks that are
//! allocated before anything is hashed, so that a lack of space shows early. The tree is made in
//! one pass over the data, with one block of each level in memory, and goes to the device past the
//! caches. Then one transaction sets the flag.
//!
//! # Invariants
//! * What is hashed is read from the device: nothing is dirty, the cache was emptied, both sizes
//!   are equal, and no writeback of the file has failed that no opener was told of.
//! * The inode is an orphan from before the first block of the tree is allocated to the transaction
//!   that sets the flag, which is not committed before data and tree are durable. So a crash leaves
//!   a file without the tree, or a protected one.
//! * A file that is not sealed in the end has no blocks of the tree.
//!
//! # Locks
//! The inode's `lock` exclusively throughout, which keeps all writers out, and writers' opens are
//! refused. At the end, the invalidate lock and the writeback pass as a switch of the data path has
//! them: what was cached goes, and what is read later is checked.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use extant_disk::extent::MAX_UNWRITTEN;
use extant_disk::inode::InodeFlags;
use extant_disk::verity::{TreeShape, VerityDescriptor, VerityParams, descriptor_blocks};
use extant_iomap::{DeviceFault, DeviceRequest, Miss};
use extant_pagecache::{Readahead, RecentFolios};
use extant_sync::atomic::Ordering;
use extant_units::{Lblk, Pos, at_most_u32, index};

use crate::config::BufferedPath;
use crate::file::file_state_init::require_regular;
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::range_lock::{WholeFile, lock_whole_file};
use crate::file::{
    block_span, data_path, encoding, file_state, max_size, switch_path, truncate, verity,
};
use crate::state::file::{DataPath, MerkleBuilder};
use crate::state::inode::Inode;
use crate::state::map::{AllocateMode, MapState};
use crate::types::Cred;
use crate::types::error::{Error, Result};
use crate::volume::{Fs, all_or_abort, credits};
use crate::{alloc, map, orphan};

/// Bytes of data that are read at once.
const READ_BYTES: u64 = 256 << 10;
/// Bytes of a hole that are taken at once, between two looks whether the caller wants an end.
const HOLE_BYTES: u64 = 1 << 30;
/// Bytes of the tree that are written at once, at most.
const WRITE_BYTES: usize = 256 << 10;
/// Readahead of the data: each read is as long.
const READAHEAD_BYTES: u64 = 2 << 20;

/// Protects a regular file with fs-verity: from here on its content is fixed, and checked as it is
/// read. Takes the inode's `lock`.
///
/// # Errors
/// [`Error::NotSupported`] for a volume without the feature, and a file without extents;
/// [`Error::Invalid`] for parameters that there cannot be; [`Error::IsDir`] and [`Error::Invalid`]
/// for other kinds; [`Error::NotPermitted`] for immutable and append-only files;
/// [`Error::TextBusy`] while an opener writes; [`Error::Exists`] if it is protected;
/// [`Error::FileTooBig`] if there is no room behind the data; [`Error::NoKey`];
/// [`Error::NoSpace`]; [`Error::OverQuota`]; [`Error::Io`] if data was lost; device, map and
/// journal failures. The file is as it was then, but for data that has moved from inside of the
/// inode to a block.
pub(crate) fn enable_verity(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    params: &VerityParams,
    cred: &Cred,
) -> Result<()> {
    verity::require_feature(fs)?;
    let bs = fs.layout.block_size;
    VerityDescriptor::planned(params, 0, bs).map_err(|_| Error::Invalid)?;
    require_regular(inode)?;
    fs.check_writable()?;
    if verity::is_protected(inode.flags()) {
        return Err(Error::Exists);
    }
    inode.check_changeable(false)?;
    let _no_writers = inode.writers.deny().ok_or(Error::TextBusy)?;
    let sealed = alloc::retry_unlocked(fs, || lock_and_seal(fs, inode, params, cred));
    sealed.inspect_err(|error| crate::file::latch_if_corrupt(fs, error))?;
    if fs.options.sync() || inode.flags().contains(InodeFlags::SYNC) {
        crate::file::fsync(fs, inode, None, false)?;
    }
    Ok(())
}

fn lock_and_seal(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    params: &VerityParams,
    cred: &Cred,
) -> Result<()> {
    let whole = lock_whole_file(fs, inode);
    if inode.is_gone() {
        return Err(Error::Stale);
    }
    let flags = inode.flags();
    if verity::is_protected(flags) {
        return Err(Error::Exists);
    }
    data_path::require_changeable(fs, inode, flags)?;
    if flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
        // Set since the look without the lock.
        return Err(Error::NotPermitted);
    }
    if flags.contains(InodeFlags::DAX) {
        return Err(Error::Invalid);
    }
    let privileged = alloc::may_use_reserve(fs, cred);
    switch_path::leave_inode(fs, &whole, inode, privileged)?;
    if !inode.flags().contains(InodeFlags::EXTENTS) {
        return Err(Error::NotSupported("fs-verity for a file without extents"));
    }
    write_data(fs, inode, &whole)?;
    let sealing = Sealing::plan(fs, inode, &whole, params, privileged)?;
    sealing.run().inspect_err(|_| {
        // What is left, if this fails too, is freed by the mount after a crash or an unmount.
        if let Err(error) = truncate::free_past_end(fs, inode, &whole) {
            tracing::warn!(ino = inode.ino.get(), %error, "a Merkle tree could not be freed");
        }
    })
}

/// Writes the file's data and empties the cache. What a writeback could not write, but left in the
/// cache, is gone then: what is hashed is what the device has.
fn write_data(fs: &Fs, inode: &Arc<Inode>, whole: &WholeFile<'_>) -> Result<()> {
    let file = file_state(fs, inode);
    {
        let no_fills = file.address_space.invalidate_lock().write();
        let _no_writeback = switch_path::empty_cache(fs, whole, inode, &no_fills)?;
    }
    let is_whole = inode.disk_size() == inode.size() && !file.is_dirty();
    // The caller is told now.
    let is_lost = file.has_unseen_fault();
    file.lost_above.store(false, Ordering::Release);
    if !is_whole || is_lost {
        return Err(Error::Io("data of the file could not be written".into()));
    }
    Ok(())
}

/// A file that is being sealed.
struct Sealing<'a> {
    fs: &'a Arc<Fs>,
    inode: &'a Arc<Inode>,
    whole: &'a WholeFile<'a>,
    params: &'a VerityParams,
    privileged: bool,
    descriptor: VerityDescriptor,
    shape: TreeShape,
    /// The first byte of the tree in the file.
    start: u64,
    /// The first byte of the descriptor.
    behind_tree: u64,
}

impl<'a> Sealing<'a> {
    fn plan(
        fs: &'a Arc<Fs>,
        inode: &'a Arc<Inode>,
        whole: &'a WholeFile<'a>,
        params: &'a VerityParams,
        privileged: bool,
    ) -> Result<Self> {
        let bs = fs.layout.block_size;
        let descriptor = VerityDescriptor::planned(params, inode.size(), bs);
        let descriptor = descriptor.map_err(|_| Error::Invalid)?;
        let shape = TreeShape::of(&descriptor).map_err(|_| Error::FileTooBig)?;
        let start = verity::tree_start(inode).map_err(|_| Error::FileTooBig)?;
        let tree = shape.blocks << descriptor.log_block;
        let behind_tree = start
            .checked_add(tree)
            .and_then(|end| bs.round_up(Pos::new(end)));
        let sealing = Self {
            fs,
            inode,
            whole,
            params,
            privileged,
            descriptor,
            shape,
            start,
            behind_tree: behind_tree.ok_or(Error::FileTooBig)?.get(),
        };
        let end = sealing.behind_tree.checked_add(sealing.descriptor_bytes());
        if end.is_none_or(|end| end > max_size(fs, inode)) {
            return Err(Error::FileTooBig);
        }
        Ok(sealing)
    }

    /// Bytes of the blocks behind the tree.
    fn descriptor_bytes(&self) -> u64 {
        let stored = self.descriptor.encode(self.params);
        descriptor_blocks(&stored, self.fs.layout.block_size).len() as u64
    }

    /// The blocks of the tree and of the descriptor.
    fn blocks(&self) -> Range<u32> {
        let bs = self.fs.layout.block_size;
        let end = self.behind_tree + self.descriptor_bytes();
        at_most_u32(self.start >> bs.log2())..at_most_u32(end >> bs.log2())
    }

    fn run(mut self) -> Result<()> {
        let (fs, inode) = (self.fs, self.inode);
        // The descriptor is found by the last block: no other one may lie behind the end.
        truncate::free_past_end(fs, inode, self.whole)?;
        self.require_space()?;
        fs.check_interrupted()?;
        {
            let mut h = fs.start(orphan::CREDITS)?;
            orphan::add(fs, &mut h, inode)?;
        }
        self.allocate()?;
        self.write_tree()?;
        let blocks = self.blocks();
        alloc::retry_reserved(fs, || {
            let mut h = fs.start(credits::convert(fs))?;
            let len = blocks.end - blocks.start;
            map::convert_to_written(fs, &mut h, inode, Lblk::new(blocks.start), len)
        })?;
        // Data and tree before the flag.
        fs.journal.sync_all()?;
        self.set_flag()
    }

    /// Fails if there are more blocks than are free.
    fn require_space(&self) -> Result<()> {
        let blocks = self.blocks();
        let free = self.fs.alloc.counts.free_blocks().get();
        match u64::from(blocks.end - blocks.start) > free {
            true => Err(Error::NoSpace),
            false => Ok(()),
        }
    }

    /// Allocates all blocks, unwritten.
    fn allocate(&self) -> Result<()> {
        let (fs, blocks) = (self.fs, self.blocks());
        let how = AllocateMode {
            unwritten: true,
            privileged: self.privileged,
            ..AllocateMode::default()
        };
        let mut at = blocks.start;
        while at < blocks.end {
            fs.check_interrupted()?;
            let len = (blocks.end - at).min(MAX_UNWRITTEN);
            let found = alloc::retry(fs, || {
                let mut h = fs.start(credits::allocate(fs))?;
                map::allocate(fs, &mut h, self.inode, Lblk::new(at), len, how)
            })?;
            debug_assert!(found.len > 0, "{found:?} is of a block at least");
            at += found.len;
        }
        Ok(())
    }

    /// Makes the tree and the descriptor, and writes both.
    fn write_tree(&mut self) -> Result<()> {
        let mut writer = TreeWriter::new(self.fs, self.inode, self.start);
        let log_block = self.descriptor.log_block;
        let mut give = |number: u64, block: &[u8]| writer.put(number << log_block, block);
        let mut builder = MerkleBuilder::new(&self.descriptor, &self.shape);
        let cx = FileContext::new(self.fs, self.inode);
        let (size, bs) = (self.inode.size(), self.fs.layout.block_size);
        let (readahead, recent) = (Readahead::new(READAHEAD_BYTES), RecentFolios::default());
        let mut buf = vec![0; index(READ_BYTES)];
        let mut at = 0;
        while at < size {
            self.fs.check_interrupted()?;
            let hole = self.hole_at(at, (size - at).min(HOLE_BYTES))?;
            if hole > 0 {
                builder.add_zeros(hole.div_ceil(1 << log_block), &mut give)?;
                at += hole;
                continue;
            }
            let want = index(READ_BYTES.min(size - at));
            let (data, rest) = buf.split_at_mut(want);
            let mut done = 0;
            while done < want {
                let pos = Pos::new(at + done as u64);
                let miss = Miss::Bypass(&readahead);
                match data_path::read(&cx, &recent, miss, pos, &mut data[done..])? {
                    0 => return Err(Error::Io("the file became shorter".into())),
                    read => done += read,
                }
            }
            rest.fill(0);
            let blocks = want.next_multiple_of(1 << log_block);
            builder.add(&buf[..blocks], &mut give)?;
            at += want as u64;
        }
        self.descriptor.root = builder.finish(&mut give)?;
        let stored = self.descriptor.encode(self.params);
        writer.end_tree()?;
        writer.append(self.behind_tree, &descriptor_blocks(&stored, bs))?;
        writer.flush()
    }

    /// The number of the `len` bytes from `at` on that are a hole, if they begin with one: whole
    /// blocks, or all up to the end of the file.
    fn hole_at(&self, at: u64, len: u64) -> Result<u64> {
        let bs = self.fs.layout.block_size;
        let (lblk, count) = block_span(self.fs, Pos::new(at), len).ok_or(Error::FileTooBig)?;
        let found = map::lookup(self.fs, self.inode, lblk, count)?;
        Ok(match found.state {
            MapState::Hole | MapState::Unwritten(_) => (u64::from(found.len) << bs.log2()).min(len),
            MapState::Delayed | MapState::Written(_) => 0,
        })
    }

    /// Sets the flag, with nothing of the file cached.
    fn set_flag(&self) -> Result<()> {
        let (fs, inode) = (self.fs, self.inode);
        if file_state(fs, inode).is_dirty() {
            // Written since it was hashed.
            return Err(Error::Busy);
        }
        let flags = inode.flags() | InodeFlags::VERITY;
        let to = DataPath::of_kind(fs, BufferedPath::BufferHead, flags);
        switch_path::switch(fs, self.whole, inode, to, || {
            let record = inode.hold_record(fs)?;
            let mut h = fs.start(credits::ORPHAN + credits::INODE_UPDATE)?;
            all_or_abort(&mut h, |h| {
                if !inode.is_unlinked() {
                    orphan::remove(fs, h, inode)?;
                }
                inode.update_held(fs, h, &record, |core| core.flags |= InodeFlags::VERITY)
            })
        })
    }
}

/// Blocks of a tree on their way to the device. Blocks of the tree may be smaller than those of the
/// volume, and those of the upper levels come between others: a block of the volume waits until it
/// is full.
struct TreeWriter<'a> {
    fs: &'a Fs,
    inode: &'a Inode,
    /// The first byte of the tree in the file.
    start: u64,
    /// Blocks that are not full, by their byte in the file, and how many bytes they have. Of each
    /// level there are two at most.
    waiting: BTreeMap<u64, (Vec<u8>, usize)>,
    /// Blocks that are full, one behind the other, and the first one's byte in the file.
    run: Vec<u8>,
    run_at: u64,
}

impl<'a> TreeWriter<'a> {
    fn new(fs: &'a Fs, inode: &'a Inode, start: u64) -> Self {
        Self {
            fs,
            inode,
            start,
            waiting: BTreeMap::new(),
            run: Vec::new(),
            run_at: 0,
        }
    }

    /// Takes a block of the tree that begins at byte `at` of it.
    fn put(&mut self, at: u64, block: &[u8]) -> Result<()> {
        let bs = self.fs.layout.block_size;
        let pos = Pos::new(self.start + at);
        let (first, inside) = (bs.round_down(pos).get(), bs.offset_in_block(pos));
        let new = || (vec![0; bs.bytes()], 0);
        let (bytes, filled) = self.waiting.entry(first).or_insert_with(new);
        bytes[inside..inside + block.len()].copy_from_slice(block);
        *filled += block.len();
        match *filled == bs.bytes() {
            true => self.take_waiting(first),
            false => Ok(()),
        }
    }

    /// Takes what is left of the tree, whose last block may not be full.
    fn end_tree(&mut self) -> Result<()> {
        while let Some((&first, _)) = self.waiting.first_key_value() {
            self.take_waiting(first)?;
        }
        Ok(())
    }

    fn take_waiting(&mut self, first: u64) -> Result<()> {
        match self.waiting.remove(&first) {
            Some((bytes, _)) => self.append(first, &bytes),
            None => Ok(()),
        }
    }

    /// Takes whole blocks for byte `at` of the file.
    fn append(&mut self, at: u64, blocks: &[u8]) -> Result<()> {
        let follows = self.run_at + self.run.len() as u64 == at;
        if !follows || self.run.len() + blocks.len() > WRITE_BYTES {
            self.flush()?;
            self.run_at = at;
        }
        self.run.extend_from_slice(blocks);
        Ok(())
    }

    /// Writes what was taken.
    fn flush(&mut self) -> Result<()> {
        let bs = self.fs.layout.block_size;
        let mut done = 0;
        while done < self.run.len() {
            let pos = Pos::new(self.run_at + done as u64);
            let left = &self.run[done..];
            let span = block_span(self.fs, pos, left.len() as u64);
            let (lblk, count) = span.ok_or(Error::FileTooBig)?;
            let found = map::lookup(self.fs, self.inode, lblk, count)?;
            let (MapState::Unwritten(pblk) | MapState::Written(pblk)) = found.state else {
                return Err(Error::Io("a block of the Merkle tree is missing".into()));
            };
            let at = bs.dev_off(pblk).ok_or(Error::FileTooBig)?;
            let len = (index(u64::from(found.len)) << bs.log2()).min(left.len());
            let mut blocks = Cow::Borrowed(&left[..len]);
            if self.inode.flags().contains(InodeFlags::ENCRYPT) {
                encoding::encode(self.fs, self.inode, pos, blocks.to_mut())?;
            }
            let written = self.fs.dev.write_at(at, &blocks);
            written.map_err(|source| DeviceFault {
                request: DeviceRequest::Write,
                at,
                len: len as u64,
                source,
            })?;
            for number in 0..u64::from(found.len) {
                // An older file with fs-verity may have had the block.
                self.fs.cache.forget_bytes(pblk.plus(number));
            }
            done += len;
        }
        self.run.clear();
        Ok(())
    }
}
