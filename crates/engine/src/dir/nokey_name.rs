//! Names in encrypted directories, for those without the key: as Linux shows them.
//!
//! Such a name is the base64url, without padding, of the two words of the name's hash in its
//! directory's index (little-endian), the first 149 bytes of the name as it is stored and, if there
//! are more, the SHA-256 of the rest. (`struct fscrypt_nokey_name`)

use extant_crypt::MIN_ENCRYPTED_NAME;
use sha2::{Digest, Sha256};

/// Bytes of a stored name that are shown.
const SHOWN: usize = 149;
/// Bytes of the two words.
const HASH: usize = 8;
/// Bytes of a digest.
const DIGEST: usize = 32;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The form of the stored name `stored`, whose words of the hash are `major` and `minor`.
pub(crate) fn shown(major: u32, minor: u32, stored: &[u8]) -> Vec<u8> {
    let mut bytes = [major.to_le_bytes(), minor.to_le_bytes()].concat();
    match stored.split_at_checked(SHOWN) {
        Some((first, rest)) if !rest.is_empty() => {
            bytes.extend_from_slice(first);
            bytes.extend_from_slice(&Sha256::digest(rest));
        }
        _ => bytes.extend_from_slice(stored),
    }
    encode(&bytes)
}

/// The stored names that are shown in one form.
pub(super) struct Stored {
    first: Vec<u8>,
    /// Of the rest, if there is one.
    digest: Option<[u8; DIGEST]>,
}

impl Stored {
    /// Those that are shown as `name`; `None` if none is.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        let bytes = decode(name)?;
        let (_, stored) = bytes.split_at_checked(HASH)?;
        let (first, digest) = match stored.len() {
            0 => return None,
            len if len <= SHOWN => (stored, None),
            len if len == SHOWN + DIGEST => {
                let (first, digest) = stored.split_at(SHOWN);
                (first, Some(digest.try_into().ok()?))
            }
            _ => return None,
        };
        Some(Self {
            first: first.to_vec(),
            digest,
        })
    }

    /// Returns whether they are as long as an encrypted name is at least.
    pub(super) fn is_whole_name(&self) -> bool {
        self.first.len() >= MIN_ENCRYPTED_NAME
    }

    /// Returns whether `stored` is one of them.
    pub(super) fn holds(&self, stored: &[u8]) -> bool {
        let Some(digest) = self.digest else {
            return stored == self.first;
        };
        stored.len() > SHOWN
            && stored[..SHOWN] == *self.first
            && Sha256::digest(&stored[SHOWN..]).as_slice() == digest
    }
}

fn encode(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..=chunk.len() {
            let value = word >> (18 - 6 * digit) & 63;
            text.push(DIGITS[value as usize]);
        }
    }
    text
}

fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut word, mut bits) = (0_u32, 0);
    for digit in text {
        let value = DIGITS.iter().position(|known| known == digit)?;
        word = word << 6 | u32::try_from(value).ok()?;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(word >> bits & 255).ok()?);
            word &= (1 << bits) - 1;
        }
    }
    // What is left over has no meaning: one text for each name.
    (word == 0 && bits < 6).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_leads_back_and_to_nothing_else() {
        for len in [1, 2, 3, 16, 148, 149, 150, 255_u8] {
            let stored: Vec<u8> = (0..len).map(|at| at ^ 0xA5).collect();
            let name = shown(0x0102_0304, 7, &stored);
            assert!(name.len() <= 255, "{len}");
            assert!(!name.contains(&b'/') && !name.contains(&0), "{len}");
            let found = Stored::of(&name).unwrap();
            assert!(found.holds(&stored), "{len}");
            for at in 0..stored.len() {
                let mut other = stored.clone();
                other[at] ^= 1;
                assert!(!found.holds(&other), "{len}: {at}");
            }
            assert!(!found.holds(&stored[..stored.len() - 1]), "{len}");
        }
        for wrong in [
            &b""[..],
            b"A",
            b"AAAAAAAAAAA",
            b"plain name",
            b"AAAAAAAAAAAB",
        ] {
            assert!(Stored::of(wrong).is_none_or(|found| !found.holds(b"x")));
        }
    }

    /// The first words of RFC 4648.
    #[test]
    fn text_is_that_of_the_standard() {
        assert_eq!(encode(b"fooba"), b"Zm9vYmE");
        assert_eq!(encode(&[0xFB, 0xFF]), b"-_8");
        assert_eq!(decode(b"Zm9vYmE").unwrap(), b"fooba");
        assert_eq!(decode(b"Zm9vYmF"), None, "bits that are left over");
        assert_eq!(decode(b"Zm9v*"), None);
        assert_eq!(decode(b"Zm9vY"), None);
    }
}
