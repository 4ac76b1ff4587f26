//! Encrypted files of ext4 (the feature `encrypt`, Linux's fscrypt): policies.
//!
//! An encrypted inode has a [`Context`]: the [`Policy`] that its directory began with, and a nonce
//! of its own. The policy names a master key by its [`KeyId`].
//!
//! # Invariants
//!
//! Contexts are untrusted: [`Context::parse`] returns policies that [`Policy::check`] allows, which
//! are those that Linux allows.
#![forbid(unsafe_code)]

mod context;
mod key_id;
mod policy;

pub use context::{BadContext, Context, NONCE_BYTES};
pub use key_id::{BadKeyId, KeyId};
pub use policy::{BadPolicy, ContentsMode, Ivs, NamesMode, Padding, Policy};
