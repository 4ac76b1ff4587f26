//! The block of multiple mount protection: by which host a volume is in use, and its sign of life.
//!
//! The block holds a sequence number that the host using the volume changes every few seconds. A
//! host that wants the volume watches it for longer than that. Two numbers are no sequence: the
//! volume is not in use, or e2fsck is at work.

use core::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::csum::Crc32c;

/// Bytes of the structure, at the beginning of its block.
pub const MMP_SIZE: usize = 1024;

/// `mmp_magic`: "MMP" in ASCII.
const MAGIC: u32 = 0x004D_4D50;
/// `mmp_seq` of a volume that is not in use.
const CLEAN: u32 = 0xFF4D_4D50;
/// `mmp_seq` while e2fsck is at work.
const FSCK: u32 = 0xE24D_4D50;
/// The largest number of a host that uses the volume.
const MAX: u32 = 0xE24D_4D4F;

/// `struct mmp_struct`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
pub struct Mmp {
    magic: U32,
    seq: U32,
    /// When the sequence number was changed, in seconds since the epoch. Shown only.
    pub time: U64,
    /// The host's name. Shown only.
    pub node: [u8; 64],
    /// The device's name on that host. Shown only.
    pub device: [u8; 32],
    /// Seconds within which the number is sure to change.
    pub check_interval: U16,
    pad: U16,
    more_pad: [U32; 226],
    checksum: U32,
}

const _: () = assert!(size_of::<Mmp>() == MMP_SIZE);
const _: () = assert!(offset_of!(Mmp, check_interval) == 0x70);
const _: () = assert!(offset_of!(Mmp, checksum) == CHECKSUM_AT);

/// Byte of the checksum.
const CHECKSUM_AT: usize = 0x3FC;

/// State that a sequence number stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MmpState {
    /// The volume is not in use.
    Clean,
    /// e2fsck is at work, or was broken off.
    Fsck,
    /// A host uses the volume, or did not unmount it.
    InUse(u32),
}

/// Why bytes are no such block.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MmpError {
    /// Too few bytes.
    #[error("multiple mount protection has 1024 bytes, these are {found}")]
    WrongLength {
        /// How many there were.
        found: usize,
    },
    /// The magic number is wrong.
    #[error("bad magic number {found:#010x} of multiple mount protection")]
    BadMagic {
        /// As stored.
        found: u32,
    },
    /// The checksum does not match.
    #[error(
        "bad checksum of multiple mount protection \
         (stored {stored:#010x}, computed {computed:#010x})"
    )]
    BadChecksum {
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// The sequence number is none of those defined.
    #[error("bad sequence number {found:#010x} of multiple mount protection")]
    BadSequence {
        /// As stored.
        found: u32,
    },
}

impl Mmp {
    /// The block of a volume that was never in use. [`Mmp::seal`] it afterwards.
    pub fn new_clean(check_interval: u16) -> Self {
        let mut mmp = Self::new_zeroed();
        mmp.magic.set(MAGIC);
        mmp.check_interval.set(check_interval);
        mmp.set_state(MmpState::Clean);
        mmp
    }

    /// Reads `bytes`, with a checksum if the volume has a `seed`.
    ///
    /// # Errors
    /// See [`MmpError`].
    pub fn parse(bytes: &[u8], seed: Option<Crc32c>) -> Result<Self, MmpError> {
        let wrong = MmpError::WrongLength { found: bytes.len() };
        let (mmp, _) = Self::read_from_prefix(bytes).map_err(|_| wrong)?;
        if mmp.magic.get() != MAGIC {
            let found = mmp.magic.get();
            return Err(MmpError::BadMagic { found });
        }
        let (stored, computed) = (mmp.checksum.get(), seed.map(|seed| mmp.sum(seed)));
        if let Some(computed) = computed.filter(|&computed| computed != stored) {
            return Err(MmpError::BadChecksum { stored, computed });
        }
        let found = mmp.seq.get();
        if found > MAX && found != CLEAN && found != FSCK {
            return Err(MmpError::BadSequence { found });
        }
        Ok(mmp)
    }

    /// Returns the state that the sequence number stands for.
    pub fn state(&self) -> MmpState {
        match self.seq.get() {
            CLEAN => MmpState::Clean,
            FSCK => MmpState::Fsck,
            seq => MmpState::InUse(seq),
        }
    }

    /// Sets the state; a number past the largest begins again. [`Mmp::seal`] it afterwards.
    pub fn set_state(&mut self, state: MmpState) {
        self.seq.set(match state {
            MmpState::Clean => CLEAN,
            MmpState::Fsck => FSCK,
            MmpState::InUse(seq) if seq > MAX => 1,
            MmpState::InUse(seq) => seq,
        });
    }

    /// Makes the checksum right, if the volume has a `seed`.
    pub fn seal(&mut self, seed: Option<Crc32c>) {
        if let Some(seed) = seed {
            self.checksum.set(self.sum(seed));
        }
    }

    fn sum(&self, seed: Crc32c) -> u32 {
        seed.feed(&self.as_bytes()[..CHECKSUM_AT]).raw()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_is_read_and_damage_is_named() {
        let seed = Some(Crc32c::from_raw(77));
        let mut mmp = Mmp::read_from_bytes(&[0; MMP_SIZE]).unwrap();
        mmp.magic.set(MAGIC);
        for state in [MmpState::Clean, MmpState::Fsck, MmpState::InUse(5)] {
            mmp.set_state(state);
            mmp.seal(seed);
            assert_eq!(Mmp::parse(mmp.as_bytes(), seed).unwrap().state(), state);
        }
        mmp.set_state(MmpState::InUse(MAX + 1));
        assert_eq!(mmp.state(), MmpState::InUse(1));
        let unsealed = Mmp::parse(mmp.as_bytes(), seed);
        assert!(matches!(unsealed, Err(MmpError::BadChecksum { .. })));
        mmp.seq.set(MAX + 2);
        let found = MAX + 2;
        let bad = Mmp::parse(mmp.as_bytes(), None);
        assert_eq!(bad.unwrap_err(), MmpError::BadSequence { found });
        let none = Mmp::parse(&[0; MMP_SIZE], None);
        assert_eq!(none.unwrap_err(), MmpError::BadMagic { found: 0 });
        let short = Mmp::parse(&[0; 100], None);
        assert!(matches!(short, Err(MmpError::WrongLength { .. })));
    }
}
