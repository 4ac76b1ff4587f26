//! A device over a write cache that it can lose: a model of a host whose writeback fails.
//!
//! # Responsibility
//! A flush that fails loses any sectors written since the last flush that succeeded. It reports the
//! error once; later flushes succeed and do not restore the sectors. Linux treats the dirty pages
//! of a file in this way.
//!
//! # Invariants
//! - A lost sector has the content of the last flush that made it durable.
//! - Sectors that a failed flush did not lose are still not durable: a crash may lose them.
//! - A lost sector that is written again becomes durable by a flush that succeeds, as any other.
//!
//! # Locks
//! One mutex orders all requests.

use std::collections::BTreeMap;
use std::io;

use extant_blockdev::{BlockDevice, Queueing};
use extant_units::DevOff;
use parking_lot::Mutex;

/// The bytes that a drive writes as a whole.
const SECTOR: usize = 512;

/// A planned failure of a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// Flushes that succeed before it.
    pub after: u64,
    /// Chooses the sectors that are lost, and about how many eighths of all.
    pub seed: u64,
    /// Reads return the new content of lost sectors until [`LossyDevice::drop_cache`].
    /// Otherwise they return the old content at once.
    pub cached: bool,
}

/// The old content of sectors, by number.
type Old = BTreeMap<u64, [u8; SECTOR]>;

#[derive(Default)]
struct LossyState {
    /// Written since the last flush that succeeded.
    unflushed: Old,
    /// Lost sectors whose new content reads still return.
    lost: Old,
    next: Option<Loss>,
    failures: u64,
    lost_sectors: u64,
}

/// A device that can lose writes. Its length is a multiple of 512 bytes. See the module's header.
pub struct LossyDevice<D> {
    inner: D,
    state: Mutex<LossyState>,
}

impl<D: BlockDevice> LossyDevice<D> {
    /// Wraps `inner`. Nothing is lost before [`LossyDevice::fail`].
    pub fn new(inner: D) -> Self {
        Self {
            inner,
            state: Mutex::default(),
        }
    }

    /// The wrapped device, with the content that reads return.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Makes one later flush fail, instead of an earlier planned one that has not failed yet.
    pub fn fail(&self, loss: Loss) {
        self.state.lock().next = Some(loss);
    }

    /// The number of flushes that failed.
    pub fn failures(&self) -> u64 {
        self.state.lock().failures
    }

    /// The number of sectors that they lost.
    pub fn lost_sectors(&self) -> u64 {
        self.state.lock().lost_sectors
    }

    /// Drops clean pages from the cache: reads return the old content of lost sectors.
    ///
    /// # Errors
    /// The inner device failed.
    pub fn drop_cache(&self) -> io::Result<()> {
        let lost = std::mem::take(&mut self.state.lock().lost);
        self.restore(&lost)
    }

    /// A power cut: loses, besides lost sectors, some that no flush made durable, chosen by `seed`.
    ///
    /// # Errors
    /// The inner device failed.
    pub fn crash(&self, seed: u64) -> io::Result<()> {
        let unflushed = std::mem::take(&mut self.state.lock().unflushed);
        self.restore(&chosen(unflushed, seed).0)?;
        self.drop_cache()
    }

    fn restore(&self, old: &Old) -> io::Result<()> {
        let mut write = |(at, bytes): (&u64, &[u8; SECTOR])| {
            self.inner.write_at(DevOff::new(at * SECTOR as u64), bytes)
        };
        old.iter().try_for_each(&mut write)
    }

    /// Preserves the content of the sectors of `[offset, offset + len)` before they are written.
    fn note_old(&self, state: &mut LossyState, offset: DevOff, len: usize) -> io::Result<()> {
        let sector = SECTOR as u64;
        let end = offset.get() + len as u64;
        for at in offset.get() / sector..end.div_ceil(sector) {
            if state.unflushed.contains_key(&at) {
                continue;
            }
            let mut old = [0; SECTOR];
            match state.lost.remove(&at) {
                Some(lost) => old = lost,
                None => self.inner.read_at(DevOff::new(at * sector), &mut old)?,
            }
            state.unflushed.insert(at, old);
        }
        Ok(())
    }
}

