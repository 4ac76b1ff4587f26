//! The host's side of a copy.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use extant::{FileKind, Timestamp};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chownat, lgetxattr,
    llistxattr, lremovexattr, lsetxattr, major, makedev, minor, mknodat, utimensat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use tracing::warn;

use super::stream::Stream;
use super::tree::{Attributes, Id, Source, Target, Tree, Xattr};
use crate::failure::{At, Failure};
use crate::images::Images;

/// Largest list of names and largest value of extended attributes that Linux has.
const XATTR_MAX: usize = 64 << 10;

/// The name of standard input.
pub(crate) const STDIN: &str = "-";

/// Files of the host, but for the images that are open.
pub(crate) struct Host<'a> {
    images: &'a Images,
}

impl<'a> Host<'a> {
    /// The host; none of `images` is written to or removed.
    pub(crate) fn beside(images: &'a Images) -> Host<'a> {
        Host { images }
    }
}

/// An open file of the host.
struct Open {
    file: File,
    path: PathBuf,
    len: u64,
}

impl Source for Open {
    fn read_at(&self, buf: &mut [u8], pos: u64) -> Result<usize, Failure> {
        self.file.read_at(buf, pos).at(self.path.display())
    }

    fn next_data(&self, pos: u64) -> Result<Option<(u64, u64)>, Failure> {
        use rustix::fs::SeekFrom::{Data, Hole};
        let found = rustix::fs::seek(&self.file, Data(pos))
            .and_then(|start| Ok((start, rustix::fs::seek(&self.file, Hole(start))?)));
        match found {
            Ok(range) => Ok(Some(range)),
            Err(Errno::NXIO) => Ok(None),
            // Not a file that knows its holes.
            Err(Errno::INVAL | Errno::SPIPE | Errno::OPNOTSUPP) => {
                Ok((pos < self.len).then_some((pos, self.len)))
            }
            Err(error) => Err(error).at(self.path.display()),
        }
    }
}

impl Target for Open {
    fn write_at(&self, data: &[u8], pos: u64) -> Result<(), Failure> {
        self.file.write_all_at(data, pos).at(self.path.display())
    }

    fn set_len(&self, len: u64) -> Result<(), Failure> {
        self.file.set_len(len).at(self.path.display())
    }
}

impl Tree for Host<'_> {
    fn show(&self, path: &Path) -> String {
        path.display().to_string()
    }

    fn attributes(&self, path: &Path, follow: bool) -> Result<Option<Attributes>, Failure> {
        let metadata = if path == Path::new(STDIN) {
            stdin().and_then(|file| file.metadata())
        } else if follow {
            fs::metadata(path)
        } else {
            fs::symlink_metadata(path)
        };
        let metadata = match metadata {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.at(path.display())?,
        };
        let time = |secs, nanos: i64| Timestamp {
            secs,
            nanos: u32::try_from(nanos).unwrap_or(0),
        };
        let rdev = metadata.rdev();
        let (high, low) = (major(rdev), minor(rdev));
        Ok(Some(Attributes {
            kind: kind(metadata.file_type()),
            perm: u16::try_from(metadata.mode() & 0o7777).unwrap_or(0),
            uid: metadata.uid(),
            gid: metadata.gid(),
            size: metadata.len(),
            links: metadata.nlink(),
            rdev: (low & 0xff) | (high & 0xfff) << 8 | (low & 0xf_ff00) << 12,
            atime: time(metadata.atime(), metadata.atime_nsec()),
            mtime: time(metadata.mtime(), metadata.mtime_nsec()),
            id: Id {
                device: metadata.dev(),
                inode: metadata.ino(),
            },
        }))
    }

    fn names(&self, dir: &Path) -> Result<Vec<OsString>, Failure> {
        let entries = fs::read_dir(dir).at(dir.display())?;
        let names = entries.map(|entry| Ok(entry?.file_name()));
        let mut names = names.collect::<io::Result<Vec<_>>>().at(dir.display())?;
        names.sort_unstable();
        Ok(names)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf, Failure> {
        fs::read_link(path).at(path.display())
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<Xattr>, Failure> {
        let mut names = vec![0; XATTR_MAX];
        let len = match llistxattr(path, &mut names) {
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            other => other.at(path.display())?,
        };
        let mut xattrs = Vec::new();
        let names = names.get(..len).unwrap_or(&[]);
        for name in names.split(|&b| b == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0; XATTR_MAX];
            match lgetxattr(path, name, &mut value) {
                // Gone meanwhile, or not for us to read.
                Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
                other => {
                    value.truncate(other.at(path.display())?);
                    xattrs.push((name.to_vec(), value));
                }
            }
        }
        Ok(xattrs)
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Source + '_>, Failure> {
        if path == Path::new(STDIN) {
            let file = stdin().at("standard input")?;
            return Ok(Box::new(Stream::new(file, "standard input".into())));
        }
        let file = File::open(path).at(path.display())?;
        let metadata = file.metadata().at(path.display())?;
        if !metadata.is_file() {
            return Ok(Box::new(Stream::new(file, path.to_owned())));
        }
        let len = metadata.len();
        Ok(Box::new(Open {
            file,
            path: path.to_owned(),
            len,
        }))
    }

    fn create(&self, path: &Path, perm: u16) -> Result<Box<dyn Target + '_>, Failure> {
        let mut options = File::options();
        options
            .write(true)
            .create(true)
            // Not before it is known what it is.
            .truncate(false)
            .mode(u32::from(perm));
        let file = options.open(path).at(path.display())?;
        let metadata = file.metadata().at(path.display())?;
        self.images.spare(path, &metadata)?;
        if metadata.len() > 0 {
            file.set_len(0).at(path.display())?;
        }
        Ok(Box::new(Open {
            file,
            path: path.to_owned(),
            len: 0,
        }))
    }

