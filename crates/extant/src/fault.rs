//! The latched failure and the errors= policy.

/// The latched failure and the errors= policy.
#[derive(Default)]
pub(crate) struct Fault {}

impl Fault {
    /// Fails once the file system was shut down.
    pub(crate) fn check(&self) -> crate::Result<()> {
        Ok(())
    }
}
