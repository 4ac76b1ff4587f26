//! What a process goes on to need after it has confined itself.

/// What a process goes on to need.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Profile {
    /// Whether it uses io_uring rings that it has made before.
    pub rings: bool,
}
