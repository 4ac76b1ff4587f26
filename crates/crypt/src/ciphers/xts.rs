//! AES-256-XTS (IEEE 1619) of units of whole blocks.
//!
//! Blocks go through the cipher many at once, so that the CPU works on several rounds at a time:
//! their masks are computed first.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes256, Aes256Enc, Block};

/// Blocks whose masks are computed together.
const BATCH: usize = 32;

/// AES-256-XTS.
pub(crate) struct Xts {
    data: Aes256,
    tweak: Aes256Enc,
}

impl Xts {
    /// The cipher of two keys, one behind the other.
    pub(crate) fn new(key: &[u8; 64]) -> Self {
        let (halves, _) = key.as_chunks::<32>();
        Self {
            data: Aes256::new((&halves[0]).into()),
            tweak: Aes256Enc::new((&halves[1]).into()),
        }
    }

    pub(crate) fn encrypt(&self, vector: &[u8; 16], unit: &mut [u8]) {
        self.each_batch(vector, unit, |blocks| self.data.encrypt_blocks(blocks));
    }

    pub(crate) fn decrypt(&self, vector: &[u8; 16], unit: &mut [u8]) {
        self.each_batch(vector, unit, |blocks| self.data.decrypt_blocks(blocks));
    }

    /// Masks blocks, has them changed, and masks them again.
    fn each_batch(&self, vector: &[u8; 16], unit: &mut [u8], change: impl Fn(&mut [Block])) {
        let mut first = Block::from(*vector);
        self.tweak.encrypt_block(&mut first);
        let mut mask = u128::from_le_bytes(first.into());
        let (blocks, rest) = Block::slice_as_chunks_mut(unit);
        debug_assert!(rest.is_empty(), "a unit is whole blocks");
        for batch in blocks.chunks_mut(BATCH) {
            let mut masks = [0; BATCH];
            for one in &mut masks[..batch.len()] {
                *one = mask;
                mask = doubled(mask);
            }
            apply(&masks, batch);
            change(batch);
            apply(&masks, batch);
        }
    }
}

fn apply(masks: &[u128; BATCH], blocks: &mut [Block]) {
    for (block, mask) in blocks.iter_mut().zip(masks) {
        let masked = u128::from_le_bytes((*block).into()) ^ mask;
        *block = masked.to_le_bytes().into();
    }
}

/// The product with x in the field of 2^128 elements.
fn doubled(mask: u128) -> u128 {
    let carry = mask >> 127;
    (mask << 1) ^ (carry * 0x87)
}
