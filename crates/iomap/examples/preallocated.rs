//! The least that buffered I/O needs of a file system: one file over a run of preallocated blocks.
//!
//! `docs/IOMAP.md` says what each function guarantees and may assume. Run it by
//! `cargo run -p extant-iomap --example preallocated`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_iomap::{
    DeviceFault, Ioend, IoendKind, Iomap, IomapCounters, IomapKind, IomapOp, IomapOps, Miss,
    WritebackControl, WritebackOps, zero_range,
};
use extant_pagecache::{
    AddressSpace, AddressSpaceParams, Config, FolioLocked, PageCache, Readahead, RecentFolios,
    Writeback, WritebackFault, WritebackReason,
};
use extant_units::{BlockSize, DevOff, Pos, index};
use parking_lot::Mutex;

const BLOCK: BlockSize = BlockSize::KIB4;
/// Blocks of the file, from the start of the device on.
const BLOCKS: usize = 256;

#[derive(Debug)]
enum FileError {
    Device(#[allow(dead_code, reason = "printed where main fails")] DeviceFault),
    /// The position lies behind the preallocated blocks.
    Full,
}

impl From<DeviceFault> for FileError {
    fn from(fault: DeviceFault) -> Self {
        Self::Device(fault)
    }
}

/// The map: the blocks that have data, and the sequence of its changes.
struct Map {
    written: [bool; BLOCKS],
    sequence: u64,
    size_on_disk: u64,
}

struct File {
    pages: Arc<AddressSpace>,
    device: MemoryDevice,
    counters: IomapCounters,
    size: AtomicU64,
    map: Mutex<Map>,
    /// Excludes writers from each other and from changes of the size.
    writers: Mutex<()>,
    readahead: Readahead,
    recent: RecentFolios,
}

impl File {
    fn new(cache: &Arc<PageCache>) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<File>| File {
            pages: AddressSpace::new(
                cache,
                this.clone(),
                AddressSpaceParams {
                    block_size: BLOCK,
                    max_order: 4,
                },
            ),
            device: MemoryDevice::new(BLOCKS as u64 * BLOCK.bytes_u64()),
            counters: IomapCounters::default(),
            size: AtomicU64::new(0),
            map: Mutex::new(Map {
                written: [false; BLOCKS],
                sequence: 0,
                size_on_disk: 0,
            }),
            writers: Mutex::new(()),
            readahead: Readahead::new(128 << 10),
            recent: RecentFolios::default(),
        })
    }

    /// A write as a caller makes it: the gap before it is zeroed, so that no stale byte shows.
    fn write(&self, pos: u64, mut bytes: &[u8]) -> Result<usize, FileError> {
        let _exclusive = self.writers.lock();
        let (size, len) = (self.size(), bytes.len());
        if pos > size {
            zero_range(self, Pos::new(size), pos - size).map_err(|stopped| stopped.error)?;
        }
        let written = extant_iomap::write(self, Pos::new(pos), len, &mut bytes);
        written.map_err(|stopped| stopped.error)
    }

    fn read(&self, pos: u64, buf: &mut [u8]) -> Result<usize, FileError> {
        let miss = Miss::Fill(&self.readahead);
        let done = extant_iomap::read(self, &self.recent, miss, Pos::new(pos), buf);
        done.map_err(|stopped| stopped.error)
    }

    fn sync(&self) -> Result<u64, FileError> {
        let pass = self.address_space().writeback_pass();
        let control = WritebackControl::integrity(Pos::ZERO, Pos::MAX);
        extant_iomap::write_back(self, &pass, control)
    }
}

impl IomapOps for File {
    type Error = FileError;

    fn address_space(&self) -> &AddressSpace {
        &self.pages
    }

    fn device(&self) -> &dyn BlockDevice {
        &self.device
    }

