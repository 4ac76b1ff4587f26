//! ext4 as a library.
#![forbid(unsafe_code)]

mod api;

pub use api::*;
