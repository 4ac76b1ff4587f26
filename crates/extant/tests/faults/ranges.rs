//! Range operations under faults: the steps, and the possible content of a file after one failed.

use std::ops::Range;

use extant::FallocateMode;

use crate::referee::Role;
use crate::world::World;

/// The kinds of volume that [`ranges`] runs on.
pub(crate) const SETUPS: &[&str] = &["usual", "per-block", "large-blocks", "blocks-of-64k"];

/// The possible content of a file after an operation on it failed.
#[derive(Clone)]
pub(crate) struct Either {
    pub(crate) object: usize,
    before: Vec<u8>,
    after: Vec<u8>,
    /// All is as before, or as afterwards: its map moves. Otherwise each byte is one or the other.
    whole: bool,
}

impl Either {
    /// Returns whether this content is possible.
    pub(crate) fn allows(&self, got: &[u8]) -> Result<(), String> {
        if got == self.before || got == self.after {
            return Ok(());
        }
        let (before, after) = (self.before.len(), self.after.len());
        if self.whole || !(before.min(after)..=before.max(after)).contains(&got.len()) {
            return Err(format!(
                "{} bytes, neither the {before} of before nor the {after} of afterwards",
                got.len()
            ));
        }
        let fits = |at: usize, byte| {
            let old = self.before.get(at).copied().unwrap_or(0);
            old == byte || self.after.get(at) == Some(&byte)
        };
        match (0..).zip(got).find(|(at, byte)| !fits(*at, **byte)) {
            None => Ok(()),
            Some((at, _)) => Err(format!("byte {at} is neither as before nor as afterwards")),
        }
    }
}

/// The bytes after the operation.
fn apply(bytes: &mut Vec<u8>, mode: FallocateMode, range: Range<usize>) {
    let size = bytes.len();
    match mode {
        FallocateMode::Allocate { keep_size } | FallocateMode::ZeroRange { keep_size } => {
            if !keep_size {
                bytes.resize(size.max(range.end), 0);
            }
            if let FallocateMode::ZeroRange { .. } = mode {
                let size = bytes.len();
                bytes[range.start.min(size)..range.end.min(size)].fill(0);
            }
        }
        FallocateMode::PunchHole => bytes[range.start.min(size)..range.end.min(size)].fill(0),
        FallocateMode::CollapseRange => drop(bytes.drain(range)),
        FallocateMode::InsertRange => {
            let zeros = std::iter::repeat_n(0, range.len());
            bytes.splice(range.start..range.start, zeros);
        }
    }
}

impl World {
    /// A range operation.
    pub(crate) fn range(
        &mut self,
        handle: &'static str,
        mode: FallocateMode,
        pos: usize,
        len: usize,
    ) {
        use FallocateMode::{CollapseRange, InsertRange};
        // Once a part of it is lost its size is not known, and the operation may be one that is
        // refused.
        let object = self.object_of(handle);
        let Some(object) = object.filter(|object| !self.known.objects[*object].lost) else {
            return;
        };
        let size = self.known.objects[object].bytes.len();
        let fits = match mode {
            CollapseRange => pos + len < size,
            InsertRange => pos < size,
            _ => true,
        };
        if !fits {
            // An earlier step was left out.
            return;
        }
        let whole = matches!(mode, CollapseRange | InsertRange);
        self.moved |= whole;
        let paths = self.paths_of(object);
        let touches: Vec<&str> = paths.iter().map(String::as_str).collect();
        let before = self.known.objects[object].bytes.clone();
        let mut after = before.clone();
        apply(&mut after, mode, pos..pos + len);
        let promised = |w: &Self, path: &String| {
            let promise = w.promises.get(path);
            promise.is_some_and(|promise| promise.bytes == before)
        };
        let durable: Vec<&String> = paths.iter().filter(|path| promised(self, path)).collect();
        let what = format!("{mode:?} {handle} {pos}+{len}");
        let run = |w: &mut Self| w.fallocate(handle, mode, pos..pos + len);
        if self.step(what, Role::Change(Some(object)), &touches, run) {
            self.known.objects[object].bytes = after;
            return;
        }
        for path in durable {
            // If an older fault refused it, the acknowledged content stays. Otherwise the operation
            // may be done in part.
            if !self.promises.contains_key(path) {
                self.known.names.remove(path);
                self.known.objects[object].lost = true;
                let either = Either {
                    object,
                    before: before.clone(),
                    after: after.clone(),
                    whole,
                };
                self.either.insert(path.clone(), either);
            }
        }
    }

