//! `extant cat`: files to standard output.

use extant::sides::filled;
use extant::{CopyRefusal, DataBudget, Error, File, Filesystem, SeekTarget};

use crate::args::Cat;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;
use crate::output::Output;

/// Bytes read at once.
const CHUNK: usize = 1 << 20;

pub(crate) fn run(args: &Cat) -> Outcome {
    let mut failures = Failures::of("cat");
    let mut images = Images::read().shared_by(&args.paths);
    let mut out = Output::new();
    let mut buf = vec![0; CHUNK];
    for at in &args.paths {
        if out.closed() {
            break;
        }
        let written = images
            .of(at)
            .and_then(|fs| cat(args, &fs, at, &mut buf, &mut out));
        failures.note(written);
    }
    failures.note(out.finish());
    super::finish(images, failures)
}

fn cat(
    args: &Cat,
    fs: &Filesystem,
    at: &ImagePath,
    buf: &mut [u8],
    out: &mut Output,
) -> Result<(), Failure> {
    let file = fs.open_file(&at.path).at(at)?;
    let size = file.metadata().at(at)?.len();
    let mut budget = DataBudget::of(fs.volume()).at(at)?;
    let mut pos = 0;
    while pos < size && !out.closed() {
        let start = match file.find(SeekTarget::Data(pos)) {
            Err(Error::NoSuchAddress) => size,
            other => other.at(at)?.min(size),
        };
        if args.sparse && start > pos {
            out.hole(start - pos)?;
        } else {
            out.zeros(start - pos)?;
        }
        pos = start;
        if pos == size {
            break;
        }
        let end = file.find(SeekTarget::Hole(pos)).at(at)?.min(size);
        if !budget.take(end - pos) {
            return Err(Failure::at(at, CopyRefusal::TooMuchData.to_string()));
        }
        pos = data(&file, at, pos..end, buf, out)?;
    }
    Ok(())
}

/// Writes a range of data; returns where it ended.
fn data(
    file: &File,
    at: &ImagePath,
    range: std::ops::Range<u64>,
    buf: &mut [u8],
    out: &mut Output,
) -> Result<u64, Failure> {
    let mut pos = range.start;
    while pos < range.end && !out.closed() {
        let want = usize::try_from(range.end - pos).unwrap_or(buf.len());
        let want = want.min(buf.len());
        let piece = &mut buf[..want];
        let len = file.read_at(piece, pos).at(at)?;
        if len == 0 {
            break;
        }
        out.bytes(filled(piece, len)?)?;
        pos += len as u64;
    }
    Ok(range.end)
}