/// Divides `sectors` by `seed`: those that are lost, and the others.
fn chosen(sectors: Old, seed: u64) -> (Old, Old) {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random >> 32
    };
    // From one eighth up to all, so that a failure loses something.
    let eighths = next() % 8 + 1;
    sectors.into_iter().partition(|_| next() % 8 < eighths)
}

impl<D: BlockDevice> BlockDevice for LossyDevice<D> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        self.note_old(&mut state, offset, buf.len())?;
        self.inner.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let Some(loss) = state.next.take() else {
            self.inner.flush()?;
            state.unflushed.clear();
            return Ok(());
        };
        if let Some(after) = loss.after.checked_sub(1) {
            state.next = Some(Loss { after, ..loss });
            self.inner.flush()?;
            state.unflushed.clear();
            return Ok(());
        }
        let (mut lost, rest) = chosen(std::mem::take(&mut state.unflushed), loss.seed);
        state.unflushed = rest;
        state.failures += 1;
        state.lost_sectors += lost.len() as u64;
        if loss.cached {
            state.lost.append(&mut lost);
        } else {
            self.restore(&lost)?;
        }
        Err(io::Error::other("the host lost writes"))
    }

    fn discard(&self, offset: DevOff, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.inner.counters()
    }

    fn queueing(&self, depth: usize) -> Queueing {
        self.inner.queueing(depth).through_wrapper()
    }
}

#[cfg(test)]
mod tests {
    use extant_blockdev::MemoryDevice;

    use super::*;

    fn bytes(device: &LossyDevice<MemoryDevice>) -> Vec<u8> {
        let mut all = vec![0; 4096];
        device.read_at(DevOff::ZERO, &mut all).unwrap();
        all
    }

    fn loss(after: u64, cached: bool) -> Loss {
        Loss {
            after,
            seed: 3,
            cached,
        }
    }

    #[test]
    fn a_failed_flush_loses_earlier_writes_and_reports_it_once() {
        let (mut some, mut all) = (0, 0);
        for seed in 0..64 {
            let device = LossyDevice::new(MemoryDevice::new(4096));
            device.write_at(DevOff::ZERO, &[1; 4096]).unwrap();
            device.flush().unwrap();
            device.write_at(DevOff::new(512), &[2; 2048]).unwrap();
            device.fail(Loss {
                after: 0,
                seed,
                cached: false,
            });
            assert!(device.flush().is_err());
            device.flush().unwrap();
            let lost = device.lost_sectors();
            let old = bytes(&device).iter().filter(|byte| **byte == 1).count() as u64;
            assert_eq!(old, 2048 + lost * 512, "{seed}");
            some += u64::from((1..4).contains(&lost));
            all += u64::from(lost == 4);
        }
        assert!(some > 10 && all > 5, "{some} {all}");
    }

    #[test]
    fn cached_sectors_are_lost_unless_they_are_written_again() {
        let device = LossyDevice::new(MemoryDevice::new(4096));
        device.fail(Loss {
            seed: 0,
            ..loss(1, true)
        });
        for round in 1..=2 {
            device.write_at(DevOff::ZERO, &[round; 4096]).unwrap();
            assert_eq!(device.flush().is_ok(), round == 1);
        }
        assert_eq!(bytes(&device), [2; 4096], "the cache has it");
        let lost = device.lost_sectors();
        assert!(lost > 0);
        device.write_at(DevOff::ZERO, &[3; 512]).unwrap();
        device.flush().unwrap();
        device.drop_cache().unwrap();
        let all = bytes(&device);
        assert_eq!(all[..512], [3; 512]);
        assert!(all[512..].contains(&1), "older than the failed flush");
    }

    #[test]
    fn a_crash_loses_what_was_not_flushed() {
        let device = LossyDevice::new(MemoryDevice::new(4096));
        device.write_at(DevOff::ZERO, &[1; 2048]).unwrap();
        device.flush().unwrap();
        device.write_at(DevOff::ZERO, &[2; 4096]).unwrap();
        device.crash(5).unwrap();
        let all = bytes(&device);
        let lost = all.iter().filter(|byte| **byte != 2).count();
        assert!(lost > 0, "a crash loses something");
        assert!(all[2048..].iter().all(|byte| [0, 2].contains(byte)));
    }
}
