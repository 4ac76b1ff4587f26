//! AES-CBC with ciphertext stealing: the last two blocks are swapped always (NIST's CBC-CS3).
//!
//! A text of one block has nothing to swap and is plain CBC, which [`cts`] has otherwise.

use aes::cipher::{
    Block, BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt,
    BlockSizeUser, InnerIvInit, KeyInit, consts::U16,
};
use cts::{CbcCs3, Decrypt, Encrypt};

/// AES-CBC-CTS with the keys of `Aes`.
pub(crate) struct CbcCts<Aes> {
    aes: Aes,
}

impl<Aes> CbcCts<Aes>
where
    Aes: KeyInit + BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
{
    /// The cipher of a key as long as that of `Aes`.
    pub(crate) fn new(key: &[u8]) -> Self {
        let aes = Aes::new_from_slice(key).expect("a key is as long as its mode says");
        Self { aes }
    }

    /// Encrypts a text of 16 bytes at least.
    pub(crate) fn encrypt(&self, vector: &[u8; 16], text: &mut [u8]) {
        let vector = Block::<Aes>::from(*vector);
        match <&mut Block<Aes>>::try_from(&mut *text) {
            Ok(one) => cbc::Encryptor::inner_iv_init(&self.aes, &vector).encrypt_block(one),
            Err(_) => {
                let done = CbcCs3::inner_iv_init(&self.aes, &vector).encrypt(text);
                debug_assert!(done.is_ok(), "the text has a block");
            }
        }
    }

    /// Decrypts a text of 16 bytes at least.
    pub(crate) fn decrypt(&self, vector: &[u8; 16], text: &mut [u8]) {
        let vector = Block::<Aes>::from(*vector);
        match <&mut Block<Aes>>::try_from(&mut *text) {
            Ok(one) => cbc::Decryptor::inner_iv_init(&self.aes, &vector).decrypt_block(one),
            Err(_) => {
                let done = CbcCs3::inner_iv_init(&self.aes, &vector).decrypt(text);
                debug_assert!(done.is_ok(), "the text has a block");
            }
        }
    }
}
