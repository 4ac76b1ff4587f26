//! `extant untar`: an archive, unpacked into an image.
//!
//! An archive is not trusted with the host: nothing outside of the image is reached. Names go below
//! the directory that was named and `..` in one is refused, but links in the image are followed,
//! those that the archive brings among them: a subdirectory is no border within the image. Owners,
//! permissions, times and attributes are those of the archive, for every user.
//!
//! # Errors
//! An attribute that an entry cannot be given is noted, and the next entry follows. A full image
//! ends it: the rest would fail as well.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use extant::{Error, FileKind, FileTimes, Filesystem, Ino, Node, SetAttr, Timestamp, XattrMode};
use extant_archive::{Member, Piece, Reader, Stream, acl, fill, kind};
use tracing::{debug, warn};

use crate::args::{Given, Untar};
use crate::descent::Descent;
use crate::failure::{At, Failure, Failures, Outcome, plain};
use crate::images::Images;
use crate::operand::ImagePath;
use crate::output::device_number;
use crate::owner;
use crate::progress::Progress;

mod input;

/// Bytes moved at once.
const CHUNK: usize = 1 << 20;
/// Bytes that are looked at together to find holes.
const PIECE: usize = 4096;
/// Longest path, and longest that a link says, in bytes.
const LONGEST: usize = 4095;

pub(crate) fn run(args: &Untar) -> Outcome {
    let mut failures = Failures::of("untar");
    let mut images = Images::write();
    let progress = Progress::new(args.quiet);
    let unpacked = input::open(args, &progress).and_then(|archive| {
        let fs = images.of(&args.to)?;
        Unpack::new(&fs, args, &progress, &mut failures)?.all(archive)
    });
    progress.finish();
    failures.note(unpacked);
    super::finish(images, failures)
}

/// The failure of an entry: of the entry alone, or the image is full.
enum UntarTrouble {
    Entry(Failure),
    Full(Failure),
}

impl From<Failure> for UntarTrouble {
    fn from(failure: Failure) -> UntarTrouble {
        UntarTrouble::Entry(failure)
    }
}

/// Adds where an error happened, and whether it ends everything.
trait Space<T> {
    fn on(self, location: &ImagePath) -> Result<T, UntarTrouble>;
}

impl<T> Space<T> for extant::Result<T> {
    fn on(self, location: &ImagePath) -> Result<T, UntarTrouble> {
        self.map_err(|error| match error {
            Error::NoSpace | Error::OverQuota => {
                let what = format!("{error}: unpacking ends here");
                UntarTrouble::Full(Failure::at(location, what))
            }
            error => UntarTrouble::Entry(Failure::at(location, error)),
        })
    }
}

/// The directory that is unpacked to.
struct Unpack<'a> {
    fs: &'a Filesystem,
    top: &'a ImagePath,
    given: &'a Given,
    descent: Descent<'a>,
    progress: &'a Progress,
    failures: &'a mut Failures,
    buf: Vec<u8>,
    /// Directories get their times when everything is in them.
    times: BTreeMap<Ino, FileTimes>,
}

/// The target of an entry.
struct EntryTarget<'a> {
    dir: Node,
    name: &'a [u8],
    /// The file that has the name so far.
    old: Option<Node>,
    at: ImagePath,
}

impl<'a> Unpack<'a> {
    fn new(
        fs: &'a Filesystem,
        args: &'a Untar,
        progress: &'a Progress,
        failures: &'a mut Failures,
    ) -> Result<Self, Failure> {
        let top = &args.to;
        let dir = fs.node(&top.path, true).at(top)?;
        if dir.kind() != FileKind::Directory {
            return Err(Failure::at(top, Error::NotDir));
        }
        Ok(Unpack {
            fs,
            top,
            given: &args.given,
            descent: Descent::new(fs, top, dir),
            progress,
            failures,
            buf: vec![0; CHUNK],
            times: BTreeMap::new(),
        })
    }

