//! The hash functions of indexed directories.
//!
//! An htree orders names by a 32-bit major hash whose lowest bit is kept free (the index uses it as
//! the collision bit) and a 32-bit minor hash. Three algorithms exist, each in two variants that
//! differ in whether a name's bytes are sign-extended: what C's `char` was on the machine that made
//! the directory, recorded since in the superblock's `s_flags`. `s_hash_seed` replaces the usual
//! start value unless it is all zeros. SipHash (version 6) belongs to case-folded encrypted
//! directories and is refused by name.
//!
//! Pure arithmetic: no state, no locks, linear in the length of the name.

/// The algorithm of an index, without the signedness of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum HashAlgorithm {
    /// The first one: multiply and add. Has no minor hash.
    Legacy,
    /// Three rounds of eight steps of MD4. The default of `mke2fs`.
    HalfMd4,
    /// Sixteen rounds of the Tiny Encryption Algorithm per 16 bytes.
    Tea,
}

impl HashAlgorithm {
    /// The algorithm of an on-disk version, 0 to 5.
    ///
    /// # Errors
    /// Versions above 5.
    pub const fn from_version(version: u8) -> Result<Self, HashError> {
        match version {
            0 | 3 => Ok(Self::Legacy),
            1 | 4 => Ok(Self::HalfMd4),
            2 | 5 => Ok(Self::Tea),
            6 => Err(HashError::SipHash),
            other => Err(HashError::Unknown(other)),
        }
    }

    /// The version to store in a new index; the superblock says whether bytes are signed.
    pub const fn version(self) -> u8 {
        match self {
            Self::Legacy => 0,
            Self::HalfMd4 => 1,
            Self::Tea => 2,
        }
    }
}

/// Why a hash version cannot be used.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashError {
    /// SipHash: needs case folding and encryption.
    #[error("directory hash version 6 (siphash) is not supported")]
    SipHash,
    /// No such version.
    #[error("unknown directory hash version {0}")]
    Unknown(u8),
}

/// A name's place in an index. Ordered by `major`, then `minor`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct DirHash {
    /// The index's key: even, and never above [`DirHash::MAX_MAJOR`].
    pub major: u32,
    /// Orders names of equal major hash for readers; not stored in the index.
    pub minor: u32,
}

impl DirHash {
    /// The largest major hash. The even number above is kept as the end mark of readers' positions.
    pub const MAX_MAJOR: u32 = 0xffff_fffc;

    /// The hash that an entry has stored.
    #[must_use]
    pub fn stored(major: u32, minor: u32) -> Self {
        Self {
            major: (major & !1).min(Self::MAX_MAJOR),
            minor,
        }
    }
}

/// Hashes the names of one directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirHasher {
    algorithm: HashAlgorithm,
    unsigned: bool,
    seed: Option<[u32; 4]>,
    folded: bool,
}

impl DirHasher {
    /// The hasher for an on-disk version: `s_def_hash_version` or a root's `hash_version`, 0 to 5.
    ///
    /// Versions 3 to 5 are unsigned by themselves; 0 to 2 follow `unsigned`, the superblock's
    /// "unsigned directory hash" flag (bit 1 of `s_flags`). A `seed` of zeros means no seed.
    ///
    /// # Errors
    /// Versions above 5.
    pub fn new(version: u8, unsigned: bool, seed: [u32; 4]) -> Result<Self, HashError> {
        let algorithm = HashAlgorithm::from_version(version)?;
        Ok(Self::with(algorithm, unsigned || version > 2, seed))
    }

    /// The hasher for an algorithm with signed or unsigned bytes. A `seed` of zeros means no seed.
    #[must_use]
    pub fn with(algorithm: HashAlgorithm, unsigned: bool, seed: [u32; 4]) -> Self {
        Self {
            algorithm,
            unsigned,
            seed: (seed != [0; 4]).then_some(seed),
            folded: false,
        }
    }

    /// The same of a directory that hashes the [`extant_casefold::key`]s of its names, if `folded`.
    #[must_use]
    pub const fn folding(self, folded: bool) -> Self {
        Self { folded, ..self }
    }

    /// The algorithm in use.
    pub const fn algorithm(&self) -> HashAlgorithm {
        self.algorithm
    }

    /// The hash of `name`.
    #[must_use]
    pub fn hash(&self, name: &[u8]) -> DirHash {
        if self.folded {
            return self.hash_as_it_is(&extant_casefold::key(name));
        }
        self.hash_as_it_is(name)
    }

