//! The list of an image's chunks.
//!
//! As an object, numbers little endian: 8 bytes `extchunk`, 4 bytes of the format (1), 4 bytes of
//! the length of a chunk, 8 bytes of the image's length, then 32 bytes for each chunk: its hash, or
//! zeros for one that is all zeros. Behind them is a byte for each chunk: its generation. The last
//! chunk is shorter if the image's length says so.

use crate::error::{Error, Result};
use crate::hash::ObjectHash;
use crate::object_name::ObjectName;
use crate::seal;

/// Bytes of a chunk, unless a push asks for others.
pub const CHUNK_BYTES: u32 = 512 << 10;

/// The least and the most bytes of a chunk.
const LEAST_CHUNK: u32 = 4 << 10;
const MOST_CHUNK: u32 = 16 << 20;
/// The most chunks of an image: their names take 528 MiB.
pub(crate) const MOST_CHUNKS: u64 = 16 << 20;
const MAGIC: [u8; 8] = *b"extchunk";
const FORMAT: u32 = 1;
const HEADER: usize = 24;
/// Bytes of a chunk's hash and generation.
const ENTRY: usize = ObjectHash::LEN + 1;

/// The chunks of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    image_bytes: u64,
    chunk_bytes: u32,
    /// `None` for a chunk that is all zeros.
    chunks: Vec<Option<ObjectName>>,
}

/// The path of a manifest in its store.
pub(crate) fn path(name: &ObjectName) -> String {
    format!("manifests/{name}")
}

/// The most bytes of the manifest of an image.
pub(crate) fn longest(image_bytes: u64) -> u64 {
    let chunks = image_bytes.div_ceil(LEAST_CHUNK.into()).min(MOST_CHUNKS);
    seal::MORE + HEADER as u64 + chunks * ENTRY as u64
}

/// The number of chunks of an image.
///
/// # Errors
/// [`Error::BadSize`].
pub(crate) fn chunk_count(image_bytes: u64, chunk_bytes: u32) -> Result<usize> {
    let bad = |what| Err(Error::BadSize { what });
    if !chunk_bytes.is_power_of_two() || !(LEAST_CHUNK..=MOST_CHUNK).contains(&chunk_bytes) {
        return bad("a chunk has 4 KiB to 16 MiB, a power of two");
    }
    let count = image_bytes.div_ceil(chunk_bytes.into());
    if count > MOST_CHUNKS {
        return bad("an image has at most 16777216 chunks: take larger ones");
    }
    Ok(usize::try_from(count).expect("a count within MOST_CHUNKS"))
}

impl Manifest {
    /// Returns whether the two are of images with the same content, in chunks of one length.
    pub(crate) fn has_content_of(&self, other: &Self) -> bool {
        let hash = |name: &Option<ObjectName>| name.map(|name| name.hash);
        let own = self.chunks.iter().map(hash);
        (self.image_bytes, self.chunk_bytes) == (other.image_bytes, other.chunk_bytes)
            && own.eq(other.chunks.iter().map(hash))
    }

    /// The manifest of an image of these chunks.
    ///
    /// # Errors
    /// [`Error::BadSize`].
    pub(crate) fn new(
        image_bytes: u64,
        chunk_bytes: u32,
        chunks: Vec<Option<ObjectName>>,
    ) -> Result<Self> {
        let count = chunk_count(image_bytes, chunk_bytes)?;
        assert_eq!(chunks.len(), count, "an entry for each chunk");
        Ok(Self {
            image_bytes,
            chunk_bytes,
            chunks,
        })
    }

    /// The image's length in bytes.
    pub fn image_bytes(&self) -> u64 {
        self.image_bytes
    }

    /// The length of a chunk in bytes, but for the last one.
    pub fn chunk_bytes(&self) -> u32 {
        self.chunk_bytes
    }

    /// The chunks in order; `None` is all zeros.
    pub fn chunks(&self) -> &[Option<ObjectName>] {
        &self.chunks
    }

