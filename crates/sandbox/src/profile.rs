//! The needs of a process after it has confined itself.

/// The needs of a process that confines itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Profile {
    /// The use of io_uring rings that it has made before.
    pub rings: bool,
    /// Devices of a virtual machine, whose monitor hands descriptors over by a socket that is open.
    pub guest: bool,
}
