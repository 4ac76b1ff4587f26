//! For unit tests: a mount, the allocators without a mount, and random numbers.

pub(crate) mod test_mount;
pub(crate) mod test_rig;
pub(crate) mod test_rng;
