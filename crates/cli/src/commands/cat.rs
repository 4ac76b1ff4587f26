//! `extant cat`: files to standard output.

use crate::args::Cat;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;
use crate::output::Output;

/// Bytes read at once.
const CHUNK: usize = 1 << 20;

pub(crate) fn run(args: &Cat) -> Outcome {
    let mut failures = Failures::of("cat");
    let mut images = Images::read();
    let mut out = Output::new();
    let mut buf = vec![0; CHUNK];
    for at in &args.paths {
        if out.closed() {
            break;
        }
        failures.note(cat(&mut images, at, &mut buf, &mut out));
    }
    failures.note(out.finish());
    super::finish(images, failures)
}

fn cat(
    images: &mut Images,
    at: &ImagePath,
    buf: &mut [u8],
    out: &mut Output,
) -> Result<(), Failure> {
    let file = images.of(at)?.open_file(&at.path).at(at)?;
    let mut pos = 0;
    loop {
        let len = file.read_at(buf, pos).at(at)?;
        if len == 0 || out.closed() {
            return Ok(());
        }
        out.bytes(buf.get(..len).unwrap_or(&[]))?;
        pos += len as u64;
    }
}
