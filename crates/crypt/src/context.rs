//! The encryption context of an inode: the value of its attribute of index 9, named `c`.

use crate::policy::{BadPolicy, Policy, VERSION_1, VERSION_2};

/// Bytes of an inode's nonce.
pub const NONCE_BYTES: usize = 16;

/// The policy of an inode, and its own nonce.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Context {
    /// Modes and key, the same in a whole tree.
    pub policy: Policy,
    /// Random bytes, of this inode only.
    pub nonce: [u8; NONCE_BYTES],
}

/// Why the value of an attribute is no context.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadContext {
    /// No version has this length.
    #[error("an encryption context of version {version} has not {found} bytes")]
    Length {
        /// The version it claims.
        version: u8,
        /// Bytes of the value.
        found: usize,
    },
    /// Nothing at all.
    #[error("an encryption context without a byte")]
    Empty,
    /// An unknown version.
    #[error("encryption context of unknown version {0}")]
    Version(u8),
    /// A policy that is not allowed.
    #[error("encryption context: {0}")]
    Policy(#[from] BadPolicy),
}

impl Context {
    /// The context in the value of an attribute.
    ///
    /// # Errors
    /// [`BadContext`] where Linux refuses the value as well, and for modes that this crate does not
    /// have.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadContext> {
        let &version = bytes.first().ok_or(BadContext::Empty)?;
        if !matches!(version, VERSION_1 | VERSION_2) {
            return Err(BadContext::Version(version));
        }
        let parts = bytes.split_last_chunk::<NONCE_BYTES>();
        let parts = parts.filter(|(policy, _)| policy.len() == Policy::bytes_of(version));
        let found = bytes.len();
        let (policy, nonce) = parts.ok_or(BadContext::Length { version, found })?;
        let policy = Policy::of_context(policy)?;
        let nonce = *nonce;
        Ok(Self { policy, nonce })
    }

    /// The value of the attribute: 28 bytes of version 1, 40 of version 2.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.policy.to_context();
        bytes.extend_from_slice(&self.nonce);
        bytes
    }
}
