//! Files that fs-verity protects: what is sealed reads as it was and as nothing else, what cannot
//! be sealed stays as it was, and a sealed file changes no more. The digest is compared with one
//! that is computed here; e2fsck judges the volume.

mod failures;
mod kit;
mod reading;
mod refusals;