    /// Copies to the same position of another file, from one that is durable and is not written any
    /// more.
    pub(crate) fn copy(&mut self, from: &'static str, to: &'static str, pos: usize, len: usize) {
        let known = |handle| {
            let object = self.object_of(handle);
            object.filter(|object| !self.known.objects[*object].lost)
        };
        let (Some(source), Some(object)) = (known(from), known(to)) else {
            return;
        };
        let bytes = &self.known.objects[source].bytes;
        let end = (pos + len).min(bytes.len());
        let data = bytes[pos.min(end)..end].to_vec();
        let paths = self.paths_of(object);
        let touches: Vec<&str> = paths.iter().map(String::as_str).collect();
        let mut done = 0;
        let run = |w: &mut Self| {
            done = w.copy_range(from, to, pos, len)?;
            Ok(())
        };
        let what = format!("copy {from} {to} {pos}+{len}");
        if self.step(what, Role::Change(Some(source)), &touches, run) {
            // An error before the end is a smaller number; the rest is copied or not.
            self.known.objects[object].lost |= done < data.len();
            self.known.written(object, pos, &data);
            // Bytes written from now on are those of the copy.
            let writes = self.known.writes.values_mut();
            writes
                .filter(|of| **of == source)
                .for_each(|of| *of = object);
        }
    }
}

/// The workload: each operation on durable data, on dirty data, over many extents, and made durable
/// by another thread.
pub(crate) fn ranges(w: &mut World) {
    use FallocateMode::{Allocate, CollapseRange, InsertRange, PunchHole, ZeroRange};
    w.mount();
    // A volume of larger blocks has as many of them to each step.
    let s = w.scale();
    w.open("big", "/old/big");
    w.open("frag", "/old/frag");
    // Cold: maps and edges are read. Ranges end with a unit of contents, so that the rest of one
    // begins with its number.
    w.range("frag", PunchHole, s * (2 * 8192 + 500), s * (9 * 8192 + 12));
    w.range("big", PunchHole, s * 10_000, s * 20_000);
    w.fsync("frag");
    w.fsync("big");
    w.read("/old/frag");
    w.range(
        "big",
        ZeroRange { keep_size: false },
        s * 40_010,
        s * 12_342,
    );
    w.fsync("big");
    w.range("frag", CollapseRange, s * 12 * 8192, s * 3 * 8192);
    w.fsync("frag");
    w.range("frag", InsertRange, s * 4096, s * 8192);
    w.fsync("frag");
    w.read("/old/frag");
    w.range(
        "frag",
        ZeroRange { keep_size: true },
        s * (20 * 8192 + 7),
        s * (5 * 8192 + 9),
    );
    w.sync();
    // Space ahead of data, then data.
    w.mkdir("/new");
    w.open("a", "/new/a");
    w.range("a", Allocate { keep_size: true }, 0, s * 30_000);
    w.write("a", s * 4096, s * 9000);
    w.fsync("a");
    w.range("a", Allocate { keep_size: false }, s * 20_000, s * 40_000);
    w.fsync("a");
    w.write("a", s * 48_000, s * 6000);
    // On what is dirty.
    w.range("a", PunchHole, s * 49_000, s * 2008);
    w.range("a", InsertRange, s * 8192, s * 4096);
    w.fsync("a");
    w.write("a", 0, s * 20_480);
    w.range("a", CollapseRange, s * 4096, s * 8192);
    w.range("a", ZeroRange { keep_size: false }, s * 50_000, s * 30_000);
    w.open("c", "/new/c");
    w.write("c", s * 8192, s * 20_000);
    w.write("c", s * 40_000, s * 30_000);
    w.sync();
    w.open("b", "/new/b");
    w.copy("c", "b", s * 1024, s * 60_000);
    w.fsync("b");
    w.read("/new/b");
    w.read("/new/a");
    w.read("/old/big");
    // Left to the unmount.
    w.write("big", 0, s * 30_000);
    w.range("big", CollapseRange, s * 16_384, s * 4096);
    w.range("frag", PunchHole, 0, s * 100_000);
    w.range("b", InsertRange, s * 4096, s * 4096);
    w.unmount();
}
