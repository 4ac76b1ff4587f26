//! The range operations on a file and on its model.

use extant_engine::{Error, ExtentState, FallocateMode, Volume};

use crate::config::Size;
use crate::moves::{Move, index};
use crate::world::{Outcome, World, text};

impl World {
    /// Does it, or expects to be refused.
    pub(super) fn fallocate(
        &mut self,
        file: usize,
        mode: FallocateMode,
        (pos, len): (u64, u64),
    ) -> Outcome {
        let (node, model) = &mut self.files[file];
        let (size, end) = (model.bytes.len() as u64, pos + len);
        let moves = matches!(
            mode,
            FallocateMode::CollapseRange | FallocateMode::InsertRange
        );
        if moves && !model.can_move() {
            return Ok(());
        }
        let most = 2 * self.config.span;
        let grown = match mode {
            FallocateMode::InsertRange => size + len,
            _ => size.max(end),
        };
        if grown > most && !matches!(mode, FallocateMode::PunchHole) {
            return Ok(());
        }
        let aligned =
            (pos | len).is_multiple_of(u64::from(self.config.block * self.config.cluster()));
        let refused = match mode {
            FallocateMode::CollapseRange => !aligned || end >= size,
            FallocateMode::InsertRange => !aligned || pos >= size,
            _ => false,
        };
        let done = self.volume.fallocate(node, mode, pos, len, &self.cred);
        let now = self.volume.getattr(node).map_err(|error| text(&error))?;
        let extents = !self.config.block_maps || mode == FallocateMode::PunchHole;
        let expected = match (done, mode) {
            (Err(Error::NotSupported(_)), _) if !extents => size,
            (_, _) if !extents => return Err("of a file with a block map".into()),
            (Err(Error::Invalid), _) if refused => size,
            (Ok(()), _) if refused => return Err("it should be refused".into()),
            (Err(Error::NoSpace), _) if self.config.size == Size::Tight => {
                // Only plain allocation may have done a part.
                let part = matches!(mode, FallocateMode::Allocate { keep_size: false });
                if part && (size..=grown).contains(&now.size) && now.size > size {
                    model.truncate(now.size);
                }
                let expected = model.bytes.len() as u64;
                self.read(file, 0, expected, Volume::read)?;
                expected
            }
            (Err(error), _) => return Err(text(&error)),
            (Ok(()), _) => self.allocated(file, mode, pos..end)?,
        };
        if now.size != expected {
            return Err(format!("{} bytes, not {expected}", now.size));
        }
        Ok(())
    }

    /// Does to the model what has succeeded on the file; returns the size that follows.
    fn allocated(
        &mut self,
        file: usize,
        mode: FallocateMode,
        range: std::ops::Range<u64>,
    ) -> Result<u64, String> {
        let (pos, end, len) = (range.start, range.end, range.end - range.start);
        let model = &mut self.files[file].1;
        let size = model.bytes.len() as u64;
        Ok(match mode {
            FallocateMode::Allocate { keep_size } | FallocateMode::ZeroRange { keep_size } => {
                if matches!(mode, FallocateMode::ZeroRange { .. }) {
                    model.zero(range);
                }
                if !keep_size && end > size {
                    model.truncate(end);
                }
                self.has_space(file, pos, end)?;
                grown_unless(keep_size, size, end)
            }
            FallocateMode::PunchHole => {
                model.zero(range);
                self.has_none(file, pos, end.min(size))?;
                size
            }
            FallocateMode::CollapseRange => {
                model.shift(Move::Out(index(pos)..index(end)));
                size - len
            }
            FallocateMode::InsertRange => {
                model.shift(Move::In(index(pos)..index(end)));
                self.has_none(file, pos, end)?;
                size + len
            }
        })
    }

    /// Copies as copy_file_range(2) does.
    pub(super) fn copy(
        &mut self,
        (file, pos): (usize, u64),
        (to, to_pos): (usize, u64),
        len: u64,
    ) -> Outcome {
        let data = self.files[file].1.slice(pos, len).to_vec();
        let count = data.len() as u64;
        let overlap = file == to && count > 0 && pos.abs_diff(to_pos) < count;
        let (from, into) = ((&self.files[file].0, pos), (&self.files[to].0, to_pos));
        let done = match self.volume.copy_range(from, into, len, &self.cred) {
            Err(Error::Invalid) if overlap => return Ok(()),
            Err(Error::NoSpace) if self.config.size == Size::Tight => 0,
            done => done.map_err(|error| text(&error))?,
        };
        if overlap || done > count || (done < count && self.config.size == Size::Roomy) {
            return Err(format!("{done} bytes of {count}"));
        }
        let model = &mut self.files[to].1;
        model.copied(to_pos, &data[..index(done)]);
        let size = model.bytes.len() as u64;
        let now = self.volume.getattr(&self.files[to].0);
        let now = now.map_err(|error| text(&error))?;
        if now.size != size {
            return Err(format!("{} bytes, not {size}", now.size));
        }
        self.read(to, to_pos, done, Volume::read)
    }

    /// No block that bytes from `pos` to `end` touch is a hole.
    fn has_space(&self, file: usize, pos: u64, end: u64) -> Outcome {
        let mut at = pos;
        for extent in self.volume.map(&self.files[file].0, pos) {
            let extent = extent.map_err(|error| text(&error))?;
            if at >= end {
                break;
            }
            if extent.logical > at || extent.state == ExtentState::Hole {
                break;
            }
            at = extent.logical + extent.len;
        }
        if at < end {
            return Err(format!("byte {at} of {pos} to {end} has no space"));
        }
        Ok(())
    }

    /// No block that lies whole between bytes `pos` and `end` has space, nor the promise of some.
    fn has_none(&self, file: usize, pos: u64, end: u64) -> Outcome {
        let block = u64::from(self.config.block);
        let (first, end) = (pos.next_multiple_of(block), end / block * block);
        for extent in self.volume.map(&self.files[file].0, first) {
            let extent = extent.map_err(|error| text(&error))?;
            if first >= end || extent.logical >= end {
                break;
            }
            if extent.state != ExtentState::Hole {
                return Err(format!("{extent:?} in a hole from {first} to {end}"));
            }
        }
        Ok(())
    }
}

fn grown_unless(keep_size: bool, size: u64, end: u64) -> u64 {
    if keep_size { size } else { size.max(end) }
}
