//! AES-256-HCTR2 (Crowley, Huckleberry and Biggers, 2021): for names, each whole at a time.
//!
//! The text behind its first block is hashed into that block, which AES encrypts. Of what went in
//! and what came out comes the start of a counter stream (XCTR) over the text, which is then hashed
//! into the block again.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes256, Block};
use polyval::Polyval;
use polyval::universal_hash::UniversalHash;

use crate::initial_vector::VECTOR_BYTES;

/// Bytes of a block.
const BLOCK: usize = 16;

/// AES-256-HCTR2 with vectors of 32 bytes.
pub(crate) struct Hctr2 {
    aes: Aes256,
    /// The hash of nothing.
    hash: Polyval,
    /// The constant of the stream's start.
    constant: u128,
}

impl Hctr2 {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let aes = Aes256::new(key.into());
        let of_number = |number: u128| {
            let mut block = Block::from(number.to_le_bytes());
            aes.encrypt_block(&mut block);
            block
        };
        let hash = Polyval::new(&of_number(0));
        let constant = u128::from_le_bytes(of_number(1).into());
        Self {
            aes,
            hash,
            constant,
        }
    }

    /// Encrypts a text of 16 bytes at least.
    pub(crate) fn encrypt(&self, vector: &[u8; VECTOR_BYTES], text: &mut [u8]) {
        let Some((first, text)) = text.split_first_chunk_mut::<BLOCK>() else {
            debug_assert!(false, "the text has a block");
            return;
        };
        let before = u128::from_le_bytes(*first) ^ self.hash(vector, text);
        let mut block = Block::from(before.to_le_bytes());
        self.aes.encrypt_block(&mut block);
        let after = u128::from_le_bytes(block.into());
        self.stream(before ^ after ^ self.constant, text);
        *first = (after ^ self.hash(vector, text)).to_le_bytes();
    }

    /// Decrypts a text of 16 bytes at least.
    pub(crate) fn decrypt(&self, vector: &[u8; VECTOR_BYTES], text: &mut [u8]) {
        let Some((first, text)) = text.split_first_chunk_mut::<BLOCK>() else {
            debug_assert!(false, "the text has a block");
            return;
        };
        let after = u128::from_le_bytes(*first) ^ self.hash(vector, text);
        let mut block = Block::from(after.to_le_bytes());
        self.aes.decrypt_block(&mut block);
        let before = u128::from_le_bytes(block.into());
        self.stream(before ^ after ^ self.constant, text);
        *first = (before ^ self.hash(vector, text)).to_le_bytes();
    }

    /// The hash of vector and text. Its first block has the bits of the vector and says whether the
    /// text is whole blocks; if it is not, a one follows it.
    fn hash(&self, vector: &[u8; VECTOR_BYTES], text: &[u8]) -> u128 {
        let (blocks, rest) = polyval::Block::slice_as_chunks(text);
        let mut hash = self.hash.clone();
        let bits = vector.len() as u128 * 8;
        let kind = bits * 2 + if rest.is_empty() { 2 } else { 3 };
        hash.update(&[kind.to_le_bytes().into()]);
        hash.update_padded(vector);
        hash.update(blocks);
        if !rest.is_empty() {
            let mut last = polyval::Block::default();
            last[..rest.len()].copy_from_slice(rest);
            last[rest.len()] = 1;
            hash.update(&[last]);
        }
        u128::from_le_bytes(hash.finalize().into())
    }

    /// Adds the stream of `start` to a text: block by block, encrypted, the start with the block's
    /// number, from one on.
    fn stream(&self, start: u128, text: &mut [u8]) {
        for (number, part) in (1_u128..).zip(text.chunks_mut(BLOCK)) {
            let mut block = Block::from((start ^ number).to_le_bytes());
            self.aes.encrypt_block(&mut block);
            for (byte, mask) in part.iter_mut().zip(block) {
                *byte ^= mask;
            }
        }
    }
}
