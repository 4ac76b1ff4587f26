//! A small device with a log on it, and a recorder that rebuilds the device after any crash.
#![allow(dead_code, reason = "each test file uses a part")]

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_disk::jbd2::superblock::JournalSuperblock;
use extant_jbd2::{BlockCache, CheckKey, Config, Journal, LogMap, recover};
use extant_units::{BlockSize, Blocks, DevOff, Pblk};
use parking_lot::{Condvar, Mutex};

pub(crate) const BS: BlockSize = BlockSize::KIB1;
pub(crate) const BYTES: usize = 1024;
pub(crate) const KEY: CheckKey = CheckKey::new(1, 0);
/// The log's first device block; blocks before it are the file system's.
pub(crate) const LOG_AT: u64 = 1024;

/// The log's map: `len` blocks in two runs, so that the log is not contiguous on the device.
pub(crate) fn log_map(len: u32) -> LogMap {
    let first = len / 3;
    LogMap::new(vec![
        (Pblk::new(LOG_AT + 1), first),
        (Pblk::new(LOG_AT + 2 + u64::from(first)), len - first),
    ])
}

/// A device with an empty log of `len` blocks behind [`LOG_AT`] blocks.
pub(crate) fn formatted(len: u32) -> MemoryDevice {
    let dev = MemoryDevice::new((LOG_AT + u64::from(len) + 8) * BYTES as u64);
    let superblock = JournalSuperblock::new_empty(BS, len, [0x5a; 16]).to_bytes();
    let at = BS.dev_off(log_map(len).block(0).unwrap()).unwrap();
    dev.write_at(at, &superblock).unwrap();
    dev
}

/// Opens the journal of a [`formatted`] device.
pub(crate) fn open(
    dev: Arc<dyn BlockDevice>,
    len: u32,
    config: Config,
) -> (Arc<BlockCache>, Arc<Journal>) {
    let cache = BlockCache::new(dev.clone(), BS, 256 << 10);
    let journal = Journal::open(cache.clone(), dev, log_map(len), config).unwrap();
    (cache, journal)
}

/// A configuration that never commits by age, so that tests decide.
pub(crate) fn manual() -> Config {
    Config {
        commit_interval: std::time::Duration::from_secs(3600),
        ..Config::default()
    }
}

pub(crate) fn recover_log(dev: &dyn BlockDevice, len: u32) -> extant_jbd2::Recovery {
    recover(dev, BS, &log_map(len), Blocks::new(LOG_AT)).unwrap()
}

/// The first eight bytes of block `p`.
pub(crate) fn stamp_on(dev: &dyn BlockDevice, p: u64) -> u64 {
    let mut bytes = [0; 8];
    dev.read_at(DevOff::new(p * BYTES as u64), &mut bytes)
        .unwrap();
    u64::from_le_bytes(bytes)
}

/// Sets the first eight and the last eight bytes.
pub(crate) fn stamp(bytes: &mut [u8], value: u64) {
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    let end = bytes.len() - 8;
    bytes[end..].copy_from_slice(&value.to_le_bytes());
}

/// Modifies `blocks` to carry `value` in one handle; returns its transaction.
pub(crate) fn put(
    cache: &BlockCache,
    journal: &Arc<Journal>,
    blocks: &[u64],
    value: u64,
) -> extant_units::Tid {
    let mut handle = journal.start(u32::try_from(blocks.len()).unwrap()).unwrap();
    for &p in blocks {
        let block = cache.read_unchecked(Pblk::new(p)).unwrap();
        handle.modify(&block, |bytes| stamp(bytes, value)).unwrap();
    }
    handle.tid()
}

/// A request that reached the device.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Write(u64, Vec<u8>),
    Flush,
}

/// A memory device that records every write and flush, and fails writes while a test asks for that.
pub(crate) struct Recorder {
    base: Vec<u8>,
    live: MemoryDevice,
    events: Mutex<Vec<Event>>,
    pub(crate) fail_writes: AtomicBool,
    /// Offsets at which writes were refused.
    pub(crate) refused: Mutex<Vec<DevOff>>,
    pub(crate) writes: AtomicU64,
}

