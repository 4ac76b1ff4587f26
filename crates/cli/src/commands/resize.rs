//! `extant resize`: another size for an image.

use extant::CheckOptions;
use extant::resize::{ResizeOptions, resize_image};
use serde_json::json;

use crate::args::Resize;
use crate::failure::{At, Failure};
use crate::output::{Output, size_word};
use crate::progress::Steps;

pub(crate) fn run(args: &Resize) -> Result<(), Failure> {
    let steps = Steps::new();
    let progress = |done: u64, total: u64| steps.show(done, total);
    let options = ResizeOptions {
        check: CheckOptions {
            progress: (!args.json).then_some(&progress as &(dyn Fn(u64, u64) + Sync)),
            ..CheckOptions::default()
        },
    };
    let report = resize_image(&args.image, args.size, &options);
    steps.end();
    let report = report.at(args.image.display())?;
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
