//! The hash that names an object.

use std::fmt;
use std::str::FromStr;

/// BLAKE3 of an object's content. Written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectHash([u8; Self::LEN]);

impl ObjectHash {
    /// Bytes of a hash.
    pub(crate) const LEN: usize = 32;

    /// The hash of `content`.
    pub(crate) fn of(content: &[u8]) -> Self {
        Self(*blake3::hash(content).as_bytes())
    }

    /// The hash of `content` with a key.
    pub(crate) fn keyed(key: &[u8; 32], content: &[u8]) -> Self {
        Self(*blake3::keyed_hash(key, content).as_bytes())
    }

    /// A hash from its bytes.
    pub(crate) fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl fmt::Display for ObjectHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for ObjectHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no hash.
#[derive(Debug, thiserror::Error)]
#[error("a hash has 64 hexadecimal digits")]
pub struct BadHash;

impl FromStr for ObjectHash {
    type Err = BadHash;

    fn from_str(text: &str) -> Result<Self, BadHash> {
        let hash = blake3::Hash::from_hex(text).map_err(|_| BadHash)?;
        Ok(Self(*hash.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_read_as_it_is_written() {
        let hash = ObjectHash::of(b"chunk");
        assert_eq!(hash.to_string().parse::<ObjectHash>().unwrap(), hash);
        for bad in ["", "12", &"g".repeat(64), &"0".repeat(65)] {
            assert!(bad.parse::<ObjectHash>().is_err(), "{bad:?}");
        }
    }
}
