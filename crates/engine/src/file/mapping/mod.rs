//! Mappings of a file's ranges: the border between the two data paths and the map, and the data
//! that is tied to the journal.

pub(in crate::file) mod buffer_ops;
pub(in crate::file) mod iomap_ops;
pub(in crate::file) mod ordered_data;
