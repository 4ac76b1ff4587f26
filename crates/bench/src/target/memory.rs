//! Plain memory: the limit that everything else is held against.
//!
//! A limit must be at least as good as what it limits. So the bytes lie as those of the page cache
//! do: in memory of the host for which huge pages are asked, aligned to them.

use std::sync::Arc;

use extant_crypt::ContentsCipher;
use extant_host::{Error, Result};
use memmap2::{Advice, MmapMut};

use super::data::{Data, VECTORS};
use super::interface::{Counters, Target};

/// Buffers that are kept and used again, so that none of their bytes is touched for the first time
/// while measured.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Answers reads with zeros instead of copying.
    pub(crate) zeros: bool,
    /// Encrypts what is written, and decrypts what is read.
    pub(crate) cipher: Option<Arc<ContentsCipher>>,
}

/// The size of a huge page, and of the page cache's largest folio.
const HUGE: usize = 2 << 20;

/// Bytes that are encrypted for themselves.
const UNIT: usize = 4096;

/// Memory that begins at a multiple of [`HUGE`].
struct Huge {
    map: MmapMut,
    /// First byte of the aligned part.
    from: usize,
    len: usize,
}

impl Huge {
    /// `len` bytes, each touched and 1.
    fn of(len: usize) -> Result<Huge> {
        let mut map = MmapMut::map_anon(len + HUGE)?;
        // Where the host has no huge pages the page cache has none either.
        let _ = map.advise(Advice::HugePage);
        let from = map.as_ptr().align_offset(HUGE);
        map[from..from + len].fill(1);
        Ok(Huge { map, from, len })
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.map[self.from..self.from + self.len]
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.from..self.from + self.len]
    }
}

/// A buffer.
struct Buffer {
    memory: Option<Huge>,
    pos: usize,
    zeros: bool,
    cipher: Option<Arc<ContentsCipher>>,
}

impl Target for Memory {
    fn open(&mut self, _name: &str) -> Result<Box<dyn Data>> {
        self.opener("").map(|buffer| buffer as _)
    }

    fn renew(&mut self, name: &str, old: Option<Box<dyn Data>>) -> Result<Box<dyn Data>> {
        old.map_or_else(|| self.open(name), Ok)
    }

    fn remove(&mut self, _name: &str) -> Result<()> {
        Ok(())
    }

    fn opener(&mut self, _name: &str) -> Result<Box<dyn Data + Send>> {
        // A buffer of its own: copies do not share anything but memory.
        Ok(Box::new(self.buffer()))
    }

    fn reader(&mut self, _name: &str, len: u64) -> Result<Box<dyn Data>> {
        let mut buffer = self.buffer();
        buffer.set_len(len)?;
        Ok(Box::new(buffer))
    }

    fn counters(&self) -> Result<Counters> {
        Ok(Counters::new())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Memory {
    fn buffer(&self) -> Buffer {
        Buffer {
            memory: None,
            pos: 0,
            zeros: self.zeros,
            cipher: self.cipher.clone(),
        }
    }
}

impl Buffer {
    /// Makes the buffer at least `len` bytes long.
    #[cold]
    fn grow(&mut self, len: usize) -> Result<()> {
        let mut larger = Huge::of(len.next_power_of_two().max(16 << 20))?;
        if let Some(old) = &self.memory {
            larger.bytes_mut()[..old.len].copy_from_slice(old.bytes());
        }
        self.memory = Some(larger);
        Ok(())
    }

    fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.len)
    }

    #[inline]
    fn put(&mut self, bytes: &[u8], at: usize) -> Result<()> {
        let end = at + bytes.len();
        if self.len() < end {
            self.grow(end)?;
        }
        let memory = self.memory.as_mut().ok_or_else(outside)?;
        let to = memory.bytes_mut().get_mut(at..end).ok_or_else(outside)?;
        to.copy_from_slice(std::hint::black_box(bytes));
        if let Some(cipher) = &self.cipher {
            cipher.encrypt_units((at / UNIT) as u64, UNIT, to);
        }
        Ok(())
    }
}

