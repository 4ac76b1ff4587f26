//! The name of an object of content: its hash, and a generation.

use std::fmt;
use std::str::FromStr;

use crate::hash::ObjectHash;

/// The name of a chunk or a manifest. The same content may be there in several generations: of one
/// that is about to be removed, the next is stored. Written as the hash, with `.` and the number
/// for a generation that is not the first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ObjectName {
    /// The hash of the content.
    pub hash: ObjectHash,
    /// The generation, from 0 on.
    pub generation: u8,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.hash)?;
        match self.generation {
            0 => Ok(()),
            generation => write!(f, ".{generation}"),
        }
    }
}

/// A text that is no name of an object of content.
#[derive(Debug, thiserror::Error)]
#[error("a name has 64 hexadecimal digits, and may have '.' and a number to 255")]
pub struct BadName;

impl FromStr for ObjectName {
    type Err = BadName;

    /// Reads the one way in which a name is written.
    fn from_str(text: &str) -> Result<Self, BadName> {
        let (hash, generation) = match text.split_once('.') {
            Some((hash, number)) => (hash, number.parse().map_err(|_| BadName)?),
            None => (text, 0),
        };
        let hash = hash.parse().map_err(|_| BadName)?;
        let name = Self { hash, generation };
        (name.to_string() == text).then_some(name).ok_or(BadName)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        let hash = ObjectHash::of(b"chunk");
        for generation in [0, 1, 255] {
            let name = ObjectName { hash, generation };
            assert_eq!(name.to_string().parse::<ObjectName>().unwrap(), name);
        }
        let upper = hash.to_string().to_uppercase();
        for bad in [
            format!("{hash}."),
            format!("{hash}.0"),
            format!("{hash}.01"),
            format!("{hash}.+1"),
            format!("{hash}.256"),
            format!("{hash}.1.1"),
            upper,
            String::new(),
        ] {
            assert!(bad.parse::<ObjectName>().is_err(), "{bad:?}");
        }
    }
}
