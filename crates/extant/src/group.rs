//! Block groups.

/// Block groups.
#[derive(Default)]
pub(crate) struct GroupTable {}