    /// Unpacks everything. An archive that cannot be read on ends it.
    fn all(mut self, archive: input::ArchiveInput<'_>) -> Result<(), Failure> {
        let input::ArchiveInput {
            name,
            input,
            is_pipe,
        } = archive;
        let broken = |error: io::Error| Failure::at(&name, broken(error));
        let mut archive = Reader::new(Stream(input));
        let ended = loop {
            let member = match archive.next_member() {
                Ok(Some(member)) => member,
                Ok(None) => break Ok(()),
                Err(error) => break Err(broken(error)),
            };
            match self.one(&member, &mut archive) {
                Ok(()) => {}
                Err(UntarTrouble::Entry(failure)) => self.note(failure),
                Err(UntarTrouble::Full(failure)) => break Err(failure),
            }
        };
        if ended.is_ok() && !archive.marked() {
            warn!("{name}: no mark at its end: it may be cut short");
        }
        for (ino, times) in std::mem::take(&mut self.times) {
            let set = |node: Node| self.set(&node, &times.into());
            if let Err(error) = self.fs.volume().node(ino).and_then(set) {
                let location = format!("{}: times of directory {ino}", self.top.image.display());
                self.note(Failure::at(location, error));
            }
        }
        if ended.is_ok() && is_pipe {
            // A writer that has not ended yet would be ended by a pipe that nothing reads. What
            // follows the archive is none of it, and neither are errors there.
            if let Err(error) = io::copy(archive.input(), &mut io::sink()) {
                debug!("{name}: what follows the archive: {error}");
            }
        }
        ended
    }

    fn note(&mut self, failure: Failure) {
        let Unpack {
            failures, progress, ..
        } = self;
        progress.pause(|| failures.note::<()>(Err(failure)));
    }

    fn one(&mut self, member: &Member, content: &mut dyn Read) -> Result<(), UntarTrouble> {
        if member.kind == kind::VOLUME {
            warn!("{}: the archive's label is left out", self.top);
            return Ok(());
        }
        let names = self.names(&member.name, &member.link)?;
        let mut path = self.top.path.clone();
        path.extend(&names);
        let at = self.top.with_path(path);
        if let Some(damage) = member.damage {
            return Err(Failure::at(at, damage).into());
        }
        let Some((&name, above)) = names.split_last() else {
            // The top itself.
            let dir = self.descent.reach(&[]).on(&at)?;
            return match member.kind {
                kind::DIRECTORY => self.filled(member, &dir, &at),
                _ => Err(in_the_way(&at).into()),
            };
        };
        let dir = self.descent.reach(above).on(&at)?;
        let old = match self.fs.volume().lookup(&dir, name.as_bytes()) {
            Err(Error::NotFound) => None,
            other => Some(other.at(&at)?),
        };
        let name = name.as_bytes();
        let target = EntryTarget { dir, name, old, at };
        if member.kind == kind::DIRECTORY {
            return self.directory(member, &target);
        }
        if matches!(&target.old, Some(old) if old.kind() == FileKind::Directory) {
            return Err(in_the_way(&target.at).into());
        }
        if matches!(member.kind, kind::LINK | kind::SYMLINK) && member.link.is_empty() {
            return Err(Failure::at(&target.at, "a link to nothing").into());
        }
        if member.kind == kind::LINK {
            return self.link(member, &target);
        }
        self.make(member, content, &target)
    }

    /// Makes what is neither a directory nor a hard link.
    fn make(
        &mut self,
        member: &Member,
        content: &mut dyn Read,
        target: &EntryTarget<'_>,
    ) -> Result<(), UntarTrouble> {
        let EntryTarget { dir, name, at, .. } = target;
        // Nothing is removed for what cannot be made.
        let rdev = match member.kind {
            kind::CHAR | kind::BLOCK => device(member, at)?,
            kind::REGULAR | kind::SYMLINK | kind::FIFO => 0,
            other => {
                let what = format!("of type {:?}, not known", char::from(other));
                return Err(Failure::at(at, what).into());
            }
        };
        storable(member, at)?;
        // A file that other names lead to is not written into.
        self.remove(target)?;
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        let made = |kind| volume.mknod(dir, name, kind, 0o600, rdev, cred);
        let node = match member.kind {
            kind::SYMLINK => volume.symlink(dir, name, &member.link, cred),
            kind::CHAR => made(FileKind::CharDevice),
            kind::BLOCK => made(FileKind::BlockDevice),
            kind::FIFO => made(FileKind::Fifo),
            _ => volume.create(dir, name, 0o600, cred),
        };
        let node = node.on(at)?;
        if member.kind == kind::REGULAR {
            let written = self.content(member, content, &node, at);
            if let Err(UntarTrouble::Full(_)) = written {
                // What is left must not pass for the whole file. Its size shows it otherwise.
                let _ = volume.unlink(dir, name);
            }
            written?;
        }
        // Extended attributes change neither of the times.
        Ok(self.attributes(member, &node, at, times(member).into())?)
    }

