//! One entry: usage and limits of an id (`struct v2r1_disk_dqblk`).

use core::mem::size_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RawQuotaEntry {
    id: U32,
    pad: U32,
    inode_hard: U64,
    inode_soft: U64,
    inodes: U64,
    space_hard: U64,
    space_soft: U64,
    space: U64,
    space_time: U64,
    inode_time: U64,
}

const _: () = assert!(size_of::<RawQuotaEntry>() == 72);

/// Limits of space are stored in units of so many bytes.
const SPACE_UNIT: u64 = 1024;

/// The time of an entry that would be zeros.
const NOTHING_ELSE: u64 = 1;

/// Usage that is counted for an id.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QuotaUsage {
    /// Bytes: what `i_blocks` of its inodes adds up to.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

/// Sets the usage in the bytes of an entry, and leaves the rest as it is. False if they are no
/// entry of `id`.
pub fn set_usage(bytes: &mut [u8], id: u32, usage: QuotaUsage) -> bool {
    let Ok((raw, _)) = RawQuotaEntry::mut_from_prefix(bytes) else {
        return false;
    };
    if raw.id.get() != id {
        return false;
    }
    let entry = QuotaEntry {
        usage,
        ..QuotaEntry::decode(raw)
    };
    // The limits stay as they are: not every stored one is a number of bytes.
    let stored = entry.encode();
    (raw.inodes, raw.space) = (stored.inodes, stored.space);
    raw.inode_time = stored.inode_time;
    true
}

/// Limits of an id; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QuotaLimits {
    /// Bytes that are never passed.
    pub bytes_hard: u64,
    /// Bytes that are passed for the grace time only.
    pub bytes_soft: u64,
    /// Inodes that are never passed.
    pub inodes_hard: u64,
    /// Inodes that are passed for the grace time only.
    pub inodes_soft: u64,
}

impl QuotaLimits {
    /// Returns whether there is none.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The limits as the format stores them: bytes in whole units of 1 KiB, rounded up.
    #[must_use]
    pub fn stored(self) -> Self {
        let whole = |bytes: u64| bytes.div_ceil(SPACE_UNIT).saturating_mul(SPACE_UNIT);
        Self {
            bytes_hard: whole(self.bytes_hard),
            bytes_soft: whole(self.bytes_soft),
            ..self
        }
    }
}

/// One id's entry.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QuotaEntry {
    /// The id.
    pub id: u32,
    /// Its usage.
    pub usage: QuotaUsage,
    /// Its limits.
    pub limits: QuotaLimits,
    /// When the grace time of a passed soft limit of bytes ends, in seconds since 1970; 0 if none
    /// is passed.
    pub bytes_until: u64,
    /// The same for inodes.
    pub inodes_until: u64,
}

impl QuotaEntry {
    /// An entry of `id` that says nothing.
    pub fn of(id: u32) -> Self {
        Self {
            id,
            ..Self::default()
        }
    }

    /// The usage that may be reached at `now`, in seconds since 1970.
    pub fn most(&self, now: u64) -> QuotaUsage {
        let most = |hard: u64, soft: u64, until: u64| {
            let is_late = soft != 0 && until != 0 && now >= until;
            let soft = if is_late { soft } else { u64::MAX };
            soft.min(if hard == 0 { u64::MAX } else { hard })
        };
        let limits = &self.limits;
        QuotaUsage {
            bytes: most(limits.bytes_hard, limits.bytes_soft, self.bytes_until),
            inodes: most(limits.inodes_hard, limits.inodes_soft, self.inodes_until),
        }
    }

    pub(super) fn decode(raw: &RawQuotaEntry) -> Self {
        let space = |limit: U64| limit.get().saturating_mul(SPACE_UNIT);
        let entry = Self {
            id: raw.id.get(),
            usage: QuotaUsage {
                bytes: raw.space.get(),
                inodes: raw.inodes.get(),
            },
            limits: QuotaLimits {
                bytes_hard: space(raw.space_hard),
                bytes_soft: space(raw.space_soft),
                inodes_hard: raw.inode_hard.get(),
                inodes_soft: raw.inode_soft.get(),
            },
            bytes_until: raw.space_time.get(),
            inodes_until: raw.inode_time.get(),
        };
        let nothing_else = Self {
            inodes_until: NOTHING_ELSE,
            ..Self::default()
        };
        if entry == nothing_else {
            Self::default()
        } else {
            entry
        }
    }

    pub(super) fn encode(&self) -> RawQuotaEntry {
        let until = match *self == Self::default() {
            true => NOTHING_ELSE,
            false => self.inodes_until,
        };
        RawQuotaEntry {
            id: self.id.into(),
            pad: 0.into(),
            inode_hard: self.limits.inodes_hard.into(),
            inode_soft: self.limits.inodes_soft.into(),
            inodes: self.usage.inodes.into(),
            space_hard: self.limits.bytes_hard.div_ceil(SPACE_UNIT).into(),
            space_soft: self.limits.bytes_soft.div_ceil(SPACE_UNIT).into(),
            space: self.usage.bytes.into(),
            space_time: self.bytes_until.into(),
            inode_time: until.into(),
        }
    }
}
