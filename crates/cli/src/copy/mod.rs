//! Copying files and trees between the host and images.
//!
//! # Responsibility
//! `sides` says what both sides can do, `host` and `image` do it. `rules` says what is asked for.
//! `job` copies one tree, `content` the bytes of one file; `stream` is what only goes forward,
//! `total` counts for the progress bar.

mod content;
mod host;
mod image;
mod job;
mod rules;
mod sides;
mod stream;
mod total;

pub(crate) use content::TOO_MUCH;
pub(crate) use host::{Host, STDIN};
pub(crate) use image::Inside;
pub(crate) use job::Job;
pub(crate) use rules::CopyRules;
pub(crate) use sides::{
    Attributes, Change, Dir, FileTree, First, Found, Id, Item, Names, Source, Target, Xattr,
};
pub(crate) use total::size;
