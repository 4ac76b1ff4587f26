//! The complete fast commits that follow the last transaction of a log.

use std::io;

use extant_disk::jbd2::fast_commit::FastCommitScan;
use extant_disk::jbd2::superblock::{Incompat, JournalSuperblock};
use extant_units::Tid;

use super::reader::LogReader;
use crate::error::JournalError;

/// The complete fast commits of a log, oldest first. They change inodes and names, not blocks: the
/// file system applies them ([`super::recover_to_fast_commits`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FastCommits {
    pub(super) records: Vec<Vec<u8>>,
}

impl FastCommits {
    /// The records of each, for [`extant_disk::jbd2::fast_commit::Operations`].
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        self.records.iter().map(Vec::as_slice)
    }

    /// The fast commits on top of the transactions before `next`; `None` if there are none. They
    /// take at most `memory` bytes.
    pub(super) fn read(
        reader: &LogReader<'_>,
        superblock: &JournalSuperblock,
        next: Tid,
        memory: u64,
    ) -> Result<Option<Self>, JournalError> {
        if !superblock.incompat().contains(Incompat::FAST_COMMIT) {
            return Ok(None);
        }
        let mut scan = FastCommitScan::new(next.get());
        let mut block = reader.buffer();
        for at in superblock.fast_commit_area() {
            reader.read(at, &mut block)?;
            let goes_on = scan
                .block(&block)
                .map_err(|error| JournalError::Unsupported(error.to_string().into()))?;
            if !goes_on {
                break;
            }
            if scan.bytes() as u64 > memory {
                let mib = memory >> 20;
                let what = format!("its fast commits exceed the limit of {mib} MiB of memory");
                let error = io::Error::new(io::ErrorKind::OutOfMemory, what);
                return Err(JournalError::io("replaying the journal")(error));
            }
        }
        let records = scan.into_complete();
        Ok((!records.is_empty()).then_some(Self { records }))
    }
}
