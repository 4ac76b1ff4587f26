//! `extant untar`: an archive, unpacked into an image.
//!
//! An archive is not trusted with the host: nothing outside of the image is reached. Names go below the place that was named and `..` in one
//! is refused, but links in the image are followed, those that the archive brings among them: a subdirectory is no border within the image.
//! Owners, permissions, times and attributes are those of the archive, whoever unpacks it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use extant::{Error, FileKind, FileTimes, Filesystem, Permissions, SetAttr};
use tracing::warn;

use crate::archive::{BLOCK, Member, Reader, fill, kind};
use crate::args::Untar;
use crate::failure::{At, Failure, Failures, Outcome, plain};
use crate::images::Images;
use crate::operand::ImagePath;

/// Bytes moved at once.
const CHUNK: usize = 1 << 20;
/// What is looked at to find holes.
const PIECE: usize = 4096;
/// Longest path, and longest that a link says, in bytes.
const LONGEST: usize = 4095;
/// What is inherited from a directory.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

pub(crate) fn run(args: &Untar) -> Outcome {
    let mut failures = Failures::of("untar");
    let mut images = Images::write();
    let unpacked = open(args).and_then(|(name, input)| {
        let fs = images.of(&args.to)?;
        Unpack::new(&fs, &args.to)?.all(&name, input, &mut failures)
    });
    failures.note(unpacked);
    super::finish(images, failures)
}

fn open(args: &Untar) -> Result<(String, Box<dyn Read>), Failure> {
    let (name, mut input): (_, Box<dyn Read>) = match &args.file {
        Some(path) if path.as_os_str() != "-" => {
            let file = File::open(path).at(path.display())?;
            (path.display().to_string(), Box::new(file))
        }
        _ => ("standard input".into(), Box::new(io::stdin())),
    };
    let mut head = vec![0; BLOCK];
    let len = fill(&mut *input, &mut head).at(&name)?;
    head.truncate(len);
    let what = match head.as_slice() {
        [] => Some("nothing in it: not an archive"),
        [0x1f, 0x8b, ..] => Some("compressed: zcat it into extant untar"),
        [0xfd, b'7', b'z', ..] => Some("compressed: xzcat it into extant untar"),
        [b'B', b'Z', b'h', ..] => Some("compressed: bzcat it into extant untar"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("compressed: zstdcat it into extant untar"),
        _ => None,
    };
    match what {
        Some(what) => Err(Failure::at(name, what)),
        None => Ok((name, Box::new(io::Cursor::new(head).chain(input)))),
    }
}

/// The place that is unpacked to.
struct Unpack<'a> {
    fs: &'a Filesystem,
    top: &'a ImagePath,
    buf: Vec<u8>,
    /// Directories get their times when everything is in them.
    times: HashMap<PathBuf, FileTimes>,
}

impl<'a> Unpack<'a> {
    fn new(fs: &'a Filesystem, top: &'a ImagePath) -> Result<Self, Failure> {
        if !fs.metadata(&top.path).at(top)?.is_dir() {
            return Err(Failure::at(top, Error::NotDir));
        }
        Ok(Unpack {
            fs,
            top,
            buf: vec![0; CHUNK],
            times: HashMap::new(),
        })
    }

    /// Unpacks everything. What an entry cannot be given is noted; an archive that cannot be read on ends it.
    fn all(
        mut self,
        name: &str,
        input: Box<dyn Read>,
        failures: &mut Failures,
    ) -> Result<(), Failure> {
        let broken = |error: io::Error| Failure::at(name, broken(&error));
        let mut archive = Reader::new(input);
        while let Some(member) = archive.next().map_err(broken)? {
            failures.note(self.one(&member, &mut archive));
        }
        if !archive.marked() {
            warn!("{name}: no mark at its end: it may be cut short");
        }
        for (path, times) in self.times {
            let place = self.top.with_path(&path);
            failures.note(self.fs.set_times(&path, times).at(place));
        }
        Ok(())
    }

