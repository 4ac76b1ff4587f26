//! Files with holes in archives: a map of the pieces, followed by the pieces.
//!
//! Four forms of the map are read. GNU's own format has it in the header and in blocks behind it.
//! Pax headers of version 0.0 have two records for each piece, those of 0.1 one record for all
//! pieces. Version 1.0, which is also written, has the map in front of the pieces, as decimal
//! lines.

use std::io::{self, Read};

use super::header::{BLOCK, Field, Piece, bad, decimal, fill, number};

/// Most pieces of a file: what a map of them takes in memory is bounded.
pub const MAX_PIECES: usize = 1 << 20;

// In a header of GNU's own: the first pieces, whether a block with more follows, the file's size.
const FIRST: Field = 386..482;
const MORE: usize = 482;
const SIZE: Field = 483..495;
/// In a block with more: whether another one follows.
const MORE_OF_MAP: usize = 504;
/// Bytes that a piece takes in either.
const ENTRY: usize = 24;

/// The pax headers about holes of one member.
#[derive(Default)]
pub(super) struct SparseHeaders {
    any: bool,
    wrong: bool,
    major: u64,
    minor: u64,
    pub(super) name: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    starts: Vec<u64>,
    lens: Vec<u64>,
}

/// The form of a map in pax headers.
pub(super) enum Form {
    /// Not a file with holes.
    None,
    /// The headers have the map.
    Here(Vec<Piece>),
    /// The map comes before the pieces.
    Before,
    /// An unknown form, or damage.
    Unknown,
}

impl SparseHeaders {
    /// Adds a record; `key` comes without the prefix of all keys.
    pub(super) fn take(&mut self, key: &[u8], value: &[u8]) {
        self.any = true;
        let numbers = |of: &mut Vec<u64>, value: &[u8]| match decimal(value) {
            Some(number) if of.len() < MAX_PIECES => {
                of.push(number);
                true
            }
            _ => false,
        };
        let right = match key {
            b"major" => decimal(value).map(|number| self.major = number).is_some(),
            b"minor" => decimal(value).map(|number| self.minor = number).is_some(),
            b"size" | b"realsize" => {
                self.size = decimal(value);
                self.size.is_some()
            }
            b"name" => {
                self.name = Some(value.to_vec());
                true
            }
            b"offset" => numbers(&mut self.starts, value),
            b"numbytes" => numbers(&mut self.lens, value),
            b"map" if value.is_empty() => true,
            b"map" => value
                .split(|&byte| byte == b',')
                .enumerate()
                .all(|(i, word)| {
                    let of = if i % 2 == 0 {
                        &mut self.starts
                    } else {
                        &mut self.lens
                    };
                    numbers(of, word)
                }),
            _ => true,
        };
        self.wrong |= !right;
    }

    pub(super) fn form(&self) -> Form {
        match (self.major, self.minor) {
            _ if !self.any => Form::None,
            _ if self.wrong || self.size.is_none() => Form::Unknown,
            (1, 0) => Form::Before,
            (0, _) if self.starts.len() == self.lens.len() => {
                let pairs = self.starts.iter().zip(&self.lens);
                Form::Here(pairs.map(|(&start, &len)| Piece { start, len }).collect())
            }
            _ => Form::Unknown,
        }
    }
}

