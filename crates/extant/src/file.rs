//! An open file, and how it is opened.

use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use crate::metadata::{FileTimes, Metadata, Permissions};
use crate::walk::{Target, walk};
use extant_engine::DirectTarget;
use extant_engine::Extents;
use extant_engine::Node;
use extant_engine::Volume;
use extant_engine::{Cred, Error, ReadView, Result};
use extant_engine::{FallocateMode, FileKind, SeekTarget, SetAttr};

/// How to open a file: as [`std::fs::OpenOptions`].
#[derive(Clone)]
pub struct OpenOptions<'a> {
    volume: &'a Volume,
    cred: &'a Cred,
    access: Access,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
}

/// What an open file may be used for.
#[derive(Clone, Copy, Default)]
struct Access {
    read: bool,
    write: bool,
    append: bool,
    direct: bool,
}

impl<'a> OpenOptions<'a> {
    pub(crate) fn new(volume: &'a Volume, cred: &'a Cred) -> Self {
        let access = Access::default();
        Self {
            volume,
            cred,
            access,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
        }
    }

    /// Allows reading.
    pub fn read(&mut self, yes: bool) -> &mut Self {
        self.access.read = yes;
        self
    }

    /// Allows writing.
    pub fn write(&mut self, yes: bool) -> &mut Self {
        self.access.write = yes;
        self
    }

    /// Allows writing, always at the end of the file.
    pub fn append(&mut self, yes: bool) -> &mut Self {
        self.access.append = yes;
        self
    }

    /// Has [`File::read_at`], [`File::write_at`], [`Read`] and [`Write`] go past the page cache (`O_DIRECT`): straight between the caller's
    /// bytes and the device. A write that returned is on the device, though not durable before [`File::sync_data`]. Others may
    /// use the file through the cache at the same time; all see one file.
    ///
    /// Bytes may lie anywhere, but whole blocks are cheap and parts of blocks are not: a block that is written in part is read and
    /// written as a whole. Data that goes through the journal, and what else cannot be written directly, goes through the cache and to
    /// the device from there. For many requests at a time see [`crate::DirectQueue`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let image = extant_testkit::Image::of_mib(16).make().expect("mke2fs");
    /// # let fs = extant::Filesystem::options().write(true).open(image.path())?;
    /// let mut options = fs.open_options();
    /// let file = options.read(true).write(true).create(true).direct(true).open("/table")?;
    /// file.write_at(&[7; 8192], 4096)?;
    /// file.sync_data()?;
    /// assert_eq!(fs.read("/table")?[4096..], [7; 8192]);
    /// # Ok(()) }
    /// ```
    pub fn direct(&mut self, yes: bool) -> &mut Self {
        self.access.direct = yes;
        self
    }

    /// Empties the file.
    pub fn truncate(&mut self, yes: bool) -> &mut Self {
        self.truncate = yes;
        self
    }

    /// Creates the file if it does not exist.
    pub fn create(&mut self, yes: bool) -> &mut Self {
        self.create = yes;
        self
    }

    /// Creates the file; fails if the name exists, be it as a symbolic link.
    pub fn create_new(&mut self, yes: bool) -> &mut Self {
        self.create_new = yes;
        self
    }

    /// Permissions of a file that is created, less the umask. 0o666 unless set.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// Opens the file at `path`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if neither reading nor writing is asked for, or creating or truncating without writing;
    /// [`Error::IsDir`] for directories; otherwise as open(2).
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        let writes = self.access.write || self.access.append;
        let makes = self.truncate || self.create || self.create_new;
        let senseless = if writes {
            self.access.append && self.truncate && !self.create_new
        } else {
            makes || !self.access.read
        };
        if senseless {
            return Err(Error::Invalid);
        }
        let (volume, cred) = (self.volume, self.cred);
        let perm = Permissions::from_mode(self.mode).bits();
        let mut made = false;
        let node = match walk(volume, path.as_ref(), !self.create_new)? {
            Target::Found(_) if self.create_new => return Err(Error::Exists),
            Target::Found(node) => node,
            Target::Missing { dir, name } if self.create || self.create_new => {
                made = true;
                volume.create(&dir, &name, perm, cred)?
            }
            Target::Missing { .. } => return Err(Error::NotFound),
        };
        match node.kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsDir),
            _ => return Err(Error::NotSupported("opening anything but a regular file")),
        }
        if writes && volume.read_only() {
            return Err(Error::ReadOnly);
        }
        // From here on this opener is told of failures to write the file back.
        volume.open(&node);
        let file = File {
            volume: volume.clone(),
            cred: cred.clone(),
            node,
            access: self.access,
            pos: 0,
        };
        if self.truncate && !made {
            file.set_len(0)?;
        }
        Ok(file)
    }
}

/// An open regular file with a position of its own: [`Read`], [`Write`] and [`Seek`]. It stays usable when its name is
/// removed, and fails once the file system is unmounted.
pub struct File {
    volume: Volume,
    cred: Cred,
    node: Node,
    access: Access,
    pos: u64,
}

