//! A device in memory that has pages only where something else than zeros was written.

use std::collections::BTreeMap;
use std::io;
use std::sync::{PoisonError, RwLock};

use extant_blockdev::BlockDevice;
use extant_units::{DevOff, index};

/// Bytes of a page.
const PAGE: u64 = PAGE_BYTES as u64;
const PAGE_BYTES: usize = 4096;

type Page = Box<[u8; PAGE_BYTES]>;

/// A device in memory. See the module's header.
pub(crate) struct SparseMemory {
    len: u64,
    pages: RwLock<BTreeMap<u64, Page>>,
}

impl SparseMemory {
    /// A device of `len` zeros.
    pub(crate) fn new(len: u64) -> Self {
        Self {
            len,
            pages: RwLock::default(),
        }
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        pages.len() as u64 * PAGE
    }

    /// The parts of `len` bytes at `offset` that lie in one page: the page, the first byte in it,
    /// the first byte in the range, and how many they are.
    fn parts(
        &self,
        offset: DevOff,
        len: usize,
    ) -> io::Result<impl Iterator<Item = (u64, usize, usize, usize)> + use<>> {
        let start = offset.get();
        let end = start.checked_add(len as u64).filter(|&end| end <= self.len);
        let end = end.ok_or(io::ErrorKind::InvalidInput)?;
        let mut at = start;
        Ok(std::iter::from_fn(move || {
            let page = at / PAGE;
            let stop = end.min((page + 1) * PAGE);
            let part = (
                page,
                index(at % PAGE),
                index(at - start),
                index(stop.checked_sub(at).filter(|&len| len > 0)?),
            );
            at = stop;
            Some(part)
        }))
    }
}

impl BlockDevice for SparseMemory {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        for (page, within, at, len) in self.parts(offset, buf.len())? {
            let part = &mut buf[at..at + len];
            match pages.get(&page) {
                Some(page) => part.copy_from_slice(&page[within..within + len]),
                None => part.fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        for (page, within, at, len) in self.parts(offset, buf.len())? {
            let part = &buf[at..at + len];
            if part.iter().all(|&byte| byte == 0) && !pages.contains_key(&page) {
                continue;
            }
            let page = pages.entry(page).or_insert_with(|| Box::new([0; _]));
            page[within..within + len].copy_from_slice(part);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_take_no_memory() {
        let device = SparseMemory::new(1 << 40);
        let write = |at, bytes: &[u8]| device.write_at(DevOff::new(at), bytes);
        write(0, &[0; 100_000]).unwrap();
        assert_eq!(device.bytes(), 0);
        write((1 << 39) + 4090, &[7; 10]).unwrap();
        assert_eq!(device.bytes(), 8192);
        write((1 << 39) + 4092, &[0; 2]).unwrap();
        let mut read = [1; 14];
        device
            .read_at(DevOff::new((1 << 39) + 4088), &mut read)
            .unwrap();
        assert_eq!(read, [0, 0, 7, 7, 0, 0, 7, 7, 7, 7, 7, 7, 0, 0]);
        assert!(write((1 << 40) - 1, &[0; 2]).is_err());
        assert!(device.read_at(DevOff::new(u64::MAX), &mut [0; 2]).is_err());
        write((1 << 40) - 1, &[1]).unwrap();
    }
}
