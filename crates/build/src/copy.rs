//! The data of files, on their way from the sources to the volume.
//!
//! # Concurrency
//! Threads take pieces of work from one queue, in the order of the volume: each reads its pieces,
//! adds them to a digest of its own and writes them. Pieces of different threads are different
//! blocks, and a sum of digests has no order, so the result does not depend on the threads.
//!
//! On a host with reflinks, large files share their blocks with the image instead of being
//! written. They are read all the same, for the digest. A file that changes between the two has its
//! new content in the image and its old one in the digest: the UUID is another one then, no more.

use std::fs::File;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use extant_blockdev::BlockDevice;
use extant_units::{DevOff, index};
use rustix::fs::copy_file_range;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::extents::{count, logical};
use crate::options::Watch;
use crate::origin::{ContentReader, Origin};
use crate::placement::Placement;
use crate::tree::{NodeId, Tree};

/// The most bytes that are gathered for one write.
const BATCH: u64 = 1 << 20;
/// Pieces end at multiples of this in their file, wherever they lie: digests are of pieces.
const PIECE: u64 = 1 << 18;
/// The most pieces of one batch.
const MAX_PIECES: usize = 1024;
/// The fewest bytes that are shared: fewer are written in less time.
const LEAST_SHARED: u64 = PIECE;

/// The inputs of a copy.
pub(crate) struct Copy<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) origins: &'a [Origin],
    pub(crate) placement: &'a Placement,
    pub(crate) files: &'a [NodeId],
    pub(crate) block_size: u64,
    pub(crate) device: &'a dyn BlockDevice,
    /// The same, where it is a file that can share blocks with others.
    pub(crate) sharing: Option<&'a File>,
    pub(crate) watch: &'a dyn Watch,
}

/// A part of a file in one run of blocks.
#[derive(Clone, Copy, Debug)]
struct Piece {
    node: NodeId,
    /// The first byte in the file, and how many there are, whole blocks.
    from: u64,
    len: u64,
    /// The first byte on the device.
    to: u64,
}

/// The pieces that are left to copy.
struct Queue {
    /// The next file.
    next: usize,
    /// The rest of the last one, the next piece last.
    pending: Vec<Piece>,
}

