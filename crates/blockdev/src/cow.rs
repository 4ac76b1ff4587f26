//! A device that is an untouched base plus private changes.

use std::collections::HashMap;
use std::io;

use extant_units::DevOff;
use parking_lot::RwLock;

use crate::device::{BlockDevice, check_range};
use crate::queue::Queueing;

/// Bytes that share one entry of the changes: the smallest unit that a drive writes whole.
const SECTOR: usize = 512;
const SECTOR_U64: u64 = SECTOR as u64;

/// A writable device over a base that it never writes. Dropping it drops the changes, which live in memory: what may
/// be written must be bounded by the caller. Used to look at a dirty image as it would be after a replay, and to
/// rebuild the states that a power cut leaves.
///
/// One lock guards the changes; it is held over reads of the base when a sector is changed in part.
pub struct CowDevice<D> {
    base: D,
    changes: RwLock<HashMap<u64, [u8; SECTOR]>>,
}

impl<D: BlockDevice> CowDevice<D> {
    /// A device that reads as `base` until it is written.
    pub fn new(base: D) -> Self {
        Self {
            base,
            changes: RwLock::new(HashMap::new()),
        }
    }

    /// The device below.
    pub fn base(&self) -> &D {
        &self.base
    }

    /// Number of 512-byte sectors that differ, or may differ, from the base.
    pub fn changed_sectors(&self) -> usize {
        self.changes.read().len()
    }

    fn base_sector(&self, index: u64) -> io::Result<[u8; SECTOR]> {
        let mut sector = [0; SECTOR];
        let at = index * SECTOR_U64;
        let have = usize::try_from(self.base.len() - at).map_or(SECTOR, |have| have.min(SECTOR));
        self.base.read_at(DevOff::new(at), &mut sector[..have])?;
        Ok(sector)
    }
}

/// The parts of sectors that `[offset, offset + len)` covers: sector, range in the sector, range in the buffer.
fn pieces(
    offset: DevOff,
    len: usize,
) -> impl Iterator<Item = (u64, std::ops::Range<usize>, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset.get() + done as u64;
        #[allow(clippy::cast_possible_truncation, reason = "below the sector size")]
        let inside = (at % SECTOR_U64) as usize;
        let piece = (SECTOR - inside).min(len - done);
        let item = (at / SECTOR_U64, inside..inside + piece, done..done + piece);
        done += piece;
        Some(item)
    })
}

impl<D: BlockDevice> BlockDevice for CowDevice<D> {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.base.read_at(offset, buf)?;
        let changes = self.changes.read();
        if changes.is_empty() {
            return Ok(());
        }
        for (sector, inside, within) in pieces(offset, buf.len()) {
            if let Some(changed) = changes.get(&sector) {
                buf[within].copy_from_slice(&changed[inside]);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        check_range(offset, buf.len(), self.base.len())?;
        let mut changes = self.changes.write();
        for (sector, inside, within) in pieces(offset, buf.len()) {
            if let Some(changed) = changes.get_mut(&sector) {
                changed[inside].copy_from_slice(&buf[within]);
            } else {
                let mut changed = self.base_sector(sector)?;
                changed[inside].copy_from_slice(&buf[within]);
                changes.insert(sector, changed);
            }
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.base.counters()
    }

    fn queueing(&self, depth: usize) -> Queueing {
        self.base.queueing(depth).through_wrapper()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn changes_stay_private_and_cross_sectors() {
        let bytes: Vec<u8> = (0..2000u32).map(|i| i.to_le_bytes()[0]).collect();
        let base = Arc::new(MemoryDevice::from_bytes(&bytes));
        let one = CowDevice::new(base.clone());
        one.write_at(DevOff::new(500), &[9; 700]).unwrap();
        one.write_at(DevOff::new(1990), &[7; 10]).unwrap();
        let mut expected = bytes.clone();
        expected[500..1200].fill(9);
        expected[1990..].fill(7);
        let mut all = vec![0; 2000];
        one.read_at(DevOff::ZERO, &mut all).unwrap();
        assert_eq!(all, expected);
        let mut middle = [0; 900];
        one.read_at(DevOff::new(400), &mut middle).unwrap();
        assert_eq!(middle, expected[400..1300]);
        assert_eq!(base.to_bytes(), bytes);
        assert_eq!(one.changed_sectors(), 4);
        assert!(one.write_at(DevOff::new(1999), &[0; 2]).is_err());
    }
}
