//! Master keys, and what is derived from them.
//!
//! A key of policies of version 2 is only ever the input of HKDF-SHA512; each use has a number of
//! its own, so that no derived key tells of another. Those of version 1 encrypt the key itself with
//! the nonce.

use std::fmt::{Debug, Formatter, Result as Printed};
use std::hash::Hasher;

use aes::Aes128;
use aes::cipher::{Block, BlockCipherEncrypt, KeyInit};
use hkdf::Hkdf;
use sha2::{Digest, Sha512};
use siphasher::sip::SipHasher24;
use zeroize::Zeroizing;

use crate::ciphers::UnitCipher;
use crate::contents::ContentsCipher;
use crate::context::Context;
use crate::initial_vector::VectorBase;
use crate::key_id::KeyId;
use crate::mode_keys::ModeKeys;
use crate::names::NameCipher;
use crate::policy::Ivs;

/// The text in front of each use.
const APPLICATION: &[u8] = b"fscrypt\0";
/// The longest key of a mode.
const MAX_MODE_KEY: usize = 64;

/// A use of HKDF, by its number.
#[derive(Clone, Copy)]
#[repr(u8)]
enum KeyUse {
    Identifier = 1,
    PerFileKey = 2,
    DirectKey = 3,
    InoLblk64Key = 4,
    DirHashKey = 5,
    InoLblk32Key = 6,
    InodeHashKey = 7,
}

/// A key of 16 to 64 bytes, from which those of files are derived.
pub struct MasterKey {
    bytes: Zeroizing<Box<[u8]>>,
    hkdf: Hkdf<Sha512>,
    identifier: KeyId,
}

/// Why a key does not serve.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadKey {
    /// No key is so long.
    #[error("a master key has 16 to 64 bytes, not {0}")]
    Length(usize),
    /// Too short for a mode.
    #[error("{mode} needs a master key of {needed} bytes, and this one has {found}")]
    TooShort {
        /// The name of the mode.
        mode: &'static str,
        /// Bytes that it needs.
        needed: usize,
        /// Bytes of the key.
        found: usize,
    },
    /// Not the key of the policy.
    #[error("not the master key of the file, which is {0}")]
    Other(KeyId),
}

impl MasterKey {
    /// A key of these bytes.
    ///
    /// # Errors
    /// [`BadKey::Length`] for fewer than 16 or more than 64.
    pub fn new(bytes: &[u8]) -> Result<Self, BadKey> {
        if !(16..=64).contains(&bytes.len()) {
            return Err(BadKey::Length(bytes.len()));
        }
        let hkdf = Hkdf::new(None, bytes);
        let mut identifier = [0; 16];
        expand(&hkdf, KeyUse::Identifier, &[], &mut identifier);
        Ok(Self {
            bytes: Zeroizing::new(bytes.into()),
            hkdf,
            identifier: KeyId::Identifier(identifier),
        })
    }

    /// The name that policies of version 2 have for it.
    #[must_use]
    pub fn identifier(&self) -> KeyId {
        self.identifier
    }

    /// The name that tools give it in policies of version 1. Others are allowed.
    #[must_use]
    pub fn descriptor(&self) -> KeyId {
        let once = Zeroizing::new(<[u8; 64]>::from(Sha512::digest(&*self.bytes)));
        let twice = Sha512::digest(*once);
        KeyId::Descriptor(std::array::from_fn(|at| twice[at]))
    }

    /// The cipher of a regular file's contents: its context, its number, and `uuid` of the volume.
    ///
    /// # Errors
    /// [`BadKey`], if the key is not that of the policy, or is too short for its mode.
    pub fn contents(
        &self,
        context: &Context,
        ino: u32,
        uuid: &[u8; 16],
    ) -> Result<ContentsCipher, BadKey> {
        let mode = ModeKeys::of_contents(context.policy.contents);
        let (key, base) = self.derive(mode, context, ino, uuid)?;
        let cipher = UnitCipher::new(context.policy.contents, &key);
        Ok(ContentsCipher::new(cipher, base))
    }

