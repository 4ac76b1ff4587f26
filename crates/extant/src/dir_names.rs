//! The names in a directory, in order, in bounded memory.
//!
//! # Invariants
//! - At most [`MEMORY`] bytes of names stay in memory, and twice as many while a directory is read.
//!   A directory with more is read again for each part: a pass takes the first names after the last
//!   one that was given out.
//! - A name shows once, however often a damaged directory has it: a lookup leads to one file.
//!
//! The inodes of the next [`AHEAD`] names are read together and in the order of the inode table,
//! which is not that of the names.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use extant_engine::{Node, Result, Volume};
use extant_units::Ino;

/// Bytes of names of a directory that are in memory.
const MEMORY: usize = 8 << 20;
/// Bytes that a name takes beside its own: its entry in the queue, and what the allocator adds.
const PER_NAME: usize = 40;
/// Names whose inodes are read ahead at once.
const AHEAD: usize = 4096;

/// The names of one directory, `.` and `..` left out.
#[derive(Debug)]
pub struct DirNames {
    volume: Volume,
    dir: Node,
    memory: usize,
    ready: VecDeque<Name>,
    /// Names in front of `ready` whose inodes were read ahead; `None` if that is not wanted.
    read_ahead: Option<usize>,
    /// Bytes that `ready` takes.
    bytes: usize,
    /// Names follow those that are ready.
    more: bool,
    /// The last name that was given out.
    after: Option<Box<[u8]>>,
    /// How often the directory was read.
    passes: u64,
}

/// A name, and the inode that the directory said it leads to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Name {
    bytes: Box<[u8]>,
    ino: Ino,
}

/// The first names of a pass so far.
struct Pass<'a> {
    memory: usize,
    after: Option<&'a [u8]>,
    /// Names behind this one are left to the next pass.
    limit: Option<Box<[u8]>>,
    names: Vec<Name>,
    bytes: usize,
    more: bool,
}

impl DirNames {
    /// The names in `dir`, whose inodes will be looked at.
    ///
    /// # Errors
    /// Those of reading the directory.
    pub fn of(volume: &Volume, dir: Node) -> Result<DirNames> {
        let mut names = DirNames::within(volume, dir, MEMORY)?;
        names.read_ahead = Some(0);
        Ok(names)
    }

    fn within(volume: &Volume, dir: Node, memory: usize) -> Result<DirNames> {
        let mut names = DirNames {
            volume: volume.clone(),
            dir,
            memory,
            ready: VecDeque::new(),
            read_ahead: None,
            bytes: 0,
            more: true,
            after: None,
            passes: 0,
        };
        names.fill()?;
        Ok(names)
    }

    /// The directory.
    pub fn dir(&self) -> &Node {
        &self.dir
    }

    /// Returns whether no name follows.
    pub fn at_end(&self) -> bool {
        self.ready.is_empty() && !self.more
    }

    /// Bytes of names in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives the memory back; the names are read again when they are asked for.
    pub fn shrink(&mut self) {
        self.more |= !self.ready.is_empty();
        self.ready = VecDeque::new();
        self.bytes = 0;
    }

    fn fill(&mut self) -> Result<()> {
        let mut pass = Pass {
            memory: self.memory,
            after: self.after.as_deref(),
            limit: None,
            names: Vec::new(),
            bytes: 0,
            more: false,
        };
        self.passes += 1;
        self.volume.readdir(&self.dir, 0, &mut |entry| {
            pass.take(entry.name, entry.ino);
            true
        })?;
        pass.cut();
        let Pass {
            names, bytes, more, ..
        } = pass;
        (self.ready, self.bytes, self.more) = (names.into(), bytes, more);
        self.read_ahead = self.read_ahead.map(|_| 0);
        Ok(())
    }

    /// Reads the inodes of the names in front ahead, if that was not done.
    fn read_inodes(&mut self) {
        if self.read_ahead == Some(0) {
            let inodes: Vec<Ino> = self.ready.iter().take(AHEAD).map(|name| name.ino).collect();
            self.volume.read_inodes_ahead(&inodes);
            self.read_ahead = Some(inodes.len());
        }
        // Stays zero where no name is ready.
        self.read_ahead = self.read_ahead.map(|left| left.saturating_sub(1));
    }
}

