//! Failpoints: mistakes in the order or completeness of writes that a test switches on.
//!
//! A check that cannot fail counts for nothing. Where order and completeness matter most, the
//! engine asks [`ActiveFailpoint::is`] and, if the answer is yes, makes the mistake that the
//! [`Failpoint`] names. A test then expects its check to find it (`docs/TESTING.md`, "Failpoints").
//!
//! # Invariants
//! - Without the feature `failpoints` the answer is a constant `false` and [`ActiveFailpoint`] has
//!   no size: a shipped program contains none of this.
//! - With the feature, a mount has at most one failpoint, chosen when it is mounted. Mounts with
//!   different failpoints run side by side in one process. A mount with none behaves as without the
//!   feature.
//! - The feature is for dev-dependencies; `cargo xtask tidy` refuses it in others.
#![forbid(unsafe_code)]

/// A mistake that a test can switch on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failpoint {
    /// A commit record is written without a flush before it: it may become durable before the
    /// blocks that it commits.
    FlushLeftOut,
    /// Metadata is written to its place before the transaction that changed it is durable.
    HomeBeforeCommit,
    /// A freed metadata block is not revoked: replay writes an old copy of it over its next owner.
    RevokeLeftOut,
    /// The size on disk moves when data is written into the cache.
    SizeBeforeData,
    /// The size on disk moves when writeback submits the data, instead of when the device has
    /// completed it.
    SizeAtSubmission,
    /// Blocks are allocated as written extents, before their data has reached the device.
    ConversionBeforeData,
    /// An inode without a name is not recorded as an orphan.
    OrphanNotRecorded,
    /// The checksum of a block bitmap is not updated.
    ChecksumNotUpdated,
    /// A commit does not wait for ordered data.
    OrderedDataLeftOut,
    /// One bit of an allocation of several blocks is missing from the bitmap that is journalled.
    BitmapBitNotJournalled,
    /// Freed blocks are discarded before the transaction that frees them is durable.
    DiscardBeforeCommit,
    /// A failed flush is reported to one caller and not remembered.
    FlushFailureForgotten,
    /// A checkpoint moves the tail of the log although a flush has failed.
    TailAfterFailedFlush,
}

impl Failpoint {
    /// All failpoints.
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

    /// The failpoint with that name, if there is one.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|failpoint| failpoint.name() == name)
    }
}

/// The failpoint of a mount. The default is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ActiveFailpoint {
    #[cfg(feature = "failpoints")]
    failpoint: Option<Failpoint>,
}

impl ActiveFailpoint {
    /// Switches `failpoint` on, and no other.
    #[cfg(feature = "failpoints")]
    pub const fn only(failpoint: Failpoint) -> Self {
        Self {
            failpoint: Some(failpoint),
        }
    }

    /// Returns whether `failpoint` is switched on: a constant `false` without the feature
    /// `failpoints`.
    #[inline]
    pub fn is(self, failpoint: Failpoint) -> bool {
        #[cfg(feature = "failpoints")]
        return self.failpoint == Some(failpoint);
        #[cfg(not(feature = "failpoints"))]
        {
            let _ = failpoint;
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
            Failpoint::ALL
                .iter()
                .all(|failpoint| Failpoint::named(failpoint.name()) == Some(*failpoint))
        );
        assert_eq!(Failpoint::named("none"), None);
    }

    #[test]
    fn none_is_on_unless_chosen() {
        let active = ActiveFailpoint::default();
        assert!(
            Failpoint::ALL
                .iter()
                .all(|failpoint| !active.is(*failpoint))
        );
        #[cfg(not(feature = "failpoints"))]
        assert_eq!(size_of::<ActiveFailpoint>(), 0);
    }
}