    fn one(&mut self, member: &Member, content: &mut dyn Read) -> Result<(), Failure> {
        if member.kind == kind::VOLUME {
            warn!("{}: the archive's label is left out", self.top);
            return Ok(());
        }
        if member.name.len() > LONGEST || member.link.len() > LONGEST {
            let what = format!("a name or link of more than {LONGEST} bytes in the archive");
            return Err(Failure::at(self.top, what));
        }
        let path = self.place(bytes(&member.name))?;
        let place = self.top.with_path(&path);
        if member.sparse {
            let what = "a sparse file of an archive's own kind: archive it without --sparse";
            return Err(Failure::at(&place, what));
        }
        if let Some(what) = member.left_out {
            warn!("{place}: {what} is left out");
        }
        self.parents(&path)?;
        let old = match self.fs.symlink_metadata(&path) {
            Err(Error::NotFound) => None,
            other => Some(other.at(&place)?.file_type()),
        };
        if member.kind == kind::DIRECTORY {
            return self.directory(member, &place);
        }
        if old == Some(FileKind::Directory) {
            let what = "a directory, in the way of what is not one";
            return Err(Failure::at(&place, what));
        }
        if matches!(member.kind, kind::LINK | kind::SYMLINK) && member.link.is_empty() {
            return Err(Failure::at(&place, "a link to nothing"));
        }
        if member.kind == kind::LINK {
            return self.link(member, old, &place);
        }
        // Nothing is removed for what cannot be made.
        let rdev = match member.kind {
            kind::CHAR | kind::BLOCK => device(member, &place)?,
            kind::REGULAR | kind::SYMLINK | kind::FIFO => 0,
            other => {
                let what = format!("of type {:?}, not known", char::from(other));
                return Err(Failure::at(&place, what));
            }
        };
        storable(member, &place)?;
        // A file that other names lead to is not written into.
        self.remove(old, &path)?;
        let node = |kind| self.fs.make_node(&path, kind, 0o600, rdev).at(&place);
        match member.kind {
            kind::SYMLINK => self.fs.symlink(bytes(&member.link), &path).at(&place)?,
            kind::CHAR => node(FileKind::CharDevice)?,
            kind::BLOCK => node(FileKind::BlockDevice)?,
            kind::FIFO => node(FileKind::Fifo)?,
            _ => self.content(member, content, &place)?,
        }
        self.attributes(member, &place)?;
        let times = SetAttr::from(times(member));
        self.fs.set_attributes(&path, false, &times).at(&place)
    }

    /// Makes a hard link. What is in its place goes only once there is something to link to.
    fn link(
        &self,
        member: &Member,
        old: Option<FileKind>,
        place: &ImagePath,
    ) -> Result<(), Failure> {
        let original = self.place(bytes(&member.link))?;
        let what = format!("{place}: a link to {}", original.display());
        let metadata = self.fs.symlink_metadata(&original).at(&what)?;
        if metadata.is_dir() {
            return Err(Failure::at(&what, Error::IsDir));
        }
        if old.is_some() {
            let there = self.fs.symlink_metadata(&place.path).at(place)?;
            // Of itself, by whatever name: it is there.
            if there.attr().ino == metadata.attr().ino {
                return Ok(());
            }
        }
        self.remove(old, &place.path)?;
        self.fs.hard_link(&original, &place.path).at(what)
    }

    /// Where a name of the archive goes.
    fn place(&self, name: &Path) -> Result<PathBuf, Failure> {
        let mut path = self.top.path.clone();
        for part in name.components() {
            match part {
                Component::Normal(part) => path.push(part),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
                Component::ParentDir => {
                    let what = "a name with \"..\" in it";
                    return Err(Failure::at(name.display(), what));
                }
            }
        }
        Ok(path)
    }

    /// Makes the directories above a name that the archive does not have.
    fn parents(&self, path: &Path) -> Result<(), Failure> {
        match path.parent() {
            Some(dir) => self.fs.create_dir_all(dir).at(self.top.with_path(dir)),
            None => Ok(()),
        }
    }

    fn remove(&self, old: Option<FileKind>, path: &Path) -> Result<(), Failure> {
        match old {
            Some(_) => self.fs.remove_file(path).at(self.top.with_path(path)),
            None => Ok(()),
        }
    }

    fn directory(&mut self, member: &Member, place: &ImagePath) -> Result<(), Failure> {
        // A link to a directory will do for one.
        match self.fs.metadata(&place.path) {
            Ok(metadata) if metadata.is_dir() => {}
            _ => self.fs.create_dir(&place.path).at(place)?,
        }
        // All of it is for the directory, none for a link to it.
        let inside = place.with_path(place.path.join("."));
        self.attributes(member, &inside)?;
        self.times.insert(place.path.clone(), times(member));
        Ok(())
    }

