//! `extant tar` and `extant export`: a tree of an image, as an archive.
//!
//! Entries are sorted by name. They have all that a pax header can say, and nothing that depends on
//! the time of the command or on its user.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File as HostFile;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use extant::build::NewFile;
use extant::{
    CopyEnd, CopyOptions, CopyRefusal, DataBudget, Error, FileKind, Filesystem, Node, SeekTarget,
    Volume, copy_size,
};
use extant_archive::{MAX_PIECES, Member, Piece, Timestamp, Writer, kind};
use tracing::warn;

use crate::args::Tar;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;
use crate::output::{Output, device_numbers};
use crate::progress::Progress;
use crate::unfinished::remove_when_ended;
use crate::walk::{Step, walk};

/// Extended attributes: names and values.
type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) fn run(args: &Tar) -> Outcome {
    pack_as("tar", args)
}

/// Packs; failures name the command `name`.
pub(crate) fn pack_as(name: &'static str, args: &Tar) -> Outcome {
    let mut failures = Failures::of(name);
    let mut images = Images::read();
    let progress = Progress::new(args.quiet);
    let packed = images.of(&args.from).and_then(|fs| {
        let metadata = fs.metadata(&args.from.path).at(&args.from)?;
        if !metadata.is_dir() {
            return Err(Failure::at(&args.from, Error::NotDir));
        }
        let tree = PackedTree {
            fs: &fs,
            // What a link leads to, if it is one.
            top: args.from.with_path(args.from.path.join(".")),
            progress: &progress,
        };
        tree.announce();
        match &args.file {
            Some(path) if path.as_os_str() != "-" => pack_into(path, &tree, &images, &mut failures),
            _ if io::stdout().is_terminal() => {
                let what = "a terminal: write to a file with -f, or through a pipe";
                Err(Failure::at("standard output", what))
            }
            _ => {
                let out = io::stdout().lock();
                pack(&tree, out, "standard output", &mut failures)
            }
        }
    });
    progress.finish();
    let is_packed = failures.note(packed).is_some();
    if args.json && is_packed {
        let mut out = Output::new();
        let told = out.json(&progress.json());
        failures.note(told.and_then(|()| out.finish()));
    }
    super::finish(images, failures)
}

/// The tree that is packed.
struct PackedTree<'a> {
    fs: &'a Filesystem,
    top: ImagePath,
    progress: &'a Progress,
}

impl PackedTree<'_> {
    /// Tells the progress bar how much there is, if there is one.
    fn announce(&self) {
        if self.progress.wanted() {
            let top = CopyEnd::Volume(self.fs, &self.top.path);
            self.progress.expect(copy_size(&top, &CopyOptions::whole()));
        }
    }
}

/// Writes everything into the file at `path`. A regular file gets its name when it is complete.
fn pack_into(
    path: &Path,
    tree: &PackedTree<'_>,
    images: &Images,
    failures: &mut Failures,
) -> Result<(), Failure> {
    let name = path.display().to_string();
    let there = match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        other => Some(other.at(&name)?),
    };
    if let Some(there) = &there {
        images.spare(path, there)?;
        let kind = there.file_type();
        if kind.is_block_device() {
            let what = "a block device: an archive goes to a file, or to standard output as -";
            return Err(Failure::at(name, what));
        }
        if kind.is_char_device() || kind.is_fifo() {
            let out = HostFile::options().write(true).open(path).at(&name)?;
            return pack(tree, out, &name, failures);
        }
    }
    remove_when_ended().at(&name)?;
    let new = NewFile::begin(path).at(&name)?;
    pack(tree, new.file(), &name, failures)?;
    new.finish().at(&name)
}

/// Writes everything. An output that fails ends it; what cannot be read is noted and left out.
fn pack(
    tree: &PackedTree<'_>,
    out: impl Write,
    name: &str,
    failures: &mut Failures,
) -> Result<(), Failure> {
    let PackedTree { fs, top, progress } = tree;
    let mut pack = Pack {
        fs,
        top,
        progress,
        out: Writer::new(BufWriter::with_capacity(1 << 20, out)),
        links: HashMap::new(),
        budget: DataBudget::of(fs.volume()).at(top)?,
    };
    let mut ended = None;
    walk(fs, top, |step| {
        let (None, Some(step)) = (&ended, progress.pause(|| failures.note(step))) else {
            return false;
        };
        match pack.one(&step) {
            Ok(()) => {}
            Err(TarTrouble::Entry(failure)) => {
                progress.pause(|| failures.note::<()>(Err(failure)));
            }
            Err(TarTrouble::Output(error)) => ended = Some(error),
        }
        ended.is_none()
    });
    let ended = match ended {
        Some(error) => Err(error),
        None => pack.out.finish(),
    };
    // A reader that goes away has no whole archive: that is a failure, too.
    ended.map_err(|error| Failure::at(name, error))
}

