//! Keys of encrypted files in memory: those that callers have added, and what is derived of them
//! for single inodes.

mod inode_key;
mod keyring;

pub(crate) use self::inode_key::{Cipher, InodeKey, InodeKeyCell};
pub(crate) use self::keyring::{KeyRing, MasterState};
