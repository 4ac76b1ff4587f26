//! Measurements and what becomes of them: rows of medians, a table for people, JSON for scripts.
//!
//! Every figure the project states comes out of a command that ends here, with what it is compared
//! to measured in the same run.
#![forbid(unsafe_code)]

pub mod machine;
pub mod rows;
