//! Keys of hashes: random ones, or the same in every execution of a model.

#[cfg(extant_shuttle)]
pub use crate::modelled::fixed_hash::RandomState;
#[cfg(not(extant_shuttle))]
pub use std::hash::RandomState;
