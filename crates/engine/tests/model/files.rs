//! Content that a file should hold, and what a power cut may make of it.

use std::ops::Range;
use std::sync::Arc;

use crate::moves::{Move, index};

/// Most moves of the map between two moments at which the file is durable.
const MOVES: usize = 5;
/// A page: what a truncation zeroes at most, unless a block is larger.
const PAGE: usize = 4096;

/// A file's bytes, and everything since they were last durable.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) bytes: Vec<u8>,
    /// Bytes of a block, of a page at least.
    unit: usize,
    /// Contents that the disk may show: the file as it was before each move of its map since then,
    /// and as it is now, the last. A move reaches the disk whole, or not at all and with nothing
    /// that came after it but data, which goes where its blocks are.
    epochs: Vec<Epoch>,
}

/// Content that the disk may show as long as the file's map does not move.
#[derive(Clone, Default)]
struct Epoch {
    /// Bytes that may be there: what was durable, and what was written since.
    layers: Vec<Layer>,
    /// Ranges where zeros may be as well.
    zeros: Vec<Range<usize>>,
    /// Ranges that became part of the file as zeros, or whose end was set by a truncation.
    zeroed: Vec<Range<usize>>,
    /// Layers that were written, and lost in a cut: may lie behind the end of the file.
    lost: Vec<Layer>,
    /// The smallest and the largest size.
    sizes: (usize, usize),
    /// How the map moved then.
    next: Option<Move>,
}

/// Bytes at a position.
#[derive(Clone)]
struct Layer {
    at: Range<usize>,
    /// Byte `at.start` is this one's first from `skip` on; zeros if there is none.
    data: Option<Arc<[u8]>>,
    skip: usize,
    /// On the disk before anything else of the epoch.
    durable: bool,
}

impl Layer {
    fn new(pos: usize, data: &[u8]) -> Layer {
        Layer {
            at: pos..pos + data.len(),
            data: Some(data.into()),
            skip: 0,
            durable: false,
        }
    }

    fn zeros(at: Range<usize>) -> Layer {
        Layer {
            at,
            data: None,
            skip: 0,
            durable: false,
        }
    }

    fn byte(&self, at: usize) -> u8 {
        let data = self.data.as_ref();
        data.map_or(0, |data| data[at - self.at.start + self.skip])
    }

    /// Returns the layer after `moves` did that with its place.
    fn moved(&self, moves: impl Fn(Range<usize>) -> Vec<(Range<usize>, usize)>) -> Vec<Layer> {
        let piece = |(at, from): (Range<usize>, usize)| Layer {
            at,
            skip: self.skip + from - self.at.start,
            ..self.clone()
        };
        moves(self.at.clone()).into_iter().map(piece).collect()
    }
}

impl Model {
    /// A new file, of blocks of `block` bytes.
    pub(crate) fn new(block: u32) -> Model {
        Model::of(Vec::new(), PAGE.max(index(block.into())))
    }

    /// A file that holds `bytes`, durably.
    fn of(bytes: Vec<u8>, unit: usize) -> Model {
        let mut model = Model {
            bytes,
            unit,
            epochs: Vec::new(),
        };
        model.make_durable();
        model
    }

    fn now(&mut self) -> &mut Epoch {
        self.epochs.last_mut().expect("there is always one")
    }

    /// Notes what may be on the disk from now on, before the map's last moves as well.
    fn put(&mut self, layer: Layer) {
        let mut layers = vec![layer];
        for epoch in self.epochs.iter_mut().rev() {
            if let Some(next) = &epoch.next {
                let back = |layer: &Layer| layer.moved(|range| next.back(range));
                layers = layers.iter().flat_map(back).collect();
            }
            epoch.layers.extend(layers.iter().cloned());
        }
    }

    /// The block at the end is zeroed from there on.
    fn zero_end(&mut self, at: usize) {
        self.put(Layer::zeros(at..at.next_multiple_of(self.unit)));
    }

    pub(crate) fn write(&mut self, pos: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let (pos, old) = (index(pos), self.bytes.len());
        if old < pos {
            self.now().zeroed.push(old..pos);
            self.zero_end(old);
        }
        if old < pos + data.len() {
            self.bytes.resize(pos + data.len(), 0);
        }
        self.bytes[pos..pos + data.len()].copy_from_slice(data);
        self.put(Layer::new(pos, data));
        self.sized();
    }

    pub(crate) fn truncate(&mut self, size: u64) {
        let (size, old) = (index(size), self.bytes.len());
        // The size moves here and now, whether the bytes before it have arrived or not; what is cut
        // off becomes zero before.
        self.now().zeroed.push(0..size.max(old));
        self.zero_end(size.min(old));
        self.bytes.resize(size, 0);
        self.sized();
    }

    /// The bytes of a range that exist become zero. The size on disk moves up to its end, whether
    /// what is before it has arrived or not: writeback of the range, which would have moved it, is
    /// not going to come.
    pub(crate) fn zero(&mut self, range: Range<u64>) {
        let end = index(range.end).min(self.bytes.len());
        let start = index(range.start).min(end);
        if start < end {
            self.bytes[start..end].fill(0);
            self.now().zeroed.push(0..end);
            self.put(Layer::zeros(start..end));
        }
    }

