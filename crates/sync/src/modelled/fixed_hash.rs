//! Hashes whose key is the same in every execution.

use std::hash::{BuildHasher, DefaultHasher};

/// As `std::hash::RandomState`, with a key that does not change.
#[derive(Clone, Debug, Default)]
pub struct RandomState;

impl RandomState {
    /// The state.
    #[must_use]
    pub fn new() -> Self {
        Self
    }
}

impl BuildHasher for RandomState {
    type Hasher = DefaultHasher;
    fn build_hasher(&self) -> DefaultHasher {
        DefaultHasher::new()
    }
}