/// Reads the map of a header of GNU's own, and the blocks after it that it goes on in. Returns the
/// pieces and the file's size.
pub(super) fn of_header(
    header: &[u8; BLOCK],
    input: &mut dyn Read,
) -> io::Result<(Vec<Piece>, u64)> {
    let mut pieces = Vec::new();
    let mut ended = false;
    let mut take = |block: &[u8; BLOCK], at: Field| -> io::Result<()> {
        for start in at.step_by(ENTRY) {
            let middle = start + ENTRY / 2;
            // Empty from here on.
            ended |= block.get(middle).is_none_or(|&byte| byte == 0);
            if ended {
                break;
            }
            if pieces.len() >= MAX_PIECES {
                return Err(bad("a map of a sparse file that does not end"));
            }
            let number = |at: Field| {
                let number = number(block, at)?;
                u64::try_from(number).map_err(|_| bad("a map of a sparse file that is damaged"))
            };
            pieces.push(Piece {
                start: number(start..middle)?,
                len: number(middle..start + ENTRY)?,
            });
        }
        Ok(())
    };
    take(header, FIRST)?;
    let mut more = header.get(MORE).is_some_and(|&byte| byte != 0);
    let mut blocks = 0;
    while more {
        let mut block = [0; BLOCK];
        if fill(input, &mut block)? < BLOCK {
            return Err(bad("it ends in the middle of a map"));
        }
        blocks += 1;
        if blocks > MAX_PIECES / (MORE_OF_MAP / ENTRY) {
            return Err(bad("a map of a sparse file that does not end"));
        }
        take(&block, 0..MORE_OF_MAP)?;
        more = block.get(MORE_OF_MAP).is_some_and(|&byte| byte != 0);
    }
    let size = u64::try_from(number(header, SIZE)?);
    Ok((pieces, size.map_err(|_| bad("a sparse file of no size"))?))
}

/// Reads a map that comes before the pieces. `None` if it is damaged.
pub(super) fn before(input: &mut dyn Read) -> io::Result<Option<Vec<Piece>>> {
    let mut lines = Lines {
        input,
        block: [0; BLOCK],
        at: BLOCK,
    };
    let Some(count) = lines.number()?.filter(|&count| count <= MAX_PIECES as u64) else {
        return Ok(None);
    };
    let mut pieces = Vec::new();
    for _ in 0..count {
        let (Some(start), Some(len)) = (lines.number()?, lines.number()?) else {
            return Ok(None);
        };
        pieces.push(Piece { start, len });
    }
    Ok(Some(pieces))
}

/// Numbers, a line each, in whole blocks.
struct Lines<'a> {
    input: &'a mut dyn Read,
    block: [u8; BLOCK],
    at: usize,
}

impl Lines<'_> {
    fn number(&mut self) -> io::Result<Option<u64>> {
        /// No number of 64 bits has more digits.
        const DIGITS: usize = 20;
        let mut digits = Vec::new();
        loop {
            if self.at == BLOCK {
                if fill(self.input, &mut self.block)? < BLOCK {
                    return Ok(None);
                }
                self.at = 0;
            }
            let byte = self.block[self.at];
            self.at += 1;
            match byte {
                b'\n' => return Ok(decimal(&digits)),
                byte if digits.len() < DIGITS => digits.push(byte),
                _ => return Ok(None),
            }
        }
    }
}

/// Returns whether a file of `size` bytes can be made of these pieces, which have `stored` bytes
/// together.
pub(super) fn fits(pieces: &[Piece], size: u64, stored: u64) -> bool {
    let mut end = 0;
    let mut sum = 0;
    for piece in pieces {
        let Some(next) = piece.start.checked_add(piece.len) else {
            return false;
        };
        if piece.start < end || next > size {
            return false;
        }
        // No more than `size`, as they do not overlap.
        (end, sum) = (next, sum + piece.len);
    }
    sum == stored && i64::try_from(size).is_ok()
}

/// The map of a file of `size` bytes, as it is written before the pieces.
pub(super) fn map(pieces: &[Piece], size: u64) -> Vec<u8> {
    let end = pieces.last().map_or(0, |last| last.start + last.len);
    // Readers end the file where the map ends.
    let last = (end < size).then_some(Piece {
        start: size,
        len: 0,
    });
    let count = pieces.len() + usize::from(last.is_some());
    let mut map = format!("{count}\n").into_bytes();
    for piece in pieces.iter().chain(&last) {
        map.extend(format!("{}\n{}\n", piece.start, piece.len).into_bytes());
    }
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    map
}
