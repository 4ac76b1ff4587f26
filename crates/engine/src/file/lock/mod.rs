//! Exclusion among operations on one file: which locks each takes, and the order of appends.

pub(in crate::file) mod range_lock;