    fn open_device(&self, path: &Path) -> Result<Box<dyn Target + '_>, Failure> {
        let file = File::options().write(true).open(path).at(path.display())?;
        self.images
            .spare(path, &file.metadata().at(path.display())?)?;
        Ok(Box::new(Stream::new(file, path.to_owned())))
    }

    fn live(&self) -> bool {
        true
    }

    fn mkdir(&self, path: &Path, perm: u16) -> Result<(), Failure> {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new()
            .mode(u32::from(perm))
            .create(path)
            .at(path.display())
    }

    fn symlink(&self, path: &Path, says: &Path) -> Result<(), Failure> {
        std::os::unix::fs::symlink(says, path).at(path.display())
    }

    fn make_node(&self, path: &Path, like: &Attributes, perm: u16) -> Result<(), Failure> {
        let kind = FileType::from_raw_mode(u32::from(like.kind.mode_bits()));
        let (high, low) = crate::output::device_numbers(like.rdev);
        let mode = Mode::from_raw_mode(u32::from(perm));
        mknodat(CWD, path, kind, mode, makedev(high, low)).at(path.display())
    }

    fn hard_link(&self, original: &Path, path: &Path) -> Result<(), Failure> {
        fs::hard_link(original, path).at(path.display())
    }

    fn remove(&self, path: &Path) -> Result<(), Failure> {
        self.images
            .spare(path, &fs::symlink_metadata(path).at(path.display())?)?;
        fs::remove_file(path).at(path.display())
    }

    fn set_owner(&self, path: &Path, like: &Attributes) -> Result<bool, Failure> {
        let (uid, gid) = (Uid::from_raw(like.uid), Gid::from_raw(like.gid));
        match chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW) {
            // As with cp: an ordinary user keeps what it copies.
            Err(Errno::PERM) if !geteuid().is_root() => Ok(false),
            other => other.at(path.display()).map(|()| true),
        }
    }

    fn set_perm(&self, path: &Path, perm: u16) -> Result<(), Failure> {
        // The owner was set of the link, so the bits are not for what it leads to.
        if fs::symlink_metadata(path).at(path.display())?.is_symlink() {
            return Err(Failure::at(path.display(), "a symbolic link by now"));
        }
        fs::set_permissions(path, fs::Permissions::from_mode(u32::from(perm))).at(path.display())
    }

    fn set_times(&self, path: &Path, like: &Attributes) -> Result<(), Failure> {
        let time = |t: Timestamp| Timespec {
            tv_sec: t.secs,
            tv_nsec: t.nanos.into(),
        };
        let times = Timestamps {
            last_access: time(like.atime),
            last_modification: time(like.mtime),
        };
        utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).at(path.display())
    }

    fn set_xattr(&self, path: &Path, (name, value): &Xattr) -> Result<(), Failure> {
        match lsetxattr(path, name.as_slice(), value, XattrFlags::empty()) {
            Err(error @ (Errno::PERM | Errno::OPNOTSUPP)) => {
                let name = String::from_utf8_lossy(name);
                warn!("{}: {name} is left out: {error}", path.display());
                Ok(())
            }
            other => other.at(path.display()),
        }
    }

    fn drop_xattr(&self, path: &Path, name: &str) {
        // Not there, or not ours to remove: either way there is nothing to keep.
        let _ = lremovexattr(path, name);
    }
}

/// Standard input, as a file of its own.
fn stdin() -> io::Result<File> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

fn kind(kind: fs::FileType) -> FileKind {
    match () {
        () if kind.is_dir() => FileKind::Directory,
        () if kind.is_symlink() => FileKind::Symlink,
        () if kind.is_block_device() => FileKind::BlockDevice,
        () if kind.is_char_device() => FileKind::CharDevice,
        () if kind.is_fifo() => FileKind::Fifo,
        () if kind.is_socket() => FileKind::Socket,
        () => FileKind::Regular,
    }
}
