//! The toy file system of `extant-iomap`'s tests, used through records instead of ranges.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use extant_blockdev::BlockDevice;
use extant_bufferhead::{
    BlockLocation, BlockMap, BufferCounters, BufferOps, BufferStats, BufferWriteback, FolioWrite,
    Ring, write, write_back,
};
use extant_iomap::{
    Ioend, Iomap, IomapKind, IomapOp, IomapOps, Outcome, Source, Stopped, WritebackControl,
    WritebackOps, zero_range,
};
use extant_pagecache::{AddressSpace, FolioLocked, WritebackFault};
use extant_units::{DevOff, PAGE_SIZE, Pos};

use crate::toy::{Setup, Toy, ToyError};

/// A handle that counts the extents it can pay for.
pub struct Handle {
    left: u32,
}

pub struct Rig {
    pub toy: Arc<Toy>,
    pub buffers: BufferCounters,
    pub stop: bool,
    /// Space is allocated at once, not reserved.
    pub at_once: AtomicBool,
    /// Extents that one handle pays for.
    pub credits: AtomicU32,
    /// How often room must be made before an allocation succeeds.
    pub crowd: AtomicU32,
    /// How often room can be made.
    pub patience: AtomicU32,
    pub wrote: Mutex<Vec<FolioWrite>>,
    /// Per completion: whether its folio was under writeback still.
    pub completed: Mutex<Vec<bool>>,
    /// Writeback logs what is dirty.
    pub logs: AtomicBool,
    /// The blocks that were logged: their first bytes.
    pub logged: Mutex<Vec<u8>>,
    /// Positions at which space was allocated.
    pub allocated: Mutex<Vec<u64>>,
}

impl Rig {
    pub fn new(setup: Setup, stop: bool) -> Self {
        Self {
            toy: setup.build(),
            buffers: BufferCounters::default(),
            stop,
            at_once: AtomicBool::new(false),
            credits: AtomicU32::new(u32::MAX),
            crowd: AtomicU32::new(0),
            patience: AtomicU32::new(0),
            wrote: Mutex::default(),
            completed: Mutex::default(),
            logs: AtomicBool::new(false),
            logged: Mutex::default(),
            allocated: Mutex::default(),
        }
    }

    pub fn write(&self, pos: u64, data: &[u8]) -> Result<usize, Stopped<ToyError>> {
        let mut source = data;
        self.write_from(pos, data.len(), &mut source)
    }

    pub fn write_from(
        &self,
        pos: u64,
        len: usize,
        source: &mut impl Source,
    ) -> Result<usize, Stopped<ToyError>> {
        let old = self.size();
        if pos > old {
            zero_range(self, Pos::new(old), pos - old)?;
        }
        write(self, Pos::new(pos), len, source)
    }

    pub fn sync(&self) -> Result<u64, ToyError> {
        write_back(
            self,
            &self.address_space().writeback_pass(),
            WritebackControl::integrity(Pos::ZERO, Pos::MAX),
        )
    }

    /// Counts that `body` added to the counters.
    pub fn counted(&self, body: impl FnOnce()) -> BufferStats {
        let before = self.buffers.snapshot();
        body();
        let after = self.buffers.snapshot();
        BufferStats {
            begins: after.begins - before.begins,
            begin_visits: after.begin_visits - before.begin_visits,
            commit_visits: after.commit_visits - before.commit_visits,
            last_block_visits: after.last_block_visits - before.last_block_visits,
            writeback_visits: after.writeback_visits - before.writeback_visits,
            cleanup_visits: after.cleanup_visits - before.cleanup_visits,
            block_maps: after.block_maps - before.block_maps,
            edge_reads: after.edge_reads - before.edge_reads,
            rings: after.rings - before.rings,
            extent_maps: after.extent_maps - before.extent_maps,
            restarts: after.restarts - before.restarts,
        }
    }

    /// Every folio.
    pub fn folios(&self) -> Vec<Seen> {
        let pages = &*self.toy.pages;
        let block = pages.block_size().bytes();
        let mut all = Vec::new();
        let mut at = Pos::ZERO;
        while let Some(folio) = pages.next(at) {
            at = folio.end();
            let mut guard = pages.lock(&folio).unwrap();
            let state = (0..folio.len() / block)
                .map(|number| {
                    let bytes = number * block..(number + 1) * block;
                    (guard.is_uptodate(bytes.clone()), guard.is_dirty(bytes))
                })
                .collect();
            let ring = guard.take_private::<Ring>();
            let copy = ring.as_deref().cloned();
            if let Some(ring) = ring {
                guard.put_private(ring);
            }
            let bytes = guard.bytes().to_vec();
            all.push(Seen {
                start: folio.start().get(),
                order: folio.order(),
                state,
                ring: copy,
                bytes,
            });
        }
        all
    }

    /// The records say what the folios say.
    pub fn check_rings(&self) {
        use extant_bufferhead::BufferState;
        for folio in self.folios() {
            let Some(ring) = folio.ring else { continue };
            let blocks = ring.records().zip(folio.state);
            for (number, (record, (uptodate, dirty))) in blocks.enumerate() {
                let what = format!("block {number} of the folio at {}: {record:?}", folio.start);
                assert_eq!(record.is(BufferState::UPTODATE), uptodate, "{what}");
                assert_eq!(record.is(BufferState::DIRTY), dirty, "{what}");
                assert!(!record.is(BufferState::NEW), "{what}");
                assert!(!record.is(BufferState::ASYNC_WRITE), "{what}");
            }
        }
    }
}

impl IomapOps for Rig {
    type Error = ToyError;

