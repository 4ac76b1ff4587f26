//! Building an ext4 volume from folders, archives, container images and other volumes.
//!
//! # Responsibility
//! A volume is built in three steps. The sources are read into a compact tree: names, attributes,
//! and where the contents are, not the contents. The tree is planned, without any I/O: inodes,
//! directories with their indexes, extents, the size of the volume, on the layout of an empty one
//! by `extant-mkfs`. Then everything is written: data by all processors, each block once, then the
//! metadata with its checksums, which start from a UUID that the contents decide.
//!
//! No mount, journal or cache takes part: a volume that is made at once needs neither allocation
//! under locks nor transactions. Its journal is there, empty and valid. An image that is a source
//! is read by the engine.
//!
//! ```text
//! folder, archive ──► tree ──► numbering ──► placement ──► copy ──► image ──► output
//!                      names     inodes        blocks      data    metadata   file or device
//! ```
//!
//! [`VirtualImage`] stops before the copy: a device with the same bytes, whose data stay in the
//! sources.
//!
//! # Invariants
//! - The same sources and options give the same bytes: nothing of the time, the machine, the user,
//!   the folder or the threads goes in.
//! - Memory is 250 to 400 bytes for an entry, beside distinct attributes and the names
//!   of one directory at a time; never contents.
//! - A file is complete and durable when it gets its name. A failure leaves nothing.
//! - Nothing of a source leads out of the volume.
//!
//! # Example
//! ```no_run
//! use extant_build::{Options, Silent, Source, build};
//!
//! let sources = [Source::Path("root".into())];
//! let built = build(&sources, "root.img".as_ref(), &Options::default(), &Silent)?;
//! println!("{} bytes", built.layout.bytes());
//! # Ok::<(), extant_build::Error>(())
//! ```
#![forbid(unsafe_code)]

mod attrs;
mod container;
mod copy;
mod digest;
mod directory;
mod effort;
mod entry_rules;
mod error;
mod extents;
mod folder;
mod ids;
mod image;
mod job;
mod manifest;
mod members;
mod new_file;
mod numbering;
mod options;
mod order;
mod origin;
mod output;
mod parts;
mod pattern;
mod placement;
mod placer;
mod room;
mod sizing;
mod sources;
mod sparse_memory;
mod spool;
mod stamp;
mod text;
mod tree;
mod virtual_image;
mod volume;

pub use error::{Error, Result};
pub use extant_archive::Timestamp;
pub use job::{Built, build};
pub use new_file::{NewFile, remove_unfinished};
pub use options::{IdRange, Options, Silent, Watch};
pub use pattern::Pattern;
pub use sources::Source;
pub use virtual_image::VirtualImage;
