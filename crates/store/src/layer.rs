//! The file of a layer: the blocks of a stored image that were written, and which these are.
//!
//! # Format
//! Numbers are little endian.
//! - 512 bytes of header: `extlayer`, 4 bytes of the format (1), 4 bytes of the length of the
//!   image's name, 8 bytes of the image's length, 8 bytes of the base's version, 32 bytes of the
//!   hash of its manifest, the name; zeros; in the last 32 bytes BLAKE3 of all before.
//! - from byte 4096 on, a bit for each block of 4 KiB: it is in the layer. Filled up to 4096 bytes.
//! - the blocks, each where it is in the image: the file is sparse.
//!
//! # Invariants
//! - A bit is on the medium only after its block is: whatever a power cut leaves, a block is that
//!   of the base or one that was written. A block without a durable bit reads as in the base, as a
//!   block of a disk reads that was written and not flushed.
//! - The header changes only to a base that has the content of the old base with the layer.
//!
//! # Concurrency
//! Calls may run at once. Bits are set after their blocks are written, and never cleared while the
//! image is in use.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, mem};

use extant_blockdev::BlockDevice;
use extant_units::{DevOff, index};
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::hash::ObjectHash;

/// Bytes of a block of a layer.
pub(crate) const BLOCK: u64 = BLOCK_LEN as u64;
/// The same, as the length of a buffer.
pub(crate) const BLOCK_LEN: usize = 4096;
/// The most bytes of an image with a layer: its bits take 512 MiB.
const MOST_BYTES: u64 = 16 << 40;
const MAGIC: [u8; 8] = *b"extlayer";
const FORMAT: u32 = 1;
const HEADER: usize = 512;
/// The place of the name in the header.
const NAME: usize = 64;
/// The place of the header's hash.
const SUM: usize = HEADER - ObjectHash::LEN;

/// The version that a layer changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Base {
    /// Bytes of the image.
    pub(crate) image_bytes: u64,
    /// The image's name.
    pub(crate) name: String,
    /// The version's number.
    pub(crate) version: u64,
    /// The hash of its manifest.
    pub(crate) manifest: ObjectHash,
}

impl Base {
    fn to_header(&self) -> Result<[u8; HEADER]> {
        let mut header = [0; HEADER];
        let name = self.name.as_bytes();
        let end = NAME + name.len();
        if end > SUM {
            let what = "the name of an image with a layer has at most 416 bytes";
            return Err(Error::BadSize { what });
        }
        let name_len = u32::try_from(name.len()).expect("it fits the header");
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        header[12..16].copy_from_slice(&name_len.to_le_bytes());
        header[16..24].copy_from_slice(&self.image_bytes.to_le_bytes());
        header[24..32].copy_from_slice(&self.version.to_le_bytes());
        header[32..NAME].copy_from_slice(self.manifest.as_bytes());
        header[NAME..end].copy_from_slice(name);
        let sum = ObjectHash::of(&header[..SUM]);
        header[SUM..].copy_from_slice(sum.as_bytes());
        Ok(header)
    }

    fn from_header(header: &[u8; HEADER]) -> std::result::Result<Self, &'static str> {
        if !is_header(header) {
            return Err("it is no layer");
        }
        if ObjectHash::of(&header[..SUM]).as_bytes() != &header[SUM..] {
            return Err("its header is damaged");
        }
        let four = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        let eight = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
        if four(8) != FORMAT {
            return Err("its format is not 1");
        }
        let end = NAME.saturating_add(four(12) as usize);
        let name = header.get(NAME..end).filter(|_| end <= SUM);
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        let base = Self {
            image_bytes: eight(16),
            name: name.ok_or("its header is damaged")?.to_owned(),
            version: eight(24),
            manifest: ObjectHash::from_bytes(header[32..NAME].try_into().expect("32 bytes")),
        };
        if base.image_bytes > MOST_BYTES {
            return Err("its image is too long");
        }
        Ok(base)
    }
}

