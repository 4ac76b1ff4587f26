//! The changes of this package, of which a run has one.
//!
//! `extant-mutate` adds this module to a copy of a package. `EXTANT_MUTANT` is the number of the
//! change that a process has. It is `reached` for a process that has none and notes the numbers it
//! comes by in the file that `EXTANT_REACHED` names.

use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

const UNREAD: u32 = u32::MAX;
const RECORD: u32 = u32::MAX - 1;
const NONE: u32 = u32::MAX - 2;

static CHOSEN: AtomicU32 = AtomicU32::new(UNREAD);
static SEEN: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
static REACHED: OnceLock<File> = OnceLock::new();

/// Returns which of the `count` changes from number `first` on is made, counted from 1; 0 if none.
#[inline]
pub(crate) fn pick(first: u32, count: u32) -> u32 {
    let chosen = CHOSEN.load(Relaxed);
    if chosen >= RECORD {
        return rare(first, count);
    }
    let number = chosen.wrapping_sub(first);
    if number < count { number + 1 } else { 0 }
}

#[cold]
fn rare(first: u32, count: u32) -> u32 {
    if CHOSEN.load(Relaxed) == UNREAD {
        let chosen = match std::env::var("EXTANT_MUTANT") {
            Ok(text) if text == "reached" => RECORD,
            Ok(text) => text.parse().expect("EXTANT_MUTANT: a number"),
            Err(_) => NONE,
        };
        CHOSEN.store(chosen, Relaxed);
        return pick(first, count);
    }
    let (word, bit) = (&SEEN[first as usize / 64], 1 << (first % 64));
    if word.fetch_or(bit, Relaxed) & bit == 0 {
        let file = REACHED.get_or_init(|| {
            let path = std::env::var_os("EXTANT_REACHED").expect("EXTANT_REACHED: a file");
            let mut options = std::fs::OpenOptions::new();
            options.append(true).create(true).open(path).unwrap()
        });
        let mut file = file;
        file.write_all(&first.to_le_bytes()).unwrap();
    }
    0
}
