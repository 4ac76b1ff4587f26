//! Where the files of a variant are, and the timing of calls on them.
//!
//! The loops that are timed are methods of [`Data`] that every kind of file gets its own copy of: what they call is known
//! when they are compiled, and one dynamic call covers a whole sample.

mod engine;
mod host;
mod memory;
mod names;
mod tree;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use extant::{Node, Volume};
use extant_extent_io_tree::IoTree;
use extant_testkit::{Error, Result, ensure};

pub(crate) use engine::Engine;
pub(crate) use host::Host;
pub(crate) use memory::Memory;
pub(crate) use names::Names;
pub(crate) use tree::TreeOnly;

/// Counters by name.
pub(crate) type Counters = BTreeMap<String, u64>;

/// Where files are.
pub(crate) trait Place {
    /// Opens a file, making it if there is none.
    fn open(&mut self, name: &str) -> Result<Box<dyn Data>>;
    /// Removes a file; nothing if there is none.
    fn remove(&mut self, name: &str) -> Result<()>;
    /// A file that several threads append to; `None` where that means nothing.
    fn appender(&mut self, _name: &str) -> Result<Option<Box<dyn Appender>>> {
        Ok(None)
    }
    /// A file that is there, for direct requests; `None` where that means nothing.
    fn direct(&mut self, _name: &str) -> Result<Option<(Volume, Node)>> {
        Ok(None)
    }
    /// The tree that this is, if it is one.
    fn tree(&self) -> Option<Arc<IoTree>> {
        None
    }
    /// Calls on names; `None` where there are none.
    fn names(&self) -> Option<&dyn Names> {
        None
    }
    /// A file that is there, opened once more, for a thread of its own.
    fn opener(&mut self, name: &str) -> Result<Box<dyn Data + Send>>;
    /// The counters now; empty where there are none.
    fn counters(&self) -> Result<Counters>;
    /// What must be true at the end: a clean image.
    fn close(self: Box<Self>) -> Result<()>;

    /// A new and empty file in the place of `old`.
    fn renew(&mut self, name: &str, old: Option<Box<dyn Data>>) -> Result<Box<dyn Data>> {
        drop(old);
        self.remove(name)?;
        self.open(name)
    }
}

/// A place, and the files that are open there.
pub(crate) struct Site {
    place: Box<dyn Place>,
    files: BTreeMap<String, Box<dyn Data>>,
}

impl Site {
    pub(crate) fn new(place: Box<dyn Place>) -> Site {
        Site {
            place,
            files: BTreeMap::new(),
        }
    }

    /// The file of this name; `make` fills it when it is used for the first time.
    pub(crate) fn file(
        &mut self,
        name: &str,
        make: impl FnOnce(&mut dyn Data) -> Result<()>,
    ) -> Result<&mut dyn Data> {
        if !self.files.contains_key(name) {
            let mut file = self.place.renew(name, None)?;
            make(&mut *file)?;
            self.files.insert(name.to_owned(), file);
        }
        self.known(name)
    }

    /// A new and empty file of this name.
    pub(crate) fn fresh(&mut self, name: &str) -> Result<&mut dyn Data> {
        let old = self.files.remove(name);
        let file = self.place.renew(name, old)?;
        self.files.insert(name.to_owned(), file);
        self.known(name)
    }

    fn known(&mut self, name: &str) -> Result<&mut dyn Data> {
        match self.files.get_mut(name) {
            Some(file) => Ok(&mut **file),
            None => Err(Error::new(format!("no file {name}"))),
        }
    }

    /// Removes what a sample wrote. Memory stays, to be used again.
    pub(crate) fn clear(&mut self, name: &str) -> Result<()> {
        self.fresh(name).map(drop)
    }

    /// A file that several threads append to.
    pub(crate) fn appender(&mut self, name: &str) -> Result<Box<dyn Appender>> {
        let appender = self.place.appender(name)?;
        appender.ok_or_else(|| Error::new("nothing to append to"))
    }

    /// A file that is there, for direct requests.
    pub(crate) fn direct(&mut self, name: &str) -> Result<(Volume, Node)> {
        let file = self.place.direct(name)?;
        file.ok_or_else(|| Error::new("nothing to write directly"))
    }

    /// Calls on names.
    pub(crate) fn names(&self) -> Result<&dyn Names> {
        let names = self.place.names();
        names.ok_or_else(|| Error::new("no names"))
    }

    /// The tree that this is.
    pub(crate) fn tree(&self) -> Result<Arc<IoTree>> {
        self.place.tree().ok_or_else(|| Error::new("no tree"))
    }

    /// A file that is there, opened once more, for a thread of its own.
    pub(crate) fn opener(&mut self, name: &str) -> Result<Box<dyn Data + Send>> {
        self.place.opener(name)
    }

    pub(crate) fn counters(&self) -> Result<Counters> {
        self.place.counters()
    }

    pub(crate) fn close(self) -> Result<()> {
        drop(self.files);
        self.place.close()
    }
}

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// `write` at this position; moving back there is not counted.
    Write(u64),
    /// `pwrite` at this position.
    Pwrite(u64),
    /// `writev` of ten buffers at this position; moving back there is not counted.
    Writev(u64),
}

