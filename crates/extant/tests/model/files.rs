//! What a file should hold, and what a power cut may make of it.

use std::ops::Range;
use std::sync::Arc;

/// A file's bytes, and everything since they were last durable.
#[derive(Clone, Default)]
pub(crate) struct Model {
    pub(crate) bytes: Vec<u8>,
    durable: Vec<u8>,
    since: Vec<Change>,
    /// Ranges that became part of the file as zeros since then, or whose end was set by a truncation.
    zeroed: Vec<Range<usize>>,
    /// What was written, and lost in a cut: may lie behind the end of the file.
    lost: Vec<Change>,
    /// The smallest and the largest size since then.
    sizes: (usize, usize),
}

/// Bytes written at a position.
#[derive(Clone)]
struct Change {
    pos: usize,
    data: Arc<[u8]>,
}

impl Model {
    /// A file that holds `bytes`, durably.
    pub(crate) fn of(bytes: Vec<u8>) -> Model {
        let mut model = Model {
            bytes,
            ..Model::default()
        };
        model.settle();
        model
    }

    pub(crate) fn write(&mut self, pos: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let pos = index(pos);
        if self.bytes.len() < pos {
            self.zeroed.push(self.bytes.len()..pos);
        }
        if self.bytes.len() < pos + data.len() {
            self.bytes.resize(pos + data.len(), 0);
        }
        self.bytes[pos..pos + data.len()].copy_from_slice(data);
        self.since.push(Change {
            pos,
            data: data.into(),
        });
        self.sized();
    }

    pub(crate) fn truncate(&mut self, size: u64) {
        let size = index(size);
        // The size moves here and now, whether the bytes before it have arrived or not; what is cut off becomes zero before.
        self.zeroed.push(0..size.max(self.bytes.len()));
        self.bytes.resize(size, 0);
        self.sized();
    }

    fn sized(&mut self) {
        let size = self.bytes.len();
        self.sizes = (self.sizes.0.min(size), self.sizes.1.max(size));
    }

    /// The file after a cut that left `found`.
    pub(crate) fn after_cut(&mut self, found: Vec<u8>) -> Model {
        let mut lost = std::mem::take(&mut self.lost);
        lost.append(&mut self.since);
        Model {
            lost,
            ..Model::of(found)
        }
    }

    /// Everything is durable now.
    pub(crate) fn settle(&mut self) {
        self.durable.clone_from(&self.bytes);
        self.since.clear();
        self.zeroed.clear();
        self.sizes = (self.bytes.len(), self.bytes.len());
    }

    /// The bytes of `[pos, pos + len)` that exist.
    pub(crate) fn slice(&self, pos: u64, len: u64) -> &[u8] {
        let end = index(pos.saturating_add(len)).min(self.bytes.len());
        &self.bytes[index(pos).min(end)..end]
    }

    /// Whether a power cut now may leave `found`: a size that the file had or passed; and for each byte what was durable, or
    /// what was written since, or zero where the file had ended at some moment. With `strict` not even that in the last block,
    /// unless the file had zeros there or was cut: no write's size covers data that has not arrived. Without `strict`, as on Linux,
    /// what an earlier cut took may come back as well where the file grows over it.
    pub(crate) fn allows(&self, found: &[u8], block: usize, strict: bool) -> Result<(), String> {
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
        let explained =
            |(at, byte)| self.durable.get(at) == Some(byte) || (*byte == 0 && may_be_zero(at));
        let mut fine: Vec<bool> = found.iter().enumerate().map(explained).collect();
        for Change { pos, data } in &self.since {
            let end = (pos + data.len()).min(found.len());
            for at in (*pos).min(end)..end {
                fine[at] |= data[at - pos] == found[at];
            }
        }
        for Change { pos, data } in self.lost.iter().filter(|_| !strict) {
            let end = (pos + data.len()).min(found.len());
            for at in (*pos).max(least).min(end)..end {
                fine[at] |= data[at - pos] == found[at];
            }
        }
        match fine.iter().position(|fine| !fine) {
            None => Ok(()),
            Some(at) => Err(format!(
                "byte {at} of {} is {:#x} after the cut: neither what was durable ({:x?}) nor written since",
                found.len(),
                found[at],
                self.durable.get(at)
            )),
        }
    }
}

fn index(at: u64) -> usize {
    usize::try_from(at).unwrap()
}
