//! A device in memory.

use std::fmt;
use std::io;

use extant_units::DevOff;
use parking_lot::RwLock;

use crate::device::{BlockDevice, check_range};
use crate::queue::Queueing;

/// log2 of the bytes that share one lock.
const STRIPE_SHIFT: u32 = 20;
const STRIPE: usize = 1 << STRIPE_SHIFT;

/// A device whose bytes are in memory, for tests and for measurements without a disk.
///
/// The memory is divided into stripes of 1 MiB, each under its own lock, so that requests for
/// different stripes do not wait for each other. A flush does nothing.
pub struct MemoryDevice {
    len: u64,
    stripes: Box<[RwLock<Box<[u8]>>]>,
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDevice")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl MemoryDevice {
    /// A device of `len` zero bytes.
    ///
    /// # Panics
    /// If the host cannot address `len` bytes.
    pub fn new(len: u64) -> Self {
        let total = usize::try_from(len).expect("a memory device fits the address space");
        let stripes = (0..total.div_ceil(STRIPE))
            .map(|i| RwLock::new(vec![0; STRIPE.min(total - i * STRIPE)].into_boxed_slice()))
            .collect();
        Self { len, stripes }
    }

    /// A device that holds a copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let stripes = bytes
            .chunks(STRIPE)
            .map(|chunk| RwLock::new(chunk.into()))
            .collect();
        Self {
            len: bytes.len() as u64,
            stripes,
        }
    }

    /// A copy of all bytes at one moment. If it contains a write, it also contains every write that
    /// had returned before that one began. It may contain a part of a write that is under way.
    pub fn to_bytes(&self) -> Vec<u8> {
        // All locks are held at once; a request holds one at a time.
        let held: Vec<_> = self.stripes.iter().map(RwLock::read).collect();
        let mut all = Vec::with_capacity(held.len() * STRIPE);
        for stripe in &held {
            all.extend_from_slice(stripe);
        }
        all
    }

    /// Calls `visit(stripe index, offset in stripe, range in buffer)` for each stripe that the
    /// range touches.
    fn for_each_piece(
        &self,
        offset: DevOff,
        len: usize,
        mut visit: impl FnMut(&RwLock<Box<[u8]>>, usize, std::ops::Range<usize>),
    ) -> io::Result<()> {
        check_range(offset, len, self.len)?;
        let start = usize::try_from(offset.get()).map_err(io::Error::other)?;
        let mut done = 0;
        while done < len {
            let at = start + done;
            let inside = at & (STRIPE - 1);
            let piece = (STRIPE - inside).min(len - done);
            visit(
                &self.stripes[at >> STRIPE_SHIFT],
                inside,
                done..done + piece,
            );
            done += piece;
        }
        Ok(())
    }
}

impl BlockDevice for MemoryDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.for_each_piece(offset, buf.len(), |stripe, inside, range| {
            let from = inside..inside + range.len();
            buf[range].copy_from_slice(&stripe.read()[from]);
        })
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.for_each_piece(offset, buf.len(), |stripe, inside, range| {
            let to = inside..inside + range.len();
            stripe.write()[to].copy_from_slice(&buf[range]);
        })
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn queueing(&self, _depth: usize) -> Queueing {
        Queueing::Immediate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn ranges_cross_stripes() {
        let dev = MemoryDevice::new(3 * STRIPE as u64 - 5);
        let data: Vec<u8> = (0..=255).cycle().take(STRIPE + 100).collect();
        let at = DevOff::new(STRIPE as u64 - 50);
        dev.write_at(at, &data).unwrap();
        let mut back = vec![0; data.len()];
        dev.read_at(at, &mut back).unwrap();
        assert!(back == data);
        assert_eq!(
            MemoryDevice::from_bytes(&dev.to_bytes()).to_bytes(),
            dev.to_bytes()
        );
    }

    #[test]
    fn a_copy_is_of_one_moment() {
        let dev = MemoryDevice::new(8 * STRIPE as u64);
        let last = DevOff::new(7 * STRIPE as u64);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in (0_u32..).take_while(|_| !over.load(Ordering::Relaxed)) {
                    dev.write_at(DevOff::ZERO, &number.to_le_bytes()).unwrap();
                    dev.write_at(last, &number.to_le_bytes()).unwrap();
                }
            });
            let copies: Vec<_> = (0..30).map(|_| dev.to_bytes()).collect();
            over.store(true, Ordering::Relaxed);
            for bytes in copies {
                let (first, later) = (&bytes[..4], &bytes[7 * STRIPE..][..4]);
                let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
                // The second write never shows without the first.
                assert!(number(first) >= number(later));
            }
        });
    }

    #[test]
    fn ranges_past_the_end_are_refused() {
        let dev = MemoryDevice::new(4096);
        let err = dev.write_at(DevOff::new(4095), &[1, 2]).unwrap_err();
        assert_eq!(err.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(dev.to_bytes(), vec![0; 4096]);
        assert!(dev.read_at(DevOff::MAX, &mut [0]).is_err());
    }
}
