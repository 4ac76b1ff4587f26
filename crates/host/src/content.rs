//! File contents that prove themselves: any byte can be recomputed from a seed and its position.
//!
//! No byte is ever zero or [`JUNK`], so that a hole, a file's own bytes and what lay on the disk
//! before (see [`crate::image::Maker::junk`]) can be distinguished.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::SeekFrom;

use crate::error::{Context, Result};
use crate::rng::Rng;

/// The byte that fills images before mke2fs, for tests that look for stale bytes.
pub const JUNK: u8 = 0xee;

/// The 8 bytes at positions `8 * word ..` of the content of `seed`.
fn word(seed: u64, word: u64) -> [u8; 8] {
    let z = Rng::new(seed ^ word.wrapping_mul(0xd6e8_feb8_6659_fd93)).next_u64();
    let mut bytes = z.to_le_bytes();
    for byte in &mut bytes {
        if *byte == 0 || *byte == JUNK {
            *byte = 0x55;
        }
    }
    bytes
}

/// The content of `seed` in `pos .. pos + len`.
pub fn fill(seed: u64, pos: u64, len: usize) -> Vec<u8> {
    let lead = usize::try_from(pos % 8).unwrap_or(0);
    let mut out = vec![0; (len + lead).next_multiple_of(8)];
    for (bytes, at) in out.chunks_exact_mut(8).zip(pos / 8..) {
        bytes.copy_from_slice(&word(seed, at));
    }
    out.drain(..lead);
    out.truncate(len);
    out
}

/// Compares `bytes`, found at `pos`, with the content of `seed`; the first wrong position.
pub fn first_wrong(seed: u64, pos: u64, bytes: &[u8]) -> Option<u64> {
    first_where(seed, pos, bytes, |want, got| want != got)
}

/// The first position whose byte is neither the content's nor zero: a stale or foreign byte.
pub fn first_foreign(seed: u64, pos: u64, bytes: &[u8]) -> Option<u64> {
    first_where(seed, pos, bytes, |want, got| got != 0 && want != got)
}

fn first_where(seed: u64, pos: u64, bytes: &[u8], bad: impl Fn(u8, u8) -> bool) -> Option<u64> {
    let want = fill(seed, pos, bytes.len());
    let at = want.iter().zip(bytes).position(|(w, g)| bad(*w, *g))?;
    Some(pos + at as u64)
}

/// A 64-bit hash of bytes, for comparing trees (not against an adversary).
#[derive(Clone, Debug)]
pub struct Hasher(std::hash::DefaultHasher);

impl Default for Hasher {
    fn default() -> Self {
        Hasher(std::hash::DefaultHasher::new())
    }
}

impl Hasher {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        std::hash::Hasher::write(&mut self.0, bytes);
    }

    /// The hash of all bytes added.
    pub fn end(&self) -> u64 {
        std::hash::Hasher::finish(&self.0)
    }
}

/// Bytes looked at together.
const CHUNK: usize = 1 << 17;
/// Files up to this size are read from end to end; in larger ones holes are skipped.
const READ_WHOLE: u64 = 16 << 20;

/// The hash of a file's bytes. Zeros count the same whether they are stored or a hole.
pub fn hash_file(path: &Path) -> Result<u64> {
    let f = File::open(path).context(|| path.display())?;
    let size = f.metadata()?.len();
    let mut h = Hasher::default();
    h.add(&size.to_le_bytes());
    let mut buf = vec![0u8; CHUNK];
    let mut pos = 0u64;
    loop {
        if size > READ_WHOLE {
            match rustix::fs::seek(&f, SeekFrom::Data(pos)) {
                Ok(data) => pos = data - data % CHUNK as u64,
                Err(rustix::io::Errno::NXIO) => return Ok(h.end()),
                Err(e) => return Err(e).context(|| format!("SEEK_DATA in {}", path.display())),
            }
        }
        let n = read_chunk(&f, pos, &mut buf).context(|| format!("reading {}", path.display()))?;
        let chunk = buf.get(..n).unwrap_or(&[]);
        if chunk.is_empty() {
            return Ok(h.end());
        }
        if chunk.iter().any(|b| *b != 0) {
            h.add(&pos.to_le_bytes());
            h.add(chunk);
        }
        pos += CHUNK as u64;
    }
}

/// Fills `buf` from `pos` on, short only at the end of the file.
fn read_chunk(f: &File, pos: u64, buf: &mut [u8]) -> std::io::Result<usize> {
    let mut n = 0;
    while let Some(rest) = buf.get_mut(n..).filter(|r| !r.is_empty()) {
        match f.read_at(rest, pos + n as u64)? {
            0 => break,
            got => n += got,
        }
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::{JUNK, fill, first_foreign, first_wrong};

    #[test]
    fn any_window_agrees_with_the_whole() {
        let all = fill(9, 0, 1000);
        for (pos, len) in [(0, 1), (1, 7), (7, 9), (8, 8), (501, 499)] {
            assert_eq!(
                fill(9, pos, len),
                all[usize::try_from(pos).unwrap()..][..len]
            );
        }
        assert!(!all.contains(&0) && !all.contains(&JUNK));
    }

    #[test]
    fn a_wrong_byte_is_found_and_differs_from_a_hole() {
        let mut b = fill(4, 100, 50);
        assert_eq!(first_wrong(4, 100, &b), None);
        b[3] = 0;
        assert_eq!(
            (first_wrong(4, 100, &b), first_foreign(4, 100, &b)),
            (Some(103), None)
        );
        b[7] = JUNK;
        assert_eq!(first_foreign(4, 100, &b), Some(107));
    }
}
