//! The whole of a mounted file system at a glance: its usage, the counters of all layers, and a
//! check of its state in memory.

pub(crate) mod layer_counters;
pub(crate) mod usage;
pub(crate) mod verifier;
