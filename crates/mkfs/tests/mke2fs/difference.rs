//! Differences of two images, and those among them that are meant:
//!
//! - `s_kbytes_written` in superblocks, and so their checksums: mke2fs writes what its own I/O
//!   layer counted, Extant the KiB that it wrote.
//! - Time, host and device in the block of multiple mount protection: mke2fs writes the clock's
//!   time and the machine's name whatever its options say; Extant the time that was asked for, and
//!   no names, so that the same options give the same bytes.
//! - The unused slots in the root of an extent tree that has a level of nodes, in the journal's
//!   inode and in its copy in the superblocks: mke2fs leaves the extents there that it moved to the
//!   node; Extant writes zeros.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use extant_testkit::Result;
use rustix::fs::{SeekFrom, seek};

/// Bytes that are compared at once: a superblock.
const PIECE: usize = 1024;
/// How many differences are printed.
const TOLD: usize = 20;

/// The differences, in words; none if only meant ones were found.
pub(crate) fn find(ours: &Path, theirs: &Path) -> Result<Vec<String>> {
    let (ours, theirs) = (File::open(ours)?, File::open(theirs)?);
    let len = ours.metadata()?.len();
    if len != theirs.metadata()?.len() {
        return Ok(vec![format!(
            "{len} bytes, not {}",
            theirs.metadata()?.len()
        )]);
    }
    let known = Known::of(&theirs)?;
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = next_data([&ours, &theirs], at).filter(|_| found.len() < TOLD) {
        at = next / PIECE as u64 * PIECE as u64;
        let (one, two) = (piece(&ours, at)?, piece(&theirs, at)?);
        let here = at;
        at += PIECE as u64;
        if one == two {
            continue;
        }
        let meant = known.meant(here, &two);
        let differs = |&i: &usize| one[i] != two[i] && !meant.iter().any(|part| part.contains(&i));
        let offsets: Vec<usize> = (0..PIECE).filter(differs).collect();
        if !offsets.is_empty() {
            found.push(format!(
                "at {here:#x} (1 KiB block {}): bytes {offsets:?}",
                here / 1024
            ));
        }
    }
    Ok(found)
}

/// Offsets of what may differ.
struct Known {
    /// The journal's inode, if its tree has a level of nodes.
    deep_journal: Option<u64>,
}

impl Known {
    fn of(image: &File) -> Result<Known> {
        let head = piece(image, 1024)?;
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap_or_default());
        let block_size = 1024_u64 << word(24);
        let inode_size = u64::from(u16::from_le_bytes([head[88], head[89]]));
        let descriptors = piece(image, (1024 / block_size + 1) * block_size)?;
        let table = u32::from_le_bytes(descriptors[8..12].try_into().unwrap_or_default());
        let journal = u64::from(table) * block_size + 7 * inode_size;
        let start = journal / PIECE as u64 * PIECE as u64;
        let inode = piece(image, start)?;
        // The header of the tree's root: its magic number, and its depth.
        let root = usize::try_from(journal - start)? + 40;
        let deep = inode[root..root + 2] == [0x0a, 0xf3] && inode[root + 6] > 0;
        Ok(Known {
            deep_journal: deep.then_some(journal),
        })
    }

    /// The bytes of the piece at `at` that may differ.
    fn meant(&self, at: u64, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut meant = Vec::new();
        // That of a journal's device has no inodes.
        let is_super = bytes[0..4] != [0; 4] || bytes[96] == 8;
        if bytes[56..58] == [0x53, 0xEF] && is_super {
            meant.extend([376..384, 1020..1024]);
            if self.deep_journal.is_some() {
                meant.push(268 + 24..268 + 60);
            }
        }
        if bytes[..4] == *b"PMM\0" {
            meant.extend([8..112, 1020..1024]);
        }
        if let Some(inode) = self.deep_journal.and_then(|inode| inode.checked_sub(at)) {
            let inode = usize::try_from(inode).unwrap_or(usize::MAX);
            if inode < PIECE {
                // The slots, and both halves of the inode's checksum.
                let slots = inode + 40 + 24..inode + 40 + 60;
                meant.extend([slots, inode + 124..inode + 126, inode + 130..inode + 132]);
            }
        }
        meant
    }
}

fn piece(file: &File, at: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; PIECE];
    let mut done = 0;
    while done < PIECE {
        match file.read_at(&mut bytes[done..], at + done as u64)? {
            0 => break,
            more => done += more,
        }
    }
    Ok(bytes)
}

/// The next byte at or behind `at` where one of the files is no hole.
fn next_data(files: [&File; 2], at: u64) -> Option<u64> {
    let next = |file: &File| seek(file, SeekFrom::Data(at)).ok();
    files.into_iter().filter_map(next).min()
}
