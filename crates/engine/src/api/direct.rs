//! Direct I/O by inodes, with many requests in flight.

use std::fmt;

use extant_blockdev::IoBuf;

use super::node::Node;
use super::volume::Volume;
use crate::Result;
use crate::file::{self, Direction, Finished, Queue, QueuedRequest, WriteAt};
use crate::{AfterWrite, Cred};

impl Volume {
    /// [`Volume::read`] past the page cache (`O_DIRECT`), from the device. Newer data in the cache
    /// is written first. Any position and length is allowed.
    ///
    /// # Errors
    /// As [`Volume::read`]; [`crate::Error::Io`] also if newer data could not be written.
    pub fn read_direct(&self, node: &Node, pos: u64, buf: &mut [u8]) -> Result<usize> {
        let open = node.open(self.fs());
        file::read_direct(self.fs(), node.inode(), open, pos, buf)
    }

    /// [`Volume::write`] past the page cache (`O_DIRECT`). On return the data is on the device,
    /// with space and size, and nothing of the range is cached. Durable after the next
    /// [`Volume::fsync`]. Any position and length is allowed; parts of blocks cost a read. Data
    /// that cannot be written directly (data that goes through the journal) goes through the cache,
    /// and from there to the device before this returns.
    ///
    /// # Errors
    /// As [`Volume::write`]; [`crate::Error::Io`] also if older data of the range could not be
    /// written.
    pub fn write_direct(&self, node: &Node, pos: u64, data: &[u8], cred: &Cred) -> Result<usize> {
        let open = node.open(self.fs());
        let at = WriteAt::Pos(pos);
        let wrote = file::write_direct(self.fs(), node.inode(), open, at, data, cred);
        wrote.map(|(_, written)| written)
    }

    /// [`Volume::append`] past the page cache, as [`Volume::write_direct`].
    ///
    /// # Errors
    /// As write(2) with `O_APPEND`.
    pub fn append_direct(&self, node: &Node, data: &[u8], cred: &Cred) -> Result<(u64, usize)> {
        let open = node.open(self.fs());
        let at = WriteAt::End;
        file::write_direct(self.fs(), node.inode(), open, at, data, cred)
    }

    /// A queue for up to `depth` (1 to 4096) direct requests in flight, whose writes are `cred`'s.
    pub fn direct_queue(&self, depth: usize, cred: &Cred) -> DirectQueue {
        DirectQueue::new(self.clone(), depth, cred)
    }
}

/// The target of a [`DirectQueue`]'s requests: a [`Node`], or an open file with an access mode.
pub trait DirectTarget {
    /// The node, for reading.
    ///
    /// # Errors
    /// [`crate::Error::BadHandle`] if it was not opened for reading.
    fn readable(&self) -> Result<&Node>;

    /// The node, for writing at given positions.
    ///
    /// # Errors
    /// [`crate::Error::BadHandle`] if it was not opened for writing.
    fn writable(&self) -> Result<&Node>;

    /// The step that makes a write durable before its result is returned.
    fn after_write(&self) -> AfterWrite {
        AfterWrite::Nothing
    }
}

impl DirectTarget for Node {
    fn readable(&self) -> Result<&Node> {
        Ok(self)
    }

    fn writable(&self) -> Result<&Node> {
        Ok(self)
    }
}

