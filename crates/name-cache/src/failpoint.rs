//! Steps of the protocol that a model leaves out, to show that the checker notices.
//!
//! Only builds with `--cfg extant_shuttle` have them; elsewhere each question is the constant
//! `false`.

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

/// The step that is left out, if there is one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Failpoints {
    #[cfg(extant_shuttle)]
    omitted: Option<Step>,
}

impl Failpoints {
    #[cfg(extant_shuttle)]
    pub(crate) fn omitting(step: Option<Step>) -> Self {
        Self { omitted: step }
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
