//! `extant trim`: discards the free blocks of an image on the device or host file below it.

use crate::args::Trim;
use crate::failure::{At, Failure};
use crate::images::Images;
use crate::output::{Output, size_word};

pub(crate) fn run(args: &Trim) -> Result<(), Failure> {
    let mut images = Images::write();
    let fs = images.open(&args.image)?;
    // A range to the end of any volume: it saturates.
    let end = args
        .length
        .map_or(u64::MAX, |length| args.offset.saturating_add(length));
    let trimmed = fs.volume().trim(args.offset..end, args.minimum);
    drop(fs);
    // What is not durable now may not be said to be done.
    let closed = images.close();
    let trimmed = trimmed.at(args.image.display())?;
    closed?;
    let mut out = Output::new();
    if args.json {
        out.json(&serde_json::json!({ "trimmed": trimmed }))?;
    } else {
        let image = args.image.display();
        out.text(format!(
            "{image}: {} ({trimmed} bytes) trimmed\n",
            size_word(trimmed)
        ))?;
    }
    out.finish()
}
