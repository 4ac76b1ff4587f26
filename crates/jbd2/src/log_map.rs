//! Where the log lives: the runs of device blocks that make up the journal.

use extant_units::Pblk;

/// The runs of device blocks that make up the log, in log order.
#[derive(Clone, Debug)]
pub struct LogMap {
    runs: Vec<(Pblk, u32)>,
}

impl LogMap {
    /// The log made of `runs`: (first device block, length in blocks), in log order.
    pub fn new(runs: Vec<(Pblk, u32)>) -> Self {
        Self { runs }
    }

    /// The log's length in blocks.
    pub fn len(&self) -> u64 {
        self.runs.iter().map(|&(_, len)| u64::from(len)).sum()
    }

    /// Whether the log has no blocks at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
