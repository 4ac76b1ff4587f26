//! Encryption policies: modes, padding, key and initialization vectors of a tree.
//!
//! A policy stands at the front of each context. There its first byte is 1 or 2, the version; the
//! ioctls that set a policy and report it count the first version as 0.

use crate::key_id::KeyId;

/// The first byte of a context whose key has a descriptor.
pub(crate) const VERSION_1: u8 = 1;
/// The first byte of a context whose key has an identifier.
pub(crate) const VERSION_2: u8 = 2;
/// The first byte of a policy of version 1 in an ioctl.
const IOCTL_VERSION_1: u8 = 0;
/// Bits of the flags that say the padding.
const PADDING_BITS: u8 = 3;
const DIRECT_KEY: u8 = 4;
const INO_LBLK_64: u8 = 8;
const INO_LBLK_32: u8 = 0x10;
/// The smallest unit of contents is a sector.
const MIN_LOG2_DATA_UNIT: u8 = 9;
/// Larger units than the largest block do not occur.
const MAX_LOG2_DATA_UNIT: u8 = 16;

/// The encryption of the contents of regular files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ContentsMode {
    /// AES-256-XTS, the usual one.
    Aes256Xts = 1,
    /// AES-128-CBC with ESSIV.
    Aes128CbcEssiv = 5,
    /// Adiantum, for processors without instructions for AES.
    Adiantum = 9,
}

/// The encryption of names, and of the targets of symbolic links.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum NamesMode {
    /// AES-256-CBC with ciphertext stealing, the usual one.
    Aes256Cts = 4,
    /// AES-128-CBC with ciphertext stealing.
    Aes128Cts = 6,
    /// Adiantum.
    Adiantum = 9,
    /// AES-256-HCTR2.
    Aes256Hctr2 = 10,
}

/// The multiple of bytes that an encrypted name is long.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Padding {
    /// 4 bytes.
    Four,
    /// 8 bytes.
    Eight,
    /// 16 bytes.
    Sixteen,
    /// 32 bytes, which tells the least.
    ThirtyTwo,
}

/// Keys and initialization vectors of the inodes of a policy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ivs {
    /// Each inode has a key, derived with its nonce.
    PerFileKey,
    /// One key for all; the nonce is in each vector (`DIRECT_KEY`).
    DirectKey,
    /// One key for a volume; the inode number is in each vector (`IV_INO_LBLK_64`).
    InoLblk64,
    /// One key for a volume; a hash of the inode number is added to each vector
    /// (`IV_INO_LBLK_32`).
    InoLblk32,
}

/// The encryption policy of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Policy {
    /// The mode of regular files' contents.
    pub contents: ContentsMode,
    /// The mode of names and targets.
    pub names: NamesMode,
    /// The multiple of bytes of names.
    pub padding: Padding,
    /// The master key. A descriptor makes the policy one of version 1.
    pub key: KeyId,
    /// Keys and vectors of inodes.
    pub ivs: Ivs,
    /// The logarithm of the bytes of a unit of contents; 0 for the volume's block.
    pub log2_data_unit: u8,
}

/// Why a policy is not allowed.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadPolicy {
    /// Not the length of a policy.
    #[error("an encryption policy has not {0} bytes")]
    Length(usize),
    /// An unknown version.
    #[error("encryption policy of unknown version {0}")]
    Version(u8),
    /// Modes of SM4.
    #[error("encryption by SM4 is not supported (modes {contents} and {names})")]
    Sm4 {
        /// The number of the mode of contents.
        contents: u8,
        /// The number of the mode of names.
        names: u8,
    },
    /// Modes that do not exist, or not together.
    #[error("encryption modes {contents} and {names} are no pair of this version")]
    Modes {
        /// The number of the mode of contents.
        contents: u8,
        /// The number of the mode of names.
        names: u8,
    },
    /// Flags that do not exist, or not together.
    #[error("encryption flags {0:#x} are not allowed")]
    Flags(u8),
    /// `DIRECT_KEY` with another mode than Adiantum.
    #[error("encryption with a direct key needs Adiantum")]
    DirectKey,
    /// A key of the volume and vectors of inode numbers with another mode than AES-256-XTS.
    #[error("encryption with vectors of inode numbers needs AES-256-XTS")]
    InodeNumbers,
    /// Bytes that are to be zero.
    #[error("reserved bytes of the encryption policy are in use")]
    Reserved,
    /// A unit that is smaller than a sector or larger than any block.
    #[error("no unit of encryption has 2^{0} bytes")]
    DataUnit(u8),
}

