//! Calls on the content of files.

use std::io::IoSlice;

use extant_engine::{Error, FallocateMode, IoBuf, Node, SeekTarget, Volume};

use crate::cells::{bytes, cells, cut, decode, encode};
use crate::model::{CELL, PAGE, Part, Value};
use crate::program::Op;
use crate::world::{Done, Outcome, World, done};

/// The bytes that a view of a file shows.
pub(crate) fn read_view(
    volume: &Volume,
    node: &Node,
    pos: u64,
    buf: &mut [u8],
) -> extant_engine::Result<usize> {
    let view = volume.view(node, pos, buf.len())?;
    let mut done = 0;
    for chunk in view.chunks() {
        buf[done..done + chunk.len()].copy_from_slice(chunk);
        done += chunk.len();
    }
    Ok(done)
}

impl World {
    pub(crate) fn call_range(&self, op: Op) -> Outcome<Done> {
        match op {
            Op::Punch(file, at, len) => {
                let parts = vec![Part::Fade(file, at, len), Part::Zero(file, at, len)];
                self.fallocate(file, FallocateMode::PunchHole, (at, len), parts)
            }
            Op::Zero(file, at, len, keep_size) => {
                let mut parts = vec![Part::Fade(file, at, len), Part::Zero(file, at, len)];
                if !keep_size {
                    parts.push(Part::Extend(file, at + len));
                }
                self.fallocate(
                    file,
                    FallocateMode::ZeroRange { keep_size },
                    (at, len),
                    parts,
                )
            }
            Op::Allocate(file, at, len, keep_size) => {
                // The file grows as its blocks come.
                let pieces = cut(at, if keep_size { 0 } else { len }, self.block);
                let grows = pieces
                    .into_iter()
                    .map(|(at, len)| Part::Extend(file, at + len));
                let parts = grows.collect();
                self.fallocate(
                    file,
                    FallocateMode::Allocate { keep_size },
                    (at, len),
                    parts,
                )
            }
            Op::Collapse(file, at, len) => {
                let parts = vec![Part::Collapse(file, at, len)];
                self.fallocate(file, FallocateMode::CollapseRange, (at, len), parts)
            }
            Op::Insert(file, at, len) => {
                let parts = vec![Part::Insert(file, at, len)];
                self.fallocate(file, FallocateMode::InsertRange, (at, len), parts)
            }
            other => Err(format!("{other:?} is no call on ranges")),
        }
    }

    pub(crate) fn write(&self, file: usize, at: usize, values: &[Value]) -> Outcome<Done> {
        let (data, pos) = (encode(values), bytes(at));
        let wrote = self.volume.write(&self.files[file], pos, &data, &self.cred);
        self.written(file, at, values, wrote)
    }

    pub(crate) fn written(
        &self,
        file: usize,
        at: usize,
        values: &[Value],
        wrote: extant_engine::Result<usize>,
    ) -> Outcome<Done> {
        match wrote {
            Ok(written) => {
                let written = cells(written as u64)?;
                let parts = cut(at, written, self.block).into_iter().map(|(from, len)| {
                    Part::Write(file, from, values[from - at..from - at + len].to_vec())
                });
                done(parts.collect(), format!("{written}"))
            }
            Err(error) => self.refused(&error),
        }
    }

    /// A write of buffers of which none ends with a cell.
    pub(crate) fn write_vectored(&self, file: usize, at: usize, values: &[Value]) -> Outcome<Done> {
        let data = encode(values);
        let bufs: Vec<_> = data.chunks(CELL + 76).map(IoSlice::new).collect();
        let (node, pos) = (&self.files[file], bytes(at));
        let wrote = self.volume.write_vectored(node, pos, &bufs, &self.cred);
        self.written(file, at, values, wrote)
    }

    /// Stores through an edit view: within the file's size, page by page.
    pub(crate) fn edit(&self, file: usize, at: usize, values: &[Value]) -> Outcome<Done> {
        let (data, pos) = (encode(values), bytes(at));
        let store = |to: u64, piece: &mut [u8]| {
            let from = usize::try_from(to - pos).unwrap();
            piece.copy_from_slice(&data[from..from + piece.len()]);
        };
        let node = &self.files[file];
        match self.volume.edit(node, pos, data.len(), &self.cred, store) {
            Ok(stored) => {
                let stored = cells(stored as u64)?;
                let mut parts: Vec<_> = cut(at, stored, self.block)
                    .into_iter()
                    .map(|(from, len)| {
                        Part::Store(file, from, values[from - at..from - at + len].to_vec())
                    })
                    .collect();
                if stored < values.len() && self.ends_at_end() {
                    parts.push(Part::End(file, at + stored));
                }
                done(parts, format!("{stored}"))
            }
            Err(error) => self.refused(&error),
        }
    }

    pub(crate) fn write_direct(&self, file: usize, at: usize, values: &[Value]) -> Outcome<Done> {
        let (node, data, pos) = (&self.files[file], encode(values), bytes(at));
        let wrote = self.volume.write_direct(node, pos, &data, &self.cred);
        self.written_direct(file, at, values, wrote)
    }

    /// A direct write by way of a queue, which completes it in a thread of its own or at once.
    pub(crate) fn write_queued(&self, file: usize, at: usize, values: &[Value]) -> Outcome<Done> {
        let mut queue = self.volume.direct_queue(1, &self.cred);
        let buf = IoBuf::copy_of(&encode(values));
        let queued = queue.write(&self.files[file], bytes(at), buf, 0);
        queued.map_err(|error| format!("a queue refuses: {error}"))?;
        let finished = queue.wait(1).pop().ok_or("nothing was finished")?;
        self.written_direct(file, at, values, finished.result)
    }

