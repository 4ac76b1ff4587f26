//! Why a queue is not served any more.

/// A ring or a chain of descriptors that no driver makes. The guest gets no answer: the queue
/// stops until the driver sets it up anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// The ring lies outside of the guest's memory, or its indices are impossible.
    #[error("its ring is damaged")]
    Ring,
    /// A chain is empty, is cut off, or leads to nowhere.
    #[error("a chain of descriptors is damaged")]
    Chain,
    /// A chain has more descriptors than a queue may have.
    #[error("a chain has too many descriptors")]
    Length,
    /// Buffers for the device to read lie behind those to write.
    #[error("the buffers of a chain are in the wrong order")]
    Order,
    /// A buffer lies outside of the guest's memory.
    #[error("a buffer lies outside of the guest's memory")]
    Memory,
    /// There is no room for an answer.
    #[error("a request has no room for its answer")]
    NoAnswer,
}
