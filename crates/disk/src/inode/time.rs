//! Times of inodes: 32 bits of seconds, widened by two epoch bits and 30 bits of nanoseconds where
//! the inode has room for them.

/// A point in time: seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeTime {
    /// Seconds since 1970, negative before.
    pub secs: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanos: u32,
}

const NANOS_PER_SEC: u32 = 1_000_000_000;
const EPOCH_BITS: u32 = 2;
const EPOCH_MASK: u32 = (1 << EPOCH_BITS) - 1;

impl InodeTime {
    /// The earliest time that any inode holds: 1901-12-13 20:45:52 UTC.
    pub const MIN_SECS: i64 = i32::MIN as i64;
    /// The latest second of an inode without the extra field: 2038-01-19 03:14:07 UTC.
    pub const MAX_SECS_NARROW: i64 = i32::MAX as i64;
    /// The latest second of an inode with the extra field: 2446-05-10 22:38:55 UTC.
    pub const MAX_SECS_WIDE: i64 = Self::MIN_SECS + (1 << 34) - 1;

    /// Decodes a stored time; `extra` is the widening field if the inode has it.
    pub fn decode(secs: u32, extra: Option<u32>) -> Self {
        let low = i64::from(secs.cast_signed());
        match extra {
            None => Self {
                secs: low,
                nanos: 0,
            },
            Some(extra) => Self {
                secs: low + (i64::from(extra & EPOCH_MASK) << 32),
                nanos: (extra >> EPOCH_BITS).min(NANOS_PER_SEC - 1),
            },
        }
    }

    /// This time moved into the range that an inode with (`wide`) or without the extra field
    /// stores. At a limit the nanoseconds are dropped, without the extra field always.
    #[must_use]
    pub fn clamped(self, wide: bool) -> Self {
        let max = if wide {
            Self::MAX_SECS_WIDE
        } else {
            Self::MAX_SECS_NARROW
        };
        if self.secs >= max || self.secs <= Self::MIN_SECS {
            return Self {
                secs: self.secs.clamp(Self::MIN_SECS, max),
                nanos: 0,
            };
        }
        Self {
            secs: self.secs,
            nanos: if wide {
                self.nanos.min(NANOS_PER_SEC - 1)
            } else {
                0
            },
        }
    }

    /// The stored seconds and the widening field. Out of range times are clamped.
    pub fn encode(self, wide: bool) -> (u32, u32) {
        let t = self.clamped(wide);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the low 32 bits are what is stored; the rest goes to the epoch bits"
        )]
        let low = t.secs as u32;
        let epoch = (t.secs - i64::from(low.cast_signed())) >> 32;
        debug_assert!((0..4).contains(&epoch), "clamped: two bits of epoch");
        let epoch = u32::try_from(epoch).unwrap_or(0) & EPOCH_MASK;
        (low, (t.nanos << EPOCH_BITS) | epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::InodeTime;

    #[test]
    fn every_epoch_boundary_survives() {
        for epoch in 0..4_i64 {
            for edge in [i64::from(i32::MIN), -1, 0, 1, i64::from(i32::MAX)] {
                let t = InodeTime {
                    secs: edge + (epoch << 32),
                    nanos: 123_456_789,
                };
                let (lo, extra) = t.encode(true);
                let back = InodeTime::decode(lo, Some(extra));
                if [InodeTime::MIN_SECS, InodeTime::MAX_SECS_WIDE].contains(&t.secs) {
                    assert_eq!(back, InodeTime { nanos: 0, ..t });
                } else {
                    assert_eq!(back, t);
                }
            }
        }
    }

    #[test]
    fn the_documented_limits() {
        assert_eq!(InodeTime::MAX_SECS_WIDE, 0x3_7fff_ffff);
        assert_eq!(InodeTime::decode(0x8000_0000, Some(0)).secs, -0x8000_0000);
        assert_eq!(InodeTime::decode(0x7fff_ffff, Some(3)).secs, 0x3_7fff_ffff);
        assert_eq!(InodeTime::decode(0x8000_0000, Some(1)).secs, 0x8000_0000);
    }

    #[test]
    fn out_of_range_times_are_clamped() {
        let far = InodeTime {
            secs: i64::MAX,
            nanos: 5,
        };
        assert_eq!(far.clamped(true).secs, InodeTime::MAX_SECS_WIDE);
        assert_eq!(far.clamped(false).secs, InodeTime::MAX_SECS_NARROW);
        let early = InodeTime {
            secs: i64::MIN,
            nanos: 5,
        };
        let (lo, extra) = early.encode(true);
        assert_eq!(InodeTime::decode(lo, Some(extra)).secs, InodeTime::MIN_SECS);
        let (lo, _) = far.encode(false);
        assert_eq!(InodeTime::decode(lo, None).secs, i64::from(i32::MAX));
    }

    #[test]
    fn hostile_nanoseconds_stay_below_a_second() {
        assert_eq!(InodeTime::decode(0, Some(!0)).nanos, 999_999_999);
    }
}