/// Returns whether a file that begins with these bytes is a layer, damaged or not.
pub(crate) fn is_header(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Bytes of the bits of an image, filled up to whole blocks.
fn map_bytes(image_bytes: u64) -> u64 {
    image_bytes.div_ceil(BLOCK * 8).next_multiple_of(BLOCK)
}

/// The byte of the file that the image's first block is at.
fn data_start(image_bytes: u64) -> u64 {
    BLOCK + map_bytes(image_bytes)
}

/// Bytes of the file of a layer.
///
/// # Errors
/// [`Error::BadSize`] for an image that is too long.
pub(crate) fn file_bytes(image_bytes: u64) -> Result<u64> {
    if image_bytes > MOST_BYTES {
        let what = "an image with a layer has at most 16 TiB";
        return Err(Error::BadSize { what });
    }
    Ok(data_start(image_bytes) + image_bytes.next_multiple_of(BLOCK))
}

/// Makes the empty `file`, of [`file_bytes`], a layer over `base`, durably.
///
/// # Errors
/// [`Error::BadSize`]; a failed write.
pub(crate) fn format(file: &dyn BlockDevice, base: &Base) -> Result<()> {
    file.write_at(DevOff::ZERO, &base.to_header()?)?;
    Ok(file.flush()?)
}

/// A layer in use.
pub(crate) struct Layer {
    file: Arc<dyn BlockDevice>,
    base: Mutex<Base>,
    data_start: u64,
    /// Bits of the blocks that are in the layer, in words.
    present: Vec<AtomicU64>,
    /// Blocks in the layer whose bits are not durable.
    unwritten: Mutex<BTreeSet<u64>>,
    /// One flush at a time writes bits. A flush has failed: what was written since the one before
    /// may be lost, and no later flush may say that it is durable.
    failed: Mutex<bool>,
}

impl std::fmt::Debug for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layer")
            .field("base", &*self.base.lock())
            .finish_non_exhaustive()
    }
}

impl Layer {
    /// The layer in `file`. Messages call it `name`.
    ///
    /// # Errors
    /// [`Error::BadLayer`]; a failed read.
    pub(crate) fn open(file: Arc<dyn BlockDevice>, name: &str) -> Result<Self> {
        let mut header = [0; HEADER];
        if file.len() < HEADER as u64 {
            return Err(Error::bad_layer(name, "it is no layer"));
        }
        file.read_at(DevOff::ZERO, &mut header)?;
        let base = Base::from_header(&header).map_err(|why| Error::bad_layer(name, why))?;
        if file.len() < file_bytes(base.image_bytes)? {
            return Err(Error::bad_layer(name, "it is too short"));
        }
        let mut words = Vec::new();
        let mut block = [0; BLOCK_LEN];
        for at in (BLOCK..data_start(base.image_bytes)).step_by(BLOCK_LEN) {
            file.read_at(DevOff::new(at), &mut block)?;
            let (bytes, _) = block.as_chunks::<8>();
            words.extend(bytes.iter().map(|&bytes| u64::from_le_bytes(bytes).into()));
        }
        Ok(Self {
            file,
            data_start: data_start(base.image_bytes),
            base: Mutex::new(base),
            present: words,
            unwritten: Mutex::default(),
            failed: Mutex::default(),
        })
    }

    /// The version that it changes.
    pub(crate) fn base(&self) -> Base {
        self.base.lock().clone()
    }

    /// Returns whether the layer refuses writes.
    pub(crate) fn is_read_only(&self) -> bool {
        self.file.is_read_only()
    }

    /// Returns whether a block is in the layer.
    pub(crate) fn has(&self, block: u64) -> bool {
        let word = &self.present[index(block / 64)];
        word.load(Ordering::Acquire) & (1 << (block % 64)) != 0
    }

    /// Returns whether any of these blocks is in the layer.
    pub(crate) fn has_any(&self, blocks: Range<u64>) -> bool {
        let mut block = blocks.start;
        while block < blocks.end {
            // Words of blocks that were never written are most of an image.
            let word = self.present[index(block / 64)].load(Ordering::Acquire);
            if word == 0 {
                block = (block / 64 + 1) * 64;
            } else if word & (1 << (block % 64)) != 0 {
                return true;
            } else {
                block += 1;
            }
        }
        false
    }

    /// Blocks in the layer.
    pub(crate) fn blocks(&self) -> u64 {
        let ones = |word: &AtomicU64| u64::from(word.load(Ordering::Relaxed).count_ones());
        self.present.iter().map(ones).sum()
    }

