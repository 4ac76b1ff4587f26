//! Tables, pictures and pages of what `extant bench` measures.
//!
//! A run ends as one JSON text, a [`Report`]. Everything that is shown of it is made from that
//! text: tables for a terminal, Markdown, a page of HTML, pictures, and by [`fill`] the tables that
//! pages of documentation have between marks.
#![forbid(unsafe_code)]

mod page;
mod part;
mod picture;
mod report;
mod seeds;
mod tables;

pub use page::{Filled, between_marks, fill};
pub use report::{Fault, Report};
