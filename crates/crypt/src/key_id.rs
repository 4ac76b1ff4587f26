//! Names of master keys, as policies have them.

use std::fmt::{Display, Formatter, Result as Printed};
use std::str::FromStr;

/// The name of a master key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum KeyId {
    /// The name in a policy of version 1: any eight bytes that the key was added under.
    Descriptor([u8; 8]),
    /// The name in a policy of version 2: sixteen bytes derived from the key.
    Identifier([u8; 16]),
}

/// A text that names no key.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("the name of a key has 16 or 32 hexadecimal digits")]
pub struct BadKeyId;

impl KeyId {
    /// Its bytes: 8 or 16.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Descriptor(bytes) => bytes,
            Self::Identifier(bytes) => bytes,
        }
    }
}

impl Display for KeyId {
    fn fmt(&self, out: &mut Formatter<'_>) -> Printed {
        self.bytes()
            .iter()
            .try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl FromStr for KeyId {
    type Err = BadKeyId;

    fn from_str(text: &str) -> Result<Self, BadKeyId> {
        let digit = |byte: &u8| {
            let value = char::from(*byte).to_digit(16).ok_or(BadKeyId)?;
            u8::try_from(value).map_err(|_| BadKeyId)
        };
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let bytes: Result<Vec<u8>, BadKeyId> = pairs
            .iter()
            .map(|[high, low]| Ok(digit(high)? << 4 | digit(low)?))
            .collect();
        let bytes = bytes?;
        if let (Ok(descriptor), []) = (bytes.as_slice().try_into(), rest) {
            return Ok(Self::Descriptor(descriptor));
        }
        match (bytes.try_into(), rest) {
            (Ok(identifier), []) => Ok(Self::Identifier(identifier)),
            _ => Err(BadKeyId),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BadKeyId, KeyId};

    #[test]
    fn names_are_read_as_they_are_printed() {
        let short = KeyId::Descriptor([0, 1, 0x2a, 0xff, 4, 5, 6, 7]);
        assert_eq!(short.to_string(), "00012aff04050607");
        assert_eq!("00012AfF04050607".parse(), Ok(short));
        let long = KeyId::Identifier(std::array::from_fn(|at| 0xf0 ^ u8::try_from(at).unwrap()));
        assert_eq!(long.to_string().parse(), Ok(long));
        for bad in [
            "",
            "0",
            "00012aff0405060",
            "00012aff040506078",
            "00012aff0405060g",
            "+0012aff04050607",
            "00012aff0405060ä",
        ] {
            assert_eq!(bad.parse::<KeyId>(), Err(BadKeyId), "{bad:?}");
        }
    }
}
