//! `extant ls`: what is in directories.
//!
//! Entries are printed as they are read; a directory takes no more memory than [`DirNames`] does.
//! The columns of a long listing need to know the widest of each first: then it is gone through
//! twice.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use extant::sides::DirNames;
use extant::{Attr, Error, FileKind, Filesystem, Node};

use crate::args::Ls;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;
use crate::output::{Output, attr_json, device_numbers, enter, mode_word, time_word};
use crate::size;

pub(crate) fn run(args: &Ls) -> Outcome {
    let mut listing = Listing {
        args,
        out: Output::new(),
        failures: Failures::of("ls"),
        listed: 0,
    };
    let mut images = Images::read().shared_by(&args.paths);
    for (i, at) in args.paths.iter().enumerate() {
        let listed = images.of(at).and_then(|fs| listing.operand(&fs, at, i));
        listing.failures.note(listed);
    }
    let Listing {
        mut out,
        mut failures,
        listed,
        ..
    } = listing;
    if args.json {
        failures.note(out.json_array_end(listed == 0));
    }
    failures.note(out.finish());
    super::finish(images, failures)
}

struct Listing<'a> {
    args: &'a Ls,
    out: Output,
    failures: Failures,
    /// Entries printed so far.
    listed: u64,
}

/// One line of a listing.
struct ListedEntry<'a> {
    name: &'a OsStr,
    at: ImagePath,
    node: Node,
    attr: Attr,
}

impl Listing<'_> {
    fn operand(&mut self, fs: &Filesystem, at: &ImagePath, index: usize) -> Result<(), Failure> {
        // A link is followed to the directory that it leads to, unless the link itself is asked
        // about.
        let follow = !self.args.directory && !self.args.long;
        let node = match fs.node(&at.path, follow) {
            Err(Error::NotFound) if follow => fs.node(&at.path, false),
            other => other,
        };
        let node = node.at(at)?;
        if self.args.paths.len() > 1 && !self.args.json {
            self.out.text(if index > 0 { "\n" } else { "" })?;
            self.out.name(OsStr::new(&at.to_string()))?;
            self.out.text(":\n")?;
        }
        if node.kind() == FileKind::Directory && !self.args.directory {
            return self.directory(fs, at, &node);
        }
        let entry = ListedEntry {
            name: at.path.as_os_str(),
            at: at.clone(),
            attr: fs.volume().getattr(&node).at(at)?,
            node,
        };
        let mut widths = Widths::default();
        widths.add(&entry.attr, self.args.human_readable);
        self.entry(fs, &entry, &widths)
    }

    fn directory(&mut self, fs: &Filesystem, at: &ImagePath, dir: &Node) -> Result<(), Failure> {
        let mut widths = Widths::default();
        if self.args.long && !self.args.json {
            self.each(fs, at, dir, |listing, entry| {
                // What fails shows when it is printed.
                if let Ok(entry) = entry {
                    widths.add(&entry.attr, listing.args.human_readable);
                }
                Ok(())
            })?;
        }
        self.each(fs, at, dir, |listing, entry| {
            match entry {
                Ok(entry) => listing.entry(fs, &entry, &widths)?,
                Err(failure) => drop(listing.failures.note::<()>(Err(failure))),
            }
            Ok(())
        })
    }

    /// Calls `show` for each entry of a directory that is listed.
    fn each(
        &mut self,
        fs: &Filesystem,
        at: &ImagePath,
        dir: &Node,
        mut show: impl FnMut(&mut Self, Result<ListedEntry<'_>, Failure>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let volume = fs.volume();
        for name in DirNames::of(fs.volume(), dir.clone()).at(at)? {
            let name = name.at(at)?;
            if self.out.closed() {
                break;
            }
            if !self.args.all && name.as_bytes().starts_with(b".") {
                continue;
            }
            let at = at.with_path(at.path.join(&name));
            let found = volume.lookup(dir, name.as_bytes());
            let found = found.and_then(|node| Ok((volume.getattr(&node)?, node)));
            let entry = found.at(&at).map(|(attr, node)| ListedEntry {
                name: &name,
                at,
                node,
                attr,
            });
            show(self, entry)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        fs: &Filesystem,
        entry: &ListedEntry<'_>,
        widths: &Widths,
    ) -> Result<(), Failure> {
        let target = if entry.attr.kind == FileKind::Symlink && (self.args.long || self.args.json) {
            Some(fs.volume().readlink(&entry.node).at(&entry.at)?)
        } else {
            None
        };
        if self.args.json {
            let mut object = attr_json(&entry.attr);
            enter(&mut object, "name", entry.name.as_bytes());
            enter(&mut object, "path", entry.at.path.as_os_str().as_bytes());
            if let Some(target) = target {
                enter(&mut object, "target", &target);
            }
            self.listed += 1;
            return self.out.json_array_item(&object, self.listed == 1);
        }
        if self.args.long {
            self.out
                .text(widths.line(&entry.attr, self.args.human_readable))?;
        }
        self.out.name(entry.name)?;
        if let Some(target) = target {
            self.out.text(" -> ")?;
            self.out.name(OsStr::from_bytes(&target))?;
        }
        self.out.text("\n")
    }
}

/// Widths of the columns of a long listing.
#[derive(Default)]
struct Widths {
    links: usize,
    owner: usize,
    group: usize,
    size: usize,
}

impl Widths {
    fn add(&mut self, attr: &Attr, human: bool) {
        let widen = |width: &mut usize, word: String| *width = word.len().max(*width);
        widen(&mut self.links, attr.nlink.to_string());
        widen(&mut self.owner, attr.uid.to_string());
        widen(&mut self.group, attr.gid.to_string());
        widen(&mut self.size, size(attr, human));
    }

    fn line(&self, attr: &Attr, human: bool) -> String {
        let Widths {
            links,
            owner,
            group,
            size: wide,
        } = *self;
        let time = time_word(attr.mtime);
        format!(
            "{} {:>links$} {:>owner$} {:>group$} {:>wide$} {} ",
            mode_word(attr.kind, attr.perm),
            attr.nlink,
            attr.uid,
            attr.gid,
            size(attr, human),
            time.get(..19).unwrap_or(&time).replace('T', " "),
        )
    }
}

/// The column of sizes: for device nodes, their numbers.
fn size(attr: &Attr, human: bool) -> String {
    match attr.kind {
        FileKind::BlockDevice | FileKind::CharDevice => {
            let (major, minor) = device_numbers(attr.rdev);
            format!("{major}, {minor}")
        }
        _ if human => size::human(attr.size),
        _ => attr.size.to_string(),
    }
}