    /// Fills `buf` with bytes of the image from `at` on, whose blocks are in the layer.
    pub(crate) fn read(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_at(DevOff::new(self.data_start + at), buf)
    }

    /// Writes bytes of the image from `at` on: whole blocks, or parts of blocks that are in the
    /// layer.
    pub(crate) fn write(&self, at: u64, buf: &[u8]) -> io::Result<()> {
        self.file.write_at(DevOff::new(self.data_start + at), buf)?;
        let end = at + buf.len() as u64;
        for block in at / BLOCK..end.div_ceil(BLOCK) {
            let word = &self.present[index(block / 64)];
            let bit = 1 << (block % 64);
            if word.load(Ordering::Acquire) & bit == 0 {
                // A write that sees the bit is flushed with it: flushes wait for the lock.
                let mut unwritten = self.unwritten.lock();
                word.fetch_or(bit, Ordering::Release);
                unwritten.insert(block);
            }
        }
        Ok(())
    }

    /// Makes the writes that returned before durable.
    ///
    /// # Errors
    /// Once it has failed it fails always: a host that lost writes says so once.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let mut failed = self.failed.lock();
        if *failed {
            return Err(io::Error::other("a flush of the layer has failed before"));
        }
        let taken = mem::take(&mut *self.unwritten.lock());
        let flushed = self.flush_with(&taken);
        if flushed.is_err() {
            *failed = true;
            self.unwritten.lock().extend(taken);
        }
        flushed
    }

    /// Writes bytes of the image from `at` on and flushes, also after a flush has failed: nothing
    /// may rely on it.
    ///
    /// # Errors
    /// A block of them is not in the layer durably: its bit may be written no more.
    pub(crate) fn write_note(&self, at: u64, buf: &[u8]) -> io::Result<()> {
        let end = at + buf.len() as u64;
        let mut blocks = at / BLOCK..end.div_ceil(BLOCK);
        let unwritten = self.unwritten.lock();
        if !blocks.all(|block| self.has(block) && !unwritten.contains(&block)) {
            return Err(io::Error::other("its block is not in the layer"));
        }
        drop(unwritten);
        self.file.write_note(DevOff::new(self.data_start + at), buf)
    }

    /// Flushes, and writes the bits of these blocks.
    fn flush_with(&self, blocks: &BTreeSet<u64>) -> io::Result<()> {
        let mut of_bits: Vec<u64> = blocks.iter().map(|block| block / (BLOCK * 8)).collect();
        of_bits.dedup();
        // Each bit was set after its block was written, so the flush that follows covers it.
        let copies: Vec<_> = of_bits
            .into_iter()
            .map(|block| (block, self.bits(block)))
            .collect();
        self.file.flush()?;
        if copies.is_empty() {
            return Ok(());
        }
        for (block, bits) in copies {
            self.file
                .write_at(DevOff::new(BLOCK + block * BLOCK), &bits)?;
        }
        self.file.flush()
    }

    /// A block of bits.
    fn bits(&self, block: u64) -> Vec<u8> {
        let words = index(BLOCK / 8);
        let from = index(block) * words;
        let bytes = |word: &AtomicU64| word.load(Ordering::Acquire).to_le_bytes();
        self.present[from..from + words]
            .iter()
            .flat_map(bytes)
            .collect()
    }

    /// Makes `base`, which has the content of the old base with this layer, the base of a layer
    /// without blocks. Nothing else may use the layer.
    ///
    /// # Errors
    /// A failed write. The layer has one base or the other then, and the same content.
    pub(crate) fn put_on(&self, base: Base) -> Result<()> {
        debug_assert_eq!(
            base.image_bytes,
            self.base().image_bytes,
            "the image has its length"
        );
        self.flush()?;
        self.file.write_at(DevOff::ZERO, &base.to_header()?)?;
        self.file.flush()?;
        let map = map_bytes(base.image_bytes);
        self.file.write_zeroes(DevOff::new(BLOCK), map)?;
        self.file.flush()?;
        self.present
            .iter()
            .for_each(|word| word.store(0, Ordering::Release));
        let data = self.file.len() - self.data_start;
        *self.base.lock() = base;
        Ok(self.file.discard(DevOff::new(self.data_start), data)?)
    }
}
