//! Mistakes of the server that a test switches on, to show that it would be noticed.
//!
//! Other builds contain none: the answer of [`Planted::is`] is a constant there.

/// A mistake. Each was made once, or could be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mistake {
    /// A drain ends once the kernel has begun to write back.
    DrainDoesNotWait,
    /// Files are armed once when space becomes short: a late reply counts after that.
    ArmedOnce,
    /// A drain fails because a writer that waits for it got a signal.
    SignalEndsDrain,
    /// A parked writer that got a signal is forgotten.
    InterruptedWriterUnanswered,
    /// Data that the kernel could not write back is not noted for the file's writers.
    LossNotTold,
    /// The kernel is not told of blocks that a file has got by its write-back.
    BlocksNotShown,
    /// The kernel is told of such blocks at once, or not at all: the time of the next note never
    /// comes, however slow the machine is.
    DueBlocksForgotten,
    /// FORGET takes one lookup off, however many it names.
    ForgetCountsOne,
}

/// The mistake that is switched on. The default is none.
#[derive(Clone, Copy, Default)]
pub(crate) struct Planted {
    #[cfg(test)]
    pub(crate) mistake: Option<Mistake>,
}

impl Planted {
    /// Returns whether `mistake` is switched on.
    #[cfg_attr(not(test), allow(clippy::unused_self, reason = "a test's has a field"))]
    pub(super) fn is(self, mistake: Mistake) -> bool {
        #[cfg(test)]
        return self.mistake == Some(mistake);
        #[cfg(not(test))]
        {
            let _ = mistake;
            false
        }
    }
}