fn outside() -> Error {
    Error::new("outside of the buffer")
}

impl Data for Buffer {
    #[inline]
    fn pwrite(&mut self, bytes: &[u8], pos: u64) -> Result<()> {
        self.put(bytes, usize::try_from(pos)?)
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.put(bytes, self.pos)?;
        self.pos += bytes.len();
        Ok(())
    }

    #[inline]
    fn writev(&mut self, bytes: &[u8]) -> Result<()> {
        (0..VECTORS).try_for_each(|_| self.write(bytes))
    }

    #[inline]
    fn rewind(&mut self, pos: u64) -> Result<()> {
        self.pos = std::hint::black_box(usize::try_from(pos)?);
        Ok(())
    }

    #[inline]
    fn pread(&mut self, buf: &mut [u8], pos: u64) -> Result<()> {
        if self.zeros {
            buf.fill(0);
            std::hint::black_box(buf);
            return Ok(());
        }
        let at = usize::try_from(pos)?;
        let memory = self.memory.as_ref().ok_or_else(outside)?;
        let from = memory.bytes().get(at..at + buf.len());
        buf.copy_from_slice(from.ok_or_else(outside)?);
        if let Some(cipher) = &self.cipher {
            cipher.decrypt_units((at / UNIT) as u64, UNIT, buf);
        }
        std::hint::black_box(buf);
        Ok(())
    }

    fn set_len(&mut self, len: u64) -> Result<()> {
        let len = usize::try_from(len)?;
        if self.len() < len {
            self.grow(len)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn cool(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether the kernel was asked for huge pages where `address` lies; `None` if it has
    /// none.
    fn asked_for_huge_pages(address: usize) -> Option<bool> {
        let enabled = "/sys/kernel/mm/transparent_hugepage/enabled";
        let enabled = std::fs::read_to_string(enabled).ok()?;
        if enabled.contains("[never]") {
            return None;
        }
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let mut inside = false;
        for line in maps.lines() {
            let range = line
                .split(' ')
                .next()
                .and_then(|range| range.split_once('-'));
            let parsed = range.and_then(|(from, to)| {
                let hex = |text| usize::from_str_radix(text, 16).ok();
                Some(hex(from)?..hex(to)?)
            });
            if let Some(range) = parsed {
                inside = range.contains(&address);
            }
            if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
                return Some(flags.split_whitespace().any(|flag| flag == "hg"));
            }
        }
        Some(false)
    }

    /// The limit lies as the page cache does: from a border of huge pages on, every byte touched.
    #[test]
    fn the_limit_lies_in_huge_pages() {
        let mut buffer = Memory::default().buffer();
        buffer.pwrite(&[7; 1024], 3 << 20).unwrap();
        let memory = buffer.memory.as_ref().unwrap();
        let bytes = memory.bytes();
        assert_eq!(bytes.as_ptr().align_offset(HUGE), 0);
        assert!(bytes.len() >= 16 << 20 && bytes.len().is_multiple_of(HUGE));
        assert!(bytes.iter().all(|b| *b != 0), "memory that is not touched");
        assert_ne!(asked_for_huge_pages(bytes.as_ptr().addr()), Some(false));
    }

    /// A call costs the limit one copy: a vectored one is no more than its parts.
    #[test]
    fn calls_copy_what_they_are_given() {
        let mut buffer = Memory::default().buffer();
        buffer.rewind(4096).unwrap();
        buffer.writev(&[9; 100]).unwrap();
        let mut back = [0; 100 * VECTORS];
        buffer.pread(&mut back, 4096).unwrap();
        assert_eq!(back, [9; 100 * VECTORS]);
        assert_eq!(buffer.pos, 4096 + back.len());
    }
}
