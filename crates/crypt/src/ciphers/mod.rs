//! The modes of policies: of contents by unit, of names by text.
//!
//! Each cipher takes a vector of 32 bytes, of which it reads as much as its mode has, and changes
//! the text in place.

mod adiantum;
mod cbc_cts;
mod cbc_essiv;
mod hctr2;
mod nh;
#[cfg(test)]
mod tests;
mod xts;

use aes::{Aes128, Aes256};

use crate::initial_vector::VECTOR_BYTES;
use crate::policy::{ContentsMode, NamesMode};
use adiantum::Adiantum;
use cbc_cts::CbcCts;
use cbc_essiv::CbcEssiv;
use hctr2::Hctr2;
use xts::Xts;

type Vector = [u8; VECTOR_BYTES];

/// A cipher of units of contents.
pub(crate) enum UnitCipher {
    Xts(Box<Xts>),
    CbcEssiv(Box<CbcEssiv>),
    Adiantum(Box<Adiantum>),
}

/// A cipher of names.
pub(crate) enum TextCipher {
    Aes256Cts(Box<CbcCts<Aes256>>),
    Aes128Cts(Box<CbcCts<Aes128>>),
    Adiantum(Box<Adiantum>),
    Hctr2(Box<Hctr2>),
}

impl UnitCipher {
    /// The cipher of `mode`, whose key has the bytes that `mode_keys.rs` says.
    pub(crate) fn new(mode: ContentsMode, key: &[u8]) -> Self {
        match mode {
            ContentsMode::Aes256Xts => Self::Xts(Box::new(Xts::new(whole(key)))),
            ContentsMode::Aes128CbcEssiv => Self::CbcEssiv(Box::new(CbcEssiv::new(whole(key)))),
            ContentsMode::Adiantum => Self::Adiantum(Box::new(Adiantum::new(whole(key)))),
        }
    }

    /// Encrypts a unit, of whole blocks of 16 bytes.
    pub(crate) fn encrypt(&self, vector: &Vector, unit: &mut [u8]) {
        match self {
            Self::Xts(cipher) => cipher.encrypt(short(vector), unit),
            Self::CbcEssiv(cipher) => cipher.encrypt(short(vector), unit),
            Self::Adiantum(cipher) => cipher.encrypt(vector, unit),
        }
    }

    /// Decrypts a unit.
    pub(crate) fn decrypt(&self, vector: &Vector, unit: &mut [u8]) {
        match self {
            Self::Xts(cipher) => cipher.decrypt(short(vector), unit),
            Self::CbcEssiv(cipher) => cipher.decrypt(short(vector), unit),
            Self::Adiantum(cipher) => cipher.decrypt(vector, unit),
        }
    }
}

impl TextCipher {
    /// The cipher of `mode`, whose key has the bytes that `mode_keys.rs` says.
    pub(crate) fn new(mode: NamesMode, key: &[u8]) -> Self {
        match mode {
            NamesMode::Aes256Cts => Self::Aes256Cts(Box::new(CbcCts::new(key))),
            NamesMode::Aes128Cts => Self::Aes128Cts(Box::new(CbcCts::new(key))),
            NamesMode::Adiantum => Self::Adiantum(Box::new(Adiantum::new(whole(key)))),
            NamesMode::Aes256Hctr2 => Self::Hctr2(Box::new(Hctr2::new(whole(key)))),
        }
    }

    /// Encrypts a text of 16 bytes at least.
    pub(crate) fn encrypt(&self, vector: &Vector, text: &mut [u8]) {
        match self {
            Self::Aes256Cts(cipher) => cipher.encrypt(short(vector), text),
            Self::Aes128Cts(cipher) => cipher.encrypt(short(vector), text),
            Self::Adiantum(cipher) => cipher.encrypt(vector, text),
            Self::Hctr2(cipher) => cipher.encrypt(vector, text),
        }
    }

    /// Decrypts a text of 16 bytes at least.
    pub(crate) fn decrypt(&self, vector: &Vector, text: &mut [u8]) {
        match self {
            Self::Aes256Cts(cipher) => cipher.decrypt(short(vector), text),
            Self::Aes128Cts(cipher) => cipher.decrypt(short(vector), text),
            Self::Adiantum(cipher) => cipher.decrypt(vector, text),
            Self::Hctr2(cipher) => cipher.decrypt(vector, text),
        }
    }
}

/// The front of a vector, for modes that read 16 bytes.
fn short(vector: &Vector) -> &[u8; 16] {
    let (front, _) = vector.split_first_chunk().expect("a vector has 32 bytes");
    front
}

/// A key as the array that its mode has; its length is the mode's.
fn whole<const BYTES: usize>(key: &[u8]) -> &[u8; BYTES] {
    key.try_into().expect("a key is as long as its mode says")
}
