//! Content of a file in the model: for each sector the bytes that a crash may leave there, and the
//! bounds of the size.
//!
//! Each snapshot of the model has its own content of a file: the one that belongs to that prefix
//! of the operations. What a later operation writes in place may be on the disk before the journal
//! has that operation. So a later write widens the older snapshots as well, where their blocks are
//! still those of the file ([`Content::map`]).

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that a drive writes whole.
pub(crate) const SECTOR: usize = 512;

/// The bytes of a sector, as far as the file has them.
type Image = Arc<[u8]>;

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Content {
    /// Bounds of the size on disk.
    min: usize,
    max: usize,
    /// The sectors as a reader sees them before a crash.
    now: Vec<Image>,
    /// For each sector, what it may hold after a crash.
    allowed: Vec<BTreeSet<Image>>,
    /// For each sector of the file as it is now, the sector of this snapshot that lies on the same
    /// disk sector.
    map: Vec<Option<usize>>,
    /// Bytes that the file has space for at least: now, and if it was made durable.
    space: u64,
    kept: u64,
}

/// A change of the bytes of a file, as all snapshots see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Bytes are written; the file may become longer.
    Write { pos: usize, bytes: Vec<u8> },
    /// Bytes arrive from another file: as a write, but the size may move before the bytes do.
    Copy { pos: usize, bytes: Vec<u8> },
    /// The size is set.
    Resize { len: usize },
    /// Space is given; with `grow` the file ends at the end of the range at least.
    Allocate { range: Range<usize>, grow: bool },
    /// The range reads as zeros, and loses its whole blocks.
    Punch { range: Range<usize> },
    /// The range reads as zeros, and has blocks.
    Zero { range: Range<usize>, grow: bool },
    /// The range is taken out.
    Collapse { range: Range<usize> },
    /// A hole is put in.
    Insert { range: Range<usize> },
}

impl Change {
    /// Returns whether a file of `len` bytes has another size or other space afterwards, which the
    /// journal has to have before the next fsync returns.
    pub(crate) fn moves_map(&self, len: usize) -> bool {
        match self {
            Self::Write { pos, bytes } | Self::Copy { pos, bytes } => pos + bytes.len() > len,
            Self::Resize { len: new } => *new != len,
            Self::Collapse { .. } | Self::Insert { .. } | Self::Punch { .. } => true,
            Self::Allocate { range, .. } => range.end > len,
            Self::Zero { range, grow } => *grow && range.end > len,
        }
    }
}

/// Facts that the contents of files depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Habits {
    /// Bytes of a block.
    pub(crate) block: usize,
    /// A size may be durable before the data below it, which then reads as zero.
    pub(crate) early_sizes: bool,
}

/// Sectors that contain the range.
fn sectors(range: &Range<usize>) -> Range<usize> {
    range.start / SECTOR..range.end.div_ceil(SECTOR)
}

impl Content {
    /// A file of which `bytes` are durable.
    pub(crate) fn durable(bytes: &[u8], habits: Habits) -> Self {
        let mut content = Self::default();
        content.change(
            &Change::Write {
                pos: 0,
                bytes: bytes.to_vec(),
            },
            habits,
        );
        content.acknowledge();
        content
    }

    /// The size before a crash.
    pub(crate) fn len(&self) -> usize {
        match self.now.last() {
            None => 0,
            Some(last) => (self.now.len() - 1) * SECTOR + last.len(),
        }
    }

