//! An open file.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use extant_engine::{
    AfterWrite, Cred, DirectTarget, Error, Extents, FallocateMode, Node, ReadView, Result,
    SeekTarget, SetAttr, Volume, WriteAccess,
};
use parking_lot::MutexGuard;

use crate::position::Position;

/// The access for which a file is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Access {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) direct: bool,
    pub(crate) after: AfterWrite,
}

impl Access {
    /// Writes are allowed, be it at the end only.
    pub(crate) fn writes(self) -> bool {
        self.write || self.append
    }

    /// Writes are allowed at chosen positions.
    fn writes_anywhere(self) -> bool {
        self.write && !self.append
    }
}

/// An error unless `allowed`.
fn ensure(allowed: bool) -> Result<()> {
    match allowed {
        true => Ok(()),
        false => Err(Error::BadHandle),
    }
}

/// An open regular file with a position of its own: [`io::Read`], [`io::Write`] and [`io::Seek`],
/// also for `&File`. It stays usable when its name is removed; its calls fail once the file system
/// is unmounted.
pub struct File {
    volume: Volume,
    cred: Cred,
    node: Node,
    access: Access,
    pos: Position,
    /// While an opener may write, the content cannot be fixed.
    writes: Option<Arc<WriteAccess>>,
}

impl File {
    /// Opens `node`: from here on, failures to write it back are told to this file.
    ///
    /// # Errors
    /// Those of [`Volume::check_key`] and [`Volume::open_for_writing`].
    pub(crate) fn new(volume: &Volume, cred: &Cred, node: Node, access: Access) -> Result<File> {
        volume.check_key(&node)?;
        let writes = access.writes().then(|| volume.open_for_writing(&node));
        let writes = writes.transpose()?.map(Arc::new);
        volume.open(&node);
        Ok(File {
            volume: volume.clone(),
            cred: cred.clone(),
            node,
            access,
            pos: Position::default(),
            writes,
        })
    }

    /// Another handle of the same open file. Both share one position, as with dup(2).
    ///
    /// # Errors
    /// None now.
    pub fn try_clone(&self) -> Result<File> {
        self.volume.open(&self.node);
        Ok(File {
            volume: self.volume.clone(),
            cred: self.cred.clone(),
            node: self.node.clone(),
            access: self.access,
            pos: self.pos.share(),
            writes: self.writes.clone(),
        })
    }