/// The failure of an entry: of the entry alone, or of the archive.
enum TarTrouble {
    Entry(Failure),
    Output(io::Error),
}

impl From<io::Error> for TarTrouble {
    fn from(error: io::Error) -> TarTrouble {
        TarTrouble::Output(error)
    }
}

impl From<Failure> for TarTrouble {
    fn from(failure: Failure) -> TarTrouble {
        TarTrouble::Entry(failure)
    }
}

struct Pack<'a, W: Write> {
    fs: &'a Filesystem,
    top: &'a ImagePath,
    progress: &'a Progress,
    out: Writer<W>,
    /// Files with several names that are still to come.
    links: HashMap<u64, LinkedFile>,
    /// Data that files can still have.
    budget: DataBudget,
}

/// A file with several names.
struct LinkedFile {
    /// The first of them, in the archive.
    first: Vec<u8>,
    /// Names that are left, if the file's count of them is right. Without, nothing is remembered.
    left: u32,
}

impl<W: Write> Pack<'_, W> {
    fn one(&mut self, step: &Step<'_>) -> Result<(), TarTrouble> {
        let at = self.top.with_path(step.path);
        let (volume, attr) = (self.fs.volume(), &step.attr);
        let mut member = Member {
            name: name(&self.top.path, step.path, attr.kind).into_vec(),
            mode: u32::from(attr.perm),
            uid: attr.uid,
            gid: attr.gid,
            mtime: Timestamp {
                secs: attr.mtime.secs,
                nanos: attr.mtime.nanos,
            },
            ..Member::default()
        };
        if attr.kind == FileKind::Socket {
            warn!("{at}: a socket, left out");
            return Ok(());
        }
        if attr.kind != FileKind::Directory && attr.nlink > 1 {
            let ino = u64::from(attr.ino.get());
            if let Some(linked) = self.links.get_mut(&ino) {
                member.kind = kind::LINK;
                member.link.clone_from(&linked.first);
                // A damaged link count may be less than the names that are found.
                linked.left = linked.left.saturating_sub(1);
                if linked.left == 0 {
                    self.links.remove(&ino);
                }
                return Ok(self.out.append(&member, io::empty())?);
            }
        }
        member.xattrs = self.xattrs(step, &at)?;
        member.kind = match attr.kind {
            FileKind::Directory => kind::DIRECTORY,
            FileKind::Symlink => kind::SYMLINK,
            FileKind::Fifo => kind::FIFO,
            FileKind::CharDevice => kind::CHAR,
            FileKind::BlockDevice => kind::BLOCK,
            FileKind::Regular | FileKind::Socket => kind::REGULAR,
        };
        match attr.kind {
            FileKind::Symlink => {
                member.link = volume.readlink(step.node).at(&at)?;
            }
            FileKind::CharDevice | FileKind::BlockDevice => {
                (member.major, member.minor) = device_numbers(attr.rdev);
            }
            FileKind::Regular => return self.regular(step, &at, member),
            _ => {}
        }
        self.out.append(&member, io::empty())?;
        self.archived(step, member.name);
        Ok(())
    }

    /// The extended attributes that an archive can name.
    fn xattrs(&self, step: &Step<'_>, at: &ImagePath) -> Result<Xattrs, Failure> {
        let volume = self.fs.volume();
        let mut all = Vec::new();
        for name in volume.listxattr(step.node).at(at)? {
            if name.contains(&b'=') {
                let name = String::from_utf8_lossy(&name);
                warn!("{at}: {name} is left out: an archive has no name with = in it");
                continue;
            }
            let value = volume.getxattr(step.node, &name).at(at)?;
            all.push((name, value));
        }
        Ok(all)
    }

    /// Writes a regular file. Bytes that cannot be read are zeros in the archive.
    fn regular(
        &mut self,
        step: &Step<'_>,
        at: &ImagePath,
        mut member: Member,
    ) -> Result<(), TarTrouble> {
        let (volume, size) = (self.fs.volume(), step.attr.size);
        self.progress.begin(|| at.to_string());
        member.size = size;
        let pieces = pieces(volume, step.node, size);
        let bytes: u64 = pieces.iter().map(|piece| piece.len).sum();
        self.budget
            .begin(step.attr.ino.get().into(), step.attr.nlink.into());
        if !self.budget.take(bytes) {
            return Err(Failure::at(at, CopyRefusal::TooMuchData.to_string()).into());
        }
        let mut content = TarContent {
            volume,
            node: step.node,
            pieces: pieces.clone().into_iter(),
            now: Piece { start: 0, len: 0 },
            failed: None,
            progress: self.progress,
        };
        member.pieces = (bytes < size).then_some(pieces);
        self.out.append(&member, &mut content)?;
        let failed = content.failed;
        // Holes are in the total, and are not read.
        self.progress.add(size - bytes.min(size));
        self.archived(step, member.name);
        match failed {
            Some(error) => Err(Failure::at(at, error).into()),
            None => Ok(()),
        }
    }

    /// Other names of it are links to this one: only now that it is in the archive.
    fn archived(&mut self, step: &Step<'_>, name: Vec<u8>) {
        let attr = &step.attr;
        if attr.kind != FileKind::Directory && attr.nlink > 1 {
            let linked = LinkedFile {
                first: name,
                left: attr.nlink - 1,
            };
            self.links.insert(u64::from(attr.ino.get()), linked);
        }
    }
}