impl File {
    /// Reads from byte `pos`; less than asked for only at the end of the file.
    ///
    /// # Errors
    /// [`Error::BadHandle`] if the file was not opened for reading, or those of reading.
    pub fn read_at(&self, buf: &mut [u8], pos: u64) -> Result<usize> {
        if !self.access.read {
            return Err(Error::BadHandle);
        }
        if self.access.direct {
            return self.volume.read_direct(&self.node, pos, buf);
        }
        self.volume.read(&self.node, pos, buf)
    }

    /// Writes at byte `pos`; less than given only if space ran out on the way. A file opened for appending is written at its
    /// end instead.
    ///
    /// # Errors
    /// [`Error::BadHandle`] if the file was not opened for writing, or those of writing.
    pub fn write_at(&self, data: &[u8], pos: u64) -> Result<usize> {
        let (volume, node, cred) = (&self.volume, &self.node, &self.cred);
        match self.access {
            Access { append: true, .. } => Ok(self.append(data)?.1),
            Access {
                write: true,
                direct: true,
                ..
            } => volume.write_direct(node, pos, data, cred),
            Access { write: true, .. } => volume.write(node, pos, data, cred),
            _ => Err(Error::BadHandle),
        }
    }

    /// Writes at the end; says where that was.
    fn append(&self, data: &[u8]) -> Result<(u64, usize)> {
        if self.access.direct {
            return self.volume.append_direct(&self.node, data, &self.cred);
        }
        self.volume.append(&self.node, data, &self.cred)
    }

    /// What a write, or else a read, of this handle works on.
    ///
    /// # Errors
    /// [`Error::BadHandle`] if the file was not opened for that.
    pub(crate) fn target(&self, write: bool) -> Result<(&Volume, &Node, &Cred)> {
        let allowed = match write {
            true => self.access.write || self.access.append,
            false => self.access.read,
        };
        if !allowed {
            return Err(Error::BadHandle);
        }
        Ok((&self.volume, &self.node, &self.cred))
    }

    /// Whether every write goes to the end.
    pub(crate) fn appends(&self) -> bool {
        self.access.append
    }

    /// Whether the file was opened with `O_DIRECT`.
    pub(crate) fn is_direct(&self) -> bool {
        self.access.direct
    }

