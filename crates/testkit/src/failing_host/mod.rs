//! Hosts of an image whose writeback fails, served by Linux: what a full pool or a failing disk
//! does to a file.
//!
//! # Responsibility
//! Each host holds one file. Writes to it enter Linux's page cache and succeed; Linux writes them
//! back later or for an `fsync`, and some of that fails. Linux then reports one error to each open
//! file description, and shows the new content until the cache is dropped. [`FuseHost`] decides
//! which writes fail; [`FullHost`] is ext4 on a loop device whose backing has no space.

mod full;
mod fuse;

use std::path::Path;

use crate::Result;

pub use full::FullHost;
pub use fuse::FuseHost;

/// A host of one file.
pub trait FailingHost {
    /// The file.
    fn file(&self) -> &Path;

    /// Lets some writes fail from now on, chosen by `seed`. What the file holds must be durable.
    ///
    /// # Errors
    /// It cannot be prepared.
    fn fail(&mut self, seed: u64) -> Result<()>;

    /// Returns whether content that `fail` destroyed by itself was this: all bytes `byte`.
    fn spares(&self, byte: u8) -> bool;

    /// Drops Linux's cache of the file, which must be closed: the bytes that are left.
    ///
    /// # Errors
    /// The host cannot be unmounted.
    fn end(self: Box<Self>) -> Result<Vec<u8>>;
}
