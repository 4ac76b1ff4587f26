//! Steps of the protocol that a model leaves out, to show that the checker notices.

/// A step of the protocol in the crate's documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    not(extant_shuttle),
    allow(unreachable_pub, reason = "only models name it")
)]
pub enum Step {
    /// A record holder looks at the slots.
    RecordSeesSlots,
    /// A record holder looks at the EOF word.
    RecordSeesEof,
    /// A slot holder looks at the records.
    SlotSeesRecords,
    /// A slot holder looks at the other slots.
    SlotSeesSlots,
    /// A slot holder looks at the EOF word.
    SlotSeesEof,
    /// A slot holder looks at the file's lock.
    SlotSeesFile,
    /// The EOF word is taken by an exchange: one thread wins.
    EofIsExchanged,
    /// The holder of the EOF word looks at the records.
    EofSeesRecords,
    /// The holder of the EOF word looks at the slots.
    EofSeesSlots,
    /// The holder of the EOF word looks at the file's lock.
    EofSeesFile,
    /// A drain looks at the records.
    DrainSeesRecords,
    /// A drain looks at the slots.
    DrainSeesSlots,
    /// A drain looks at the EOF word.
    DrainSeesEof,
    /// A slot is published before its holder looks, not after.
    SlotIsPublishedFirst,
    /// The EOF word is published before its holder looks, not after.
    EofIsPublishedFirst,
    /// A record is locked before its holder looks at slots and the EOF word, not after.
    RecordIsPublishedFirst,
    /// A release wakes the threads that wait for its word.
    ReleaseWakes,
    /// A waiter counts itself before it looks for the last time.
    WaiterIsCountedFirst,
}

impl extant_failpoint::Mistake for Step {
    const ENABLED: bool = cfg!(extant_shuttle);
}

/// The step that a model leaves out, if any.
pub(crate) type Omitted = extant_failpoint::Active<Step>;
