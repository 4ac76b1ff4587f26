//! The data of files: buffered reads and writes, views, ranges, and their durability.

use extant_iomap::ReadView;

use super::node::Node;
use super::volume::Volume;
use crate::config::AtimeMode;
use crate::file::{self, ReadMode, Whence, WriteAt};
use crate::inode;
use crate::types::{FallocateMode, SeekTarget};
use crate::{BufferedPath, Cred, Result};

impl Volume {
    /// Reads from byte `pos` into `buf`. Returns the number of bytes read: less than asked for only
    /// at the end of the file, or where the device failed.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if nothing could be read; [`crate::Error::IsDir`] and
    /// [`crate::Error::Invalid`] for an inode without data.
    pub fn read(&self, node: &Node, pos: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_as(ReadMode::Buffered, node, pos, buf)
    }

    /// [`Volume::read`] for front ends whose callers cache what they read, such as a kernel: bytes
    /// that are not cached here are read past the cache, directly into `buf`, and take no memory
    /// twice. Stored blocks that another thread writes at the same moment may be seen half old,
    /// half new.
    ///
    /// # Errors
    /// As [`Volume::read`].
    pub fn read_uncached(&self, node: &Node, pos: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_as(ReadMode::Uncached, node, pos, buf)
    }

    /// Reads `len` bytes from byte `pos` on without a buffer, if they are a hole. Returns the
    /// number of bytes that [`Volume::read`] would find, if all of them are zeros that take no
    /// space and are not cached; zero if they are not, or the file has ended. A front end answers
    /// with zeros that it has once.
    ///
    /// # Errors
    /// As [`Volume::read`].
    pub fn read_hole(&self, node: &Node, pos: u64, len: usize) -> Result<usize> {
        file::read_hole(self.fs(), node.inode(), pos, len)
    }

    fn read_as(&self, mode: ReadMode, node: &Node, pos: u64, buf: &mut [u8]) -> Result<usize> {
        let open = node.open(self.fs());
        file::read(self.fs(), node.inode(), open, mode, pos, buf)
    }

    /// Writes `data` at byte `pos`, growing the file if needed. Returns the number of bytes
    /// written: less than given only if space ran out or a limit was reached.
    ///
    /// # Errors
    /// As pwrite(2).
    pub fn write(&self, node: &Node, pos: u64, data: &[u8], cred: &Cred) -> Result<usize> {
        // The node's next fsync reports a failure to write this back.
        let open = node.open(self.fs());
        let at = WriteAt::Pos(pos);
        let wrote = file::write(self.fs(), node.inode(), open, at, data, cred);
        wrote.map(|(_, written)| written)
    }

    /// Writes back what a cache above this one accepted earlier (the kernel's page cache of a
    /// mount). As [`Volume::write`], but no privileges are cleared and no time is noted, as that
    /// cache did both when it accepted the write; and the file's present flags are not checked.
    /// Large pieces go directly to the device and are not cached again. The caller keeps
    /// overlapping pieces apart.
    ///
    /// # Errors
    /// As pwrite(2).
    pub fn write_back(&self, node: &Node, pos: u64, data: &[u8], cred: &Cred) -> Result<usize> {
        let open = node.open(self.fs());
        let at = WriteAt::UpperWriteback(pos);
        let wrote = file::write(self.fs(), node.inode(), open, at, data, cred);
        wrote.map(|(_, written)| written)
    }

    /// Writes `data` at the end of the file, as one step. Returns its position and the number of
    /// bytes written.
    ///
    /// # Errors
    /// As write(2) with `O_APPEND`.
    pub fn append(&self, node: &Node, data: &[u8], cred: &Cred) -> Result<(u64, usize)> {
        let open = node.open(self.fs());
        let at = WriteAt::End;
        file::write(self.fs(), node.inode(), open, at, data, cred)
    }

    /// Notes that the file was read, by the rules of `relatime`, `strictatime` or `noatime`: for a
    /// front end with a cache that serves reads by itself. Returns whether the time of access
    /// changed.
    pub fn note_access(&self, node: &Node) -> bool {
        let inode = node.inode();
        let before = inode.core.read().atime;
        inode::touch_atime(self.fs(), inode);
        inode.core.read().atime != before
    }

    /// Returns whether each read changes the time of access (`strictatime`). A front end whose own
    /// cache serves reads then has to let them through.
    pub fn counts_each_access(&self) -> bool {
        self.fs().options.atime() == AtimeMode::Strictatime
    }

