//! Adiantum (Crowley and Biggers, 2018) of XChaCha12, AES-256, NH and Poly1305.
//!
//! The text but for its last block is hashed into that block, which AES encrypts; the result is the
//! nonce of a stream over the text, which is then hashed into the block again. So each byte of the
//! ciphertext hangs on each of the text and of the vector.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes256, Block};
use chacha20::XChaCha12;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use poly1305::Poly1305;
use poly1305::universal_hash::UniversalHash;
use zeroize::Zeroizing;

use super::nh::{CHUNK, KEY_BYTES as NH_KEY_BYTES, Nh};

type HashBlock = poly1305::Block;

/// Bytes of a block.
const BLOCK: usize = 16;
/// Bytes of the keys that are derived: AES's, those of two polynomials, and NH's.
const DERIVED: usize = 32 + 16 + 16 + NH_KEY_BYTES;

/// Adiantum.
pub(crate) struct Adiantum {
    key: Zeroizing<[u8; 32]>,
    aes: Aes256,
    of_vector: Poly1305,
    of_text: Poly1305,
    nh: Nh,
}

impl Adiantum {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let mut derived = Zeroizing::new([0; DERIVED]);
        let mut nonce = [0; 24];
        nonce[0] = 1;
        XChaCha12::new(key.into(), &nonce.into()).apply_keystream(&mut *derived);
        let (aes_key, rest) = front::<32>(&*derived);
        let (vector_key, rest) = front::<16>(rest);
        let (text_key, rest) = front::<16>(rest);
        let (nh_key, _) = front::<NH_KEY_BYTES>(rest);
        Self {
            key: Zeroizing::new(*key),
            aes: Aes256::new(aes_key.into()),
            of_vector: polynomial(vector_key),
            of_text: polynomial(text_key),
            nh: Nh::new(nh_key),
        }
    }

    /// Encrypts a text of 16 bytes at least. `vector` may have any length.
    pub(crate) fn encrypt(&self, vector: &[u8], text: &mut [u8]) {
        let Some((text, last)) = text.split_last_chunk_mut::<BLOCK>() else {
            debug_assert!(false, "the text has a block");
            return;
        };
        let of_vector = self.vector_hash(vector, text.len());
        let sum = u128::from_le_bytes(*last).wrapping_add(self.hash(of_vector, text));
        let mut middle = Block::from(sum.to_le_bytes());
        self.aes.encrypt_block(&mut middle);
        self.stream(&middle, text);
        let middle = u128::from_le_bytes(middle.into());
        let difference = middle.wrapping_sub(self.hash(of_vector, text));
        *last = difference.to_le_bytes();
    }

    /// Decrypts a text of 16 bytes at least.
    pub(crate) fn decrypt(&self, vector: &[u8], text: &mut [u8]) {
        let Some((text, last)) = text.split_last_chunk_mut::<BLOCK>() else {
            debug_assert!(false, "the text has a block");
            return;
        };
        let of_vector = self.vector_hash(vector, text.len());
        let sum = u128::from_le_bytes(*last).wrapping_add(self.hash(of_vector, text));
        let mut middle = Block::from(sum.to_le_bytes());
        self.stream(&middle, text);
        self.aes.decrypt_block(&mut middle);
        let middle = u128::from_le_bytes(middle.into());
        let difference = middle.wrapping_sub(self.hash(of_vector, text));
        *last = difference.to_le_bytes();
    }

    /// Adds the stream whose nonce is a block, a one and zeros.
    fn stream(&self, block: &Block, text: &mut [u8]) {
        let mut nonce = [0; 24];
        nonce[..BLOCK].copy_from_slice(block);
        nonce[BLOCK] = 1;
        XChaCha12::new((&*self.key).into(), &nonce.into()).apply_keystream(text);
    }

    /// The hash of the vector, and of the bits of the text before its last block.
    fn vector_hash(&self, vector: &[u8], text_bytes: usize) -> u128 {
        let mut hash = self.of_vector.clone();
        let bits = text_bytes as u128 * 8;
        hash.update(&[bits.to_le_bytes().into()]);
        hash.update_padded(vector);
        number(hash)
    }

    /// The hash of vector and text.
    fn hash(&self, of_vector: u128, text: &[u8]) -> u128 {
        let mut hash = self.of_text.clone();
        for chunk in text.chunks(CHUNK) {
            hash.update_padded(&self.nh.hash(chunk));
        }
        of_vector.wrapping_add(number(hash))
    }
}

/// Poly1305 of a key to which nothing is added at the end.
fn polynomial(key: &[u8; 16]) -> Poly1305 {
    let mut whole = Zeroizing::new([0; 32]);
    whole[..16].copy_from_slice(key);
    Poly1305::new((&*whole).into())
}

fn number(hash: Poly1305) -> u128 {
    let block: HashBlock = hash.finalize();
    u128::from_le_bytes(block.into())
}

/// The front of a derived key, and the rest.
fn front<const BYTES: usize>(bytes: &[u8]) -> (&[u8; BYTES], &[u8]) {
    bytes
        .split_first_chunk()
        .expect("the stream is as long as the keys")
}