/// Direct reads and writes, many of them in flight, of one thread: as `io_uring` or `libaio` with
/// `O_DIRECT`.
///
/// A request is submitted with a buffer that it owns and a tag of the caller's, and comes back with
/// both when it is over. Requests in flight are carried out in any order, and their results come in
/// any order; two that touch the same block do so one after the other. What was written is durable
/// after a [`Volume::fsync`] that begins after the result has come, or with the result, if the file
/// was opened so ([`DirectTarget::after_write`]). Those that overwrite whole
/// blocks go to the device at once; everything that [`Volume::write_direct`] does can be done, but
/// may be done by a few threads.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let image = extant_testkit::Image::of_mib(16).make().expect("mke2fs");
/// # let cred = extant_engine::Cred::root();
/// use extant_engine::{IoBuf, VolumeOptions};
///
/// let volume = VolumeOptions::new().write(true).open(image.path())?;
/// let table = volume.create(&volume.root()?, b"table", 0o644, &cred)?;
/// let mut queue = volume.direct_queue(16, &cred);
/// for block in 0..16 {
///     let mut buf = IoBuf::zeroed(4096);
///     buf.fill(b'a' + block);
///     queue.write(&table, u64::from(block) * 4096, buf, u64::from(block))?;
/// }
/// for written in queue.wait(16) {
///     assert_eq!(written.result?, 4096);
/// }
/// queue.read(&table, 4096, IoBuf::zeroed(4096), 0)?;
/// let read = queue.wait(1).remove(0);
/// assert_eq!((read.result?, &read.buf[..3]), (4096, &b"bbb"[..]));
/// # Ok(()) }
/// ```
///
/// Dropping the queue waits for what is in flight.
pub struct DirectQueue {
    queue: Queue,
    // After the queue: the volume stays mounted until nothing is in flight.
    volume: Volume,
}

impl fmt::Debug for DirectQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectQueue")
            .field("depth", &self.depth())
            .field("outstanding", &self.outstanding())
            .finish_non_exhaustive()
    }
}

impl DirectQueue {
    pub(super) fn new(volume: Volume, depth: usize, cred: &Cred) -> Self {
        Self {
            queue: Queue::new(volume.fs(), cred.clone(), depth),
            volume,
        }
    }

    /// The most requests that are in flight at once. A further one waits until another has
    /// finished.
    pub fn depth(&self) -> usize {
        self.queue.depth()
    }

    /// Requests whose results have not been returned yet.
    pub fn outstanding(&self) -> usize {
        self.queue.outstanding()
    }

    /// The file system.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// A buffer of `len` bytes with any content, which the image's device takes at the least cost:
    /// with io_uring, memory that is registered with the kernel, as long as there is some. Meant to
    /// be used again and again. Any other [`IoBuf`] is accepted as well.
    pub fn buffer(&self, len: usize) -> IoBuf {
        self.queue.buffer(len)
    }

    /// Reads from byte `pos` of `file` into `buf`: its length, or as much as the file has.
    ///
    /// # Errors
    /// Those of `file`'s access mode; a [`Node`] has none. The result reports all others.
    pub fn read(&mut self, file: &impl DirectTarget, pos: u64, buf: IoBuf, tag: u64) -> Result<()> {
        let node = file.readable()?;
        let job = QueuedRequest {
            direction: Direction::Read,
            pos,
            buf,
            tag,
            after: AfterWrite::Nothing,
        };
        self.queue.submit(node.counted(), job);
        Ok(())
    }

    /// Writes `buf` at byte `pos` of `file`.
    ///
    /// # Errors
    /// Those of `file`'s access mode; a [`Node`] has none. The result reports all others.
    pub fn write(
        &mut self,
        file: &impl DirectTarget,
        pos: u64,
        buf: IoBuf,
        tag: u64,
    ) -> Result<()> {
        let node = file.writable()?;
        let job = QueuedRequest {
            direction: Direction::Write,
            pos,
            buf,
            tag,
            after: file.after_write(),
        };
        self.queue.submit(node.counted(), job);
        Ok(())
    }

    /// Waits until at least `min` requests have finished, or as many as are outstanding, and
    /// returns all finished ones. With 0 it does not wait.
    pub fn wait(&mut self, min: usize) -> Vec<Finished> {
        let mut finished = Vec::new();
        self.wait_into(min, &mut finished);
        finished
    }

    /// As [`DirectQueue::wait`], into memory that exists already: adds to `finished`.
    pub fn wait_into(&mut self, min: usize, finished: &mut Vec<Finished>) {
        self.queue.reap(min, finished);
    }
}