    /// The bytes before a crash.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.now.iter().flat_map(|image| image.to_vec()).collect()
    }

    /// An fsync returned: what is now is all that is allowed.
    pub(crate) fn acknowledge(&mut self) {
        (self.min, self.max) = (self.len(), self.len());
        self.allowed = self.now.iter().cloned().map(|i| [i].into()).collect();
        self.map = (0..self.now.len()).map(Some).collect();
        self.kept = self.space;
    }

    /// A copy for the snapshot after the next operation.
    pub(crate) fn next(&self) -> Self {
        let mut next = self.clone();
        next.map = (0..next.now.len()).map(Some).collect();
        next
    }

    /// The operation of this snapshot changes the file.
    pub(crate) fn change(&mut self, change: &Change, habits: Habits) {
        let durable = self.min;
        match change {
            Change::Write { pos, bytes } => {
                self.write(*pos, bytes);
                if habits.early_sizes {
                    self.outrun(durable);
                }
            }
            Change::Copy { pos, bytes } => {
                // Where the bytes go there is a hole before they do.
                self.outrun(durable);
                let end = self.len().max(pos + bytes.len());
                let mut holes = self.bytes();
                holes.resize(end, 0);
                holes[*pos..pos + bytes.len()].fill(0);
                let begin = self.len().min(*pos);
                self.see(&holes, begin..end);
                self.write(*pos, bytes);
                self.lose_space();
            }
            Change::Resize { len } => self.resize(*len),
            Change::Allocate { range, grow } => {
                self.space = self.space.max((range.end - range.start) as u64);
                if *grow {
                    self.grow(range.end);
                }
            }
            Change::Punch { range } => {
                self.lose_space();
                self.zero(range);
            }
            Change::Zero { range, grow } => {
                self.space = self.space.max((range.end - range.start) as u64);
                if *grow {
                    self.grow(range.end);
                }
                self.zero(range);
            }
            Change::Collapse { range } => self.shift(range, true),
            Change::Insert { range } => self.shift(range, false),
        }
        self.map = (0..self.now.len()).map(Some).collect();
    }

    fn write(&mut self, pos: usize, data: &[u8]) {
        let mut bytes = self.bytes();
        bytes.resize(bytes.len().max(pos + data.len()), 0);
        bytes[pos..pos + data.len()].copy_from_slice(data);
        self.see(&bytes, 0..bytes.len());
        self.max = self.max.max(bytes.len());
    }

    fn resize(&mut self, len: usize) {
        let (old, durable) = (self.len(), self.min);
        self.outrun(durable);
        if len >= old {
            self.grow(len);
            self.min = len;
            return;
        }
        let mut bytes = self.bytes();
        bytes.truncate(len);
        self.cut(len);
        (self.min, self.max) = (self.min.min(len), self.max.min(len));
        self.lose_space();
        self.see(&bytes, 0..bytes.len());
    }

    /// The file ends at `end` at least. The size moves with each run of blocks, past data that has
    /// not arrived.
    fn grow(&mut self, end: usize) {
        let (old, durable) = (self.len(), self.min);
        self.outrun(durable);
        if end > old {
            let mut bytes = self.bytes();
            bytes.resize(end, 0);
            self.max = end;
            self.extend_all(old, end);
            self.see(&bytes, 0..bytes.len());
        }
    }

    /// The range reads as zeros, as far as the file has it.
    fn zero(&mut self, range: &Range<usize>) {
        let durable = self.min;
        self.outrun(durable);
        let mut bytes = self.bytes();
        let zeroed = range.start.min(bytes.len())..range.end.min(bytes.len());
        bytes[zeroed].fill(0);
        self.see(&bytes, 0..bytes.len());
    }

    /// The range is taken out, or put in as a hole.
    fn shift(&mut self, range: &Range<usize>, out: bool) {
        let durable = self.min;
        self.outrun(durable);
        let mut bytes = self.bytes();
        if out {
            bytes.drain(range.clone());
            self.allowed.drain(sectors(range));
        } else {
            let hole = vec![0; range.end - range.start];
            bytes.splice(range.start..range.start, hole);
            let at = range.start / SECTOR;
            let holes = sectors(range).map(|_| BTreeSet::new());
            self.allowed.splice(at..at, holes);
        }
        (self.min, self.max) = (bytes.len(), bytes.len());
        self.lose_space();
        self.see(&bytes, 0..bytes.len());
    }

    fn lose_space(&mut self) {
        (self.space, self.kept) = (0, 0);
    }

    /// A later operation changes the file, to what `newest` has: what it writes in place shows in
    /// this snapshot as well.
    pub(crate) fn overtaken(&mut self, change: &Change, newest: &Content, habits: Habits) {
        let block = habits.block;
        let whole_end = |len: usize| len.div_ceil(block) * block;
        let len = newest.len();
        match change {
            Change::Write { pos, bytes } | Change::Copy { pos, bytes } => {
                self.grow_map(whole_end(len));
                self.in_place(*pos..pos + bytes.len(), newest);
            }
            Change::Resize { len } => {
                // The rest of the last block is zeroed in place.
                self.in_place(*len..whole_end(*len), newest);
                self.map.truncate(whole_end(*len) / SECTOR);
                self.grow_map(whole_end(*len));
            }
            Change::Allocate { .. } => self.grow_map(whole_end(len)),
            Change::Punch { range } | Change::Zero { range, .. } => {
                self.grow_map(whole_end(len));
                let whole = range.start.next_multiple_of(block)..range.end / block * block;
                self.in_place(range.start..range.end.min(whole.start), newest);
                self.in_place(range.start.max(whole.end)..range.end, newest);
                if matches!(change, Change::Punch { .. }) {
                    for at in sectors(&whole) {
                        if let Some(at) = self.map.get_mut(at) {
                            *at = None;
                        }
                    }
                }
            }
            Change::Collapse { range } => {
                let end = self.map.len();
                self.map
                    .drain(range.start / SECTOR..(range.end / SECTOR).min(end));
            }
            Change::Insert { range } => {
                let at = range.start / SECTOR;
                let holes = vec![None; (range.end - range.start) / SECTOR];
                self.map.splice(at..at, holes);
            }
        }
    }

    /// Returns why a file found with these bytes and this space is none that this may be.
    pub(crate) fn mismatch(&self, found: &[u8], space: u64) -> Option<String> {
        if !(self.min..=self.max).contains(&found.len()) {
            let (len, min, max) = (found.len(), self.min, self.max);
            return Some(format!("{len} bytes, not {min}..={max}"));
        }
        if space < self.kept {
            return Some(format!("space for {space} bytes, not {}", self.kept));
        }
        for (nth, sector) in found.chunks(SECTOR).enumerate() {
            let images = self.allowed.get(nth);
            let fits = |image: &Image| image.starts_with(sector);
            if !images.is_some_and(|images| images.iter().any(fits)) {
                let at = nth * SECTOR;
                let known = images.map_or(0, BTreeSet::len);
                let first = &sector[..sector.len().min(6)];
                let zeros = sector.iter().filter(|byte| **byte == 0).count();
                return Some(format!(
                    "sector at {at} is {first:02x?}.. with {zeros} zeros, none of its {known}"
                ));
            }
        }
        None
    }

    /// Sectors of `bytes` in `range` are what is read now, and may be what a crash leaves.
    fn see(&mut self, bytes: &[u8], range: Range<usize>) {
        self.now = bytes.chunks(SECTOR).map(Arc::from).collect();
        let count = self.allowed.len().max(self.now.len());
        self.allowed.resize(count, BTreeSet::new());
        for at in sectors(&range) {
            if let Some(image) = self.now.get(at) {
                self.allowed[at].insert(image.clone());
            }
        }
    }

    /// The size on disk may move past data behind `durable` that has not arrived.
    fn outrun(&mut self, durable: usize) {
        for (nth, images) in self.allowed.iter_mut().enumerate() {
            let kept = durable.saturating_sub(nth * SECTOR);
            if kept >= SECTOR {
                continue;
            }
            let late: Vec<Image> = images
                .iter()
                .map(|image| zeroed_from(image, kept))
                .collect();
            images.extend(late);
        }
    }

    /// The size moves from `old` to `new`: what a sector may hold goes on with zeros.
    fn extend_all(&mut self, old: usize, new: usize) {
        self.allowed.resize(new.div_ceil(SECTOR), BTreeSet::new());
        for (nth, images) in self.allowed.iter_mut().enumerate() {
            if (nth + 1) * SECTOR <= old {
                continue;
            }
            let len = (new - nth * SECTOR).min(SECTOR);
            let mut longer: BTreeSet<Image> =
                images.iter().map(|image| extended(image, len)).collect();
            if nth * SECTOR >= old {
                longer.insert(Arc::from(vec![0; len]));
            }
            *images = longer;
        }
    }

    /// Bytes that were cut off do not come back: later bytes behind `len` follow zeros.
    fn cut(&mut self, len: usize) {
        self.allowed.truncate(len.div_ceil(SECTOR));
        let Some(last) = self.allowed.last_mut() else {
            return;
        };
        let kept = len - (len.div_ceil(SECTOR) - 1) * SECTOR;
        let short = |image: &Image| Image::from(&image[..kept.min(image.len())]);
        *last = last.iter().map(short).collect();
    }

    /// Disk sectors that this snapshot has no name for follow, up to `end`.
    fn grow_map(&mut self, end: usize) {
        let count = (end / SECTOR).max(self.map.len());
        self.map.resize(count, None);
    }

    /// The bytes of `newest` in `range` may be on the disk now.
    fn in_place(&mut self, range: Range<usize>, newest: &Content) {
        if range.is_empty() {
            return;
        }
        for at in sectors(&range) {
            let Some(Some(there)) = self.map.get(at) else {
                continue;
            };
            let image = newest.now.get(at).map_or(&[][..], |image| image);
            if let Some(images) = self.allowed.get_mut(*there) {
                images.insert(image.into());
                images.insert(extended(image, SECTOR));
            }
        }
    }
}

/// The image with zeros from byte `kept` on.
fn zeroed_from(image: &Image, kept: usize) -> Image {
    let mut bytes = image.to_vec();
    let kept = kept.min(bytes.len());
    bytes[kept..].fill(0);
    bytes.into()
}

/// The image with zeros up to `len` bytes.
fn extended(image: &[u8], len: usize) -> Image {
    let mut bytes = image.to_vec();
    bytes.resize(len.max(bytes.len()), 0);
    bytes.into()
}