    fn counters(&self) -> &IomapCounters {
        &self.counters
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn raise_size(&self, _locked: FolioLocked<'_>, end: u64) {
        self.size.fetch_max(end, Ordering::AcqRel);
    }

    /// A mapping of as many blocks as are alike, at least the one at `pos`.
    fn begin(&self, _op: IomapOp, pos: Pos, len: u64) -> Result<Iomap, FileError> {
        let map = self.map.lock();
        let first = index(pos.get() >> BLOCK.log2());
        let last = index(pos.get().saturating_add(len).div_ceil(BLOCK.bytes_u64()));
        let has_data = *map.written.get(first).ok_or(FileError::Full)?;
        let blocks = &map.written[first..last.min(BLOCKS)];
        let alike = blocks.iter().take_while(|&&has| has == has_data).count() as u64;
        let at = DevOff::new(BLOCK.round_down(pos).get());
        Ok(Iomap {
            offset: BLOCK.round_down(pos),
            length: alike * BLOCK.bytes_u64(),
            kind: if has_data {
                IomapKind::Mapped(at)
            } else {
                IomapKind::Unwritten(at)
            },
            new: false,
            cookie: map.sequence,
        })
    }

    fn is_current(&self, map: &Iomap) -> bool {
        map.cookie == self.map.lock().sequence
    }
}

impl WritebackOps for File {
    /// Nothing is delayed here: dirty data has its blocks.
    fn map_blocks(&self, pos: Pos, len: u64) -> Result<Iomap, FileError> {
        self.begin(IomapOp::Write, pos, len)
    }

    /// First the conversion, which makes older mappings stale, then the size on disk. Nothing of it
    /// past written space that was not written: what is there must not come to lie in the file.
    fn complete(&self, ioend: &Ioend) -> Result<(), FileError> {
        let mut map = self.map.lock();
        if ioend.failed_before.map_or(0, Pos::get) > map.size_on_disk {
            return Ok(());
        }
        if ioend.kind == IoendKind::Unwritten {
            let block = |pos: Pos| index(pos.get() >> BLOCK.log2());
            map.written[block(ioend.pos)..block(ioend.end())].fill(true);
            map.sequence += 1;
        }
        let end = ioend.end().get().min(self.size());
        map.size_on_disk = map.size_on_disk.max(end);
        Ok(())
    }

    /// No reservation to give back.
    fn discard(&self, _pos: Pos, _len: u64) {}

    fn fault_of(error: &FileError) -> WritebackFault {
        match error {
            FileError::Device(_) => WritebackFault::Io,
            FileError::Full => WritebackFault::NoSpace,
        }
    }
}

/// How the page cache has the file written: at its limits, and when dirty data is old.
impl Writeback for File {
    fn write_back(self: Arc<Self>, reason: WritebackReason, max_bytes: u64) {
        let control = match reason {
            WritebackReason::Sync => WritebackControl::integrity(Pos::ZERO, Pos::MAX),
            _ => WritebackControl::background(max_bytes),
        };
        // Errors are recorded in the address space, for the next fsync.
        let pass = self.address_space().writeback_pass();
        let _ = extant_iomap::write_back(&*self, &pass, control);
    }
}

fn main() -> Result<(), FileError> {
    let cache = PageCache::new(Config::with_budget(4 << 20));
    let file = File::new(&cache);
    file.write(10_000, b"over a gap")?;
    let mut bytes = [1; 10_010];
    assert_eq!(file.read(0, &mut bytes)?, 10_010);
    assert!(bytes[..10_000].iter().all(|&byte| byte == 0));
    assert_eq!(file.map.lock().size_on_disk, 0, "delayed until writeback");
    file.sync()?;
    assert_eq!(file.map.lock().size_on_disk, 10_010);
    // Out of the cache, and back from the device.
    file.pages.drop_clean(Pos::ZERO, Pos::MAX);
    assert_eq!(file.read(10_000, &mut bytes)?, 10);
    assert_eq!(&bytes[..10], b"over a gap");
    println!(
        "{} bytes, sequence {}",
        file.size(),
        file.map.lock().sequence
    );
    Ok(())
}
