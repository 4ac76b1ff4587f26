//! Failpoints: mistakes in the order or completeness of steps that a test switches on.
//!
//! A check that cannot fail counts for nothing. Where order and completeness matter most, the
//! engine asks [`ActiveFailpoint::is`] and, if the answer is yes, makes the mistake that the
//! [`Failpoint`] names. A test then expects its check to find it (`docs/TESTING.md`, "Failpoints").
//!
//! Crates with a protocol that is model-checked list its steps in a type of their own. A model
//! leaves one out ([`Active`]) and expects the checker to find a schedule that fails.
//!
//! # Invariants
//! - Only the feature `failpoints` and models (`--cfg extant_shuttle`) switch anything on. In other
//!   builds the answer is a constant `false` and [`Active`] has no size: a shipped program contains
//!   none of this.
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
    /// Zeroing looks at the map and then at the cache, and not at the map again: what left the
    /// cache in between is not zeroed.
    PunchLooksOnce,
    /// A mapping is used for a folio although the map has changed.
    StaleMappingUsed,
    /// A write that found space for a part begins again from its first byte, although what it had
    /// written was unlocked.
    RetryUndoesWrite,
    /// A rename forgets each of its names only where it changes that one.
    HalfRenameShown,
    /// A name in the cache of names counts although it was changed meanwhile.
    NameTicketIgnored,
    /// The cache is filled from the device while the same bytes are written directly.
    FillBesideDirectWrite,
    /// An operation on a whole file does not wait for those that have locked parts of it.
    RangeChangeWithoutDrain,
    /// A truncation of a file that has nothing but delayed blocks records no orphan.
    CutNotRecorded,
    /// A fast commit names the transaction before the one that runs.
    FastCommitOfPast,
    /// A change that no fast commit tells does not keep fast commits from being written.
    UntoldIgnored,
    /// A fast commit does not tell ranges that files gained.
    RangeForgotten,
    /// A fast commit does not tell names that were removed.
    RemovalForgotten,
    /// A full area of fast commits is begun anew, over those of the running transaction.
    FastAreaWraps,
    /// With the log on another device, a commit record is written without a flush of the volume's
    /// before it.
    CommitBeforeVolumeFlush,
    /// With the log on another device, its tail moves without a flush of the volume's before it.
    TailBeforeVolumeFlush,
}

impl Failpoint {
    /// All failpoints.
    pub const ALL: [Self; 28] = [
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
        Self::PunchLooksOnce,
        Self::StaleMappingUsed,
        Self::RetryUndoesWrite,
        Self::HalfRenameShown,
        Self::NameTicketIgnored,
        Self::FillBesideDirectWrite,
        Self::RangeChangeWithoutDrain,
        Self::CutNotRecorded,
        Self::FastCommitOfPast,
        Self::UntoldIgnored,
        Self::RangeForgotten,
        Self::RemovalForgotten,
        Self::FastAreaWraps,
        Self::CommitBeforeVolumeFlush,
        Self::TailBeforeVolumeFlush,
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
            Self::PunchLooksOnce => "punch_looks_once",
            Self::StaleMappingUsed => "stale_mapping_used",
            Self::RetryUndoesWrite => "retry_undoes_write",
            Self::HalfRenameShown => "half_rename_shown",
            Self::NameTicketIgnored => "name_ticket_ignored",
            Self::FillBesideDirectWrite => "fill_beside_direct_write",
            Self::RangeChangeWithoutDrain => "range_change_without_drain",
            Self::CutNotRecorded => "cut_not_recorded",
            Self::FastCommitOfPast => "fast_commit_of_past",
            Self::UntoldIgnored => "untold_ignored",
            Self::RangeForgotten => "range_forgotten",
            Self::RemovalForgotten => "removal_forgotten",
            Self::FastAreaWraps => "fast_area_wraps",
            Self::CommitBeforeVolumeFlush => "commit_before_volume_flush",
            Self::TailBeforeVolumeFlush => "tail_before_volume_flush",
        }
    }

    /// The failpoint with that name, if there is one.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|failpoint| failpoint.name() == name)
    }
}

/// A list of mistakes.
pub trait Mistake: Copy + PartialEq {
    /// Set in builds that can make them; in others [`Active::is`] is a constant `false`.
    const ENABLED: bool;
}

impl Mistake for Failpoint {
    const ENABLED: bool = cfg!(feature = "failpoints");
}

/// The failpoint of a mount. The default is none.
pub type ActiveFailpoint = Active<Failpoint>;

/// The mistake that is switched on, of those that `F` lists. The default is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Active<F> {
    #[cfg(any(feature = "failpoints", extant_shuttle))]
    mistake: Option<F>,
    #[cfg(not(any(feature = "failpoints", extant_shuttle)))]
    mistake: std::marker::PhantomData<F>,
}

impl<F> Default for Active<F> {
    fn default() -> Self {
        Self {
            mistake: Default::default(),
        }
    }
}

impl<F: Mistake> Active<F> {
    /// Switches `mistake` on, and no other.
    #[cfg(any(feature = "failpoints", extant_shuttle))]
    pub const fn only(mistake: F) -> Self {
        Self {
            mistake: Some(mistake),
        }
    }

    /// Returns whether `mistake` is switched on: see [`Mistake::ENABLED`].
    #[inline]
    pub fn is(self, mistake: F) -> bool {
        #[cfg(any(feature = "failpoints", extant_shuttle))]
        return F::ENABLED && self.mistake == Some(mistake);
        #[cfg(not(any(feature = "failpoints", extant_shuttle)))]
        {
            let _ = mistake;
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
        #[cfg(not(any(feature = "failpoints", extant_shuttle)))]
        assert_eq!(size_of::<ActiveFailpoint>(), 0);
    }
}