    /// The position of reads and writes that name none, locked.
    pub(crate) fn position(&self) -> MutexGuard<'_, u64> {
        self.pos.lock()
    }

    /// Calls `go` with the position, which takes a lock only where the handle has clones.
    #[inline]
    pub(crate) fn at_position<R>(&mut self, go: impl FnOnce(&File, &mut u64) -> R) -> R {
        let Some(&mut mut pos) = self.pos.alone() else {
            return go(self, &mut self.position());
        };
        let done = go(self, &mut pos);
        if let Some(own) = self.pos.alone() {
            *own = pos;
        }
        done
    }

    /// Reads from byte `pos`; less than asked for only at the end of the file.
    ///
    /// # Errors
    /// [`Error::BadHandle`] if the file was not opened for reading, or those of reading.
    pub fn read_at(&self, buf: &mut [u8], pos: u64) -> Result<usize> {
        ensure(self.access.read)?;
        if self.access.direct {
            return self.volume.read_direct(&self.node, pos, buf);
        }
        self.volume.read(&self.node, pos, buf)
    }

    /// Fills `buf` from byte `pos` on, as far as the file has bytes. Returns how many it has.
    pub(crate) fn fill_at(&self, buf: &mut [u8], pos: u64) -> Result<usize> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.read_at(rest, pos + done as u64)? {
                0 => break,
                read => done += read,
            }
        }
        Ok(done)
    }

    /// Fills `buf` from byte `pos` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the file ends before; those of [`File::read_at`].
    pub fn read_exact_at(&self, buf: &mut [u8], pos: u64) -> io::Result<()> {
        match self.fill_at(buf, pos)? {
            done if done == buf.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Writes all of `data` at byte `pos`. A file opened for appending is written at its end.
    ///
    /// # Errors
    /// As [`File::write_at`]; what was written until then stays.
    pub fn write_all_at(&self, data: &[u8], pos: u64) -> Result<()> {
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            match self.write_at(rest, pos + done as u64)? {
                0 => return Err(Error::NoSpace),
                written => done += written,
            }
        }
        Ok(())
    }

    /// Writes at byte `pos`; less than given only if space runs out on the way. A file opened for
    /// appending is written at its end instead.
    ///
    /// # Errors
    /// [`Error::BadHandle`] if the file was not opened for writing, or those of writing.
    pub fn write_at(&self, data: &[u8], pos: u64) -> Result<usize> {
        let (volume, node, cred) = (&self.volume, &self.node, &self.cred);
        let done = match self.access {
            Access { append: true, .. } => return Ok(self.append(data)?.1),
            Access {
                write: true,
                direct: true,
                ..
            } => volume.write_direct(node, pos, data, cred),
            Access { write: true, .. } => volume.write(node, pos, data, cred),
            _ => Err(Error::BadHandle),
        };
        self.written(done?)
    }

    /// Writes at the end, as one step, also if the file was not opened for appending. Returns the
    /// position of the first byte, and the number written.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn append(&self, data: &[u8]) -> Result<(u64, usize)> {
        ensure(self.access.writes())?;
        let done = match self.access.direct {
            true => self.volume.append_direct(&self.node, data, &self.cred),
            false => self.volume.append(&self.node, data, &self.cred),
        };
        self.written(done?)
    }

    /// The result of a write, once it is as durable as the file was opened for.
    pub(crate) fn written<T>(&self, done: T) -> Result<T> {
        match self.access.after {
            AfterWrite::Nothing => {}
            AfterWrite::SyncData => self.sync_data()?,
            AfterWrite::SyncAll => self.sync_all()?,
        }
        Ok(done)
    }

    /// Volume, node and credentials for a write, or else for a read.
    ///
    /// # Errors
    /// [`Error::BadHandle`] if the file was not opened for that.
    pub(crate) fn target(&self, write: bool) -> Result<(&Volume, &Node, &Cred)> {
        ensure(match write {
            true => self.access.writes(),
            false => self.access.read,
        })?;
        Ok((&self.volume, &self.node, &self.cred))
    }

    /// Volume, node and credentials, for what needs no access.
    pub(crate) fn parts(&self) -> (&Volume, &Node, &Cred) {
        (&self.volume, &self.node, &self.cred)
    }

    /// Returns whether it was opened for writing, be it at the end only.
    pub(crate) fn is_writable(&self) -> bool {
        self.access.writes()
    }

    /// Returns whether every write goes to the end.
    pub(crate) fn appends(&self) -> bool {
        self.access.append
    }

    /// Returns whether the file was opened with `O_DIRECT`.
    pub(crate) fn is_direct(&self) -> bool {
        self.access.direct
    }

    /// Shows the bytes of `range` where they lie in the page cache: as many as the file has there,
    /// at most [`crate::MAX_VIEW`]. The view is a snapshot: later writes, truncations and an
    /// unmount do not change it, and it makes no other thread wait.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let image = extant_testkit::Image::of_mib(16).make().expect("mke2fs");
    /// # let fs = extant::Filesystem::options().write(true).open(image.path())?;
    /// # fs.write("/log", b"one\ntwo\n")?;
    /// let file = fs.open_options().read(true).open("/log")?;
    /// let view = file.view(4..u64::MAX)?;
    /// fs.write("/log", b"something else")?;
    /// assert_eq!(view.chunks().collect::<Vec<_>>().concat(), b"two\n");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::BadHandle`] if the file was not opened for reading, or those of reading.
    pub fn view(&self, range: Range<u64>) -> Result<ReadView> {
        ensure(self.access.read)?;
        let (pos, len) = pos_and_len(&range);
        self.volume.view(&self.node, pos, len)
    }

    /// Changes the bytes of `range` in place by `change`, piece by piece and without a copy, as a
    /// store into a shared mapping of the file would. `change` must not use the file system, nor
    /// wait for a thread that does or that unmounts it: see [`Volume::edit`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let image = extant_testkit::Image::of_mib(16).make().expect("mke2fs");
    /// # let fs = extant::Filesystem::options().write(true).open(image.path())?;
    /// # fs.write("/log", b"one\ntwo\n")?;
    /// let file = fs.open_options().read(true).write(true).open("/log")?;
    /// file.edit(0..3, |_, bytes| bytes.make_ascii_uppercase())?;
    /// assert_eq!(fs.read("/log")?, b"ONE\ntwo\n");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::BadHandle`] unless the file was opened for reading and writing, not appending;
    /// those of writing, if they come before the first piece.
    pub fn edit(&self, range: Range<u64>, change: impl FnMut(u64, &mut [u8])) -> Result<u64> {
        ensure(self.access.read && self.access.writes_anywhere())?;
        let (pos, len) = pos_and_len(&range);
        let done = self.volume.edit(&self.node, pos, len, &self.cred, change)?;
        self.written(done as u64)
    }

    /// Copies up to `len` bytes, from byte `pos` on, into `to` at byte `to_pos`, whatever the
    /// positions of the files. Returns the number copied: see [`Volume::copy_range`].
    ///
    /// # Errors
    /// [`Error::BadHandle`] unless this file was opened for reading, and `to` for writing, not
    /// appending; [`Error::CrossDevice`] if they are in different file systems; those of
    /// [`Volume::copy_range`].
    pub fn copy_range(&self, pos: u64, to: &File, to_pos: u64, len: u64) -> Result<u64> {
        ensure(self.access.read && to.access.writes_anywhere())?;
        if !self.volume.is_same(&to.volume) {
            return Err(Error::CrossDevice);
        }
        let (from, into) = ((&self.node, pos), (&to.node, to_pos));
        to.written(self.volume.copy_range(from, into, len, &to.cred)?)
    }

    /// Makes content and attributes durable.
    ///
    /// # Errors
    /// Those of writing; a failed writeback is reported once.
    pub fn sync_all(&self) -> Result<()> {
        self.volume.fsync(&self.node, false)
    }

    /// Makes content durable, and those attributes that are needed to read it back.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        self.volume.fsync(&self.node, true)
    }

    /// Cuts the file, or grows it by a hole.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the file was not opened for writing, or those of changing it.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.set_attributes(&SetAttr {
            size: Some(size),
            ..SetAttr::default()
        })
    }

    /// Allocates `range`, which reads as zeros until it is written, and extends the file to its
    /// end, as posix_fallocate(3).
    ///
    /// # Errors
    /// [`Error::BadHandle`] if the file was not opened for writing; those of [`Volume::fallocate`].
    pub fn allocate(&self, range: Range<u64>) -> Result<()> {
        self.fallocate(FallocateMode::Allocate { keep_size: false }, range)
    }

    /// Allocates `range` without extending the file: a part of it may lie behind the end.
    ///
    /// # Errors
    /// As [`File::allocate`].
    pub fn allocate_keep_size(&self, range: Range<u64>) -> Result<()> {
        self.fallocate(FallocateMode::Allocate { keep_size: true }, range)
    }

    /// Makes `range` a hole: it reads as zeros and has no blocks. The size stays.
    ///
    /// # Errors
    /// As [`File::allocate`].
    pub fn punch_hole(&self, range: Range<u64>) -> Result<()> {
        self.fallocate(FallocateMode::PunchHole, range)
    }

    /// Makes `range` read as zeros, and allocates it; extends the file to its end unless
    /// `keep_size`.
    ///
    /// # Errors
    /// As [`File::allocate`].
    pub fn zero_range(&self, range: Range<u64>, keep_size: bool) -> Result<()> {
        self.fallocate(FallocateMode::ZeroRange { keep_size }, range)
    }

    /// Removes `range`, whole blocks before the end of the file: the data behind it moves up.
    ///
    /// # Errors
    /// As [`File::allocate`].
    pub fn collapse_range(&self, range: Range<u64>) -> Result<()> {
        self.fallocate(FallocateMode::CollapseRange, range)
    }

    /// Inserts a hole at `range`, whole blocks: the data from its start on moves to its end.
    ///
    /// # Errors
    /// As [`File::allocate`].
    pub fn insert_range(&self, range: Range<u64>) -> Result<()> {
        self.fallocate(FallocateMode::InsertRange, range)
    }

    /// Any of the modes of fallocate(2) on `range`.
    ///
    /// # Errors
    /// As [`File::allocate`].
    pub fn fallocate(&self, mode: FallocateMode, range: Range<u64>) -> Result<()> {
        ensure(self.access.writes())?;
        let (volume, len) = (&self.volume, len_of(&range));
        volume.fallocate(&self.node, mode, range.start, len, &self.cred)?;
        self.written(())
    }

    /// Finds the next data or hole (`SEEK_DATA`, `SEEK_HOLE`) without moving the position.
    ///
    /// # Errors
    /// [`Error::NoSuchAddress`] past the end of the file, or if no data follows.
    pub fn find(&self, target: SeekTarget) -> Result<u64> {
        self.volume.seek(&self.node, target)
    }

    /// The position of the next data from `pos` on, as lseek(2) with `SEEK_DATA`; the file's own
    /// position does not move.
    ///
    /// # Errors
    /// As [`File::find`].
    pub fn seek_data(&self, pos: u64) -> Result<u64> {
        self.find(SeekTarget::Data(pos))
    }

    /// The position of the next hole from `pos` on, or of the end, as lseek(2) with `SEEK_HOLE`.
    ///
    /// # Errors
    /// As [`File::find`].
    pub fn seek_hole(&self, pos: u64) -> Result<u64> {
        self.find(SeekTarget::Hole(pos))
    }

    /// The extents of the content on the device: see [`Volume::map`].
    pub fn extents(&self) -> Extents {
        self.volume.map(&self.node, 0)
    }

    /// Drops clean cached data from memory: see [`Volume::drop_cached`].
    pub fn drop_cached(&self) {
        self.volume.drop_cached(&self.node);
    }

    /// The inode.
    pub fn node(&self) -> &Node {
        &self.node
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("ino", &self.node.ino())
            .field("access", &self.access)
            .field("pos", &self.pos)
            .finish_non_exhaustive()
    }
}

impl DirectTarget for File {
    fn readable(&self) -> Result<&Node> {
        ensure(self.access.read).map(|()| &self.node)
    }

    fn writable(&self) -> Result<&Node> {
        ensure(self.access.writes_anywhere()).map(|()| &self.node)
    }

    fn after_write(&self) -> AfterWrite {
        self.access.after
    }
}

/// The bytes in `range`: none if it ends before it begins, as with the ranges of `std`.
fn len_of(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

/// The first byte of `range`, and the number of bytes that memory can hold of it.
fn pos_and_len(range: &Range<u64>) -> (u64, usize) {
    let len = usize::try_from(len_of(range)).unwrap_or(usize::MAX);
    (range.start, len)
}
