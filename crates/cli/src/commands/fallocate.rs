//! `extant fallocate`: space of files, ahead of their data or taken away again.

use extant::FallocateMode;

use crate::args::Fallocate;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;

pub(crate) fn run(args: &Fallocate) -> Outcome {
    let mut failures = Failures::of("fallocate");
    let mut images = Images::write();
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
    let end = args.offset.saturating_add(args.length);
    file.fallocate(mode, args.offset..end).at(at)
}