impl Copy<'_> {
    /// Copies everything by `threads` threads. Returns the digest of the data.
    ///
    /// # Errors
    /// The first that one of the threads met.
    pub(crate) fn all(&self, threads: usize) -> Result<Digest> {
        let queue = Mutex::new(Queue {
            next: 0,
            pending: Vec::new(),
        });
        let failed = AtomicBool::new(false);
        let results: Vec<Result<Digest>> = std::thread::scope(|scope| {
            let work = || {
                let done = self.work(&queue, &failed);
                if done.is_err() {
                    failed.store(true, Ordering::Relaxed);
                }
                done
            };
            let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
            let lost = || Err(Error::Options("a thread ended early".to_owned()));
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.map(|done| done.unwrap_or_else(|_| lost())).collect()
        });
        let mut digest = Digest::default();
        for result in results {
            digest.add(result?);
        }
        Ok(digest)
    }

    fn work(&self, queue: &Mutex<Queue>, failed: &AtomicBool) -> Result<Digest> {
        let mut reader = ContentReader::new(self.tree, self.origins);
        let mut digest = Digest::default();
        let mut pieces = Vec::new();
        // Before the last piece of a batch it is not full.
        let mut buf = vec![0; index(BATCH + PIECE)];
        while !failed.load(Ordering::Relaxed) {
            pieces.clear();
            match queue.lock() {
                Ok(mut queue) => self.take(&mut queue, &mut pieces),
                Err(_) => break,
            }
            if pieces.is_empty() {
                break;
            }
            debug_assert!(pieces.len() <= MAX_PIECES);
            let mut rest = pieces.as_slice();
            while !rest.is_empty() {
                let (run, left) = rest.split_at(self.run_len(rest));
                rest = left;
                self.run(run, &mut reader, &mut buf, &mut digest)?;
            }
        }
        Ok(digest)
    }

    /// Copies pieces that lie one behind the other on the device.
    fn run(
        &self,
        pieces: &[Piece],
        reader: &mut ContentReader<'_>,
        buf: &mut [u8],
        digest: &mut Digest,
    ) -> Result<()> {
        let Some(first) = pieces.first() else {
            return Ok(());
        };
        let len: u64 = pieces.iter().map(|piece| piece.len).sum();
        assert!(len <= buf.len() as u64, "a batch fits its buffer");
        debug_assert_eq!(len % self.block_size, 0, "whole blocks");
        let buf = &mut buf[..index(len)];
        let mut rest = &mut *buf;
        let mut copied = 0;
        for piece in pieces {
            let (data, left) = rest.split_at_mut(index(piece.len));
            rest = left;
            reader.read(piece.node, piece.from, data)?;
            let node = self.tree.node(piece.node);
            let real = (node.size - piece.from).min(piece.len);
            let content = &data[..index(real)];
            digest.add_data(node.ino, piece.from, content);
            copied += real;
        }
        let shared = self.share(first, index(copied), reader);
        let to = DevOff::new(first.to + shared as u64);
        let written = self.device.write_at(to, &buf[shared..]);
        written.map_err(extant_mkfs::Error::Io)?;
        self.watch.copied(copied);
        match self.watch.goes_on() {
            true => Ok(()),
            false => Err(Error::Stopped),
        }
    }

    /// Lets the image share `len` bytes from `first` on with the file that they were read from, as
    /// far as the host does that. Returns how many it shares: whole blocks.
    fn share(&self, first: &Piece, len: usize, reader: &ContentReader<'_>) -> usize {
        let whole = len - len % index(self.block_size);
        let open = reader.opened(first.node).filter(|_| self.may_share(first));
        let Some((image, file)) = self.sharing.zip(open) else {
            return 0;
        };
        let (mut from, mut to, mut shared) = (first.from, first.to, 0);
        while (whole - shared) as u64 >= LEAST_SHARED {
            let left = whole - shared;
            match copy_file_range(file, Some(&mut from), image, Some(&mut to), left) {
                Ok(0) | Err(_) => break,
                Ok(more) => shared += more,
            }
        }
        assert!(shared <= whole, "no more is shared than was read");
        // What is left is written.
        shared - shared % index(self.block_size)
    }

    /// Returns whether the blocks of a piece may be shared with its file.
    fn may_share(&self, piece: &Piece) -> bool {
        self.sharing.is_some() && self.tree.node(piece.node).size >= LEAST_SHARED
    }

    /// How many of the pieces lie one behind the other and are written at once. Where blocks may be
    /// shared they are one range of one file: behind a hole a file is elsewhere than on the volume.
    fn run_len(&self, pieces: &[Piece]) -> usize {
        let in_file = |a: &Piece, b: &Piece| a.node == b.node && a.from + a.len == b.from;
        let follows = |pair: &[Piece]| match pair {
            [a, b] => {
                let written = !self.may_share(a) && !self.may_share(b);
                a.to + a.len == b.to && (written || in_file(a, b))
            }
            _ => false,
        };
        1 + pieces.windows(2).take_while(|pair| follows(pair)).count()
    }

    /// Takes the next batch.
    fn take(&self, queue: &mut Queue, pieces: &mut Vec<Piece>) {
        let mut bytes = 0;
        while bytes < BATCH && pieces.len() < MAX_PIECES {
            let Some(piece) = queue.pending.pop() else {
                let Some(&node) = self.files.get(queue.next) else {
                    return;
                };
                queue.next += 1;
                queue.pending = self.pieces(node);
                queue.pending.reverse();
                continue;
            };
            bytes += piece.len;
            pieces.push(piece);
        }
    }

    /// The pieces of one file, in order.
    fn pieces(&self, node: NodeId) -> Vec<Piece> {
        let bs = self.block_size;
        let mut pieces = Vec::new();
        for extent in self.placement.extents(self.tree, node, bs) {
            let start = u64::from(extent.lblk.get()) * bs;
            let to = extent.pblk.get() * bs;
            let end = start + u64::from(extent.len) * bs;
            let mut at = start;
            while at < end {
                let Range { end, .. } = at..end.min((at / PIECE + 1) * PIECE);
                pieces.push(Piece {
                    node,
                    from: at,
                    len: end - at,
                    to: to + (at - start),
                });
                at = end;
            }
        }
        debug_assert_eq!(
            pieces.iter().map(|piece| piece.len).sum::<u64>(),
            count(&logical(self.tree, node, bs)) * bs,
            "each block of the file is copied once"
        );
        pieces
    }
}
