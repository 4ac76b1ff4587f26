//! Names in directories that fold case (`casefold`): two spellings of one name have one key.
//!
//! The key of a name is its text decomposed (NFD), with its case folded and without the characters
//! that Unicode ignores by default. The format has the tables of Unicode 12.1 and stores a name as
//! it was given; the key is what names are compared and hashed by. A name that is not UTF-8 is its
//! own key.
//!
//! [`caseless`] has the folding and [`unicode_normalization`] the decomposition, both of a later
//! Unicode. Unicode never changes these of a character once it has been assigned, so all that
//! remains is to leave alone those that came after 12.1: `ranges` has the others. A later
//! version of the two crates makes no other keys.
//!
//! Source: `s_encoding` 1 (`utf8-12.1`). Pure functions, bounded by the length of a name.
#![forbid(unsafe_code)]

mod ranges;

use std::borrow::Cow;

use caseless::Caseless;
use unicode_normalization::char::{canonical_combining_class, decompose_canonical};

/// The key of `name`: equal for two names if a folded directory takes them for the same.
///
/// A key may be empty, or longer than the longest name: three bytes for one of a text at most.
#[must_use]
pub fn key(name: &[u8]) -> Cow<'_, [u8]> {
    fold(name).unwrap_or(name.into())
}

/// Returns whether `name` has the key `wanted`. Mostly a few bytes tell that it does not.
#[must_use]
pub fn has_key(name: &[u8], wanted: &[u8]) -> bool {
    let ascii = name.iter().take_while(|byte| byte.is_ascii()).count();
    let (plain, rest) = name.split_at(ascii);
    match wanted.split_at_checked(ascii) {
        // In front of what has to be folded, a byte is one of the key.
        Some((start, _)) if !start.eq_ignore_ascii_case(plain) => false,
        Some((_, end)) if rest.is_empty() => end.is_empty(),
        Some(_) => *key(name) == *wanted,
        None => false,
    }
}

/// Returns whether the key of `name` leaves out characters of it. Some kernels did not, so that
/// their indexes have such names under other hashes.
#[must_use]
pub fn leaves_out(name: &[u8]) -> bool {
    !name.is_ascii()
        && name
            .utf8_chunks()
            .any(|chunk| chunk.valid().contains(ranges::is_ignored))
}

/// The folded form of `name`; `None` if it is not UTF-8.
///
/// A byte that would continue a character, where none began, stands for itself if it is not the
/// first of the name: so the tables of the format are read. [`is_text`] is stricter.
#[must_use]
pub fn fold(name: &[u8]) -> Option<Cow<'_, [u8]>> {
    if name.is_ascii() {
        return Some(match name.iter().any(u8::is_ascii_uppercase) {
            true => name.to_ascii_lowercase().into(),
            false => name.into(),
        });
    }
    if matches!(name, [0x80..=0xbf, ..]) {
        return None;
    }
    let mut folded = Folded::default();
    for chunk in name.utf8_chunks() {
        chunk.valid().chars().for_each(|c| folded.push(c));
        match *chunk.invalid() {
            [] => {}
            [stray @ 0x80..=0xbf] => folded.push_stray(stray),
            _ => return None,
        }
    }
    folded.end_run();
    Some(folded.bytes.into())
}

/// Returns whether `name` is UTF-8. A volume with strict encoding takes no other names into folded
/// directories.
#[must_use]
pub fn is_text(name: &[u8]) -> bool {
    str::from_utf8(name).is_ok()
}

/// A folded form that grows by one character at a time.
#[derive(Default)]
struct Folded {
    bytes: Vec<u8>,
    /// Marks, with their combining classes, since the last character of class zero. Stray bytes
    /// among them have no class.
    run: Vec<(u8, Piece)>,
}

#[derive(Clone, Copy)]
enum Piece {
    Mark(char),
    Stray(u8),
}

impl Folded {
    fn push(&mut self, c: char) {
        if ranges::is_ignored(c) {
            self.end_run();
        } else if ranges::is_mapped(c) {
            let folded = std::iter::once(c).default_case_fold();
            folded.for_each(|c| {
                decompose_canonical(c, |c| self.put(c, canonical_combining_class(c)))
            });
        } else {
            self.put(c, 0);
        }
    }

    fn put(&mut self, c: char, class: u8) {
        if class == 0 {
            self.end_run();
            self.emit(Piece::Mark(c));
        } else {
            self.run.push((class, Piece::Mark(c)));
        }
    }

    fn push_stray(&mut self, byte: u8) {
        match self.run.is_empty() {
            true => self.bytes.push(byte),
            false => self.run.push((0, Piece::Stray(byte))),
        }
    }

    /// Puts the marks in the order of their classes. The format goes over them once to find the
    /// first class, and once for each: every time it takes the stray bytes along.
    fn end_run(&mut self) {
        let mut class = 0;
        let run = std::mem::take(&mut self.run);
        loop {
            let of_class = run.iter().filter(|(own, _)| *own == class || *own == 0);
            of_class.for_each(|&(_, piece)| self.emit(piece));
            let above = run.iter().map(|(own, _)| *own).filter(|&own| own > class);
            match above.min() {
                Some(next) => class = next,
                None => break,
            }
        }
        self.run = run;
        self.run.clear();
    }

    fn emit(&mut self, piece: Piece) {
        match piece {
            Piece::Mark(c) => self
                .bytes
                .extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            Piece::Stray(byte) => self.bytes.push(byte),
        }
    }
}