impl Policy {
    /// The usual policy: AES-256-XTS and AES-256-CBC-CTS, names filled up to 32 bytes, a key for
    /// each inode.
    #[must_use]
    pub const fn usual(key: KeyId) -> Self {
        Self {
            contents: ContentsMode::Aes256Xts,
            names: NamesMode::Aes256Cts,
            padding: Padding::ThirtyTwo,
            key,
            ivs: Ivs::PerFileKey,
            log2_data_unit: 0,
        }
    }
}

impl ContentsMode {
    fn of_number(number: u8) -> Option<Self> {
        let all = [Self::Aes256Xts, Self::Aes128CbcEssiv, Self::Adiantum];
        all.into_iter().find(|mode| mode.number() == number)
    }

    /// Its number in a policy.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }
}

impl NamesMode {
    fn of_number(number: u8) -> Option<Self> {
        let all = [
            Self::Aes256Cts,
            Self::Aes128Cts,
            Self::Adiantum,
            Self::Aes256Hctr2,
        ];
        all.into_iter().find(|mode| mode.number() == number)
    }

    /// Its number in a policy.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }
}

impl Padding {
    const ALL: [Self; 4] = [Self::Four, Self::Eight, Self::Sixteen, Self::ThirtyTwo];

    /// Its bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        4 << self as u8
    }

    /// The padding of so many bytes.
    #[must_use]
    pub fn of_bytes(bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|all| all.bytes() == bytes)
    }
}

impl Policy {
    /// Returns whether Linux allows the policy.
    ///
    /// # Errors
    /// [`BadPolicy`], if not.
    pub fn check(&self) -> Result<(), BadPolicy> {
        let is_first = matches!(self.key, KeyId::Descriptor(_));
        let is_pair = match (self.contents, self.names) {
            (ContentsMode::Aes256Xts, NamesMode::Aes256Cts)
            | (ContentsMode::Aes128CbcEssiv, NamesMode::Aes128Cts)
            | (ContentsMode::Adiantum, NamesMode::Adiantum) => true,
            (ContentsMode::Aes256Xts, NamesMode::Aes256Hctr2) => !is_first,
            _ => false,
        };
        if !is_pair {
            return Err(BadPolicy::Modes {
                contents: self.contents.number(),
                names: self.names.number(),
            });
        }
        match self.ivs {
            Ivs::DirectKey if self.contents != ContentsMode::Adiantum => {
                return Err(BadPolicy::DirectKey);
            }
            Ivs::InoLblk64 | Ivs::InoLblk32 if is_first => {
                return Err(BadPolicy::Flags(self.flags()));
            }
            Ivs::InoLblk64 | Ivs::InoLblk32 if self.contents != ContentsMode::Aes256Xts => {
                return Err(BadPolicy::InodeNumbers);
            }
            _ => {}
        }
        match self.log2_data_unit {
            0 => Ok(()),
            MIN_LOG2_DATA_UNIT..=MAX_LOG2_DATA_UNIT if !is_first => Ok(()),
            other => Err(BadPolicy::DataUnit(other)),
        }
    }

    /// Returns whether a volume of such blocks can have the policy. Units are no larger than
    /// blocks, and no smaller where their index has 32 bits of a vector, as that of a block has.
    #[must_use]
    pub fn fits(&self, block_size: u32) -> bool {
        let unit = u32::from(self.log2_data_unit);
        match self.ivs {
            _ if unit == 0 => true,
            Ivs::PerFileKey | Ivs::DirectKey => unit <= block_size.ilog2(),
            Ivs::InoLblk64 | Ivs::InoLblk32 => unit == block_size.ilog2(),
        }
    }

