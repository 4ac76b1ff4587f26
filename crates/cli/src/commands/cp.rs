//! `extant cp`: copying into, out of and between images.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use extant::sides::{FileTree, HostTree, VolumeTree};
use extant::{
    CopyEnd, CopyError, CopyOptions, CopyRefusal, CopySide, CopyWatch, Existing, FileKind,
    Filesystem, copy_size,
};
use tracing::warn;

use crate::args::Cp;
use crate::failure::{At, Failure, Failures, Outcome, plain};
use crate::images::Images;
use crate::operand::{ImagePath, Operand};
use crate::output::Output;
use crate::progress::Progress;
use crate::source;

/// The name of standard input.
const STDIN: &str = "-";

pub(crate) fn run(args: &Cp) -> Outcome {
    match super::split_sources(&args.operands, "a destination") {
        Ok((to, sources)) => copied(args, sources, to),
        Err(wrong) => wrong,
    }
}

fn copied(args: &Cp, sources: &[Operand], to: &Operand) -> Outcome {
    if matches!(to, Operand::Host(_)) && sources.iter().any(|from| matches!(from, Operand::Host(_)))
    {
        return Outcome::Usage("neither source nor destination is IMAGE:/path".into());
    }
    if to.is_host(STDIN) {
        return Outcome::Usage("-: extant cat writes files to standard output".into());
    }
    if to.image().is_some() && source::superblock().is_some() {
        return Outcome::Usage(source::READ_ONLY.into());
    }
    // Only the destination is written to, and then it may be a source as well.
    let images = || sources.iter().chain([to]).filter_map(Operand::image);
    let mut run = CopyRun {
        read: Images::read().shared_by(images()),
        write: Images::write().shared_by(images()),
        progress: Progress::new(args.quiet),
        failures: Failures::of("cp"),
    };
    let mut given = args.given.clone();
    if let Some(owner) = &mut given.owner
        && !(args.preserve || args.archive)
    {
        // What is not named is as of any new file.
        let (uid, gid) = run.write.maker();
        *owner = (owner.0.or(Some(uid)), owner.1.or(Some(gid)));
    }
    let umask = run.write.umask();
    let permit = |perm, is_dir| given.perm(perm, is_dir, umask);
    let (uid, gid) = given.owner.unwrap_or_default();
    let preserve = args.preserve || args.archive;
    let options = CopyOptions {
        recursive: args.recursive || args.archive,
        preserve,
        owners: preserve,
        hard_links: args.archive,
        xattrs: args.archive,
        existing: match args.no_clobber {
            true => Existing::Skip,
            false => Existing::Rewrite,
        },
        sparse: args.sparse.into(),
        uid,
        gid,
        permit: given.mode.as_ref().map(|_| &permit as _),
        umask,
        ..CopyOptions::default()
    };
    let copied = run.copy(sources, to, &options);
    let CopyRun {
        read,
        write,
        progress,
        mut failures,
    } = run;
    failures.note(copied);
    progress.finish();
    failures.note(read.close());
    failures.note(write.close());
    if args.json {
        failures.note(told(&progress));
    }
    failures.outcome()
}

/// Prints what was copied.
fn told(progress: &Progress) -> Result<(), Failure> {
    let mut out = Output::new();
    out.json(&progress.json())?;
    out.finish()
}

/// The images of one command, and what it tells.
struct CopyRun {
    read: Images,
    write: Images,
    progress: Progress,
    failures: Failures,
}

impl CopyRun {
    /// Copies each source.
    fn copy(
        &mut self,
        sources: &[Operand],
        to: &Operand,
        options: &CopyOptions<'_>,
    ) -> Result<(), Failure> {
        let CopyRun {
            read,
            write,
            progress,
            failures,
        } = self;
        let target = OpenOperand::open(to, write)?;
        let into = target.kind(true).at(to)? == Some(FileKind::Directory);
        if sources.len() > 1 && !into {
            return Err(Failure::at(to, extant::Error::NotDir));
        }
        let mut jobs = Vec::new();
        for from in sources {
            if into && from.is_host(STDIN) {
                let what = "a directory: say what the file is called";
                failures.note::<()>(Err(Failure::at(to, what)));
                continue;
            }
            if let Some(source) = failures.note(OpenOperand::open_source(from, (to, &target), read))
            {
                let name = source.path().file_name();
                let below = name.filter(|_| into && !from.means_content());
                let below = below.map(OsStr::to_owned);
                jobs.push((source, below));
            }
        }
        let mut total = 0;
        let slash = !into && to.ends_in_slash();
        for (source, below) in &jobs {
            if slash && !source.is_dir(options.recursive) {
                return Err(Failure::at(to, extant::Error::NotDir));
            }
            if progress.wanted() {
                total += copy_size(&source.end(source.path()), options);
                progress.expect(total);
            }
            let path = below.as_ref().map(|name| target.path().join(name));
            let options = CopyOptions {
                is_named: path.is_none(),
                spared: read.identities(),
                ..options.clone()
            };
            let mut watch = Watch {
                source,
                target: &target,
                progress,
                failures,
            };
            let from = source.end(source.path());
            let to = target.end(path.as_deref().unwrap_or(target.path()));
            // Each failure was printed.
            let _ = extant::copy(&from, &to, &options, &mut watch);
        }
        Ok(())
    }
}