    /// The cipher of a directory's names, or of a symbolic link's target.
    ///
    /// # Errors
    /// As [`MasterKey::contents`].
    pub fn names(
        &self,
        context: &Context,
        ino: u32,
        uuid: &[u8; 16],
    ) -> Result<NameCipher, BadKey> {
        let mode = ModeKeys::of_names(context.policy.names);
        let (key, base) = self.derive(mode, context, ino, uuid)?;
        let hash_key = match context.policy.key {
            KeyId::Descriptor(_) => None,
            KeyId::Identifier(_) => {
                let mut hash_key = Zeroizing::new([0; 16]);
                let nonce = &[context.nonce.as_slice()];
                expand(&self.hkdf, KeyUse::DirHashKey, nonce, &mut *hash_key);
                Some(hash_key)
            }
        };
        Ok(NameCipher::new(&context.policy, &key, base, hash_key))
    }

    /// The key of an inode in `mode`, and the base of its vectors.
    fn derive(
        &self,
        mode: ModeKeys,
        context: &Context,
        ino: u32,
        uuid: &[u8; 16],
    ) -> Result<(Zeroizing<Vec<u8>>, VectorBase), BadKey> {
        let policy = &context.policy;
        let is_first = matches!(policy.key, KeyId::Descriptor(_));
        if !is_first && policy.key != self.identifier {
            return Err(BadKey::Other(policy.key));
        }
        let needed = if is_first {
            mode.key_bytes
        } else {
            mode.strength_bytes
        };
        let found = self.bytes.len();
        if found < needed {
            let mode = mode.name;
            return Err(BadKey::TooShort {
                mode,
                needed,
                found,
            });
        }
        debug_assert!(mode.key_bytes <= MAX_MODE_KEY);
        let mut key = Zeroizing::new(vec![0; mode.key_bytes]);
        let number = [mode.number];
        let nonce = &context.nonce;
        let mut of_hkdf = |use_, info: &[&[u8]]| expand(&self.hkdf, use_, info, &mut key);
        let base = match policy.ivs {
            Ivs::PerFileKey if is_first => {
                key.copy_from_slice(&self.bytes[..needed]);
                encrypt_with_nonce(nonce, &mut key);
                VectorBase::Index
            }
            Ivs::PerFileKey => {
                of_hkdf(KeyUse::PerFileKey, &[nonce]);
                VectorBase::Index
            }
            Ivs::DirectKey if is_first => {
                key.copy_from_slice(&self.bytes[..needed]);
                VectorBase::Nonce(*nonce)
            }
            Ivs::DirectKey => {
                of_hkdf(KeyUse::DirectKey, &[&number]);
                VectorBase::Nonce(*nonce)
            }
            Ivs::InoLblk64 => {
                of_hkdf(KeyUse::InoLblk64Key, &[&number, uuid]);
                VectorBase::Inode(ino)
            }
            Ivs::InoLblk32 => {
                of_hkdf(KeyUse::InoLblk32Key, &[&number, uuid]);
                VectorBase::HashedInode(self.hash_of_inode(ino))
            }
        };
        Ok((key, base))
    }

    /// The hash of an inode number: the low half of SipHash.
    fn hash_of_inode(&self, ino: u32) -> u32 {
        let mut key = Zeroizing::new([0; 16]);
        expand(&self.hkdf, KeyUse::InodeHashKey, &[], &mut *key);
        let mut hasher = SipHasher24::new_with_key(&key);
        hasher.write(&u64::from(ino).to_le_bytes());
        let [a, b, c, d, ..] = hasher.finish().to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}

impl Debug for MasterKey {
    fn fmt(&self, out: &mut Formatter<'_>) -> Printed {
        write!(out, "MasterKey({})", self.identifier)
    }
}

/// Fills `key` with what HKDF makes of a use and its details.
fn expand(hkdf: &Hkdf<Sha512>, key_use: KeyUse, details: &[&[u8]], key: &mut [u8]) {
    let mut info = [APPLICATION, &[key_use as u8]].concat();
    info.extend(details.iter().flat_map(|detail| detail.iter()));
    let done = hkdf.expand(&info, key);
    debug_assert!(done.is_ok(), "HKDF-SHA512 gives 16320 bytes");
}

/// Encrypts a master key with AES-128-ECB, whose key is the nonce.
fn encrypt_with_nonce(nonce: &[u8; 16], key: &mut [u8]) {
    let cipher = Aes128::new(nonce.into());
    let (blocks, rest) = Block::<Aes128>::slice_as_chunks_mut(key);
    debug_assert!(rest.is_empty(), "keys of modes are whole blocks");
    cipher.encrypt_blocks(blocks);
}
