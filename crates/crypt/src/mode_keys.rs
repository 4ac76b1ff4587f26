//! The lengths of keys that modes need.

use crate::policy::{ContentsMode, NamesMode};

/// A mode as keys are derived for it.
#[derive(Clone, Copy)]
pub(crate) struct ModeKeys {
    /// The name in messages.
    pub(crate) name: &'static str,
    /// The number in policies.
    pub(crate) number: u8,
    /// Bytes of its key.
    pub(crate) key_bytes: usize,
    /// Bytes of security, which a master key of version 2 has at least.
    pub(crate) strength_bytes: usize,
}

impl ModeKeys {
    /// The keys of a mode of contents.
    pub(crate) fn of_contents(mode: ContentsMode) -> Self {
        let (name, key_bytes, strength_bytes) = match mode {
            ContentsMode::Aes256Xts => ("AES-256-XTS", 64, 32),
            ContentsMode::Aes128CbcEssiv => ("AES-128-CBC-ESSIV", 16, 16),
            ContentsMode::Adiantum => ("Adiantum", 32, 32),
        };
        let number = mode.number();
        Self {
            name,
            number,
            key_bytes,
            strength_bytes,
        }
    }

    /// The keys of a mode of names.
    pub(crate) fn of_names(mode: NamesMode) -> Self {
        let (name, bytes) = match mode {
            NamesMode::Aes256Cts => ("AES-256-CBC-CTS", 32),
            NamesMode::Aes128Cts => ("AES-128-CBC-CTS", 16),
            NamesMode::Adiantum => ("Adiantum", 32),
            NamesMode::Aes256Hctr2 => ("AES-256-HCTR2", 32),
        };
        let number = mode.number();
        Self {
            name,
            number,
            key_bytes: bytes,
            strength_bytes: bytes,
        }
    }
}
