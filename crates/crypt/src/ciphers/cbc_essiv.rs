//! AES-128-CBC with ESSIV: the vector is encrypted first, with the digest of the key.

use aes::cipher::{BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, InnerIvInit, KeyInit};
use aes::{Aes128, Aes256Enc, Block};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// AES-128-CBC-ESSIV.
pub(crate) struct CbcEssiv {
    data: Aes128,
    vectors: Aes256Enc,
}

impl CbcEssiv {
    pub(crate) fn new(key: &[u8; 16]) -> Self {
        let digest = Zeroizing::new(<[u8; 32]>::from(Sha256::digest(key)));
        Self {
            data: Aes128::new(key.into()),
            vectors: Aes256Enc::new((&*digest).into()),
        }
    }

    pub(crate) fn encrypt(&self, vector: &[u8; 16], unit: &mut [u8]) {
        let (blocks, rest) = Block::slice_as_chunks_mut(unit);
        debug_assert!(rest.is_empty(), "a unit is whole blocks");
        cbc::Encryptor::inner_iv_init(&self.data, &self.first(vector)).encrypt_blocks(blocks);
    }

    pub(crate) fn decrypt(&self, vector: &[u8; 16], unit: &mut [u8]) {
        let (blocks, rest) = Block::slice_as_chunks_mut(unit);
        debug_assert!(rest.is_empty(), "a unit is whole blocks");
        cbc::Decryptor::inner_iv_init(&self.data, &self.first(vector)).decrypt_blocks(blocks);
    }

    /// The encrypted vector.
    fn first(&self, vector: &[u8; 16]) -> Block {
        let mut first = Block::from(*vector);
        self.vectors.encrypt_block(&mut first);
        first
    }
}
