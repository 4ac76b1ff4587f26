//! The directories that a walk has entered.

use std::collections::HashSet;
use std::hash::Hash;

/// Remembers what was entered. An image may give a directory several names; then the paths below it
/// multiply with each level, and only a walk that enters each directory once ends.
pub(crate) struct Visited<K>(HashSet<K>);

impl<K> Default for Visited<K> {
    fn default() -> Visited<K> {
        Visited(HashSet::new())
    }
}

impl<K: Eq + Hash> Visited<K> {
    /// Enters `directory`. Returns `false` if it was entered before, by whatever name.
    pub(crate) fn enter(&mut self, directory: K) -> bool {
        self.0.insert(directory)
    }
}
