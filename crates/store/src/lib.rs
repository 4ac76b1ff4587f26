//! Images in an object store.
//!
//! # Responsibility
//! An image is cut into chunks of one size. A chunk is an object that is named by the hash of its
//! content, so images that have a chunk in common share it. A manifest lists the chunks of one
//! image in order, and is named by its own hash. A version is a small object that names a manifest:
//! an image has versions 1, 2, 3 and so on, and the last one is the current one.
//!
//! ```text
//! ROOT/names/NAME/00000000000000000002   version 2 of the image NAME
//!        │
//!        ▼
//! ROOT/manifests/HASH                    length of the image, length of a chunk, names of chunks
//!        │
//!        ▼
//! ROOT/chunks/HA/HASH                    a chunk, compressed with zstd
//! ```
//!
//! The same content may be stored in several generations ([`ObjectName`]): `HASH`, `HASH.1` and so
//! on. A name stands for one of them.
//!
//! [`push()`] stores an image as the next version, [`pull()`] makes a file of one, and
//! [`StoredImage`] is a block device that fetches chunks when they are read.
//!
//! # Invariants
//! - No object is ever changed. A chunk is stored before the manifest that lists it, and that
//!   before the version that names it: a version that can be read is whole, whenever a push ends.
//! - A version is created only if there is none of its number. Of two pushes of one name, one
//!   fails.
//! - The store is not trusted. Each object is read within a bound, and its content must have its
//!   hash: no byte of another object is returned as data.
//! - A chunk that is all zeros is not stored.
//!
//! # Concurrency
//! Calls block their thread. A store may be used by many threads; its requests run on a runtime of
//! its own with two threads.
//!
//! # Errors
//! [`Error`] names the object. Requests that fail for a moment are repeated for two minutes.
#![forbid(unsafe_code)]

mod bounded_client;
mod chunk;
mod chunk_cache;
mod client;
mod cover;
mod disk_cache;
mod doomed;
mod error;
mod gc;
mod hash;
mod host;
mod layer;
mod layered_image;
mod lists;
mod live;
mod location;
mod manifest;
#[cfg(test)]
mod model;
mod object_name;
mod prefetch;
mod pull;
mod push;
mod push_layer;
mod requests;
mod seal;
mod start_list;
mod store;
mod stored_image;
mod version;

pub use disk_cache::DiskCache;
pub use error::{Error, Result};
pub use gc::{Amount, Collected, GcOptions, gc};
pub use hash::ObjectHash;
pub use layered_image::{FoundLayer, LayeredImage, ReadyLayer, is_layer};
pub use lists::GRACE;
pub use location::{Location, Prefix};
pub use manifest::{CHUNK_BYTES, Manifest};
pub use object_name::ObjectName;
pub use prefetch::prefetch;
pub use pull::{Pulled, pull};
pub use push::{PushOptions, Pushed, push};
pub use push_layer::push_layer;
pub use seal::read_key;
pub use start_list::{BadStartList, StartList};
pub use store::Store;
pub use stored_image::{Caches, StoredImage};
pub use version::{Version, versions};