/// Buffers of a `writev`.
pub(crate) const VECTORS: usize = 10;

/// A file that several threads append to.
pub(crate) trait Appender: Sync {
    /// Appends all of `bytes`, in one piece.
    fn append(&self, bytes: &[u8]) -> Result<()>;
}

/// An open file.
pub(crate) trait Data {
    /// Writes all of `bytes` at `pos`.
    fn pwrite(&mut self, bytes: &[u8], pos: u64) -> Result<()>;
    /// Writes all of `bytes` at the file's position.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
    /// Writes all of `bytes`, [`VECTORS`] times, at the file's position.
    fn writev(&mut self, bytes: &[u8]) -> Result<()>;
    /// Moves the position.
    fn rewind(&mut self, pos: u64) -> Result<()>;
    /// Fills `buf` from `pos`.
    fn pread(&mut self, buf: &mut [u8], pos: u64) -> Result<()>;
    /// Sets the size.
    fn set_len(&mut self, len: u64) -> Result<()>;
    /// fsync.
    fn sync(&mut self) -> Result<()>;
    /// Lets go of what is cached and clean.
    fn cool(&mut self) -> Result<()>;

    /// Writes the `len` bytes at `from` `rounds` times, `chunk` by `chunk`.
    fn rewrite(&mut self, chunk: &[u8], from: u64, len: u64, rounds: u32) -> Result<()> {
        for _ in 0..rounds {
            for pos in (from..from + len).step_by(chunk.len()) {
                self.pwrite(chunk, pos)?;
            }
        }
        Ok(())
    }

    /// Times `count` calls.
    fn calls(&mut self, call: Call, bytes: &[u8], count: u64) -> Result<Duration> {
        let start = Instant::now();
        let pos = match call {
            Call::Pwrite(pos) => {
                for _ in 0..count {
                    self.pwrite(bytes, pos)?;
                }
                return Ok(start.elapsed());
            }
            Call::Write(pos) => {
                for _ in 0..count {
                    self.rewind(pos)?;
                    self.write(bytes)?;
                }
                pos
            }
            Call::Writev(pos) => {
                for _ in 0..count {
                    self.rewind(pos)?;
                    self.writev(bytes)?;
                }
                pos
            }
        };
        let with = start.elapsed();
        // What moving back costs at best: an interruption there must not be taken off.
        let part = u32::try_from(count / 4).unwrap_or(u32::MAX).max(1);
        let mut rewind = Duration::MAX;
        for _ in 0..4 {
            let start = Instant::now();
            for _ in 0..part {
                self.rewind(pos)?;
            }
            rewind = rewind.min(start.elapsed() / part);
        }
        let rewinds = rewind.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        Ok(with.saturating_sub(rewinds))
    }

    /// Times writing `len` bytes from the start, `chunk` by chunk, each followed by an fsync if `synced`. Stops early after
    /// `limit`. Returns the bytes written.
    fn stream_out(
        &mut self,
        chunk: &[u8],
        len: u64,
        synced: bool,
        limit: Duration,
    ) -> Result<(u64, Duration)> {
        let mut sample = Sample::start(len, chunk.len(), limit)?;
        while let Some(pos) = sample.next(synced) {
            self.pwrite(chunk, pos)?;
            if synced {
                self.sync()?;
            }
        }
        Ok(sample.end())
    }

    /// Times reading `len` bytes from the start. Stops early after `limit`. Returns the bytes read.
    fn stream_in(
        &mut self,
        chunk: &mut [u8],
        len: u64,
        limit: Duration,
    ) -> Result<(u64, Duration)> {
        let mut sample = Sample::start(len, chunk.len(), limit)?;
        while let Some(pos) = sample.next(false) {
            self.pread(chunk, pos)?;
        }
        Ok(sample.end())
    }
}

/// A stream in progress.
struct Sample {
    start: Instant,
    limit: Duration,
    len: u64,
    chunk: u64,
    pos: u64,
    /// Calls between two looks at the clock.
    stride: u64,
    calls: u64,
}

impl Sample {
    fn start(len: u64, chunk: usize, limit: Duration) -> Result<Sample> {
        let chunk = u64::try_from(chunk)?;
        ensure!(
            chunk > 0 && len >= chunk,
            "a stream of {len} bytes by {chunk}"
        );
        Ok(Sample {
            start: Instant::now(),
            limit,
            len,
            chunk,
            pos: 0,
            stride: ((64 << 10) / chunk).max(1),
            calls: 0,
        })
    }

    /// Where the next call goes.
    fn next(&mut self, slow: bool) -> Option<u64> {
        let look = slow || self.calls.is_multiple_of(self.stride);
        if self.pos + self.chunk > self.len
            || self.calls > 0 && look && self.start.elapsed() > self.limit
        {
            return None;
        }
        let at = self.pos;
        self.calls += 1;
        self.pos += self.chunk;
        Some(at)
    }

    fn end(self) -> (u64, Duration) {
        (self.pos, self.start.elapsed())
    }
}