    /// The length of the chunk `nth` in bytes.
    pub(crate) fn len_of(&self, nth: usize) -> usize {
        let chunk = u64::from(self.chunk_bytes);
        let left = self.image_bytes - nth as u64 * chunk;
        usize::try_from(left.min(chunk)).expect("at most MOST_CHUNK")
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.chunks.len() * ENTRY);
        bytes.extend(MAGIC);
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend(self.chunk_bytes.to_le_bytes());
        bytes.extend(self.image_bytes.to_le_bytes());
        for chunk in &self.chunks {
            let hash = chunk.as_ref().map(|name| name.hash.as_bytes());
            bytes.extend(hash.unwrap_or(&[0; ObjectHash::LEN]));
        }
        let generation = |chunk: &Option<ObjectName>| chunk.map_or(0, |name| name.generation);
        bytes.extend(self.chunks.iter().map(generation));
        bytes
    }

    /// The manifest in `bytes`, or the reason why there is none.
    pub(crate) fn from_bytes(bytes: &[u8]) -> std::result::Result<Self, String> {
        let header = bytes.first_chunk::<HEADER>().ok_or("it is too short")?;
        let (magic, rest) = header.split_at(MAGIC.len());
        let number = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("4 bytes"));
        if magic != MAGIC {
            return Err("it is no manifest".into());
        }
        if number(0) != FORMAT {
            return Err(format!("its format is {}, and 1 is known", number(0)));
        }
        let chunk_bytes = number(4);
        let image_bytes = u64::from_le_bytes(rest[8..16].try_into().expect("8 bytes"));
        let count = chunk_count(image_bytes, chunk_bytes).map_err(|error| error.to_string())?;
        if bytes.len() != HEADER + count * ENTRY {
            return Err(format!("it has not {count} chunks"));
        }
        let (hashes, generations) = bytes[HEADER..].split_at(count * ObjectHash::LEN);
        let (hashes, _) = hashes.as_chunks::<{ ObjectHash::LEN }>();
        let mut chunks = Vec::with_capacity(count);
        for (&hash, &generation) in hashes.iter().zip(generations) {
            let is_zeros = hash == [0; ObjectHash::LEN];
            if is_zeros && generation != 0 {
                return Err("a chunk of zeros has a generation".into());
            }
            let hash = ObjectHash::from_bytes(hash);
            chunks.push((!is_zeros).then_some(ObjectName { hash, generation }));
        }
        Ok(Self {
            image_bytes,
            chunk_bytes,
            chunks,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_read_as_it_is_written() {
        let a = ObjectName {
            hash: ObjectHash::of(b"a"),
            generation: 0,
        };
        let b = ObjectName {
            hash: ObjectHash::of(b"b"),
            generation: 7,
        };
        let chunks = vec![Some(a), None, Some(b)];
        let manifest = Manifest::new(10_000, 4096, chunks).unwrap();
        assert_eq!(
            [0, 1, 2].map(|nth| manifest.len_of(nth)),
            [4096, 4096, 1808]
        );
        let bytes = manifest.to_bytes();
        assert_eq!(Manifest::from_bytes(&bytes), Ok(manifest));
        for len in 0..bytes.len() {
            assert!(Manifest::from_bytes(&bytes[..len]).is_err(), "{len} bytes");
        }
        let mut other = bytes.clone();
        other[HEADER + 3 * ObjectHash::LEN + 1] = 1;
        assert!(
            Manifest::from_bytes(&other).is_err(),
            "a generation of zeros"
        );
        for at in 0..HEADER {
            let mut other = bytes.clone();
            other[at] ^= 0x80;
            // Lengths that come to as many chunks are told apart by the manifest's hash.
            let read = Manifest::from_bytes(&other);
            assert!(
                read.is_err() || (16..18).contains(&at),
                "byte {at}: {read:?}"
            );
        }
    }

    #[test]
    fn sizes_have_bounds() {
        for (image, chunk) in [
            (0, 0),
            (0, 4095),
            (0, 12 << 10),
            (0, 32 << 20),
            (1 << 60, 4096),
        ] {
            assert!(chunk_count(image, chunk).is_err(), "{image} in {chunk}");
        }
        assert_eq!(chunk_count(0, 4096).unwrap(), 0);
        assert_eq!(chunk_count(4097, 4096).unwrap(), 2);
    }
}