    fn content(
        &mut self,
        member: &Member,
        from: &mut dyn Read,
        at: &ImagePath,
    ) -> Result<(), Failure> {
        let mut options = self.fs.open_options();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(&at.path).at(at)?;
        let mut pos = 0u64;
        loop {
            let len = fill(from, &mut self.buf).map_err(|error| Failure::at(at, broken(&error)))?;
            if len == 0 {
                break;
            }
            let data = self.buf.get(..len).unwrap_or(&[]);
            for (start, end) in written(data) {
                let mut rest = data.get(start..end).unwrap_or(&[]);
                let mut to = pos + start as u64;
                while !rest.is_empty() {
                    let done = file.write_at(rest, to).at(at)?;
                    if done == 0 {
                        return Err(Failure::at(at, Error::NoSpace));
                    }
                    rest = rest.get(done..).unwrap_or(&[]);
                    to += done as u64;
                }
            }
            pos += len as u64;
        }
        if pos != member.size {
            return Err(Failure::at(at, "the archive ends in the middle of it"));
        }
        file.set_len(pos).at(at)
    }

    /// Owner, permissions and extended attributes, in an order in which none undoes another.
    fn attributes(&self, member: &Member, at: &ImagePath) -> Result<(), Failure> {
        storable(member, at)?;
        let owner = SetAttr {
            uid: Some(member.uid),
            gid: Some(member.gid),
            ..SetAttr::default()
        };
        let (path, link) = (&at.path, member.kind == kind::SYMLINK);
        self.fs.set_attributes(path, !link, &owner).at(at)?;
        if !link {
            let permissions = Permissions::from_mode(member.mode);
            self.fs.set_permissions(path, permissions).at(at)?;
        }
        // Made below a directory with a default ACL, it has inherited what the archive does not grant.
        for acl in ACLS {
            if !link && !member.xattrs.iter().any(|(name, _)| name == acl) {
                match self.fs.remove_xattr(path, acl) {
                    Err(Error::NoAttribute | Error::NotSupported(_)) => {}
                    other => other.at(at)?,
                }
            }
        }
        for (name, value) in &member.xattrs {
            let set = self.fs.set_xattr(path, name, value);
            let name = String::from_utf8_lossy(name);
            match set {
                Err(error @ Error::NotSupported(_)) => warn!("{at}: {name} is left out: {error}"),
                other => other.at(format!("{at}: {name}"))?,
            }
        }
        Ok(())
    }
}

fn storable(member: &Member, at: &ImagePath) -> Result<(), Failure> {
    if member.uid == u32::MAX || member.gid == u32::MAX {
        return Err(Failure::at(at, "an owner that ext4 cannot store"));
    }
    Ok(())
}

/// The numbers of a device, as inodes have them.
fn device(member: &Member, at: &ImagePath) -> Result<u32, Failure> {
    let (major, minor) = (member.major, member.minor);
    if major > 0xfff || minor > 0xf_ffff {
        let what = format!("device {major}:{minor} has numbers that ext4 cannot store");
        return Err(Failure::at(at, what));
    }
    Ok((minor & 0xff) | (major << 8) | ((minor & 0xf_ff00) << 12))
}

fn times(member: &Member) -> FileTimes {
    FileTimes::new()
        .set_modified(member.mtime)
        .set_accessed(member.atime.unwrap_or(member.mtime))
}

/// The ranges of `data` that are not whole pieces of zeros: those become holes.
fn written(data: &[u8]) -> Vec<(usize, usize)> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for (i, piece) in data.chunks(PIECE).enumerate() {
        if piece.iter().all(|&byte| byte == 0) {
            continue;
        }
        let (start, end) = (i * PIECE, i * PIECE + piece.len());
        match ranges.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => ranges.push((start, end)),
        }
    }
    ranges
}

fn bytes(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// What is wrong with an archive.
fn broken(error: &io::Error) -> String {
    format!("not an archive that can be read: {}", plain(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pieces_of_zeros_are_left_out() {
        let mut data = vec![0; 4 * PIECE + 10];
        assert_eq!(written(&data), []);
        data[PIECE] = 1;
        data[2 * PIECE] = 1;
        data[4 * PIECE + 9] = 1;
        let right = [(PIECE, 3 * PIECE), (4 * PIECE, 4 * PIECE + 10)];
        assert_eq!(written(&data), right);
    }
}