    /// Shows the bytes of `range`, or as many of them as the file has ([`crate::MAX_VIEW`] at most), where they lie in the page cache. The view is a
    /// snapshot: what is written, cut off or unmounted later does not change it, and it keeps nobody waiting.
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
        if !self.access.read {
            return Err(Error::BadHandle);
        }
        let (pos, len) = pos_and_len(&range);
        self.volume.view(&self.node, pos, len)
    }

    /// Has `change` alter the bytes of `range` in place, as a store into a shared mapping of the file would: without a copy,
    /// piece by piece. The rest is told at [`Volume::edit`].
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
    /// [`Error::BadHandle`] unless the file was opened for reading and writing, not appending; those of writing, if nothing was shown.
    pub fn edit(&self, range: Range<u64>, change: impl FnMut(u64, &mut [u8])) -> Result<u64> {
        if !self.access.read || !self.access.write || self.access.append {
            return Err(Error::BadHandle);
        }
        let (pos, len) = pos_and_len(&range);
        let done = self.volume.edit(&self.node, pos, len, &self.cred, change)?;
        Ok(done as u64)
    }

    /// Copies up to `len` bytes, from byte `pos` on, into `to` at byte `to_pos`, wherever the positions of the files are. Returns how many
    /// that were: see [`Volume::copy_range`].
    ///
    /// # Errors
    /// [`Error::BadHandle`] unless this file was opened for reading, and `to` for writing, not appending; [`Error::CrossDevice`] if they are in
    /// different file systems; those of [`Volume::copy_range`].
    pub fn copy_range(&self, pos: u64, to: &File, to_pos: u64, len: u64) -> Result<u64> {
        if !self.access.read || !to.access.write || to.access.append {
            return Err(Error::BadHandle);
        }
        if !self.volume.is_same(&to.volume) {
            return Err(Error::CrossDevice);
        }
        let (from, into) = ((&self.node, pos), (&to.node, to_pos));
        self.volume.copy_range(from, into, len, &to.cred)
    }

    /// Makes content and attributes durable.
    ///
    /// # Errors
    /// Those of writing; a failed write-back is reported once.
    pub fn sync_all(&self) -> Result<()> {
        self.volume.fsync(&self.node, false)
    }

    /// Makes content durable, and of the attributes what is needed to read it back.
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
        if !self.access.write && !self.access.append {
            return Err(Error::Invalid);
        }
        self.change(&SetAttr {
            size: Some(size),
            ..SetAttr::default()
        })
    }

    /// Gives `range` space, which reads as zeros until it is written, and makes the file as long as that needs. As posix_fallocate(3).
    ///
    /// # Errors
    /// [`Error::BadHandle`] if the file was not opened for writing; those of [`Volume::fallocate`].
    pub fn allocate(&self, range: Range<u64>) -> Result<()> {
        self.fallocate(FallocateMode::Allocate { keep_size: false }, range)
    }

    /// The same without making the file longer: a part of the space may lie behind its end.
    ///
    /// # Errors
    /// As [`File::allocate`].
    pub fn allocate_keep_size(&self, range: Range<u64>) -> Result<()> {
        self.fallocate(FallocateMode::Allocate { keep_size: true }, range)
    }

    /// Makes `range` a hole: it reads as zeros and has no space. The file stays as long as it is.
    ///
    /// # Errors
    /// As [`File::allocate`].
    pub fn punch_hole(&self, range: Range<u64>) -> Result<()> {
        self.fallocate(FallocateMode::PunchHole, range)
    }

    /// Has `range` read as zeros, and gives it space; the file becomes as long as that needs unless it shall keep its size.
    ///
    /// # Errors
    /// As [`File::allocate`].
    pub fn zero_range(&self, range: Range<u64>, keep_size: bool) -> Result<()> {
        self.fallocate(FallocateMode::ZeroRange { keep_size }, range)
    }

    /// Takes `range`, whole blocks before the end of the file, out: what lies behind it moves up.
    ///
    /// # Errors
    /// As [`File::allocate`].
    pub fn collapse_range(&self, range: Range<u64>) -> Result<()> {
        self.fallocate(FallocateMode::CollapseRange, range)
    }

    /// Puts a hole in at `range`, whole blocks: what lay from its start on begins at its end.
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
        if !self.access.write && !self.access.append {
            return Err(Error::BadHandle);
        }
        let len = range.end.saturating_sub(range.start);
        let volume = &self.volume;
        volume.fallocate(&self.node, mode, range.start, len, &self.cred)
    }

    /// The attributes.
    ///
    /// # Errors
    /// [`Error::Shutdown`] once the file system is gone.
    pub fn metadata(&self) -> Result<Metadata> {
        Ok(Metadata(self.volume.getattr(&self.node)?))
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// Those of changing the inode.
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        self.change(&SetAttr {
            perm: Some(permissions.bits()),
            ..SetAttr::default()
        })
    }

    /// Sets times.
    ///
    /// # Errors
    /// Those of changing the inode.
    pub fn set_times(&self, times: FileTimes) -> Result<()> {
        self.change(&times.into())
    }

    /// Finds the next data or hole (`SEEK_DATA`, `SEEK_HOLE`) without moving the position.
    ///
    /// # Errors
    /// [`Error::NoSuchAddress`] past the end of the file, or if no data follows.
    pub fn find(&self, target: SeekTarget) -> Result<u64> {
        self.volume.seek(&self.node, target)
    }

    /// Where the content is on the device: see [`Volume::map`].
    pub fn extents(&self) -> Extents {
        self.volume.map(&self.node, 0)
    }

    /// Drops from memory what is cached and also on the device: see [`Volume::drop_cached`].
    pub fn drop_cached(&self) {
        self.volume.drop_cached(&self.node);
    }

    /// The inode.
    pub fn node(&self) -> &Node {
        &self.node
    }

    fn change(&self, changes: &SetAttr) -> Result<()> {
        self.volume
            .setattr(&self.node, changes, &self.cred)
            .map(drop)
    }

    fn advance(&mut self, by: usize) {
        self.pos = self.pos.saturating_add(by as u64);
    }
}

impl DirectTarget for File {
    fn readable(&self) -> Result<&Node> {
        match self.access.read {
            true => Ok(&self.node),
            false => Err(Error::BadHandle),
        }
    }

    fn writable(&self) -> Result<&Node> {
        match self.access.write && !self.access.append {
            true => Ok(&self.node),
            false => Err(Error::BadHandle),
        }
    }
}

/// The first byte of `range`, and how many it has.
fn pos_and_len(range: &Range<u64>) -> (u64, usize) {
    let len = range.end.saturating_sub(range.start);
    (range.start, usize::try_from(len).unwrap_or(usize::MAX))
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let done = self.read_at(buf, self.pos)?;
        self.advance(done);
        Ok(done)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let done = self.read_vectored_at(bufs, self.pos)?;
        self.advance(done);
        Ok(done)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.access.append {
            let (pos, done) = self.append(data)?;
            self.pos = pos;
            self.advance(done);
            return Ok(done);
        }
        let done = self.write_at(data, self.pos)?;
        self.advance(done);
        Ok(done)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.access.append {
            let (pos, done) = self.append_vectored(bufs)?;
            self.pos = pos;
            self.advance(done);
            return Ok(done);
        }
        let done = self.write_vectored_at(bufs, self.pos)?;
        self.advance(done);
        Ok(done)
    }

    /// Nothing is buffered in the handle; see [`File::sync_all`] for durability.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(pos) => Some(pos),
            SeekFrom::Current(by) => self.pos.checked_add_signed(by),
            SeekFrom::End(by) => self.metadata()?.len().checked_add_signed(by),
        };
        self.pos = target.ok_or(Error::Invalid)?;
        Ok(self.pos)
    }
}
