//! Encrypted files (the feature `encrypt`, fscrypt): names, targets and contents by keys that
//! callers add to a mount.
//!
//! An encrypted inode has an attribute with its policy and a nonce ([`extant_crypt::Context`]). The
//! policy names a master key; if a caller has added that ([`keys`]), the inode's own key is derived
//! at first use ([`find_key`]) and stays with the inode in memory. Everything that is made in an
//! encrypted directory has the directory's policy ([`policies`]).
//!
//! In memory names and data are plain: the cache has a file's bytes, and what goes to the device is
//! encrypted on the way (`file/mapping`). A directory's blocks and a link's target are metadata and
//! stay encrypted in memory and in the log; they are decrypted where they are read.
//!
//! Without the key an encrypted directory can be listed, and names removed ([`crate::dir`] has the
//! form that names are shown in); files cannot be opened, and nothing new is made.
//!
//! # Invariants
//! - A directory's key stays while its `lock` is held in any way: [`keys::remove`] takes it away
//!   under the exclusive lock. So an operation that has found a key has it to its end.
//! - A regular file in memory keeps its key: what is dirty can be written.
//! - No key is in a message, in an error, or in what [`std::fmt::Debug`] shows.

pub(crate) mod find_key;
pub(crate) mod keys;
pub(crate) mod policies;

pub(crate) use self::find_key::{is_locked, key, require_key, require_names};
pub(crate) use self::policies::{begin, inherit, may_enter, store_context};
