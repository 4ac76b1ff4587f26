//! `extant fallocate`: space of files, ahead of their data or taken away again.

use extant::{Error, FallocateMode};

use crate::args::Fallocate;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;

pub(crate) fn run(args: &Fallocate) -> Outcome {
    let mut failures = Failures::of("fallocate");
    let mut images = Images::write().shared_by(&args.paths);
    for at in &args.paths {
        let done = change(args, &mut images, at);
        failures.note(done);
    }
    super::finish(images, failures)
}

fn mode(args: &Fallocate) -> FallocateMode {
    let keep_size = args.keep_size;
    if args.punch_hole {
        FallocateMode::PunchHole
    } else if args.zero_range {
        FallocateMode::ZeroRange { keep_size }
    } else if args.collapse_range {
        FallocateMode::CollapseRange
    } else if args.insert_range {
        FallocateMode::InsertRange
    } else {
        FallocateMode::Allocate { keep_size }
    }
}

fn change(args: &Fallocate, images: &mut Images, at: &ImagePath) -> Result<(), Failure> {
    let fs = images.of(at)?;
    let mode = mode(args);
    let mut options = fs.open_options();
    options.write(true);
    options.create(matches!(mode, FallocateMode::Allocate { .. }));
    let file = options.open(&at.path).at(at)?;
    // An end past the largest position is refused by the library.
    let end = args.offset.saturating_add(args.length);
    match file.fallocate(mode, args.offset..end) {
        Err(Error::Invalid) => Err(Failure::at(at, why(args, fs.volume().block_size()))),
        other => other.at(at),
    }
}

/// Why a range is refused, as far as its numbers show it.
fn why(args: &Fallocate, block: u32) -> String {
    let whole = |number: u64| number.is_multiple_of(u64::from(block));
    if args.length == 0 {
        "a range of 0 bytes".into()
    } else if (args.collapse_range || args.insert_range)
        && !(whole(args.offset) && whole(args.length))
    {
        format!("offset and length have to be multiples of the block size, {block}")
    } else if args.collapse_range {
        "the range has to end before the end of the file".into()
    } else if args.insert_range {
        "the range has to begin before the end of the file".into()
    } else {
        Error::Invalid.to_string()
    }
}
