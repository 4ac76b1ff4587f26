//! `extant stat`: attributes.

use std::os::unix::ffi::OsStrExt;

use extant::{FileKind, Filesystem, Metadata};
use serde_json::{Map, Value};

use crate::args::Stat;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;
use crate::output::{
    Output, device_numbers, enter, hex, kind_word, lossy, metadata_json, mode_word, time_word,
};

pub(crate) fn run(args: &Stat) -> Outcome {
    let mut failures = Failures::of("stat");
    let mut images = Images::read().shared_by(&args.paths);
    let mut out = Output::new();
    let mut list = Vec::new();
    for at in &args.paths {
        if let Some((fs, metadata)) = failures.note(attributes(args, &mut images, at)) {
            let shown = if args.json {
                json(&fs, at, &metadata).map(|value| list.push(value))
            } else {
                text(&fs, at, &metadata, &mut out)
            };
            failures.note(shown);
        }
    }
    if args.json {
        failures.note(out.json(&Value::Array(list)));
    }
    failures.note(out.finish());
    super::finish(images, failures)
}

fn attributes(
    args: &Stat,
    images: &mut Images,
    at: &ImagePath,
) -> Result<(std::rc::Rc<Filesystem>, Metadata), Failure> {
    let fs = images.of(at)?;
    let metadata = if args.dereference {
        fs.metadata(&at.path)
    } else {
        fs.symlink_metadata(&at.path)
    };
    let metadata = metadata.at(at)?;
    Ok((fs, metadata))
}

fn text(
    fs: &Filesystem,
    at: &ImagePath,
    metadata: &Metadata,
    out: &mut Output,
) -> Result<(), Failure> {
    let attr = metadata.attr();
    out.text("  File: ")?;
    out.name(at.path.as_os_str())?;
    if attr.kind == FileKind::Symlink {
        out.text(" -> ")?;
        out.name(fs.read_link(&at.path).at(at)?.as_os_str())?;
    }
    out.text(format!(
        "\n  Size: {:<12} Blocks: {:<10} {}",
        attr.size,
        attr.blocks,
        kind_word(attr.kind)
    ))?;
    if matches!(attr.kind, FileKind::BlockDevice | FileKind::CharDevice) {
        let (major, minor) = device_numbers(attr.rdev);
        out.text(format!(" {major}:{minor}"))?;
    }
    out.text(format!(
        "\n Inode: {:<12} Links: {:<11} Generation: {}\n",
        attr.ino.get(),
        attr.nlink,
        attr.generation
    ))?;
    out.text(format!(
        "Access: ({:04o}/{})  Uid: {}  Gid: {}\n",
        attr.perm,
        mode_word(attr.kind, attr.perm),
        attr.uid,
        attr.gid
    ))?;
    for (word, time) in [
        ("Access", attr.atime),
        ("Modify", attr.mtime),
        ("Change", attr.ctime),
    ] {
        out.text(format!("{word}: {}\n", time_word(time)))?;
    }
    out.text(format!(
        " Birth: {}\n",
        attr.crtime.map_or_else(|| "-".into(), time_word)
    ))?;
    for name in fs.xattrs(&at.path).at(at)? {
        out.text("Attribute: ")?;
        out.name(std::ffi::OsStr::from_bytes(&name))?;
        out.text("\n")?;
    }
    Ok(())
}

fn json(fs: &Filesystem, at: &ImagePath, metadata: &Metadata) -> Result<Value, Failure> {
    let mut value = metadata_json(metadata);
    enter(&mut value, "path", at.path.as_os_str().as_bytes());
    if metadata.is_symlink() {
        let target = fs.read_link(&at.path).at(at)?;
        enter(&mut value, "target", target.as_os_str().as_bytes());
    }
    let mut xattrs = Map::new();
    for name in fs.xattrs(&at.path).at(at)? {
        let content = fs.xattr(&at.path, &name).at(at)?;
        xattrs.insert(lossy(&name).into_owned(), Value::from(hex(&content)));
    }
    value["xattrs"] = Value::Object(xattrs);
    Ok(value)
}