    fn written_direct(
        &self,
        file: usize,
        at: usize,
        values: &[Value],
        wrote: extant_engine::Result<usize>,
    ) -> Outcome<Done> {
        match wrote {
            Ok(written) => {
                let written = &values[..cells(written as u64)?];
                // Of those behind some sectors may have arrived, if the device failed there.
                let begun = if self.device.write_failed().is_some() {
                    values
                } else {
                    written
                };
                let begin = Part::Change(file, at, begun.to_vec());
                let values = written.to_vec();
                let text = format!("{}", values.len());
                // A file that grows does so run by run, each of whole blocks.
                let runs = cut(at, values.len(), self.block)
                    .into_iter()
                    .map(|(from, len)| {
                        Part::Write(file, from, values[from - at..from - at + len].to_vec())
                    });
                done(std::iter::once(begin).chain(runs).collect(), text)
            }
            // Some of its sectors may have arrived.
            Err(error) => {
                let any = vec![Part::Change(file, at, values.to_vec())];
                self.refused_after(&error, any)
            }
        }
    }

    pub(crate) fn append(&self, file: usize, values: &[Value]) -> Outcome<Done> {
        match self
            .volume
            .append(&self.files[file], &encode(values), &self.cred)
        {
            Ok((pos, written)) => {
                let (at, written) = (cells(pos)?, cells(written as u64)?);
                let parts = cut(at, written, self.block).into_iter().map(|(from, len)| {
                    let values = values[from - at..from - at + len].to_vec();
                    Part::Append(file, from, values)
                });
                done(parts.collect(), format!("{written} at {at}"))
            }
            Err(error) => self.refused(&error),
        }
    }

    pub(crate) fn read(
        &self,
        file: usize,
        at: usize,
        len: usize,
        how: fn(&Volume, &Node, u64, &mut [u8]) -> extant_engine::Result<usize>,
    ) -> Outcome<Done> {
        let mut buf = vec![0x55; len * CELL];
        match how(&self.volume, &self.files[file], bytes(at), &mut buf) {
            Ok(got) => {
                let values = decode(&buf[..got])?;
                let mut parts: Vec<_> = cut(at, values.len(), PAGE)
                    .into_iter()
                    .map(|(from, len)| {
                        Part::Show(file, from, values[from - at..from - at + len].to_vec())
                    })
                    .collect();
                if values.len() < len && !self.has_fault() {
                    parts.push(Part::End(file, at + values.len()));
                }
                Ok(Done {
                    parts,
                    ordered: false,
                    failed: false,
                    text: format!("{values:?}"),
                })
            }
            Err(error) => self.refused(&error),
        }
    }

    /// Copies cells from file to file, or within one.
    pub(crate) fn copy(&self, number: usize, op: Op) -> Outcome<Done> {
        let Op::Copy(from, (at, len), (to, to_at)) = op else {
            return Err(format!("{op:?} is no copy"));
        };
        let source = (&self.files[from], bytes(at));
        let target = (&self.files[to], bytes(to_at));
        match self
            .volume
            .copy_range(source, target, bytes(len), &self.cred)
        {
            Ok(copied) => {
                let copied = cells(copied)?;
                // Where the source is short at some moment a piece may end at any cell.
                let pieces = cut(at, copied, 1);
                let mut parts = Vec::new();
                for (piece, (begin, count)) in pieces.iter().copied().enumerate() {
                    let target = to_at + (begin - at);
                    let piece = (number, piece);
                    parts.push(Part::Load(piece, from, begin, count));
                    parts.push(Part::Clear(piece, to, target));
                    parts.push(Part::Save(piece, to, target));
                }
                // Before what is written: that may be the same file's.
                if copied < len && self.ends_at_end() {
                    parts.insert(0, Part::End(from, at + copied));
                }
                Ok(Done {
                    parts,
                    ordered: false,
                    failed: false,
                    text: format!("{copied}"),
                })
            }
            Err(error) => {
                let any = vec![Part::Save((number, 0), to, to_at)];
                self.refused_after(&error, any)
            }
        }
    }

    pub(crate) fn seek(&self, file: usize, at: usize) -> Outcome<Done> {
        match self
            .volume
            .seek(&self.files[file], SeekTarget::Data(bytes(at)))
        {
            Ok(found) => {
                // Data is found by blocks, of which the first cells may be zeros.
                let found = cells(found)?;
                done(vec![Part::Data(file, at, Some(found))], format!("{found}"))
            }
            Err(Error::NoSuchAddress) => done(vec![Part::Data(file, at, None)], "none"),
            Err(error) => self.refused(&error),
        }
    }

    pub(crate) fn fallocate(
        &self,
        file: usize,
        mode: FallocateMode,
        (at, len): (usize, usize),
        parts: Vec<Part>,
    ) -> Outcome<Done> {
        let node = &self.files[file];
        let shifts = matches!(
            mode,
            FallocateMode::CollapseRange | FallocateMode::InsertRange
        );
        match self
            .volume
            .fallocate(node, mode, bytes(at), bytes(len), &self.cred)
        {
            Ok(()) => done(parts, ""),
            // The range does not lie within the file, or leaves nothing of it.
            Err(Error::Invalid) if shifts => {
                let last = match mode {
                    FallocateMode::CollapseRange => at + len,
                    _ => at,
                };
                done(vec![Part::End(file, last)], "refused")
            }
            Err(error) => {
                // Of zeros that were to come some may be there, if the device failed.
                let fades = |part: &Part| matches!(part, Part::Fade(..));
                if self.device.write_failed().is_some() {
                    return self.refused_after(&error, parts);
                }
                let begun = parts.into_iter().filter(fades);
                let parts = begun.filter(|_| self.device.has_failed()).collect();
                let refused = self.refused(&error)?;
                Ok(Done { parts, ..refused })
            }
        }
    }
}
