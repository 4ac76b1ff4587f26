//! `extant cp`: copying into, out of and between images.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use extant::{FileKind, Filesystem};

use crate::args::Cp;
use crate::copy::{CopyRules, FileTree, Host, Inside, Job, STDIN, size};
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::{ImagePath, Operand};
use crate::output::Output;
use crate::progress::Progress;
use crate::source;

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
    let mut failures = Failures::of("cp");
    // Only the destination is written to, and then it may be a source as well.
    let images = || sources.iter().chain([to]).filter_map(Operand::image);
    let mut read = Images::read().shared_by(images());
    let mut write = Images::write().shared_by(images());
    let mut given = args.given.clone();
    if let Some(owner) = &mut given.owner
        && !(args.preserve || args.archive)
    {
        // What is not named is as of any new file.
        let (uid, gid) = write.maker();
        *owner = (owner.0.or(Some(uid)), owner.1.or(Some(gid)));
    }
    let rules = CopyRules {
        recursive: args.recursive || args.archive,
        preserve: args.preserve || args.archive,
        archive: args.archive,
        no_clobber: args.no_clobber,
        sparse: args.sparse,
        given,
        umask: write.umask(),
    };
    let progress = Progress::new(args.quiet);
    let copied = copy(
        sources,
        to,
        &rules,
        &mut read,
        &mut write,
        &progress,
        &mut failures,
    );
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

fn copy(
    sources: &[Operand],
    to: &Operand,
    rules: &CopyRules,
    read: &mut Images,
    write: &mut Images,
    progress: &Progress,
    failures: &mut Failures,
) -> Result<(), Failure> {
    let target = OpenOperand::open(to, None, write)?;
    let into = target.tree(read).item(target.path(), true).at(to)?;
    let into = into.is_some_and(|found| found.attributes().kind == FileKind::Directory);
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
        if let Some(source) = failures.note(OpenOperand::open(from, Some(to), read)) {
            let name = source.path().file_name();
            let below = name.filter(|_| into && !from.means_content());
            let below = below.map(OsStr::to_owned);
            // The destination's own image is open for writing already.
            jobs.push((source.resolve(&target), below));
        }
    }
    let read = &*read;
    let tree = target.tree(read);
    let mut total = 0;
    let slash = !into && to.ends_in_slash();
    for (source, below) in &jobs {
        let from = source.tree(read);
        if slash && !is_dir(&*from, source.path(), rules.recursive) {
            return Err(Failure::at(to, extant::Error::NotDir));
        }
        if progress.wanted() {
            total += size(&*from, source.path(), rules.clone());
            progress.expect(total);
        }
        let same = source.same(&target);
        let mut job = Job::new(&*from, &*tree, same, rules.clone(), progress, failures);
        match below {
            Some(name) => job.copy(source.path(), &target.path().join(name), false),
            None => job.copy(source.path(), target.path(), true),
        }
    }
    Ok(())
}

fn is_dir<'a>(tree: &dyn FileTree<'a>, path: &Path, recursive: bool) -> bool {
    let found = tree.item(path, !recursive).ok().flatten();
    // What is missing says so when it is copied.
    found.is_none_or(|found| found.attributes().kind == FileKind::Directory)
}

/// One operand, with its image open.
enum OpenOperand {
    Host(PathBuf),
    Image(Rc<Filesystem>, ImagePath),
    /// In the image of the destination.
    Shared(ImagePath),
}

impl OpenOperand {
    fn open(
        operand: &Operand,
        other: Option<&Operand>,
        images: &mut Images,
    ) -> Result<OpenOperand, Failure> {
        let at = match operand {
            Operand::Host(path) => return Ok(OpenOperand::Host(path.clone())),
            Operand::Image(at) => at,
        };
        if let Some(Operand::Image(other)) = other
            && source::real(&other.image)? == source::real(&at.image)?
        {
            return Ok(OpenOperand::Shared(at.clone()));
        }
        Ok(OpenOperand::Image(images.of(at)?, at.clone()))
    }

    /// This side, with the destination's image where it is in that.
    fn resolve(&self, target: &OpenOperand) -> OpenOperand {
        match (self, target) {
            (OpenOperand::Shared(at), OpenOperand::Image(fs, _)) => {
                OpenOperand::Image(Rc::clone(fs), at.clone())
            }
            (OpenOperand::Host(path), _) => OpenOperand::Host(path.clone()),
            (OpenOperand::Image(fs, at), _) => OpenOperand::Image(Rc::clone(fs), at.clone()),
            (OpenOperand::Shared(at), _) => OpenOperand::Shared(at.clone()),
        }
    }

    /// The files there; `images` are those that are read from, which no output may be.
    fn tree<'a>(&'a self, images: &'a Images) -> Box<dyn FileTree<'a> + 'a> {
        match self {
            OpenOperand::Image(fs, at) => Box::new(Inside::new(fs, &at.image)),
            OpenOperand::Host(_) | OpenOperand::Shared(_) => Box::new(Host::beside(images)),
        }
    }

    fn path(&self) -> &Path {
        match self {
            OpenOperand::Host(path) => path,
            OpenOperand::Image(_, at) | OpenOperand::Shared(at) => &at.path,
        }
    }

    fn same(&self, other: &OpenOperand) -> bool {
        match (self, other) {
            (OpenOperand::Image(one, _), OpenOperand::Image(two, _)) => Rc::ptr_eq(one, two),
            _ => false,
        }
    }
}