    fn hash_as_it_is(&self, name: &[u8]) -> DirHash {
        let (major, minor) = match self.algorithm {
            HashAlgorithm::Legacy => (self.legacy(name), 0),
            HashAlgorithm::HalfMd4 => {
                let state = self.chain::<8>(name, half_md4);
                (state[1], state[2])
            }
            HashAlgorithm::Tea => {
                let state = self.chain::<4>(name, tea);
                (state[0], state[1])
            }
        };
        DirHash {
            major: (major & !1).min(DirHash::MAX_MAJOR),
            minor,
        }
    }

    /// A byte as the arithmetic of this directory sees it.
    #[inline]
    fn widen(&self, byte: u8) -> u32 {
        if self.unsigned {
            u32::from(byte)
        } else {
            i32::from(byte.cast_signed()).cast_unsigned()
        }
    }

    fn legacy(&self, name: &[u8]) -> u32 {
        const FACTOR: u32 = 7_152_373;
        let (mut newer, mut older) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
        for &byte in name {
            let mut mixed = older.wrapping_add(newer ^ self.widen(byte).wrapping_mul(FACTOR));
            if mixed >> 31 != 0 {
                mixed = mixed.wrapping_sub(0x7fff_ffff);
            }
            (newer, older) = (mixed, newer);
        }
        newer << 1
    }

    /// Runs `step` over `name` in pieces of `N` words.
    fn chain<const N: usize>(&self, name: &[u8], step: fn(&mut [u32; 4], &[u32; N])) -> [u32; 4] {
        // Without a seed of the volume: the initial state of MD4.
        let mut state = self
            .seed
            .unwrap_or([0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476]);
        let mut rest = name;
        while !rest.is_empty() {
            step(&mut state, &self.words(rest));
            // Behind a last piece of fewer words there is nothing.
            rest = rest.get(N * 4..).unwrap_or_default();
        }
        state
    }

    /// The first `4 * N` bytes of `rest` as words, the first byte highest. What is missing is
    /// filled with the length of `rest` repeated in every byte; a last, partial word is shifted
    /// into that filler.
    fn words<const N: usize>(&self, rest: &[u8]) -> [u32; N] {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "it counts where less than a step is left"
        )]
        let filler = u32::from(rest.len() as u8).wrapping_mul(0x0101_0101);
        let mut words = [filler; N];
        for (word, bytes) in words.iter_mut().zip(rest.chunks(4)) {
            *word = match bytes.try_into().map(u32::from_be_bytes) {
                // Four bytes without a sign.
                Ok(whole) if self.unsigned || whole & 0x8080_8080 == 0 => whole,
                // Added, not or-ed: a sign-extended byte borrows from those before it.
                _ => bytes.iter().fold(filler, |sum, &byte| {
                    (sum << 8).wrapping_add(self.widen(byte))
                }),
            };
        }
        words
    }
}

/// One compression step of the halved MD4: 24 of its 48 operations, on eight words.
fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    let choose = |x: u32, y, z| (x & y) | (!x & z);
    let majority = |x: u32, y, z| (x & y) | (x & z) | (y & z);
    let parity = |x: u32, y, z| x ^ y ^ z;
    let [a, b, c, d, e, f, g, h] = *input;
    let next = md4_round(*state, choose, [a, b, c, d, e, f, g, h], [3, 7, 11, 19]);
    let input = [b, d, f, h, a, c, e, g].map(|word| word.wrapping_add(0x5a82_7999));
    let next = md4_round(next, majority, input, [3, 5, 9, 13]);
    let input = [d, h, c, g, b, f, a, e].map(|word| word.wrapping_add(0x6ed9_eba1));
    let next = md4_round(next, parity, input, [3, 9, 11, 15]);
    for (sum, value) in state.iter_mut().zip(next) {
        *sum = sum.wrapping_add(value);
    }
}

/// One round: eight operations, each with its word and its rotation.
#[inline(always)]
fn md4_round(
    [mut a, mut b, mut c, mut d]: [u32; 4],
    mix: impl Fn(u32, u32, u32) -> u32,
    words: [u32; 8],
    rotations: [u32; 4],
) -> [u32; 4] {
    for (word, rotation) in words.into_iter().zip(rotations.into_iter().cycle()) {
        let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(word);
        (a, b, c, d) = (d, sum.rotate_left(rotation), b, c);
    }
    [a, b, c, d]
}

/// Sixteen rounds of TEA with `key`, added to the first two words of the state.
fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    const DELTA: u32 = 0x9e37_79b9;
    let [mut left, mut right, ..] = *state;
    let mut sum = 0_u32;
    let half = |other: u32, sum: u32, k0: u32, k1: u32| {
        (other << 4).wrapping_add(k0) ^ other.wrapping_add(sum) ^ (other >> 5).wrapping_add(k1)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        left = left.wrapping_add(half(right, sum, key[0], key[1]));
        right = right.wrapping_add(half(left, sum, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(left);
    state[1] = state[1].wrapping_add(right);
}

#[cfg(test)]
mod tests;
