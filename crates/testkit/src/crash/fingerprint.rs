//! A hash of a device's bytes that follows changes: equal states are found without being compared.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use extant_blockdev::BlockDevice;
use extant_units::DevOff;

/// Bytes that count as one.
const SECTOR: usize = 512;

/// Difference between the bytes of a device and those that it had at first: equal for equal bytes,
/// whatever led to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// `data` is about to replace what `bytes` have at `offset`.
    pub(super) fn replace(&mut self, bytes: &[u8], offset: DevOff, data: &[u8]) {
        let at = usize::try_from(offset.get()).expect("a recorded write lies on the device");
        let end = at + data.len();
        for sector in at / SECTOR..end.div_ceil(SECTOR) {
            let whole = sector * SECTOR..bytes.len().min((sector + 1) * SECTOR);
            let mut new = bytes[whole.clone()].to_vec();
            let (from, to) = (at.max(whole.start), end.min(whole.end));
            new[from - whole.start..to - whole.start].copy_from_slice(&data[from - at..to - at]);
            self.exchange(sector, &bytes[whole], &new);
        }
    }

    /// Of a device that differs from `base`, which has this fingerprint, at most in `ranges`.
    pub(super) fn of_changed(
        mut self,
        base: &dyn BlockDevice,
        device: &dyn BlockDevice,
        ranges: &[(DevOff, usize)],
    ) -> Self {
        let mut sectors = BTreeSet::new();
        for (offset, len) in ranges {
            let at = usize::try_from(offset.get()).expect("a recorded write lies on the device");
            sectors.extend(at / SECTOR..(at + len).div_ceil(SECTOR));
        }
        let (mut old, mut new) = ([0; SECTOR], [0; SECTOR]);
        for sector in sectors {
            let at = DevOff::new((sector * SECTOR) as u64);
            base.read_at(at, &mut old).expect("a sector of the device");
            device
                .read_at(at, &mut new)
                .expect("a sector of the device");
            self.exchange(sector, &old, &new);
        }
        self
    }

    fn exchange(&mut self, sector: usize, old: &[u8], new: &[u8]) {
        if old != new {
            self.0 ^= hash(sector, old) ^ hash(sector, new);
        }
    }
}

fn hash(sector: usize, bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (sector, bytes).hash(&mut hasher);
    hasher.finish()
}
