//! The chunks that a start reads, in the order in which it first reads them.
//!
//! As text: `extant start list 1`, `chunk-bytes N`, then a line for each chunk: its number, or
//! `FIRST-LAST` for chunks that were read one after the other.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use extant_units::index;
use parking_lot::Mutex;

use crate::manifest::MOST_CHUNKS;

const TITLE: &str = "extant start list 1";
const CHUNK_BYTES: &str = "chunk-bytes ";

/// A list of chunks of an image. It serves other versions of the image as well: their chunks lie in
/// the same places.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StartList {
    chunk_bytes: u32,
    chunks: Vec<u32>,
}

impl StartList {
    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> u32 {
        self.chunk_bytes
    }

    /// Numbers of chunks, in order, each once.
    pub fn chunks(&self) -> &[u32] {
        &self.chunks
    }
}

impl fmt::Display for StartList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{TITLE}\n{CHUNK_BYTES}{}", self.chunk_bytes)?;
        let runs = self
            .chunks
            .chunk_by(|one, next| one.checked_add(1) == Some(*next));
        for run in runs {
            match run {
                [one] => writeln!(f, "{one}")?,
                [first, .., last] => writeln!(f, "{first}-{last}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

/// A text that is no start list.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no list of the chunks of a start: line {line}")]
pub struct BadStartList {
    /// The line that is wrong, from 1 on.
    pub line: usize,
}

impl FromStr for StartList {
    type Err = BadStartList;

    fn from_str(text: &str) -> Result<Self, BadStartList> {
        let mut lines = text.lines();
        if lines.next() != Some(TITLE) {
            return Err(BadStartList { line: 1 });
        }
        let bytes = lines.next().and_then(|line| line.strip_prefix(CHUNK_BYTES));
        let bytes = bytes.and_then(|bytes| bytes.parse().ok());
        let mut list = Self {
            chunk_bytes: bytes.ok_or(BadStartList { line: 2 })?,
            chunks: Vec::new(),
        };
        let seen = Seen::new(index(MOST_CHUNKS));
        for (line, text) in lines.enumerate() {
            let run = run(text).ok_or(BadStartList { line: line + 3 })?;
            list.chunks
                .extend(run.filter(|&chunk| seen.is_first(chunk)));
        }
        Ok(list)
    }
}

/// The chunks of a line.
fn run(text: &str) -> Option<RangeInclusive<u32>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && u64::from(last) < MOST_CHUNKS).then_some(first..=last)
}

/// Chunks that were seen: a bit for each.
struct Seen(Vec<AtomicU64>);

impl Seen {
    fn new(chunks: usize) -> Self {
        let words = || AtomicU64::new(0);
        Self(
            std::iter::repeat_with(words)
                .take(chunks.div_ceil(64))
                .collect(),
        )
    }

    /// Returns whether the chunk is seen for the first time.
    fn is_first(&self, chunk: u32) -> bool {
        let (word, bit) = (&self.0[chunk as usize / 64], 1 << (chunk % 64));
        // Most reads are of chunks that were read before.
        word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}

/// Makes a list of the chunks that are read.
pub(crate) struct Recorder {
    seen: Seen,
    list: Mutex<StartList>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

impl Recorder {
    /// For an image of so many chunks.
    pub(crate) fn new(chunk_bytes: u32, chunks: usize) -> Self {
        Self {
            seen: Seen::new(chunks),
            list: Mutex::new(StartList {
                chunk_bytes,
                chunks: Vec::new(),
            }),
        }
    }

    /// A chunk is read.
    pub(crate) fn read(&self, nth: usize) {
        let chunk = u32::try_from(nth).expect("a number within MOST_CHUNKS");
        if self.seen.is_first(chunk) {
            self.list.lock().chunks.push(chunk);
        }
    }

    /// The number of chunks that have been read.
    pub(crate) fn read_chunks(&self) -> usize {
        self.list.lock().chunks.len()
    }

    /// The list so far.
    pub(crate) fn list(&self) -> StartList {
        self.list.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_is_written() {
        let recorder = Recorder::new(4096, 100);
        for chunk in [7, 8, 9, 7, 3, 99, 8, 0, 1] {
            recorder.read(chunk);
        }
        let list = recorder.list();
        assert_eq!(list.chunks(), [7, 8, 9, 3, 99, 0, 1]);
        let text = list.to_string();
        let expected = "extant start list 1\nchunk-bytes 4096\n7-9\n3\n99\n0-1\n";
        assert_eq!(text, expected);
        assert_eq!(text.parse(), Ok(list.clone()));
        assert_eq!(format!("{text}7-8\n3\n").parse(), Ok(list), "each once");
    }

    #[test]
    fn other_texts_are_refused() {
        let line = |text: &str| text.parse::<StartList>().unwrap_err().line;
        assert_eq!(line(""), 1);
        assert_eq!(line("extant start list 2\n"), 1);
        assert_eq!(line("extant start list 1\nchunk-bytes x\n"), 2);
        let begin = "extant start list 1\nchunk-bytes 4096\n1\n";
        for bad in [
            "",
            "-",
            "x",
            "3-2",
            "-1",
            "1-",
            "16777216",
            "0-16777216",
            "1-2-3",
        ] {
            assert_eq!(line(&format!("{begin}{bad}\n")), 4, "{bad:?}");
        }
    }
}