    /// Bytes came from a file: written, or, where that had holes, made zero, or part of the file,
    /// with sizes that move at once.
    pub(crate) fn copied(&mut self, pos: u64, data: &[u8]) {
        self.write(pos, data);
        let size = self.bytes.len();
        self.now().zeroed.push(0..size);
    }

    /// Returns whether its map may move once more before it is durable.
    pub(crate) fn can_move(&self) -> bool {
        self.epochs.len() <= MOVES
    }

    /// The map moves: a range is taken out, or one of zeros is put in.
    pub(crate) fn shift(&mut self, how: Move) {
        how.apply(&mut self.bytes);
        let size = self.bytes.len();
        let last = self.now();
        last.next = Some(how.clone());
        let forth = |layer: &Layer| layer.moved(|range| how.forth(range));
        // The size moved here and now, as with a truncation.
        let unsure = last.sizes.0..last.sizes.1.max(last.sizes.0);
        let zeros = last.zeros.iter().cloned().chain([unsure]);
        let moved = zeros.flat_map(|range| how.forth(range).into_iter().map(|piece| piece.0));
        let next = Epoch {
            zeros: moved.chain(how.gap()).collect(),
            layers: last.layers.iter().flat_map(forth).collect(),
            lost: last.lost.iter().flat_map(forth).collect(),
            sizes: (size, size),
            ..Epoch::default()
        };
        self.epochs.push(next);
    }

    fn sized(&mut self) {
        let size = self.bytes.len();
        let sizes = &mut self.now().sizes;
        *sizes = (sizes.0.min(size), sizes.1.max(size));
    }

    /// The file after a cut that left `found`.
    pub(crate) fn after_cut(&mut self, found: Vec<u8>) -> Model {
        let mut lost = Vec::new();
        for epoch in std::mem::take(&mut self.epochs) {
            lost.extend(epoch.lost);
            let written = |layer: &Layer| !layer.durable && layer.data.is_some();
            lost.extend(epoch.layers.into_iter().filter(written));
        }
        let mut model = Model::of(found, self.unit);
        model.now().lost = lost;
        model
    }

    /// Everything is durable now.
    pub(crate) fn make_durable(&mut self) {
        let lost = self.epochs.pop().map(|epoch| epoch.lost);
        let durable = Layer {
            durable: true,
            ..Layer::new(0, &self.bytes)
        };
        self.epochs = vec![Epoch {
            layers: vec![durable],
            lost: lost.unwrap_or_default(),
            sizes: (self.bytes.len(), self.bytes.len()),
            ..Epoch::default()
        }];
    }

    /// The bytes of `[pos, pos + len)` that exist.
    pub(crate) fn slice(&self, pos: u64, len: u64) -> &[u8] {
        let end = index(pos.saturating_add(len)).min(self.bytes.len());
        &self.bytes[index(pos).min(end)..end]
    }

    /// Returns whether a power cut now may leave `found`. See [`Epoch::allows`].
    pub(crate) fn allows(&self, found: &[u8], block: usize, strict: bool) -> Result<(), String> {
        let mut why = Vec::new();
        for epoch in self.epochs.iter().rev() {
            match epoch.allows(found, block, strict) {
                Ok(()) => return Ok(()),
                Err(no) => why.push(no),
            }
        }
        Err(why.join("; before the last move: "))
    }
}

impl Epoch {
    /// Returns whether a power cut may leave `found`: a size that the file had or passed; and for
    /// each byte what was durable, or what was written since, or zero where the file had ended at
    /// some moment. With `strict` not even that in the last block, unless the file had zeros there
    /// or was cut: no write's size covers data that has not arrived. Without `strict`, as on Linux,
    /// what an earlier cut took may come back as well where the file grows over it.
    fn allows(&self, found: &[u8], block: usize, strict: bool) -> Result<(), String> {
        let (least, most) = self.sizes;
        if !(least..=most).contains(&found.len()) {
            let size = found.len();
            return Err(format!("{size} bytes after the cut, not {least} to {most}"));
        }
        let last_block = found.len().saturating_sub(1) / block * block;
        let may_be_zero = |at: usize| {
            let late = strict && at >= last_block;
            at >= least && (!late || self.zeroed.iter().any(|range| range.contains(&at)))
        };
        let zeros = (0..).zip(found);
        let mut fine: Vec<bool> = zeros
            .map(|(at, byte)| *byte == 0 && may_be_zero(at))
            .collect();
        for range in &self.zeros {
            for at in range.start..range.end.min(found.len()) {
                fine[at] |= found[at] == 0;
            }
        }
        for layer in &self.layers {
            for at in layer.at.start..layer.at.end.min(found.len()) {
                fine[at] |= layer.byte(at) == found[at];
            }
        }
        for layer in self.lost.iter().filter(|_| !strict) {
            for at in layer.at.start.max(least)..layer.at.end.min(found.len()) {
                fine[at] |= layer.byte(at) == found[at];
            }
        }
        match fine.iter().position(|fine| !fine) {
            None => Ok(()),
            Some(at) => Err(format!(
                "byte {at} of {} is {:#x} after the cut: \
                 neither what was durable nor written since",
                found.len(),
                found[at],
            )),
        }
    }
}
