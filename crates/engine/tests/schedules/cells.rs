//! Cells: their values as bytes, and ranges of them.

use crate::model::{CELL, Value};
use crate::world::Outcome;

pub(crate) fn bytes(cells: usize) -> u64 {
    (cells * CELL) as u64
}

pub(crate) fn cells(bytes: u64) -> Outcome<usize> {
    let bytes = usize::try_from(bytes).unwrap();
    if bytes % CELL == 0 {
        Ok(bytes / CELL)
    } else {
        Err(format!("{bytes} bytes are not whole cells"))
    }
}

/// A value that no call writes. What free blocks hold, and what was discarded, is above.
pub(crate) const MOST_VALUE: Value = 0x8000;

/// The values that the call with this number writes.
pub(crate) fn values(call: usize, len: usize) -> Vec<Value> {
    let value = |cell| Value::try_from(call * 640 + cell + 1).unwrap();
    (0..len).map(value).collect()
}

pub(crate) fn encode(values: &[Value]) -> Vec<u8> {
    let cell = |value: &Value| value.to_le_bytes().repeat(CELL / 2);
    values.iter().flat_map(cell).collect()
}

pub(crate) fn decode(bytes: &[u8]) -> Outcome<Vec<Value>> {
    let cell = |bytes: &[u8]| {
        let value = [bytes[0], bytes[1]];
        if bytes.len() == CELL && bytes.chunks(2).all(|pair| pair == value) {
            Ok(Value::from_le_bytes(value))
        } else {
            Err(format!(
                "a torn cell: {:?} .. {:?}",
                &bytes[..2],
                &bytes[bytes.len() - 2..]
            ))
        }
    };
    bytes.chunks(CELL).map(cell).collect()
}

/// Cuts a range of cells at multiples of `unit`: begins and lengths.
pub(crate) fn cut(at: usize, len: usize, unit: usize) -> Vec<(usize, usize)> {
    let mut pieces = Vec::new();
    let mut done = 0;
    while done < len {
        let piece = (unit - (at + done) % unit).min(len - done);
        pieces.push((at + done, piece));
        done += piece;
    }
    pieces
}
