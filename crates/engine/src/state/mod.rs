//! State: all that the engine keeps in memory, below everything that it does.
//!
//! State is plain data with its own locks. [`Fs`](crate::volume::Fs) and an
//! [`Inode`](inode::Inode) are made of it, so nothing here names `Fs`. Operations are the functions
//! that take `Fs`; they stand above, in folders of the same names.
//!
//! To reach upwards, state calls a trait object or a function that it was handed when it
//! was made: an inode its cache (`InodeHome`), the page cache and the journal a file's writeback
//! (`FileCallbacks`).

pub(crate) mod alloc;
pub(crate) mod attr_blocks;
pub(crate) mod crypt;
pub(crate) mod file;
pub(crate) mod group;
pub(crate) mod inode;
pub(crate) mod map;
pub(crate) mod orphans;
pub(crate) mod quota;
pub(crate) mod volume;