    /// Bytes of a unit of contents on a volume of such blocks.
    #[must_use]
    pub fn unit_bytes(&self, block_size: u32) -> u32 {
        match self.log2_data_unit {
            0 => block_size,
            unit => 1_u32.checked_shl(unit.into()).unwrap_or(block_size),
        }
    }

    /// The policy in the argument of an ioctl: 12 bytes of version 1, 24 of version 2.
    ///
    /// # Errors
    /// [`BadPolicy`] if it is none, or one that is not allowed.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadPolicy> {
        let length = BadPolicy::Length(bytes.len());
        let version = match *bytes.first().ok_or(length)? {
            IOCTL_VERSION_1 => VERSION_1,
            VERSION_2 => VERSION_2,
            other => return Err(BadPolicy::Version(other)),
        };
        let mut bytes = bytes.to_vec();
        bytes[0] = version;
        Self::of_context(&bytes)
    }

    /// The policy as an ioctl has it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.to_context();
        if bytes[0] == VERSION_1 {
            bytes[0] = IOCTL_VERSION_1;
        }
        bytes
    }

    /// Bytes of a policy of `version`.
    pub(crate) fn bytes_of(version: u8) -> usize {
        if version == VERSION_1 { 12 } else { 24 }
    }

    /// The policy at the front of a context.
    pub(crate) fn of_context(bytes: &[u8]) -> Result<Self, BadPolicy> {
        let length = BadPolicy::Length(bytes.len());
        let (&[version, contents, names, flags], rest) = bytes.split_first_chunk().ok_or(length)?;
        let (key, log2_data_unit, reserved) = match version {
            VERSION_1 => {
                let descriptor = rest.try_into().map_err(|_| length)?;
                (KeyId::Descriptor(descriptor), 0, [0; 3])
            }
            VERSION_2 => {
                let (&[unit, r0, r1, r2], id) = rest.split_first_chunk().ok_or(length)?;
                let identifier = id.try_into().map_err(|_| length)?;
                (KeyId::Identifier(identifier), unit, [r0, r1, r2])
            }
            other => return Err(BadPolicy::Version(other)),
        };
        if reserved != [0; 3] {
            return Err(BadPolicy::Reserved);
        }
        let modes = ContentsMode::of_number(contents).zip(NamesMode::of_number(names));
        let (contents, names) = modes.ok_or(match (contents, names) {
            (7, 8) => BadPolicy::Sm4 { contents, names },
            _ => BadPolicy::Modes { contents, names },
        })?;
        let policy = Self {
            contents,
            names,
            padding: Padding::ALL[usize::from(flags & PADDING_BITS)],
            key,
            ivs: match flags & !PADDING_BITS {
                0 => Ivs::PerFileKey,
                DIRECT_KEY => Ivs::DirectKey,
                INO_LBLK_64 => Ivs::InoLblk64,
                INO_LBLK_32 => Ivs::InoLblk32,
                _ => return Err(BadPolicy::Flags(flags)),
            },
            log2_data_unit,
        };
        policy.check()?;
        Ok(policy)
    }

    /// The policy as it stands at the front of a context.
    pub(crate) fn to_context(self) -> Vec<u8> {
        let mut bytes = vec![
            VERSION_1,
            self.contents.number(),
            self.names.number(),
            self.flags(),
        ];
        if let KeyId::Identifier(_) = self.key {
            bytes[0] = VERSION_2;
            bytes.extend([self.log2_data_unit, 0, 0, 0]);
        }
        bytes.extend_from_slice(self.key.bytes());
        bytes
    }

    fn flags(&self) -> u8 {
        let ivs = match self.ivs {
            Ivs::PerFileKey => 0,
            Ivs::DirectKey => DIRECT_KEY,
            Ivs::InoLblk64 => INO_LBLK_64,
            Ivs::InoLblk32 => INO_LBLK_32,
        };
        ivs | self.padding as u8
    }
}
