//! The properties of an export, as a server tells them.

use std::io;

use crate::loss::violation;
use crate::protocol::flag;

/// The block sizes of a server that says nothing of them.
const MINIMUM: u32 = 1;
const PREFERRED: u32 = 4096;
/// The longest data of a request, whatever the server allows: 32 MiB, as every server takes.
pub(crate) const LONGEST: u32 = 32 << 20;
/// The largest smallest block that the protocol allows.
const LARGEST_MINIMUM: u32 = 64 << 10;

/// The least that a server may offer as its largest block, in bytes: with less, the requests of one
/// call would need more memory than its data.
const LEAST_MAXIMUM: u32 = 4096;

/// An export: the same over every connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Export {
    /// Its length in bytes: a multiple of `minimum`.
    pub(crate) size: u64,
    pub(crate) flags: u16,
    /// Offsets and lengths of requests are multiples of this power of two.
    pub(crate) minimum: u32,
    /// The block that the server handles best.
    pub(crate) preferred: u32,
    /// The longest data of a request: a multiple of `minimum`.
    pub(crate) longest: u32,
}

impl Export {
    /// An export of `size` bytes, as far as the first information about it says.
    pub(crate) fn new(size: u64, flags: u16) -> io::Result<Export> {
        if i64::try_from(size).is_err() {
            return Err(violation(format!("an export of {size} bytes")));
        }
        if flags & flag::HAS_FLAGS == 0 {
            return Err(violation("the flags of the export are not valid"));
        }
        Ok(Export {
            size,
            flags,
            minimum: MINIMUM,
            preferred: PREFERRED,
            longest: LONGEST,
        })
    }

    /// The same export with the server's block sizes.
    pub(crate) fn with_blocks(mut self, sizes: [u32; 3]) -> io::Result<Export> {
        let [minimum, preferred, maximum] = sizes;
        let sound = minimum.is_power_of_two()
            && minimum <= LARGEST_MINIMUM
            && preferred.is_power_of_two()
            && preferred >= minimum
            && maximum >= minimum.max(LEAST_MAXIMUM);
        if !sound {
            let sizes = format!("{minimum}, {preferred} and {maximum}");
            return Err(violation(format!("block sizes of {sizes} bytes")));
        }
        self.minimum = minimum;
        self.preferred = preferred;
        self.longest = maximum.min(LONGEST) / minimum * minimum;
        self.size = self.size / u64::from(minimum) * u64::from(minimum);
        Ok(self)
    }

    /// Its size and its flags, as a server sends them.
    pub(crate) fn size_and_flags(&self) -> [u8; 10] {
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&self.size.to_be_bytes());
        bytes[8..].copy_from_slice(&self.flags.to_be_bytes());
        bytes
    }

    /// Its block sizes, as a server sends them.
    pub(crate) fn block_sizes(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.minimum.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.preferred.to_be_bytes());
        bytes[8..].copy_from_slice(&self.longest.to_be_bytes());
        bytes
    }

    /// Returns whether the server has said `flag`.
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Returns whether a reply to a flush or to a write with FUA makes bytes durable.
    pub(crate) fn can_be_durable(&self) -> bool {
        self.has(flag::FLUSH) || self.has(flag::FUA)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_are_bounded() {
        let export = Export::new(10_000, 1).unwrap();
        let sized = export.clone().with_blocks([4096, 4096, u32::MAX]).unwrap();
        assert_eq!((sized.size, sized.longest), (8192, 32 << 20));
        let sized = export.clone().with_blocks([512, 4096, 5000]).unwrap();
        assert_eq!((sized.size, sized.longest), (9728, 4608));
        for sizes in [
            [0, 1, 1],
            [3, 4, 8],
            [512, 256, 1024],
            [1, 3, 9],
            [1 << 17, 1 << 17, 1 << 20],
            [4096, 4096, 512],
        ] {
            assert!(export.clone().with_blocks(sizes).is_err(), "{sizes:?}");
        }
        assert!(Export::new(u64::MAX, 1).is_err());
        assert!(Export::new(1, 0).is_err());
    }
}
