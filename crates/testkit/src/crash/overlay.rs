//! A device that is a shared base plus private changes.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_units::DevOff;
use std::sync::RwLock;

/// Bytes that share one entry of the overlay: the smallest unit that a drive writes whole.
pub(super) const SECTOR: usize = 512;

type Sectors = HashMap<u64, [u8; SECTOR]>;

/// A writable device over an immutable base. Dropping it drops the changes.
pub struct Overlay {
    base: Arc<Vec<u8>>,
    changes: RwLock<Sectors>,
}

impl Overlay {
    /// A device that reads as `base` until it is written.
    pub fn new(base: Arc<Vec<u8>>) -> Self {
        Self {
            base,
            changes: RwLock::new(HashMap::new()),
        }
    }

    /// Everything on the device, in one piece.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut all = self.base.to_vec();
        for (index, sector) in self.lock_read().iter() {
            let at = usize::try_from(*index).expect("within the base") * SECTOR;
            let end = (at + SECTOR).min(all.len());
            all[at..end].copy_from_slice(&sector[..end - at]);
        }
        all
    }

    fn lock_read(&self) -> std::sync::RwLockReadGuard<'_, Sectors> {
        self.changes
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn sector_of_base(&self, index: u64) -> [u8; SECTOR] {
        let mut sector = [0; SECTOR];
        let at = usize::try_from(index).expect("within the base") * SECTOR;
        let end = (at + SECTOR).min(self.base.len());
        sector[..end - at].copy_from_slice(&self.base[at..end]);
        sector
    }

    fn range(&self, offset: DevOff, len: usize) -> io::Result<usize> {
        usize::try_from(offset.get())
            .ok()
            .filter(|at| {
                at.checked_add(len)
                    .is_some_and(|end| end <= self.base.len())
            })
            .ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidInput, "past the end of the device")
            })
    }
}

impl BlockDevice for Overlay {
    fn len(&self) -> u64 {
        self.base.len() as u64
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        let start = self.range(offset, buf.len())?;
        buf.copy_from_slice(&self.base[start..start + buf.len()]);
        let changes = self.lock_read();
        if changes.is_empty() {
            return Ok(());
        }
        let end = start + buf.len();
        for index in start / SECTOR..end.div_ceil(SECTOR) {
            if let Some(sector) = changes.get(&(index as u64)) {
                let (from, to) = (start.max(index * SECTOR), end.min((index + 1) * SECTOR));
                buf[from - start..to - start]
                    .copy_from_slice(&sector[from - index * SECTOR..to - index * SECTOR]);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        let start = self.range(offset, buf.len())?;
        let end = start + buf.len();
        let mut changes = self
            .changes
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for index in start / SECTOR..end.div_ceil(SECTOR) {
            let (from, to) = (start.max(index * SECTOR), end.min((index + 1) * SECTOR));
            changes
                .entry(index as u64)
                .or_insert_with(|| self.sector_of_base(index as u64))
                [from - index * SECTOR..to - index * SECTOR]
                .copy_from_slice(&buf[from - start..to - start]);
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
    fn changes_stay_private_and_cross_sectors() {
        let base = Arc::new(
            (0..2000u32)
                .map(|i| i.to_le_bytes()[0])
                .collect::<Vec<u8>>(),
        );
        let one = Overlay::new(base.clone());
        one.write_at(DevOff::new(500), &[9; 700]).unwrap();
        let mut expected = base.to_vec();
        expected[500..1200].fill(9);
        assert_eq!(one.to_bytes(), expected);
        let mut middle = [0; 900];
        one.read_at(DevOff::new(400), &mut middle).unwrap();
        assert_eq!(middle, expected[400..1300]);
        assert_eq!(Overlay::new(base.clone()).to_bytes(), *base);
        assert!(one.write_at(DevOff::new(1999), &[0; 2]).is_err());
    }
}
