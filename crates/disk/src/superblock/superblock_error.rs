//! Why bytes are not a usable superblock.

/// Why bytes are not a usable superblock.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SuperblockError {
    /// Not 1024 bytes.
    #[error("a superblock has 1024 bytes, these are {found}")]
    WrongLength {
        /// How many there were.
        found: usize,
    },
    /// The magic number is another one.
    #[error("its magic is {found:#06x}, not 0xef53")]
    BadMagic {
        /// The value there.
        found: u16,
    },
    /// The checksum does not match.
    #[error("bad superblock checksum (stored {stored:#010x}, computed {computed:#010x})")]
    BadChecksum {
        /// As stored.
        stored: u32,
        /// As it should be.
        computed: u32,
    },
    /// A field has a value that no file system can have.
    #[error("superblock: {field} is {value}: {why}")]
    BadField {
        /// The field's name in the format, without `s_`.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The rule it breaks.
        why: &'static str,
    },
    /// The file system is larger than the device.
    #[error("truncated image: the file system has {wanted} bytes, the device only {device}")]
    Truncated {
        /// Bytes of the file system.
        wanted: u64,
        /// Bytes of the device.
        device: u64,
    },
}
