//! A chunk as an object: one frame of zstd.
//!
//! A push compresses by the library of the format, whose frames are a fifth smaller and are made
//! several times as fast. What comes from a store is read by a decoder in Rust.

use std::io::Read;

use ruzstd::decoding::StreamingDecoder;

use crate::hash::ObjectHash;
use crate::object_name::ObjectName;
use crate::seal::{self, Seal};

/// The level of compression: the library's usual one.
const LEVEL: i32 = 3;

/// The window of the encoder, but for frames of more bytes.
const MOST_WINDOW: u64 = 2 << 20;

/// The path of a chunk in its store.
pub(crate) fn path(name: &ObjectName) -> String {
    let name = name.to_string();
    format!("chunks/{}/{name}", &name[..2])
}

/// A bound of the bytes of an object that is a chunk of `len` bytes: a block that does not
/// compress has three bytes more.
pub(crate) fn longest(len: usize) -> u64 {
    (len + len / 64 + 1024) as u64 + seal::MORE
}

/// The object of the chunk `plain`, whose hash is this.
pub(crate) fn encode(plain: &[u8], hash: &ObjectHash, seal: &Seal) -> std::io::Result<Vec<u8>> {
    Ok(seal.close(hash, zstd::bulk::compress(plain, LEVEL)?))
}

/// The chunk of `len` bytes in `object`, whose content must have this hash; an error says why it
/// is another one. Takes no more memory than a few chunks, whatever the object says.
pub(crate) fn decode(
    object: Vec<u8>,
    len: usize,
    hash: &ObjectHash,
    seal: &Seal,
) -> Result<Vec<u8>, String> {
    let frame = seal.open(hash, object)?;
    let window = MOST_WINDOW.max(len as u64);
    let decoder = StreamingDecoder::new_with_max_window_size(frame.as_slice(), window);
    let decoder = decoder.map_err(|error| error.to_string())?;
    let mut plain = Vec::with_capacity(len + 1);
    let read = decoder.take(len as u64 + 1).read_to_end(&mut plain);
    read.map_err(|error| error.to_string())?;
    if plain.len() != len {
        let than = if plain.len() < len { "fewer" } else { "more" };
        return Err(format!("it has {than} than {len} bytes"));
    }
    let found = seal.hash(&plain);
    if found != *hash {
        return Err(format!("its content has the hash {found}"));
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_comes_back_and_no_other_does() {
        let plain = [b"some bytes".repeat(500), vec![0; 3000]].concat();
        let seal = Seal::default();
        let hash = ObjectHash::of(&plain);
        let encode = |plain: &[u8]| encode(plain, &hash, &seal).unwrap();
        let decode = |object: &[u8], len, hash: &_| decode(object.to_vec(), len, hash, &seal);
        let object = encode(&plain);
        assert!(object.len() as u64 <= longest(plain.len()));
        assert_eq!(decode(&object, plain.len(), &hash).unwrap(), plain);
        for at in 0..object.len() {
            let mut torn = object.clone();
            torn[at] ^= 0x20;
            let read = decode(&torn, plain.len(), &hash);
            assert!(read.is_err() || read == Ok(plain.clone()), "byte {at}");
            assert!(
                decode(&object[..at], plain.len(), &hash).is_err(),
                "{at} bytes"
            );
        }
        let other = encode(&[1; 8000]);
        assert!(decode(&other, plain.len(), &hash).is_err());
        assert!(decode(&object, plain.len() - 1, &hash).is_err());
        assert!(decode(&object, plain.len() + 1, &hash).is_err());
    }

    #[test]
    fn a_frame_of_many_bytes_is_cut_off() {
        let (seal, hash) = (Seal::default(), ObjectHash::of(&[0; 4096]));
        let object = encode(&vec![0; 64 << 20], &hash, &seal).unwrap();
        let read = decode(object, 4096, &hash, &seal);
        assert_eq!(read, Err("it has more than 4096 bytes".into()));
    }
}
