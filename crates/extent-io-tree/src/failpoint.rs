//! Steps of the tree's work that a model leaves out, to show that the checker notices.
//!
//! Only builds with `--cfg extant_shuttle` have them; elsewhere each question is the constant
//! `false`.

/// A step that a model can do without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    not(extant_shuttle),
    allow(unreachable_pub, reason = "only models name it")
)]
pub enum Step {
    /// A request for a lock looks whether another holder has a byte of its range.
    RequestSeesOwners,
    /// What is published without the tree's lock says that something is locked.
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

/// The step that is left out, if there is one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Failpoints {
    #[cfg(extant_shuttle)]
    omitted: Option<Step>,
}

impl Failpoints {
    #[cfg(extant_shuttle)]
    pub(crate) fn omitting(step: Step) -> Self {
        Self {
            omitted: Some(step),
        }
    }

    /// Whether `step` is left out.
    #[inline]
    pub(crate) fn omits(self, step: Step) -> bool {
        #[cfg(extant_shuttle)]
        return self.omitted == Some(step);
        #[cfg(not(extant_shuttle))]
        {
            let _ = step;
            false
        }
    }
}