impl Pass<'_> {
    fn take(&mut self, name: &[u8], ino: Ino) {
        let dot = matches!(name, b"." | b"..");
        if dot || self.after.is_some_and(|after| name <= after) {
            return;
        }
        if self.limit.as_deref().is_some_and(|limit| name > limit) {
            self.more = true;
            return;
        }
        self.bytes += cost(name);
        self.names.push(Name {
            bytes: name.into(),
            ino,
        });
        if self.bytes > 2 * self.memory {
            self.cut();
        }
    }

    /// Puts the names in order and leaves those that are too many to the next pass.
    fn cut(&mut self) {
        self.names.sort_unstable();
        self.names.dedup_by(|a, b| a.bytes == b.bytes);
        self.bytes = 0;
        let mut fit = 0;
        for Name { bytes: name, .. } in &self.names {
            // One at least, or the walk would stand still.
            if fit > 0 && self.bytes + cost(name) > self.memory {
                break;
            }
            (fit, self.bytes) = (fit + 1, self.bytes + cost(name));
        }
        if fit < self.names.len() {
            self.names.truncate(fit);
            self.limit = self.names.last().map(|name| name.bytes.clone());
            self.more = true;
        }
    }
}

fn cost(name: &[u8]) -> usize {
    name.len() + PER_NAME
}

impl Iterator for DirNames {
    type Item = Result<OsString>;

    fn next(&mut self) -> Option<Result<OsString>> {
        if self.ready.is_empty() && self.more {
            self.more = false;
            if let Err(error) = self.fill() {
                return Some(Err(error));
            }
        }
        self.read_inodes();
        let name = self.ready.pop_front()?.bytes;
        assert!(self.bytes >= cost(&name), "each name was counted");
        self.bytes -= cost(&name);
        self.after = Some(name.clone());
        Some(Ok(OsString::from_vec(name.into_vec())))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::testing::filesystem;

    #[test]
    fn many_names_come_in_order_in_little_memory() {
        let fs = filesystem(16 << 20).unwrap();
        fs.create_dir("/d").unwrap();
        let mut right: Vec<OsString> = (0..1000).map(|i| format!("{i:x}").into()).collect();
        for name in &right {
            fs.create(Path::new("/d").join(name)).unwrap();
        }
        right.sort();
        let memory = 100 * (3 + PER_NAME);
        let open =
            |memory| DirNames::within(fs.volume(), fs.node("/d", true).unwrap(), memory).unwrap();
        let mut names = open(memory);
        let mut all = Vec::new();
        while let Some(name) = names.next() {
            all.push(name.unwrap());
            assert!(names.bytes() <= memory && names.ready.len() <= 110);
            assert_eq!(names.at_end(), all.len() == right.len());
            if all.len() == 550 {
                names.shrink();
                assert_eq!(names.bytes(), 0);
            }
        }
        assert_eq!(all, right);
        // About as many as it takes parts; one more for the part that was given back.
        assert!((10..=12).contains(&names.passes), "{}", names.passes);
        // One by one, if no more fits; at once, if everything does.
        assert_eq!(open(1).map(Result::unwrap).collect::<Vec<_>>(), right);
        let mut names = open(MEMORY);
        assert_eq!(names.by_ref().count(), right.len());
        assert_eq!(names.passes, 1);
    }

    #[test]
    fn a_name_that_is_there_again_and_again_shows_once() {
        let mut pass = Pass {
            memory: 10 * (1 + PER_NAME),
            after: Some(b"b"),
            limit: None,
            names: Vec::new(),
            bytes: 0,
            more: false,
        };
        for _ in 0..10_000 {
            for name in [&b"d"[..], b".", b"a", b"c", b".."] {
                pass.take(name, Ino::ROOT);
                assert!(pass.names.len() <= 20);
            }
        }
        pass.cut();
        let names = pass.names.iter().map(|name| &*name.bytes);
        assert!(names.eq([&b"c"[..], b"d"]));
        assert!(!pass.more);
    }
}