impl Recorder {
    pub(crate) fn new(dev: &MemoryDevice) -> Arc<Self> {
        let base = dev.to_bytes();
        Arc::new(Self {
            live: MemoryDevice::from_bytes(&base),
            base,
            events: Mutex::default(),
            fail_writes: AtomicBool::new(false),
            refused: Mutex::default(),
            writes: AtomicU64::new(0),
        })
    }

    /// Events so far.
    pub(crate) fn position(&self) -> usize {
        self.events.lock().len()
    }

    /// How many of the first `cut` events the last flush among them covers.
    pub(crate) fn last_flush(&self, cut: usize) -> usize {
        let events = self.events.lock();
        let flush = |event: &Event| matches!(event, Event::Flush);
        events[..cut].iter().rposition(flush).unwrap_or(0)
    }

    /// The device after the first `cut` events, of which the writes since the last flush arrived
    /// only where `arrived` says so. A write that did not arrive may have arrived in part:
    /// `arrived` is asked per block.
    pub(crate) fn crashed(&self, cut: usize, mut arrived: impl FnMut() -> bool) -> MemoryDevice {
        let flushed = self.last_flush(cut);
        let events = self.events.lock();
        let events = &events[..cut];
        let mut bytes = self.base.clone();
        for (i, event) in events.iter().enumerate() {
            let Event::Write(at, data) = event else {
                continue;
            };
            let at = usize::try_from(*at).unwrap();
            for (k, piece) in data.chunks(BYTES).enumerate() {
                if i < flushed || arrived() {
                    let start = at + k * BYTES;
                    bytes[start..start + piece.len()].copy_from_slice(piece);
                }
            }
        }
        MemoryDevice::from_bytes(&bytes)
    }

    fn record(&self, event: Event) -> io::Result<()> {
        if self.fail_writes.load(Ordering::SeqCst) {
            if let Event::Write(at, _) = event {
                self.refused.lock().push(DevOff::new(at));
            }
            return Err(io::Error::other("planned"));
        }
        if matches!(event, Event::Write(..)) {
            self.writes.fetch_add(1, Ordering::SeqCst);
        }
        self.events.lock().push(event);
        Ok(())
    }
}

impl BlockDevice for Recorder {
    fn len(&self) -> u64 {
        self.live.len()
    }
    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.live.read_at(offset, buf)
    }
    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.record(Event::Write(offset.get(), buf.to_vec()))?;
        self.live.write_at(offset, buf)
    }
    fn write_vectored_at(&self, offset: DevOff, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let all: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        self.write_at(offset, &all)
    }
    fn flush(&self) -> io::Result<()> {
        self.record(Event::Flush)
    }
}

/// A device that holds writes to one block back until the gate opens.
pub(crate) struct Gate {
    pub(crate) inner: MemoryDevice,
    block: u64,
    /// State of the gate (open or not), and the number of writes that have arrived at it.
    state: Mutex<(bool, u64)>,
    changed: Condvar,
    pub(crate) durable_writes: AtomicU64,
}

impl Gate {
    /// A gate before `block` of `inner`, shut.
    pub(crate) fn before(block: u64, inner: MemoryDevice) -> Self {
        Self {
            inner,
            block,
            state: Mutex::new((false, 0)),
            changed: Condvar::new(),
            durable_writes: AtomicU64::new(0),
        }
    }

    /// Waits until a write stands at the gate.
    pub(crate) fn wait_for_arrival(&self) {
        let mut state = self.state.lock();
        while state.1 == 0 {
            self.changed.wait(&mut state);
        }
    }

    pub(crate) fn open(&self) {
        self.state.lock().0 = true;
        self.changed.notify_all();
    }
}

impl BlockDevice for Gate {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        let at = self.block * BYTES as u64;
        if (offset.get()..offset.get() + buf.len() as u64).contains(&at) {
            let mut state = self.state.lock();
            state.1 += 1;
            self.changed.notify_all();
            while !state.0 {
                self.changed.wait(&mut state);
            }
        }
        self.inner.write_at(offset, buf)
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn write_durable(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.write_at(offset, buf)?;
        self.durable_writes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// A small random number generator (xorshift): tests print their seeds.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }
}
