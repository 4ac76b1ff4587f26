//! Finding the complete fast commits of an area.

use super::operation::Operation;
use super::record::{RECORD_HEADER, TAG_HEAD, TAG_TAIL, field, split_record};
use crate::csum::Crc32c;

/// A head of the right transaction asks for features that are not known.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("fast commits with unknown features {0:#x}")]
pub struct UnknownFastCommitFeatures(
    /// The features.
    pub u32,
);

/// Collects the complete fast commits on top of a transaction, block by block.
#[derive(Clone, Debug)]
pub struct FastCommitScan {
    tid: u32,
    checksum: Crc32c,
    started: bool,
    /// Records since the last tail.
    open: Vec<u8>,
    complete: Vec<Vec<u8>>,
    /// Bytes that the scan holds: a commit costs more than its records.
    bytes: usize,
}

/// Memory of a complete fast commit beside its records.
const COMMIT_COST: usize = 64;

/// A record as far as the scan is concerned.
enum Step {
    /// It counts once a tail confirms it.
    Covered,
    /// It confirms everything since the last one.
    Tail,
    /// It ends the area.
    End,
}

impl FastCommitScan {
    /// A scan for fast commits on top of the last complete transaction: `tid` is the one after it.
    pub const fn new(tid: u32) -> Self {
        Self {
            tid,
            checksum: Crc32c::from_raw(0),
            started: false,
            open: Vec::new(),
            complete: Vec::new(),
            bytes: 0,
        }
    }

    /// Reads the next block of the area. False if no later block counts: the area holds something
    /// else from here on, or a commit that did not become complete.
    ///
    /// # Errors
    /// The area needs features that are not known.
    pub fn block(&mut self, block: &[u8]) -> Result<bool, UnknownFastCommitFeatures> {
        let mut rest = block;
        while rest.len() >= RECORD_HEADER {
            let Some((tag, value)) = split_record(rest) else {
                return Ok(false);
            };
            let (record, after) = rest.split_at(RECORD_HEADER + value.len());
            match self.step(tag, value, record)? {
                Step::End => return Ok(false),
                Step::Covered => {
                    self.checksum = self.checksum.feed(record);
                    self.open.extend_from_slice(record);
                    self.bytes += record.len();
                }
                Step::Tail => {
                    if !self.open.is_empty() {
                        self.complete.push(std::mem::take(&mut self.open));
                        self.bytes += COMMIT_COST;
                    }
                    self.checksum = Crc32c::from_raw(0);
                }
            }
            rest = after;
        }
        Ok(self.started)
    }

    fn step(
        &mut self,
        tag: u16,
        value: &[u8],
        record: &[u8],
    ) -> Result<Step, UnknownFastCommitFeatures> {
        match tag {
            TAG_HEAD => {
                let (Some(features), Some(tid)) = (field(value, 0), field(value, 4)) else {
                    return Ok(Step::End);
                };
                if tid != self.tid {
                    return Ok(Step::End);
                }
                if features != 0 {
                    return Err(UnknownFastCommitFeatures(features));
                }
                self.started = true;
                Ok(Step::Covered)
            }
            _ if !self.started => Ok(Step::End),
            TAG_TAIL => {
                // The checksum covers the record up to its own field.
                let covered = record.get(..RECORD_HEADER + 4).unwrap_or_default();
                let sum = self.checksum.feed(covered).raw();
                let right = field(value, 0) == Some(self.tid) && field(value, 4) == Some(sum);
                Ok(if right { Step::Tail } else { Step::End })
            }
            _ => Ok(match Operation::parse(tag, value) {
                Ok(_) => Step::Covered,
                Err(_) => Step::End,
            }),
        }
    }

    /// Bytes that the scan holds.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The records of the complete fast commits, oldest first. None is empty.
    pub fn into_complete(self) -> Vec<Vec<u8>> {
        self.complete
    }
}
