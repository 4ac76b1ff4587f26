//! Encrypted files of ext4 (the feature `encrypt`, Linux's fscrypt): keys, policies and ciphers.
//!
//! An encrypted inode has a [`Context`]: the [`Policy`] that its directory began with, and a nonce
//! of its own. The policy names a [`MasterKey`]. Of key, context and inode number come the
//! [`ContentsCipher`] of a regular file, and the [`NameCipher`] of a directory's names or of a
//! symbolic link's target.
//!
//! ```text
//!   MasterKey --+                      +--> ContentsCipher   units of data, by their index
//!               +-- key of the inode --+
//!   Context ----+                      +--> NameCipher       names, targets, hashes of names
//! ```
//!
//! Contents are encrypted in units of 512 bytes to a block, names each for itself. Neither is
//! authenticated: a changed ciphertext decrypts to other bytes, without an error.
//!
//! # Invariants
//!
//! Keys, and what is derived of them, are wiped when their owner is dropped, and no [`Debug`] shows
//! them. Contexts are untrusted: [`Context::parse`] returns policies that [`Policy::check`] allows,
//! which are those that Linux allows. Work is linear in the bytes given.
//!
//! # Example
//!
//! ```
//! use extant_crypt::{ContentsMode, Context, Ivs, MasterKey, NamesMode, Padding, Policy};
//!
//! let key = MasterKey::new(&[7; 64])?;
//! let policy = Policy {
//!     contents: ContentsMode::Aes256Xts,
//!     names: NamesMode::Aes256Cts,
//!     padding: Padding::ThirtyTwo,
//!     key: key.identifier(),
//!     ivs: Ivs::PerFileKey,
//!     log2_data_unit: 0,
//! };
//! let context = Context { policy, nonce: [3; 16] };
//! let cipher = key.contents(&context, 12, &[0; 16])?;
//! let mut block = [1; 4096];
//! cipher.encrypt_units(0, 4096, &mut block);
//! cipher.decrypt_units(0, 4096, &mut block);
//! assert_eq!(block, [1; 4096]);
//! # Ok::<(), extant_crypt::BadKey>(())
//! ```
#![forbid(unsafe_code)]

mod ciphers;
mod contents;
mod context;
mod initial_vector;
mod key_id;
mod master_key;
mod mode_keys;
mod names;
mod policy;

pub use contents::ContentsCipher;
pub use context::{BadContext, Context, NONCE_BYTES};
pub use key_id::{BadKeyId, KeyId};
pub use master_key::{BadKey, MasterKey};
pub use names::{MIN_ENCRYPTED_NAME, NameCipher};
pub use policy::{BadPolicy, ContentsMode, Ivs, NamesMode, Padding, Policy};
