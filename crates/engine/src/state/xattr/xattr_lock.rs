//! The lock of an inode's extended attributes: a field of the inode.

use parking_lot::RwLock;

/// The lock of the attributes: shared to read, exclusive to change. Its guards are in
/// [`crate::xattr::locked_attrs`].
#[derive(Default)]
pub(crate) struct XattrLock(pub(crate) RwLock<()>);
