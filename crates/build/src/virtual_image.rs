//! An image that is not written anywhere: its metadata in memory, its data where the sources have
//! them.
//!
//! # Responsibility
//! [`VirtualImage`] is a device with the bytes that a build of the same sources with the same
//! options writes. A read is answered from the metadata, which were made once, or from the files
//! and archives that the volume is of.
//!
//! ```text
//! sources --> tree --> plan --> metadata   pages in memory, those without zeros
//!                       |
//!                       +-----> runs       blocks of the device -> blocks of a file
//! ```
//!
//! # Invariants
//! - Memory is that of a build's tree, 24 bytes for each extent, and the metadata; never contents.
//! - A byte of a file is that of the file as it was when the volume was planned, or the read fails.
//!   After each read the file has to have the identity, the length and the times that it had then.
//! - Contents are read before they are asked for only where the volume's UUID is to follow from
//!   them: not if the options name one.
//!
//! # Concurrency
//! Any number of threads read. Each takes a reader with its open files, and leaves it for the next.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use extant_blockdev::BlockDevice;
use extant_mkfs::Before;
use extant_units::{DevOff, index};

use crate::error::{Error, Result};
use crate::ids::NodeId;
use crate::job::{Built, Inputs, Job, choose_defaults};
use crate::options::{Options, Watch};
use crate::origin::{ContentReader, HeldFiles, Origin};
use crate::sources::Source;
use crate::sparse_memory::SparseMemory;
use crate::tree::Tree;

/// The most readers that wait for their next read, each with a file and a directory open.
const MOST_HELD: usize = 16;

/// Blocks of a file that lie in one run on the device.
#[derive(Clone, Copy, Debug)]
struct DataRun {
    /// The first block on the device.
    block: u64,
    /// The first block in the file.
    first: u32,
    blocks: u32,
    node: NodeId,
}

/// An image that is made as it is read. See the module's header.
pub struct VirtualImage {
    tree: Tree,
    origins: Vec<Origin>,
    metadata: SparseMemory,
    /// In the order of the device.
    runs: Vec<DataRun>,
    block_size: u64,
    held: Mutex<Vec<HeldFiles>>,
    built: Built,
    /// Bytes of contents that were read for callers.
    read: AtomicU64,
}

impl VirtualImage {
    /// Plans a volume of `sources`, later ones over earlier ones.
    ///
    /// # Errors
    /// Those of [`crate::build`], but for those of an image.
    pub fn plan(sources: &[Source], options: &Options, watch: &dyn Watch) -> Result<Self> {
        let mut volume = options.volume.clone();
        let block_size = choose_defaults(&mut volume)?;
        let inputs = Inputs {
            sources,
            skipped: &[],
            // Compressed archives are unpacked to a file without a name.
            folder: &std::env::temp_dir(),
            device_len: None,
            stamped: true,
        };
        let mut job = Job::plan(&inputs, options, (volume, block_size), watch)?;
        if !job.has_uuid() {
            job.read_data((&Nowhere(job.bytes()), None), options, watch)?;
        }
        let metadata = SparseMemory::new(job.bytes());
        let identity = job.write_metadata(&metadata, Before::Zeros)?;
        if !watch.goes_on() {
            return Err(Error::Stopped);
        }
        let runs = data_runs(&job);
        let built = job.built(identity);
        Ok(Self {
            metadata,
            runs,
            block_size: block_size.bytes_u64(),
            held: Mutex::default(),
            built,
            read: AtomicU64::new(0),
            tree: job.tree,
            origins: job.origins,
        })
    }

    /// The result of the build.
    pub fn built(&self) -> &Built {
        &self.built
    }

    /// Fills `buf` with bytes of one run, from its byte `from` on.
    fn read_run(
        &self,
        reader: &mut ContentReader<'_>,
        run: &DataRun,
        from: u64,
        buf: &mut [u8],
    ) -> io::Result<()> {
        let at = u64::from(run.first) * self.block_size + from;
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        reader.read(run.node, at, buf).map_err(io::Error::other)
    }

    fn read_parts(
        &self,
        reader: &mut ContentReader<'_>,
        offset: u64,
        buf: &mut [u8],
    ) -> io::Result<()> {
        let bs = self.block_size;
        let end = offset + buf.len() as u64;
        let start_of = |run: &DataRun| run.block * bs;
        let end_of = |run: &DataRun| start_of(run) + u64::from(run.blocks) * bs;
        let first = self.runs.partition_point(|run| end_of(run) <= offset);
        let mut at = offset;
        for run in self
            .runs
            .iter()
            .skip(first)
            .take_while(|run| start_of(run) < end)
        {
            let (start, stop) = (start_of(run).max(offset), end_of(run).min(end));
            let gap = &mut buf[index(at - offset)..index(start - offset)];
            self.metadata.read_at(DevOff::new(at), gap)?;
            let part = &mut buf[index(start - offset)..index(stop - offset)];
            self.read_run(reader, run, start - start_of(run), part)?;
            at = stop;
        }
        self.metadata
            .read_at(DevOff::new(at), &mut buf[index(at - offset)..])
    }
}

/// The runs of all files' data, in the order of the device.
fn data_runs(job: &Job) -> Vec<DataRun> {
    let bs = job.block_size();
    let mut runs = Vec::with_capacity(job.files.len());
    for &node in &job.files {
        for extent in job.planned.placement.extents(&job.tree, node, bs) {
            runs.push(DataRun {
                block: extent.pblk.get(),
                first: extent.lblk.get(),
                blocks: extent.len,
                node,
            });
        }
    }
    runs.sort_unstable_by_key(|run| run.block);
    debug_assert!(
        runs.windows(2)
            .all(|two| two[0].block + u64::from(two[0].blocks) <= two[1].block),
        "each block is of one file"
    );
    runs
}

impl BlockDevice for VirtualImage {
    fn len(&self) -> u64 {
        self.metadata.len()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.get().checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.len()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let held = || self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let own = held().pop().unwrap_or_default();
        let mut reader = ContentReader::with(&self.tree, &self.origins, own);
        // After an error its files are closed: a new look may find them as they were.
        self.read_parts(&mut reader, offset.get(), buf)?;
        let mut held = held();
        if held.len() < MOST_HELD {
            held.push(reader.into_held());
        }
        Ok(())
    }

    fn write_at(&self, _: DevOff, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("virtual_metadata_bytes", self.metadata.bytes()),
            ("virtual_data_runs", self.runs.len() as u64),
            ("virtual_data_read", self.read.load(Ordering::Relaxed)),
        ]
    }
}

/// A device of so many bytes that forgets what is written: contents are read for their digest.
struct Nowhere(u64);

impl BlockDevice for Nowhere {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_at(&self, _: DevOff, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write_at(&self, _: DevOff, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
