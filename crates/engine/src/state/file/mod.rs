//! State of a file with data, and of all of them: [`Files`].

mod data_path_cell;
mod file_state;
mod files;
mod logged_device;
mod merkle_builder;
mod merkle_tree;
mod ordered_ranges;

pub(crate) use self::data_path_cell::{DataPath, DataPathCell};
pub(crate) use self::file_state::{Direct, FileCallbacks, FileState, OpenState};
pub(crate) use self::files::Files;
pub(crate) use self::logged_device::LoggedDevice;
pub(crate) use self::merkle_builder::MerkleBuilder;
pub(crate) use self::merkle_tree::{MerkleTree, Salted};
pub(crate) use self::ordered_ranges::{Flight, OrderedRanges};