/// Shows a copy and prints its failures; none ends it.
struct Watch<'w> {
    source: &'w OpenOperand,
    target: &'w OpenOperand,
    progress: &'w Progress,
    failures: &'w mut Failures,
}

impl CopyWatch for Watch<'_> {
    fn begin(&mut self, from: &Path) {
        self.progress.begin(|| self.source.show(from));
    }

    fn copied(&mut self, _: &Path, bytes: u64) -> bool {
        self.progress.add(bytes);
        true
    }

    fn left_out(&self, to: &Path, xattr: &str, why: &str) {
        warn!("{}: {xattr} is left out: {why}", self.target.show(to));
    }

    fn failed(&mut self, error: CopyError) -> Result<(), CopyError> {
        let operand = match error.side() {
            CopySide::Source => self.source,
            CopySide::Target => self.target,
        };
        let failure = operand.failure(error);
        let failures = &mut *self.failures;
        self.progress.pause(|| failures.note::<()>(Err(failure)));
        Ok(())
    }
}

/// One operand, with its image open.
enum OpenOperand {
    Host(PathBuf),
    Stdin(File),
    Image(Rc<Filesystem>, ImagePath),
}

impl OpenOperand {
    fn open(operand: &Operand, images: &mut Images) -> Result<OpenOperand, Failure> {
        match operand {
            Operand::Host(path) if path == Path::new(STDIN) => {
                let file = io::stdin().as_fd().try_clone_to_owned().at(STDIN)?;
                Ok(OpenOperand::Stdin(file.into()))
            }
            Operand::Host(path) => Ok(OpenOperand::Host(path.clone())),
            Operand::Image(at) => Ok(OpenOperand::Image(images.of(at)?, at.clone())),
        }
    }

    /// Opens a source; the image of the target is open for writing already.
    fn open_source(
        operand: &Operand,
        (to, target): (&Operand, &OpenOperand),
        images: &mut Images,
    ) -> Result<OpenOperand, Failure> {
        if let (Operand::Image(at), Operand::Image(to)) = (operand, to)
            && let OpenOperand::Image(fs, _) = target
            && source::real(&to.image)? == source::real(&at.image)?
        {
            return Ok(OpenOperand::Image(Rc::clone(fs), at.clone()));
        }
        OpenOperand::open(operand, images)
    }

    /// This end of a copy, at a path of its own.
    fn end<'a>(&'a self, path: &'a Path) -> CopyEnd<'a> {
        match self {
            OpenOperand::Image(fs, _) => CopyEnd::Volume(fs, path),
            OpenOperand::Host(_) => CopyEnd::Host(path),
            OpenOperand::Stdin(file) => CopyEnd::Stream(file),
        }
    }

    fn path(&self) -> &Path {
        match self {
            OpenOperand::Host(path) => path,
            OpenOperand::Image(_, at) => &at.path,
            OpenOperand::Stdin(_) => Path::new(STDIN),
        }
    }

    /// The kind of the file there; `None` if there is nothing.
    fn kind(&self, follow: bool) -> io::Result<Option<FileKind>> {
        let found = match self {
            OpenOperand::Image(fs, at) => VolumeTree(fs).item(&at.path, follow)?,
            OpenOperand::Host(path) => HostTree.item(path, follow)?,
            OpenOperand::Stdin(_) => return Ok(Some(FileKind::Regular)),
        };
        Ok(found.map(|found| found.attributes().kind))
    }

    /// Returns whether a directory is there. If nothing is, the copy says so.
    fn is_dir(&self, recursive: bool) -> bool {
        let kind = self.kind(!recursive).ok().flatten();
        kind.is_none_or(|kind| kind == FileKind::Directory)
    }

    /// A path of this side, as messages show it.
    fn show(&self, path: &Path) -> String {
        match self {
            OpenOperand::Image(_, at) => at.with_path(path).to_string(),
            OpenOperand::Host(_) | OpenOperand::Stdin(_) => path.display().to_string(),
        }
    }

    /// The failure of a copy on this side, with the options of the command in its words.
    fn failure(&self, error: CopyError) -> Failure {
        let location = self.show(error.path());
        let above = || {
            error
                .path()
                .parent()
                .map_or(String::new(), |above| self.show(above))
        };
        let what = match (error.refusal(), error.xattr()) {
            (Some(CopyRefusal::Directory), _) => "a directory (copy it with -r)".to_owned(),
            (Some(CopyRefusal::Special), _) => {
                "a device node, pipe or socket (copy it with -r)".to_owned()
            }
            (Some(CopyRefusal::Owner), _) => "--owner: Operation not permitted".to_owned(),
            (Some(CopyRefusal::MissingParent), _) => {
                let above = above();
                format!("its directory is missing: extant mkdir -p {above} makes it")
            }
            (_, Some(xattr)) => format!("{xattr}: {}", plain(error.error())),
            (_, None) => plain(error.error()),
        };
        Failure::at(location, Failure::caused_by(error, what))
    }
}
