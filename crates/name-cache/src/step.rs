//! Steps of the protocol that a model leaves out, to show that the checker notices.

/// A step of the protocol in the crate's documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    not(extant_shuttle),
    allow(unreachable_pub, reason = "only models name it")
)]
pub enum Step {
    /// A writer makes the sequence odd before it writes.
    SequenceIsMarked,
    /// A reader looks at the sequence again after it has read.
    ReaderLooksAgain,
    /// A writer takes the lock of the set.
    WritersExclude,
    /// A ticket is compared with the sequence.
    TicketIsCompared,
    /// Forgetting a name removes its entry.
    NamesAreForgotten,
}

impl extant_failpoint::Mistake for Step {
    const ENABLED: bool = cfg!(extant_shuttle);
}

/// The step that a model leaves out, if any.
pub(crate) type Omitted = extant_failpoint::Active<Step>;
