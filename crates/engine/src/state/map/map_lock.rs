//! The lock of a file's map: a field of its inode.

use parking_lot::RwLock;

/// The lock of the extent tree (`i_data_sem`): shared to walk, exclusive to change. Its guards are
/// in [`crate::map::locked_map`].
#[derive(Default)]
pub(crate) struct MapLock(pub(crate) RwLock<()>);
