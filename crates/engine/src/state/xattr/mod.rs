//! TODO

pub(crate) mod block_index;
pub(crate) mod xattr_lock;

pub(crate) use self::block_index::SharedBlocks;
pub(crate) use self::xattr_lock::XattrLock;