/// The name in the archive: below the top, which is `./`; a directory's ends in a slash.
fn name(top: &Path, path: &Path, kind: FileKind) -> OsString {
    let below: PathBuf = path.strip_prefix(top).unwrap_or(path).into();
    let mut name = OsString::from("./");
    name.push(&below);
    if kind == FileKind::Directory && !below.as_os_str().is_empty() {
        name.push("/");
    }
    name
}

/// The data of a file between its holes. Where its map is damaged, all that follows: reading it
/// will tell.
fn pieces(volume: &Volume, node: &Node, size: u64) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut pos = 0;
    while pos < size {
        let start = match volume.seek(node, SeekTarget::Data(pos)) {
            Err(Error::NoSuchAddress) => break,
            other => other.unwrap_or(pos),
        };
        if start >= size {
            break;
        }
        let end = volume.seek(node, SeekTarget::Hole(start));
        let end = end.unwrap_or(size).clamp(start + 1, size);
        // Room for the last one, which the map of a file that ends with a hole has.
        let full = pieces.len() >= MAX_PIECES - 1;
        match pieces.last_mut() {
            Some(last) if full => last.len = end - last.start,
            _ => pieces.push(Piece {
                start,
                len: end - start,
            }),
        }
        pos = end;
    }
    pieces
}

/// The bytes of a file: as many as were announced, whatever becomes of it.
struct TarContent<'a> {
    volume: &'a Volume,
    node: &'a Node,
    pieces: std::vec::IntoIter<Piece>,
    /// The rest of the piece that is read now.
    now: Piece,
    failed: Option<Error>,
    progress: &'a Progress,
}

impl Read for TarContent<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.now.len == 0 {
            match self.pieces.next() {
                Some(piece) => self.now = piece,
                None => return Ok(0),
            }
        }
        let want = usize::try_from(self.now.len).unwrap_or(usize::MAX);
        let want = want.min(buf.len());
        let buf = &mut buf[..want];
        let len = match self.volume.read(self.node, self.now.start, buf) {
            Ok(len) if len > 0 => len,
            Ok(_) => zeros(buf),
            Err(error) => {
                self.failed.get_or_insert(error);
                zeros(buf)
            }
        };
        self.now.start += len as u64;
        self.now.len -= len as u64;
        self.progress.add(len as u64);
        Ok(len)
    }
}

fn zeros(buf: &mut [u8]) -> usize {
    buf.fill(0);
    buf.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_begin_below_the_top() {
        let of = |top: &str, path: &str, kind| name(Path::new(top), Path::new(path), kind);
        assert_eq!(of("/", "/", FileKind::Directory), "./");
        assert_eq!(of("/a", "/a/b", FileKind::Directory), "./b/");
        assert_eq!(of("/a", "/a/b/c", FileKind::Regular), "./b/c");
    }
}
