//! The two sides of a copy of a tree: files of the host, and files of a volume.
//!
//! # Errors
//! An error says what happened; the copy adds the path.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use extant_blockdev::refuse_in_use;
use extant_engine::{Attr, Error, FileKind, SetAttr, SetTime, Timestamp};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::fs::{makedev, mknodat, utimensat};
use rustix::io::Errno;

use crate::file::File;
use crate::filesystem::Filesystem;

/// One side of a copy.
#[derive(Clone, Copy)]
pub(crate) enum Side<'a> {
    /// The host.
    Host,
    /// A volume.
    Volume(&'a Filesystem),
}

/// What is at a path; a symbolic link itself.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) kind: FileKind,
    pub(crate) perm: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) links: u64,
    /// Device number of a device node, in Linux's 32-bit encoding.
    pub(crate) rdev: u32,
    pub(crate) accessed: Timestamp,
    pub(crate) modified: Timestamp,
    /// Device and inode: the same for the same file of a side.
    pub(crate) id: (u64, u64),
}

/// An extended attribute: its name and its value.
pub(crate) type Xattr = (Vec<u8>, Vec<u8>);

/// The content of a regular file.
pub(crate) enum Content {
    Host(std::fs::File),
    Volume(File),
}

impl Side<'_> {
    /// What is at `path`; `None` if nothing is.
    pub(crate) fn find(self, path: &Path) -> io::Result<Option<Entry>> {
        let found = match self {
            Side::Host => std::fs::symlink_metadata(path).and_then(|found| of_host(&found)),
            Side::Volume(fs) => match fs.symlink_metadata(path) {
                Ok(found) => Ok(of_volume(found.attr())),
                Err(error) => Err(error.into()),
            },
        };
        match found {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    /// The names in a directory, in order.
    pub(crate) fn names(self, path: &Path) -> io::Result<Vec<OsString>> {
        let mut names: Vec<OsString> = match self {
            Side::Host => std::fs::read_dir(path)?
                .map(|entry| Ok(entry?.file_name()))
                .collect::<io::Result<_>>()?,
            Side::Volume(fs) => fs
                .read_dir(path)?
                .map(|entry| Ok(entry?.file_name()))
                .collect::<extant_engine::Result<_>>()?,
        };
        names.sort_unstable();
        Ok(names)
    }

    pub(crate) fn read_link(self, path: &Path) -> io::Result<PathBuf> {
        match self {
            Side::Host => std::fs::read_link(path),
            Side::Volume(fs) => Ok(fs.read_link(path)?),
        }
    }

    /// The extended attributes; those of the host are not copied.
    pub(crate) fn xattrs(self, path: &Path) -> io::Result<Vec<Xattr>> {
        let Side::Volume(fs) = self else {
            return Ok(Vec::new());
        };
        let mut all = Vec::new();
        for name in fs.xattrs(path)? {
            let value = fs.xattr(path, &name)?;
            all.push((name, value));
        }
        Ok(all)
    }

    /// Opens a regular file for reading.
    pub(crate) fn open(self, path: &Path) -> io::Result<Content> {
        Ok(match self {
            Side::Host => Content::Host(
                std::fs::File::options()
                    .read(true)
                    .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
                    .open(path)?,
            ),
            Side::Volume(fs) => {
                Content::Volume(fs.open_options().read(true).no_follow(true).open(path)?)
            }
        })
    }

    /// Makes a regular file where nothing is, for its owner alone.
    pub(crate) fn create(self, path: &Path) -> io::Result<Content> {
        Ok(match self {
            Side::Host => {
                let mut options = std::fs::File::options();
                options.write(true).create_new(true).mode(0o600);
                Content::Host(options.open(path)?)
            }
            Side::Volume(fs) => {
                let mut options = fs.open_options();
                options.write(true).create_new(true).mode(0o600);
                Content::Volume(options.open(path)?)
            }
        })
    }

    /// Makes a directory, for its owner alone.
    pub(crate) fn make_dir(self, path: &Path) -> io::Result<()> {
        match self {
            Side::Host => {
                use std::os::unix::fs::DirBuilderExt;
                std::fs::DirBuilder::new().mode(0o700).create(path)
            }
            Side::Volume(fs) => Ok(fs.create_dir_with_mode(path, 0o700)?),
        }
    }

    pub(crate) fn symlink(self, target: &Path, path: &Path) -> io::Result<()> {
        match self {
            Side::Host => std::os::unix::fs::symlink(target, path),
            Side::Volume(fs) => Ok(fs.symlink(target, path)?),
        }
    }

    pub(crate) fn hard_link(self, original: &Path, path: &Path) -> io::Result<()> {
        match self {
            Side::Host => std::fs::hard_link(original, path),
            Side::Volume(fs) => Ok(fs.hard_link(original, path)?),
        }
    }

    /// Makes a device node, pipe or socket.
    pub(crate) fn make_node(self, path: &Path, like: &Entry) -> io::Result<()> {
        match self {
            Side::Host => {
                let kind = match like.kind {
                    FileKind::BlockDevice => FileType::BlockDevice,
                    FileKind::CharDevice => FileType::CharacterDevice,
                    FileKind::Socket => FileType::Socket,
                    _ => FileType::Fifo,
                };
                let device = makedev(
                    (like.rdev >> 8) & 0xfff,
                    (like.rdev & 0xff) | ((like.rdev >> 12) & 0xf_ff00),
                );
                Ok(mknodat(
                    CWD,
                    path,
                    kind,
                    Mode::from_raw_mode(0o600),
                    device,
                )?)
            }
            Side::Volume(fs) => Ok(fs.make_node(path, like.kind, 0o600, like.rdev)?),
        }
    }

    /// Removes a name of anything but a directory; a file of the host that is in use is refused.
    pub(crate) fn remove(self, path: &Path) -> io::Result<()> {
        match self {
            Side::Host => {
                refuse_in_use(path).map_err(Error::from)?;
                std::fs::remove_file(path)
            }
            Side::Volume(fs) => Ok(fs.remove_file(path)?),
        }
    }

    /// Gives `path` permissions, times and extended attributes; on a volume also an owner. On the
    /// host the owner is the caller, so that set-id bits are left out.
    pub(crate) fn finish(
        self,
        path: &Path,
        like: &Entry,
        owner: (u32, u32),
        xattrs: &[Xattr],
    ) -> io::Result<()> {
        match self {
            Side::Host => finish_on_host(path, like),
            Side::Volume(fs) => Ok(finish_on_volume(fs, path, like, owner, xattrs)?),
        }
    }
}

fn finish_on_host(path: &Path, like: &Entry) -> io::Result<()> {
    if !like.kind.is_symlink() {
        let perm = u32::from(like.perm & 0o777);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(perm))?;
    }
    let time = |time: Timestamp| Timespec {
        tv_sec: time.secs,
        tv_nsec: time.nanos.into(),
    };
    let times = Timestamps {
        last_access: time(like.accessed),
        last_modification: time(like.modified),
    };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn finish_on_volume(
    fs: &Filesystem,
    path: &Path,
    like: &Entry,
    (uid, gid): (u32, u32),
    xattrs: &[Xattr],
) -> extant_engine::Result<()> {
    let owner = SetAttr {
        uid: Some(uid),
        gid: Some(gid),
        ..SetAttr::default()
    };
    fs.set_attributes(path, false, &owner)?;
    for (name, value) in xattrs {
        fs.set_xattr(path, name, value)?;
    }
    // A new owner clears set-id bits, and an access ACL changes permissions.
    let rest = SetAttr {
        perm: (!like.kind.is_symlink()).then_some(like.perm),
        atime: Some(SetTime::At(like.accessed)),
        mtime: Some(SetTime::At(like.modified)),
        ..SetAttr::default()
    };
    fs.set_attributes(path, false, &rest)
}

impl Content {
    /// Reads at a position; zero at the end.
    pub(crate) fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize> {
        match self {
            Content::Host(file) => file.read_at(buf, pos),
            Content::Volume(file) => Ok(file.read_at(buf, pos)?),
        }
    }

    /// Writes all of `data` at a position.
    pub(crate) fn write_all_at(&self, data: &[u8], pos: u64) -> io::Result<()> {
        match self {
            Content::Host(file) => file.write_all_at(data, pos),
            Content::Volume(file) => Ok(file.write_all_at(data, pos)?),
        }
    }

    pub(crate) fn set_len(&self, len: u64) -> io::Result<()> {
        match self {
            Content::Host(file) => file.set_len(len),
            Content::Volume(file) => Ok(file.set_len(len)?),
        }
    }

    /// The length now.
    pub(crate) fn len(&self) -> io::Result<u64> {
        match self {
            Content::Host(file) => Ok(file.metadata()?.len()),
            Content::Volume(file) => Ok(file.metadata()?.len()),
        }
    }

    /// The beginning and the end of the next data from `pos` on; `None` if only a hole follows.
    pub(crate) fn next_data(&self, pos: u64) -> io::Result<Option<(u64, u64)>> {
        match self {
            Content::Host(file) => next_data_of_host(file, pos),
            Content::Volume(file) => match file.seek_data(pos) {
                Err(Error::NoSuchAddress) => Ok(None),
                start => {
                    let start = start?;
                    Ok(Some((start, file.seek_hole(start)?)))
                }
            },
        }
    }
}

fn next_data_of_host(file: &std::fs::File, pos: u64) -> io::Result<Option<(u64, u64)>> {
    use rustix::fs::{SeekFrom, seek};
    let start = match seek(file, SeekFrom::Data(pos)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // A file system of the host that knows no holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((pos, u64::MAX))),
        Err(error) => return Err(error.into()),
    };
    Ok(Some((start, seek(file, SeekFrom::Hole(start))?)))
}

fn of_host(found: &std::fs::Metadata) -> io::Result<Entry> {
    let [low, high, ..] = found.mode().to_le_bytes();
    let mode = u16::from_le_bytes([low, high]);
    let kind = FileKind::from_mode(mode).ok_or(io::ErrorKind::Unsupported)?;
    let (major, minor) = {
        let device = found.rdev();
        (rustix::fs::major(device), rustix::fs::minor(device))
    };
    // Nanoseconds of the host that no time can have, as negative ones, are dropped.
    let time = |secs, nanos| Timestamp {
        secs,
        nanos: u32::try_from(nanos).unwrap_or(0),
    };
    Ok(Entry {
        kind,
        perm: mode & 0o7777,
        uid: found.uid(),
        gid: found.gid(),
        size: found.len(),
        links: found.nlink(),
        rdev: (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12,
        accessed: time(found.atime(), found.atime_nsec()),
        modified: time(found.mtime(), found.mtime_nsec()),
        id: (found.dev(), found.ino()),
    })
}

fn of_volume(found: &Attr) -> Entry {
    Entry {
        kind: found.kind,
        perm: found.perm,
        uid: found.uid,
        gid: found.gid,
        size: found.size,
        links: found.nlink.into(),
        rdev: found.rdev,
        accessed: found.atime,
        modified: found.mtime,
        id: (0, found.ino.get().into()),
    }
}
