//! Mount options.

/// Mount options.
#[derive(Default)]
pub(crate) struct MountOptions {}

impl MountOptions {
    /// Whether the mount refuses changes.
    pub(crate) fn read_only(&self) -> bool {
        false
    }
}
