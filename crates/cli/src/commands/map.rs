//! `extant map`: where a file's blocks are.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use extant::{BufferedPath, Extent, Node, Volume};
use serde_json::json;

use crate::args::Map;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;
use crate::output::{Output, enter, write_file};
use picture::Picture;

mod picture;

pub(crate) fn run(args: &Map) -> Outcome {
    let mut failures = Failures::of("map");
    let mut images = Images::read().shared_by(&args.paths);
    if let Some(file) = &args.plot {
        let picture = draw(args, &mut images, &mut failures);
        failures.note(save(file, &picture, &images));
        return super::finish(images, failures);
    }
    let mut out = Output::new();
    let mut printed = 0;
    if args.json {
        failures.note(out.text("["));
    }
    for at in &args.paths {
        let Some((volume, node, size)) = failures.note(file(args, &mut images, at)) else {
            continue;
        };
        let shown = if args.json {
            json(&volume, &node, size, at, printed > 0, &mut out)
        } else {
            text(&volume, &node, size, at, &mut out)
        };
        failures.note(shown);
        printed += 1;
    }
    if args.json {
        failures.note(out.text("]\n"));
    }
    failures.note(out.finish());
    super::finish(images, failures)
}

/// Writes a picture, but not over an image that it was drawn from, or a file that is in use.
fn save(file: &Path, picture: &str, images: &Images) -> Result<(), Failure> {
    if let Ok(there) = fs::metadata(file) {
        images.spare(file, &there)?;
    }
    write_file(file, picture)
}

/// The picture of all operands that can be read.
fn draw(args: &Map, images: &mut Images, failures: &mut Failures) -> String {
    let mut picture = Picture::default();
    for at in &args.paths {
        let mut add = || {
            let fs = images.of(at)?;
            let node = fs.node(&at.path, args.dereference).at(at)?;
            picture.add(&fs, &node, &at.path).at(at)
        };
        failures.note(add());
    }
    picture.end()
}

/// A file and its size.
fn file(args: &Map, images: &mut Images, at: &ImagePath) -> Result<(Volume, Node, u64), Failure> {
    let fs = images.of(at)?;
    let node = fs.node(&at.path, args.dereference).at(at)?;
    let size = fs.volume().getattr(&node).at(at)?.size;
    Ok((fs.volume().clone(), node, size))
}

/// A range in blocks: first in the file, first on the device, how many.
fn blocks(extent: &Extent, block: u64) -> (u64, Option<u64>, u64) {
    let start = extent.physical.map(|at| at / block);
    (extent.logical / block, start, extent.len / block)
}

/// The path that a mount without options would move a regular file's data on.
fn data_path(volume: &Volume, node: &Node) -> Option<&'static str> {
    match volume.buffered_path(node).ok()? {
        BufferedPath::Iomap => Some("iomap"),
        BufferedPath::BufferHead => Some("bufferhead"),
    }
}

fn text(
    volume: &Volume,
    node: &Node,
    size: u64,
    at: &ImagePath,
    out: &mut Output,
) -> Result<(), Failure> {
    let block = u64::from(volume.block_size());
    out.name(at.path.as_os_str())?;
    let path = data_path(volume, node).map_or_else(String::new, |path| format!(", {path} path"));
    out.text(format!(": {size} bytes in blocks of {block}{path}\n"))?;
    out.text(format!(
        "{:>23} {:>27} {:>11}  state\n",
        "logical", "physical", "length"
    ))?;
    for extent in volume.map(node, 0) {
        let extent = extent.at(at)?;
        let (logical, physical, len) = blocks(&extent, block);
        let range = |first: u64| format!("{first}..{}", (first + len).saturating_sub(1));
        out.text(format!(
            "{:>23} {:>27} {len:>11}  {}\n",
            range(logical),
            physical.map_or_else(|| "-".into(), range),
            extent.state.name()
        ))?;
        if out.closed() {
            break;
        }
    }
    Ok(())
}

/// An object per file. The list is written as it is found: it may be longer than memory.
fn json(
    volume: &Volume,
    node: &Node,
    size: u64,
    at: &ImagePath,
    follows: bool,
    out: &mut Output,
) -> Result<(), Failure> {
    let block = u64::from(volume.block_size());
    let mut head =
        json!({ "size": size, "block_size": block, "buffered_path": data_path(volume, node) });
    enter(&mut head, "path", at.path.as_os_str().as_bytes());
    let head = head.to_string();
    let open = head.strip_suffix('}').unwrap_or(&head);
    let comma = if follows { "," } else { "" };
    out.text(format!(r#"{comma}{open},"extents":["#))?;
    let mut result = Ok(());
    for (i, extent) in volume.map(node, 0).enumerate() {
        let extent = match extent.at(at) {
            Ok(extent) => extent,
            // What was found is still a whole object.
            Err(error) => {
                result = Err(error);
                break;
            }
        };
        let (logical, physical, length) = blocks(&extent, block);
        let object = json!({
            "logical": logical,
            "physical": physical,
            "length": length,
            "state": extent.state.name(),
        });
        out.text(format!("{}{object}", if i > 0 { "," } else { "" }))?;
        if out.closed() {
            break;
        }
    }
    out.text("]}")?;
    result
}
