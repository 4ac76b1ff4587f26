//! Copying files and trees between the host and images.
//!
//! `tree` says what both sides can do, `host` and `image` do it, `job` copies one tree, file contents are moved by `content`; `stream` is what only
//! goes forward.

mod content;
mod host;
mod image;
mod job;
mod stream;
mod tree;

pub(crate) use host::{Host, STDIN};
pub(crate) use image::Inside;
pub(crate) use job::{Job, Rules};
pub(crate) use tree::Tree;