    fn address_space(&self) -> &AddressSpace {
        self.toy.address_space()
    }
    fn device(&self) -> &dyn BlockDevice {
        self.toy.device()
    }
    fn counters(&self) -> &extant_iomap::IomapCounters {
        self.toy.counters()
    }
    fn size(&self) -> u64 {
        self.toy.size()
    }
    fn raise_size(&self, locked: FolioLocked<'_>, end: u64) {
        self.toy.raise_size(locked, end);
    }
    fn begin(&self, op: IomapOp, pos: Pos, len: u64) -> Result<Iomap, ToyError> {
        self.toy.begin(op, pos, len)
    }
    fn end(
        &self,
        op: IomapOp,
        map: &Iomap,
        pos: Pos,
        len: u64,
        out: Outcome,
    ) -> Result<(), ToyError> {
        self.toy.end(op, map, pos, len, out)
    }
    fn is_current(&self, map: &Iomap) -> bool {
        self.toy.is_current(map)
    }
}

impl WritebackOps for Rig {
    fn map_blocks(&self, pos: Pos, len: u64) -> Result<Iomap, ToyError> {
        self.toy.map_blocks(pos, len)
    }
    fn complete(&self, ioend: &Ioend) -> Result<(), ToyError> {
        let folio = self.toy.pages.next(ioend.pos).unwrap();
        self.completed
            .lock()
            .unwrap()
            .push(folio.is_under_writeback());
        self.toy.complete(ioend)
    }
    fn discard(&self, pos: Pos, len: u64) {
        self.toy.discard(pos, len);
    }
    fn fault_of(error: &ToyError) -> WritebackFault {
        Toy::fault_of(error)
    }
}

impl BufferOps for Rig {
    type Handle = Handle;

    fn buffer_counters(&self) -> &BufferCounters {
        &self.buffers
    }

    fn stop_at_range_end(&self) -> bool {
        self.stop
    }

    fn start_write(&self, _: Pos, blocks: u32) -> Result<Option<(Handle, u32)>, ToyError> {
        let at_once = self.at_once.load(Ordering::Relaxed);
        Ok(at_once.then_some((Handle { left: u32::MAX }, blocks.min(5))))
    }

    fn map_block(
        &self,
        _: FolioLocked<'_>,
        handle: Option<&mut Handle>,
        pos: Pos,
    ) -> Result<BlockMap, ToyError> {
        let size = self.address_space().block_size().bytes_u64();
        let mut map = self.toy.begin(IomapOp::Write, pos, size)?;
        if handle.is_some() && map.kind == IomapKind::Delalloc {
            map = self.toy.map_blocks(pos, size)?;
        }
        Ok(match map.kind {
            IomapKind::Unwritten(_) => BlockMap {
                location: BlockLocation::Unwritten(map.device_at(pos).unwrap()),
                new: true,
            },
            IomapKind::Mapped(_) => BlockMap {
                location: BlockLocation::Written(map.device_at(pos).unwrap()),
                new: false,
            },
            _ => BlockMap {
                location: BlockLocation::Delayed,
                new: true,
            },
        })
    }

    fn is_data_journalled(&self) -> bool {
        self.logs.load(Ordering::Relaxed)
    }

    fn journal_data(
        &self,
        _: FolioLocked<'_>,
        _: Option<&mut Handle>,
        blocks: &[(DevOff, &[u8])],
    ) -> Result<(), ToyError> {
        let bytes = blocks.iter().map(|(_, bytes)| bytes[0]);
        self.logged.lock().unwrap().extend(bytes);
        Ok(())
    }

    fn end_write(&self, _handle: Option<Handle>, wrote: FolioWrite) -> Result<(), ToyError> {
        self.wrote.lock().unwrap().push(wrote);
        Ok(())
    }

    fn undo_failed_write(&self, _: Option<&mut Handle>, start: Pos, end: Pos) {
        let len = end.distance_from(start).unwrap();
        self.toy.discard(start, len);
    }
}

impl BufferWriteback for Rig {
    type Retries = u32;

    fn start_mapping(&self) -> Result<Handle, ToyError> {
        Ok(Handle {
            left: self.credits.load(Ordering::Relaxed),
        })
    }

    fn ensure_credits(&self, handle: &mut Handle) -> Result<bool, ToyError> {
        handle.left -= 1;
        Ok(handle.left > 0)
    }

    fn allocate(
        &self,
        _: FolioLocked<'_>,
        _: &mut Handle,
        pos: Pos,
        len: u64,
    ) -> Result<Iomap, ToyError> {
        if self.crowd.load(Ordering::Relaxed) > 0 {
            return Err(ToyError::NoSpace);
        }
        self.allocated.lock().unwrap().push(pos.get());
        self.toy.map_blocks(pos, len)
    }

    fn should_retry_alloc(&self, attempts: &mut u32, _: &ToyError) -> bool {
        self.crowd.fetch_sub(1, Ordering::Relaxed);
        *attempts += 1;
        *attempts <= self.patience.load(Ordering::Relaxed)
    }

    fn raise_disk_size(&self, _: &mut Handle, end: Pos) -> Result<(), ToyError> {
        self.toy.raise_disk_size(end.get());
        Ok(())
    }
}

/// A folio as a test sees it: its start, its order, its uptodate and dirty blocks, its ring and its
/// bytes.
#[derive(PartialEq)]
pub struct Seen {
    pub start: u64,
    pub order: u32,
    pub state: Vec<(bool, bool)>,
    pub ring: Option<Ring>,
    pub bytes: Vec<u8>,
}

/// A source that runs dry after some bytes.
pub struct Dry<'a>(pub &'a [u8]);

impl Source for Dry<'_> {
    fn copy_at(&mut self, offset: usize, into: &mut [u8]) -> usize {
        self.0.copy_at(offset, into)
    }
}

pub const PAGE: u64 = PAGE_SIZE as u64;
