//! The cipher of one file's contents.

use std::fmt::{Debug, Formatter, Result as Printed};

use crate::ciphers::UnitCipher;
use crate::initial_vector::VectorBase;

/// Encrypts and decrypts the data of one regular file, in whole units.
pub struct ContentsCipher {
    cipher: UnitCipher,
    base: VectorBase,
}

impl ContentsCipher {
    pub(crate) fn new(cipher: UnitCipher, base: VectorBase) -> Self {
        Self { cipher, base }
    }

    /// Encrypts `data` in place: whole units of `unit_bytes`, of which the first is the file's unit
    /// `first_unit`.
    ///
    /// # Panics
    /// If `data` is not whole units, or `unit_bytes` not a multiple of 16.
    pub fn encrypt_units(&self, first_unit: u64, unit_bytes: usize, data: &mut [u8]) {
        self.each_unit(first_unit, unit_bytes, data, |vector, unit| {
            self.cipher.encrypt(vector, unit);
        });
    }

    /// Decrypts `data` in place, as [`ContentsCipher::encrypt_units`] encrypts it.
    ///
    /// # Panics
    /// As there.
    pub fn decrypt_units(&self, first_unit: u64, unit_bytes: usize, data: &mut [u8]) {
        self.each_unit(first_unit, unit_bytes, data, |vector, unit| {
            self.cipher.decrypt(vector, unit);
        });
    }

    fn each_unit(
        &self,
        first_unit: u64,
        unit_bytes: usize,
        data: &mut [u8],
        mut step: impl FnMut(&[u8; 32], &mut [u8]),
    ) {
        assert!(
            unit_bytes >= 16 && unit_bytes.is_multiple_of(16),
            "a unit is whole blocks of the cipher"
        );
        assert!(data.len().is_multiple_of(unit_bytes), "whole units");
        for (index, unit) in (first_unit..).zip(data.chunks_exact_mut(unit_bytes)) {
            step(&self.base.vector(index), unit);
        }
    }
}

impl Debug for ContentsCipher {
    fn fmt(&self, out: &mut Formatter<'_>) -> Printed {
        out.debug_struct("ContentsCipher").finish_non_exhaustive()
    }
}