    /// Drops the clean cached pages of the file: the POSIX_FADV_DONTNEED of posix_fadvise(2). Dirty
    /// pages stay.
    pub fn drop_cached(&self, node: &Node) {
        file::drop_clean(node.inode());
    }

    /// Makes the file's content durable, and its attributes too unless `datasync` limits that to
    /// those needed to read it back. For directories: its entries.
    ///
    /// # Errors
    /// The failure that kept data from the device, once for each node.
    pub fn fsync(&self, node: &Node, datasync: bool) -> Result<()> {
        file::fsync(self.fs(), node.inode(), node.open(self.fs()), datasync)
    }

    /// Shows `len` bytes from byte `pos` on, or as many as the file has there, in the page cache: a
    /// snapshot without a copy. At most [`crate::MAX_VIEW`] bytes. See [`ReadView`].
    ///
    /// # Errors
    /// As [`Volume::read`]; [`crate::Error::NotSupported`] for data inside of the inode.
    pub fn view(&self, node: &Node, pos: u64, len: usize) -> Result<ReadView> {
        file::view(self.fs(), node.inode(), node.open(self.fs()), pos, len)
    }

    /// Runs `change` on `len` bytes from byte `pos` on in the page cache, as a store into a shared
    /// mapping of the file would change them. It is called with the position and the bytes of one
    /// contiguous piece after the other, never past the end of the file. Space is reserved before a
    /// piece is shown; afterwards it is dirty, whatever `change` did. Returns the bytes changed:
    /// fewer than `len` at the end of the file, or if an error came after some. (On the buffer-head
    /// path the pieces are copies that are written afterwards, and space is reserved then.)
    ///
    /// Other threads that need the bytes of a piece wait until `change` returns. It must not use
    /// this file system: on its own thread every call fails with [`crate::Error::Deadlock`].
    /// Waiting in `change` for another thread that uses it hangs, for one that unmounts it in every
    /// case: an unmount waits until `change` returns.
    ///
    /// # Errors
    /// As pwrite(2), if nothing was shown; [`crate::Error::NoSpace`] if there is none for the first
    /// piece.
    pub fn edit(
        &self,
        node: &Node,
        pos: u64,
        len: usize,
        cred: &Cred,
        change: impl FnMut(u64, &mut [u8]),
    ) -> Result<usize> {
        let open = node.open(self.fs());
        file::edit(self.fs(), node.inode(), open, (pos, len), cred, change)
    }

    /// Allocates, frees, zeroes or shifts `len` bytes of a regular file from byte `offset` on.
    /// Durable on return only with the mount option `sync` or the file's flag.
    ///
    /// # Errors
    /// As fallocate(2), and with nothing changed then; but [`crate::Error::NoSpace`] may come after
    /// a part was allocated.
    pub fn fallocate(
        &self,
        node: &Node,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        cred: &Cred,
    ) -> Result<()> {
        // The node's next fsync also reports a failure to write what must survive.
        node.open(self.fs());
        file::fallocate(self.fs(), node.inode(), mode, (offset, len), cred)
    }

    /// Finds data or a hole.
    ///
    /// # Errors
    /// [`crate::Error::NoSuchAddress`] at or past the end of the file, or if no data follows.
    pub fn seek(&self, node: &Node, target: SeekTarget) -> Result<u64> {
        let (whence, pos) = match target {
            SeekTarget::Data(pos) => (Whence::Data, pos),
            SeekTarget::Hole(pos) => (Whence::Hole, pos),
        };
        file::seek(self.fs(), node.inode(), whence, pos)
    }

    /// The data path of a regular file: the one that the mount asks for, unless the file cannot
    /// have it.
    ///
    /// # Errors
    /// [`crate::Error::IsDir`] and [`crate::Error::Invalid`] for anything but a regular file.
    pub fn buffered_path(&self, node: &Node) -> Result<BufferedPath> {
        file::buffered_path(self.fs(), node.inode())
    }

    /// Switches a file to another data path while the file is in use: dirty data is written, and
    /// the cache emptied.
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] if the file cannot have that path; [`crate::Error::Busy`] if
    /// it is dirtied through mappings all the time; what keeps its data from being written.
    pub fn set_buffered_path(&self, node: &Node, path: BufferedPath) -> Result<()> {
        file::set_buffered_path(self.fs(), node.inode(), path)
    }
}
