//! `extant resize`: another size for an image, or more of it for a mount.

use extant::CheckOptions;
use extant::device::OpenMode;
use extant::resize::{Error, ResizeOptions, Target, resize_image};
use rustix::fs::statvfs;
use serde_json::json;

use crate::args::Resize;
use crate::failure::{At, Failure};
use crate::output::{Output, size_word};
use crate::progress::Steps;
use crate::source;

pub(crate) fn run(args: &Resize) -> Result<(), Failure> {
    if args.image.is_dir() {
        return grow(args);
    }
    let steps = Steps::new();
    let progress = |done: u64, total: u64| steps.show(done, total);
    let journal = source::journal(args.journal.as_deref(), OpenMode::ReadWrite)?;
    let options = ResizeOptions {
        check: CheckOptions {
            journal: journal.as_ref(),
            progress: (!args.json).then_some(&progress as &(dyn Fn(u64, u64) + Sync)),
            ..CheckOptions::default()
        },
    };
    let report = resize_image(&args.image, args.size, &options);
    steps.end();
    let report = report.map_err(|error| match error {
        Error::Open(error) => Failure::new(error),
        other => Failure::at(args.image.display(), other),
    })?;
    let mut out = Output::new();
    if args.json {
        out.json(&json!({
            "block_size": report.block_size,
            "blocks_before": report.blocks_before,
            "blocks": report.blocks,
            "bytes": report.bytes(),
            "blocks_moved": report.blocks_moved,
            "inodes_moved": report.inodes_moved,
        }))?;
    } else {
        let (image, blocks) = (args.image.display(), report.blocks);
        let what = match report.blocks == report.blocks_before {
            true => "has this size already",
            false => "resized",
        };
        let size = size_word(report.bytes());
        out.text(format!("{image}: {what}: {blocks} blocks, {size}\n"))?;
    }
    out.finish()
}

/// Grows what is mounted at a directory.
fn grow(args: &Resize) -> Result<(), Failure> {
    let (dir, location) = (args.image.as_path(), args.image.display());
    let Target::Bytes(bytes) = args.size else {
        let what = "a mounted file system can only grow: \"min\" is for images";
        return Err(Failure::at(location, what.to_owned()));
    };
    let before = statvfs(dir).at(&location)?;
    extant_fuse::grow(dir, bytes).at(&location)?;
    let after = statvfs(dir).at(&location)?;
    let mut out = Output::new();
    // What statfs counts are the blocks without the format's own.
    let (old, new) = (before.f_blocks, after.f_blocks);
    if args.json {
        out.json(&json!({
            "block_size": after.f_frsize,
            "usable_blocks_before": old,
            "usable_blocks": new,
        }))?;
    } else {
        let what = match old == new {
            true => "has this size already",
            false => "grown",
        };
        // For display: a volume has at most 2^64 bytes.
        let size = size_word(new.saturating_mul(after.f_frsize));
        out.text(format!("{location}: {what}: {size} for files\n"))?;
    }
    out.finish()
}
