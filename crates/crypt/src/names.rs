//! The cipher of a directory's names, or of one symbolic link's target.

use std::fmt::{Debug, Formatter, Result as Printed};
use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use zeroize::Zeroizing;

use crate::ciphers::TextCipher;
use crate::initial_vector::{VECTOR_BYTES, VectorBase};
use crate::policy::{Padding, Policy};

/// Bytes of the shortest encrypted name.
pub const MIN_ENCRYPTED_NAME: usize = 16;
/// The hash that marks the end of an index, of 31 bits.
const END_OF_INDEX: u32 = 0x7fff_ffff;

/// Encrypts and decrypts names, all with one vector: names that begin alike may have ciphertexts
/// that begin alike, and equal names of one directory have equal ones.
pub struct NameCipher {
    cipher: TextCipher,
    vector: [u8; VECTOR_BYTES],
    padding: Padding,
    hash_key: Option<Zeroizing<[u8; 16]>>,
}

impl NameCipher {
    pub(crate) fn new(
        policy: &Policy,
        key: &[u8],
        base: VectorBase,
        hash_key: Option<Zeroizing<[u8; 16]>>,
    ) -> Self {
        Self {
            cipher: TextCipher::new(policy.names, key),
            vector: base.vector(0),
            padding: policy.padding,
            hash_key,
        }
    }

    /// Bytes of a name of `plain` bytes when it is encrypted: 16 at least, a multiple of the
    /// padding, and `most` at most. `None` if the name is longer than `most`.
    #[must_use]
    pub fn encrypted_len(&self, plain: usize, most: usize) -> Option<usize> {
        let padded = plain
            .max(MIN_ENCRYPTED_NAME)
            .checked_next_multiple_of(self.padding.bytes())?;
        (plain <= most).then(|| padded.min(most))
    }

    /// `name` with NULs up to `encrypted_len` bytes, encrypted. The result is never shorter than
    /// the name or than 16 bytes.
    #[must_use]
    pub fn encrypt(&self, name: &[u8], encrypted_len: usize) -> Vec<u8> {
        let mut text = name.to_vec();
        text.resize(encrypted_len.max(name.len()).max(MIN_ENCRYPTED_NAME), 0);
        self.cipher.encrypt(&self.vector, &mut text);
        text
    }

    /// The name in `stored`, up to the first NUL; `None` for fewer than 16 bytes. It may be any
    /// bytes, also none or such as no name has, if `stored` was not made by this cipher.
    #[must_use]
    pub fn decrypt(&self, stored: &[u8]) -> Option<Vec<u8>> {
        if stored.len() < MIN_ENCRYPTED_NAME {
            return None;
        }
        let mut text = stored.to_vec();
        self.cipher.decrypt(&self.vector, &mut text);
        let end = text.iter().position(|byte| *byte == 0);
        text.truncate(end.unwrap_or(text.len()));
        Some(text)
    }

    /// The major and the minor hash of a name, folded, in a directory that folds case; `None` in
    /// one of a policy of version 1, which folds none.
    #[must_use]
    pub fn dir_hash(&self, folded_name: &[u8]) -> Option<(u32, u32)> {
        let mut hasher = SipHasher24::new_with_key(self.hash_key.as_deref()?);
        hasher.write(folded_name);
        let [a, b, c, d, rest @ ..] = hasher.finish().to_le_bytes();
        let minor = u32::from_le_bytes([a, b, c, d]);
        let major = u32::from_le_bytes(rest) & !1;
        let is_end = major == END_OF_INDEX << 1;
        let last = (END_OF_INDEX - 1) << 1;
        Some((if is_end { last } else { major }, minor))
    }
}

impl Debug for NameCipher {
    fn fmt(&self, out: &mut Formatter<'_>) -> Printed {
        out.debug_struct("NameCipher").finish_non_exhaustive()
    }
}
