//! Steps of the tree's work that a model leaves out, to show that the checker notices.

/// A step that a model can do without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    not(extant_shuttle),
    allow(unreachable_pub, reason = "only models name it")
)]
pub enum Step {
    /// A request for a lock looks whether another holder has a byte of its range.
    RequestSeesOwners,
    /// The count that is read without the tree's lock says that something is locked.
    LockIsPublished,
    /// A record that loses its locks wakes its waiters.
    ClearWakes,
    /// A record that loses a part of its bytes wakes the waiters for that part.
    TrimWakes,
    /// Of a record that is cut in two, each part has its own waiters.
    CutDividesWaiters,
    /// A waiter that was served has those that followed it woken, or wait for a record.
    ServedPassesFollowersOn,
}

impl extant_failpoint::Mistake for Step {
    const ENABLED: bool = cfg!(extant_shuttle);
}

/// The step that a model leaves out, if any.
pub(crate) type Omitted = extant_failpoint::Active<Step>;