    /// Makes a hard link. What is in its place goes only once there is something to link to.
    fn link(&mut self, member: &Member, target: &EntryTarget<'_>) -> Result<(), UntarTrouble> {
        let EntryTarget { dir, name, old, at } = target;
        let mut path = self.top.path.clone();
        path.extend(self.names(&member.link, &[])?);
        let what = format!("{at}: a link to {}", path.display());
        let original = self.fs.node(&path, false).at(&what)?;
        if original.kind() == FileKind::Directory {
            return Err(Failure::at(&what, Error::IsDir).into());
        }
        if old.as_ref().is_some_and(|old| old.ino() == original.ino()) {
            // Of itself, by whatever name: it is there.
            return Ok(());
        }
        self.remove(target)?;
        match self.fs.volume().link(&original, dir, name, self.fs.cred()) {
            Err(error @ (Error::NoSpace | Error::OverQuota)) => Err(error).on(at),
            other => Ok(other.at(what)?),
        }
    }

    /// The names on the way that a name of the archive goes.
    fn names<'b>(&self, name: &'b [u8], link: &[u8]) -> Result<Vec<&'b OsStr>, Failure> {
        if name.len() > LONGEST || link.len() > LONGEST {
            let what = format!("a name or link of more than {LONGEST} bytes in the archive");
            return Err(Failure::at(self.top, what));
        }
        if name.contains(&0) || link.contains(&0) {
            return Err(Failure::at(
                self.top,
                "a name or link with a zero byte in it",
            ));
        }
        let name = Path::new(OsStr::from_bytes(name));
        let mut names = Vec::new();
        for part in name.components() {
            match part {
                Component::Normal(part) => names.push(part),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
                Component::ParentDir => {
                    let what = "a name with \"..\" in it";
                    return Err(Failure::at(name.display(), what));
                }
            }
        }
        Ok(names)
    }

    fn remove(&mut self, target: &EntryTarget<'_>) -> Result<(), Failure> {
        let Some(old) = &target.old else {
            return Ok(());
        };
        let removed = self.fs.volume().unlink(&target.dir, target.name);
        if old.kind() == FileKind::Symlink {
            self.descent.forget();
        }
        removed.at(&target.at)
    }

    fn directory(&mut self, member: &Member, target: &EntryTarget<'_>) -> Result<(), UntarTrouble> {
        let EntryTarget { dir, name, old, at } = target;
        // A link to a directory will do for one: all of it is for the directory, none for the link.
        let there = match old {
            Some(link) if link.kind() == FileKind::Symlink => self.fs.node(&at.path, true).ok(),
            other => other.clone(),
        };
        let node = match (there, old) {
            (Some(node), _) if node.kind() == FileKind::Directory => node,
            (_, Some(_)) => return Err(Failure::at(at, Error::Exists).into()),
            _ => {
                let made = self.fs.volume().mkdir(dir, name, 0o777, self.fs.cred());
                made.on(at)?
            }
        };
        self.filled(member, &node, at)
    }

    /// Gives a directory what the archive says of it.
    fn filled(&mut self, member: &Member, dir: &Node, at: &ImagePath) -> Result<(), UntarTrouble> {
        self.times.insert(dir.ino(), times(member));
        Ok(self.attributes(member, dir, at, SetAttr::default())?)
    }

    fn content(
        &mut self,
        member: &Member,
        from: &mut dyn Read,
        to: &Node,
        at: &ImagePath,
    ) -> Result<(), UntarTrouble> {
        let whole = [Piece {
            start: 0,
            len: member.size,
        }];
        let mut reached = 0;
        for piece in member.pieces.as_deref().unwrap_or(&whole) {
            let mut pos = piece.start;
            // A piece past the largest position is refused by its first write there.
            let end = piece.start.saturating_add(piece.len);
            while pos < end {
                let want = usize::try_from(end - pos).unwrap_or(CHUNK).min(CHUNK);
                let len = fill(from, &mut self.buf[..want])
                    .map_err(|error| Failure::at(at, broken(error)))?;
                reached = self.write(to, pos, len).on(at)?.unwrap_or(reached);
                pos += len as u64;
                if len < want {
                    let what = "the archive ends in the middle of it";
                    return Err(Failure::at(at, what).into());
                }
            }
        }
        if reached == member.size {
            return Ok(());
        }
        let size = SetAttr {
            size: Some(member.size),
            ..SetAttr::default()
        };
        self.set(to, &size).on(at)
    }

    /// Writes the first `len` bytes of the buffer, but for whole pieces of zeros: those become
    /// holes. Returns where what was written ends.
    fn write(&self, to: &Node, pos: u64, len: usize) -> extant::Result<Option<u64>> {
        let data = &self.buf[..len];
        let mut reached = None;
        for (start, end) in written(data) {
            let mut rest = &data[start..end];
            let mut at = pos + start as u64;
            while !rest.is_empty() {
                let done = self.fs.volume().write(to, at, rest, self.fs.cred())?;
                if done == 0 {
                    return Err(Error::NoSpace);
                }
                rest = &rest[done..];
                at += done as u64;
            }
            reached = Some(at);
        }
        Ok(reached)
    }

    fn set(&self, node: &Node, changes: &SetAttr) -> extant::Result<()> {
        let set = self.fs.volume().setattr(node, changes, self.fs.cred());
        set.map(drop)
    }

    /// Owner, permissions and `more`, as one change, and then extended attributes.
    fn attributes(
        &self,
        member: &Member,
        node: &Node,
        at: &ImagePath,
        more: SetAttr,
    ) -> Result<(), Failure> {
        storable(member, at)?;
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        let link = member.kind == kind::SYMLINK;
        let (uid, gid) = self.given.owner(member.uid, member.gid);
        let mut changes = SetAttr {
            uid: Some(uid),
            gid: Some(gid),
            ..more
        };
        let mut xattrs = member.xattrs.clone();
        let mut mode = member.mode;
        let mut failed = None;
        if !link {
            if let Err(what) = acl::add_missing(member, &mut xattrs, &owner::Here) {
                // Where there is an ACL, the group's bits are what any of its entries may grant.
                mode &= !0o070;
                let what = format!("{what}: left out, and its group may nothing");
                failed = Some(Failure::at(at, what));
            }
            let mut perm = u16::try_from(mode & 0o7777).unwrap_or(0);
            let is_dir = member.kind == kind::DIRECTORY;
            let another = !is_dir && (uid, gid) != (member.uid, member.gid);
            if another {
                // As chown(2): what a file may is not given to another owner.
                perm &= !0o6000;
                xattrs.retain(|(name, _)| name != b"security.capability");
            }
            changes.perm = Some(self.given.perm(perm, is_dir, cred.umask));
        }
        self.set(node, &changes).at(at)?;
        // Made below a directory with a default ACL, it has inherited what the archive does not
        // grant.
        let inherited = if link {
            Vec::new()
        } else {
            volume.listxattr(node).at(at)?
        };
        for (_, acl) in acl::KINDS {
            let has = inherited.iter().any(|name| name == acl);
            if has && !xattrs.iter().any(|(name, _)| name == acl) {
                match volume.removexattr(node, acl, cred) {
                    Err(Error::NoAttribute | Error::NotSupported(_)) => {}
                    other => other.at(at)?,
                }
            }
        }
        for (name, value) in &xattrs {
            let set = volume.setxattr(node, name, value, XattrMode::Either, cred);
            let name = String::from_utf8_lossy(name);
            match set {
                Err(error @ Error::NotSupported(_)) => warn!("{at}: {name} is left out: {error}"),
                other => other.at(format!("{at}: {name}"))?,
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

fn in_the_way(at: &ImagePath) -> Failure {
    Failure::at(at, "a directory, in the way of what is not one")
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
    Ok(device_number(major, minor))
}

fn times(member: &Member) -> FileTimes {
    let stored = |time: extant_archive::Timestamp| Timestamp {
        secs: time.secs,
        nanos: time.nanos,
    };
    FileTimes::new()
        .set_modified(stored(member.mtime))
        .set_accessed(stored(member.atime.unwrap_or(member.mtime)))
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

/// The failure of an archive that cannot be read.
fn broken(error: io::Error) -> Failure {
    let what = format!("not an archive that can be read: {}", plain(&error));
    Failure::caused_by(error, what)
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
