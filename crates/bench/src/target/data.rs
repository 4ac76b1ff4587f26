//! Open files, and the timing of calls on them.
//!
//! The loops that are timed are methods of [`Data`] that every kind of file gets its own copy of:
//! what they call is known when they are compiled, and one dynamic call covers a whole sample.

use std::time::{Duration, Instant};

use extant_host::{Result, ensure};

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
        let part = u32::try_from(count / 4)?.max(1);
        let mut rewind = Duration::MAX;
        for _ in 0..4 {
            let start = Instant::now();
            for _ in 0..part {
                self.rewind(pos)?;
            }
            rewind = rewind.min(start.elapsed() / part);
        }
        // Undisturbed calls may seem to take less than their moving back: then nothing is left.
        let rewinds = rewind * u32::try_from(count)?;
        Ok(with.saturating_sub(rewinds))
    }

    /// Times writing `len` bytes from the start, `chunk` by chunk, each followed by an fsync if
    /// `synced`. Stops early after `limit`. Returns the bytes written.
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

    /// Returns the position of the next call.
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
