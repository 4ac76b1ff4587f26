//! Bugs on purpose: each breaks one promise that the power-loss tests must see broken.
//!
//! A check that cannot fail counts for nothing. So the engine carries, at the places where order and completeness
//! matter most, the question [`Planted::is`]; what it guards is the mistake somebody might make there one day. Without
//! the feature `planting` the answer is a constant `false`, [`Planted`] has no size, and nothing of it is left in the
//! program. With the feature a mount has at most one bug, chosen when it is made, so that tests with and without bugs run
//! side by side; with none chosen it behaves as without the feature.
//!
//! The feature is for dev-dependencies: no shipped program has it.
#![forbid(unsafe_code)]

/// A bug that can be switched on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A commit record is written without a flush before it: it may be durable before what it vouches for.
    FlushLeftOut,
    /// Metadata is written to its place before the transaction that changed it is durable.
    HomeBeforeCommit,
    /// A freed metadata block is not revoked: a replay writes an old copy of it over its next owner.
    RevokeLeftOut,
    /// The size on disk moves when data is written into the cache.
    SizeBeforeData,
    /// The size on disk moves when the data is handed to the device, instead of when that has answered.
    SizeAtSubmission,
    /// Blocks become written when they are allocated, before their data has arrived.
    ConversionBeforeData,
    /// An inode without a name is not recorded as an orphan.
    OrphanNotRecorded,
    /// The checksum of a block bitmap stays what it was.
    ChecksumNotUpdated,
    /// A commit does not wait for the data that its blocks were allocated for.
    OrderedDataLeftOut,
    /// One bit of an allocation of several blocks is missing from the bitmap that is journalled.
    BitmapBitNotJournalled,
    /// The device is told of freed blocks before the transaction that frees them is durable.
    DiscardBeforeCommit,
    /// A failed flush is told to its one caller, and forgotten.
    FlushFailureForgotten,
    /// A checkpoint moves the tail of the log although a flush has failed.
    TailAfterFailedFlush,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::FlushLeftOut,
        Self::HomeBeforeCommit,
        Self::RevokeLeftOut,
        Self::SizeBeforeData,
        Self::SizeAtSubmission,
        Self::ConversionBeforeData,
        Self::OrphanNotRecorded,
        Self::ChecksumNotUpdated,
        Self::OrderedDataLeftOut,
        Self::BitmapBitNotJournalled,
        Self::DiscardBeforeCommit,
        Self::FlushFailureForgotten,
        Self::TailAfterFailedFlush,
    ];

    /// Its name in messages and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FlushLeftOut => "flush_left_out",
            Self::HomeBeforeCommit => "home_before_commit",
            Self::RevokeLeftOut => "revoke_left_out",
            Self::SizeBeforeData => "size_before_data",
            Self::SizeAtSubmission => "size_at_submission",
            Self::ConversionBeforeData => "conversion_before_data",
            Self::OrphanNotRecorded => "orphan_not_recorded",
            Self::ChecksumNotUpdated => "checksum_not_updated",
            Self::OrderedDataLeftOut => "ordered_data_left_out",
            Self::BitmapBitNotJournalled => "bitmap_bit_not_journalled",
            Self::DiscardBeforeCommit => "discard_before_commit",
            Self::FlushFailureForgotten => "flush_failure_forgotten",
            Self::TailAfterFailedFlush => "tail_after_failed_flush",
        }
    }

    /// The bug of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bug| bug.name() == name)
    }
}

/// The bug of a mount, if it has one. By default it has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Planted {
    #[cfg(feature = "planting")]
    bug: Option<Bug>,
}

impl Planted {
    /// A mount with `bug`.
    #[cfg(feature = "planting")]
    pub const fn one(bug: Bug) -> Self {
        Self { bug: Some(bug) }
    }

    /// Whether the mount has `bug`: a constant `false` without the feature `planting`.
    #[inline]
    pub fn is(self, bug: Bug) -> bool {
        #[cfg(feature = "planting")]
        return self.bug == Some(bug);
        #[cfg(not(feature = "planting"))]
        {
            let _ = bug;
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found_again() {
        assert!(
            Bug::ALL
                .iter()
                .all(|bug| Bug::named(bug.name()) == Some(*bug))
        );
        assert_eq!(Bug::named("none"), None);
    }

    #[test]
    fn nothing_is_planted_unless_chosen() {
        assert!(Bug::ALL.iter().all(|bug| !Planted::default().is(*bug)));
        #[cfg(not(feature = "planting"))]
        assert_eq!(size_of::<Planted>(), 0);
    }
}
