//! `extant push`: stores an image as the next version of a name in an object store.

use std::sync::Arc;

use extant::device::{BlockDevice, FileDevice, OpenMode};
use extant_store::{PushOptions, Pushed, Store, push};

use crate::args::Push;
use crate::failure::Failure;
use crate::output::{Output, size_word};
use crate::progress::Progress;
use crate::source;

pub(crate) fn run(args: &Push) -> Result<(), Failure> {
    let location = source::location(&args.stored)?;
    let stored = args.stored.display();
    if location.version().is_some() {
        return Err(Failure::at(stored, "a push makes the next version"));
    }
    let image: Arc<dyn BlockDevice> = match source::connect(&args.image, OpenMode::ReadOnly)? {
        Some(device) => device,
        None => Arc::new(FileDevice::open(&args.image, OpenMode::ReadOnly)?),
    };
    let options = PushOptions {
        chunk_bytes: u32::try_from(args.chunk_size).unwrap_or(u32::MAX),
        threads: args.threads.into(),
    };
    let progress = Progress::new(args.quiet || args.json);
    progress.expect(image.len());
    let done = |bytes| progress.add(bytes);
    let pushed =
        Store::open(&location).and_then(|store| push(&store, &location, &*image, options, &done));
    progress.finish();
    show(
        args,
        &pushed.map_err(|error| source::caused(&args.stored, error))?,
    )
}

fn show(args: &Push, pushed: &Pushed) -> Result<(), Failure> {
    let mut out = Output::new();
    if args.json {
        out.json(&serde_json::json!({
            "version": pushed.version.number,
            "manifest": pushed.version.manifest.to_string(),
            "bytes": pushed.version.bytes,
            "chunks": pushed.chunks,
            "new_chunks": pushed.new_chunks,
            "sent_bytes": pushed.sent_bytes,
        }))?;
    } else {
        out.text(format!(
            "{}@{}: {} of {} chunks sent, {}\n",
            args.stored.display(),
            pushed.version.number,
            pushed.new_chunks,
            pushed.chunks,
            size_word(pushed.sent_bytes)
        ))?;
    }
    out.finish()
}
