//! The bytes of two files, compared where one of them has data.
//!
//! A range that is a hole on both sides is not read. Where one side has a hole, the other must have
//! zeros.

use std::io;

use extant::sides::Source;

use super::difference::Side;

/// Bytes read at once from each side.
const CHUNK: usize = 1 << 20;

/// An error, and the side that it happened on.
pub(super) type Sided<T> = Result<T, (Side, io::Error)>;

/// Room for a part of each file.
pub(super) struct Buffers {
    left: Vec<u8>,
    right: Vec<u8>,
}

impl Buffers {
    pub(super) fn new() -> Buffers {
        Buffers {
            left: vec![0; CHUNK],
            right: vec![0; CHUNK],
        }
    }

    /// The first of `size` bytes that differs.
    pub(super) fn first_difference(
        &mut self,
        left: &dyn Source,
        right: &dyn Source,
        size: u64,
    ) -> Sided<Option<u64>> {
        let data = |of: &dyn Source, side, pos| {
            let found = of.next_data(pos).map_err(|error| (side, error))?;
            let (start, end) = found.unwrap_or((size, size));
            Ok((start.clamp(pos, size), end.clamp(pos, size)))
        };
        let mut pos = 0;
        while pos < size {
            let ours = data(left, Side::Left, pos)?;
            let theirs = data(right, Side::Right, pos)?;
            let start = ours.0.min(theirs.0);
            // Up to where one side changes between data and a hole.
            let bounds = [ours.0, ours.1, theirs.0, theirs.1];
            let end = bounds.into_iter().filter(|&bound| bound > start).min();
            let Some(end) = end else {
                break;
            };
            let left = (ours.0 == start).then_some(left);
            let right = (theirs.0 == start).then_some(right);
            if let Some(at) = self.range(left, right, start, end)? {
                return Ok(Some(at));
            }
            pos = end;
        }
        Ok(None)
    }

    /// Compares a range; a side without a source has zeros there.
    fn range(
        &mut self,
        left: Option<&dyn Source>,
        right: Option<&dyn Source>,
        mut pos: u64,
        end: u64,
    ) -> Sided<Option<u64>> {
        while pos < end {
            let len = usize::try_from(end - pos).unwrap_or(CHUNK).min(CHUNK);
            let ours = part(left, &mut self.left, len, pos).map_err(|f| (Side::Left, f))?;
            let theirs = part(right, &mut self.right, len, pos).map_err(|f| (Side::Right, f))?;
            let at = match (ours, theirs) {
                (Some(ours), Some(theirs)) if ours == theirs => None,
                (Some(ours), Some(theirs)) => ours.iter().zip(theirs).position(|(a, b)| a != b),
                (Some(data), None) | (None, Some(data)) => data.iter().position(|&byte| byte != 0),
                (None, None) => None,
            };
            if let Some(at) = at {
                return Ok(Some(pos + at as u64));
            }
            pos += len as u64;
        }
        Ok(None)
    }
}

/// Reads `len` bytes, if there is something to read them from.
fn part<'b>(
    from: Option<&dyn Source>,
    buf: &'b mut [u8],
    len: usize,
    pos: u64,
) -> io::Result<Option<&'b [u8]>> {
    let Some(from) = from else {
        return Ok(None);
    };
    let mut done = 0;
    while done < len {
        let rest = &mut buf[done..len];
        match from.read_at(rest, pos + done as u64)? {
            0 => {
                let what = "it became shorter while it was being compared";
                return Err(io::Error::other(what));
            }
            more => done += more,
        }
    }
    Ok(buf.get(..len))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes in which zeros of whole units are holes.
    struct Sparse(Vec<u8>, u64);

    impl Source for Sparse {
        fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize> {
            let from = self.0.get(usize::try_from(pos).unwrap()..).unwrap_or(&[]);
            // A short read, as a signal may cause.
            let len = buf.len().min(from.len()).min(700);
            buf[..len].copy_from_slice(&from[..len]);
            Ok(len)
        }

        fn len_now(&self) -> io::Result<u64> {
            Ok(self.0.len() as u64)
        }

        fn next_data(&self, pos: u64) -> io::Result<Option<(u64, u64)>> {
            let unit = usize::try_from(self.1).unwrap();
            let units: Vec<bool> = (self.0.chunks(unit))
                .map(|chunk| chunk.iter().any(|&byte| byte != 0))
                .collect();
            let first = usize::try_from(pos / self.1).unwrap();
            let Some(start) = (first..units.len()).find(|&at| units[at]) else {
                return Ok(None);
            };
            let end = (start..units.len())
                .find(|&at| !units[at])
                .unwrap_or(units.len());
            Ok(Some((pos.max(start as u64 * self.1), end as u64 * self.1)))
        }
    }

    #[test]
    fn holes_and_zeros_are_equal_and_every_byte_counts() {
        let mut bytes = vec![0; 20_000];
        bytes[3000..3100].fill(1);
        bytes[12_000..19_000].fill(2);
        let size = bytes.len() as u64;
        let mut buffers = Buffers::new();
        let mut first = |left: &Sparse, right: &Sparse| {
            buffers
                .first_difference(left, right, size)
                .map_err(|(_, f)| f.to_string())
        };
        let ours = Sparse(bytes.clone(), 1000);
        // Holes elsewhere, and none at all.
        for unit in [512, 4096, size] {
            assert_eq!(
                first(&ours, &Sparse(bytes.clone(), unit)),
                Ok(None),
                "{unit}"
            );
        }
        for at in [0, 2999, 3050, 11_999, 18_999, 19_999] {
            let mut other = bytes.clone();
            other[at] ^= 4;
            let other = Sparse(other, 4096);
            assert_eq!(first(&ours, &other), Ok(Some(at as u64)));
            assert_eq!(first(&other, &ours), Ok(Some(at as u64)));
        }
        let short = Sparse(bytes[..15_000].to_vec(), 4096);
        assert!(first(&ours, &short).is_err());
    }
}
