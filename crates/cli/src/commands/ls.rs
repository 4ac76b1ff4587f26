//! `extant ls`: what is in directories.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use extant::{FileKind, Filesystem, Metadata};
use serde_json::Value;

use crate::args::Ls;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;
use crate::output::{Output, device_numbers, enter, metadata_json, mode_word, time_word};
use crate::walk::names;

pub(crate) fn run(args: &Ls) -> Outcome {
    let mut failures = Failures::of("ls");
    let mut images = Images::read();
    let mut out = Output::new();
    let mut all = Vec::new();
    for (i, at) in args.paths.iter().enumerate() {
        failures.note(list(args, &mut images, at, i, &mut out, &mut all));
    }
    if args.json {
        failures.note(out.json(&Value::Array(all)));
    }
    failures.note(out.finish());
    super::finish(images, failures)
}

fn list(
    args: &Ls,
    images: &mut Images,
    at: &ImagePath,
    index: usize,
    out: &mut Output,
    all: &mut Vec<Value>,
) -> Result<(), Failure> {
    let fs = images.of(at)?;
    // A link is followed to the directory that it leads to, unless the link itself is asked about.
    let follow = !args.directory && !args.long;
    let metadata = if follow {
        fs.metadata(&at.path)
    } else {
        fs.symlink_metadata(&at.path)
    };
    let metadata = match metadata {
        Err(extant::Error::NotFound) if follow => fs.symlink_metadata(&at.path),
        other => other,
    };
    let metadata = metadata.at(at)?;
    let entries: Vec<(OsString, Metadata)> = if metadata.is_dir() && !args.directory {
        entries(&fs, args, at)?
    } else {
        vec![(at.path.clone().into_os_string(), metadata)]
    };
    let listed = |name: &OsStr| {
        let path = Path::new(name);
        if path.is_absolute() {
            path.to_owned()
        } else {
            at.path.join(path)
        }
    };
    if args.json {
        for (name, metadata) in &entries {
            let path = listed(name);
            let mut entry = metadata_json(metadata);
            enter(&mut entry, "name", name.as_bytes());
            enter(&mut entry, "path", path.as_os_str().as_bytes());
            if metadata.is_symlink() {
                let target = fs.read_link(&path).at(at.with_path(path))?;
                enter(&mut entry, "target", target.as_os_str().as_bytes());
            }
            all.push(entry);
        }
        return Ok(());
    }
    if args.paths.len() > 1 {
        out.text(if index > 0 { "\n" } else { "" })?;
        out.name(OsStr::new(&at.to_string()))?;
        out.text(":\n")?;
    }
    let widths = Widths::of(&entries);
    for (name, metadata) in &entries {
        if args.long {
            out.text(widths.line(metadata))?;
        }
        out.name(name)?;
        if args.long && metadata.is_symlink() {
            let target = fs.read_link(listed(name)).at(at.with_path(listed(name)))?;
            out.text(" -> ")?;
            out.name(target.as_os_str())?;
        }
        out.text("\n")?;
    }
    Ok(())
}

fn entries(
    fs: &Filesystem,
    args: &Ls,
    at: &ImagePath,
) -> Result<Vec<(OsString, Metadata)>, Failure> {
    let mut entries = Vec::new();
    for name in names(fs, &at.path).at(at)? {
        if !args.all && name.as_bytes().starts_with(b".") {
            continue;
        }
        let path = at.path.join(&name);
        let metadata = fs.symlink_metadata(&path).at(at.with_path(path))?;
        entries.push((name, metadata));
    }
    Ok(entries)
}

/// Widths of the columns of a long listing.
struct Widths {
    links: usize,
    owner: usize,
    group: usize,
    size: usize,
}

impl Widths {
    fn of(entries: &[(OsString, Metadata)]) -> Widths {
        let widest = |column: fn(&Metadata) -> String| {
            entries
                .iter()
                .map(|(_, metadata)| column(metadata).len())
                .max()
                .unwrap_or(0)
        };
        Widths {
            links: widest(|m| m.nlink().to_string()),
            owner: widest(|m| m.uid().to_string()),
            group: widest(|m| m.gid().to_string()),
            size: widest(size),
        }
    }

    fn line(&self, metadata: &Metadata) -> String {
        let attr = metadata.attr();
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
            size(metadata),
            time.get(..19).unwrap_or(&time).replace('T', " "),
        )
    }
}

/// The column of sizes: for device nodes, their numbers.
fn size(metadata: &Metadata) -> String {
    match metadata.file_type() {
        FileKind::BlockDevice | FileKind::CharDevice => {
            let (major, minor) = device_numbers(metadata.rdev());
            format!("{major}, {minor}")
        }
        _ => metadata.len().to_string(),
    }
}
