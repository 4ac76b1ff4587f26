//! Comparing two trees: of images, of the host, or one of each.
//!
//! # Responsibility
//! `pairs` walks both trees at once and compares what has the same path, `bytes` the bytes of two
//! files, `linked` the names that are one file. `archive` has the headers of an archive as a tree,
//! `archived` is that tree as a side. `difference` is what a comparison reports.

mod archive;
mod archived;
mod bytes;
mod difference;
mod linked;
mod pairs;

pub(crate) use archive::Archive;
pub(crate) use difference::{Difference, Side, Value};
pub(crate) use pairs::{CompareRules, Comparison, Report, Top};
