//! `extant push`: stores an image as the next version of a name in an object store.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use extant::device::{BlockDevice, FileDevice, OpenMode};
use extant_store::{PushOptions, Pushed, Store, is_layer, push, push_layer};

use crate::args::Push;
use crate::failure::{Failure, caused};
use crate::output::{Output, size_word};
use crate::progress::Progress;
use crate::{source, stored};

pub(crate) fn run(args: &Push) -> Result<(), Failure> {
    let location = stored::location(&args.stored)?;
    let stored = args.stored.display();
    if location.version().is_some() {
        return Err(Failure::at(stored, "a push makes the next version"));
    }
    let options = PushOptions {
        chunk_bytes: u32::try_from(args.chunk_size).unwrap_or(u32::MAX),
        threads: args.threads.into(),
        resend: args.resend,
    };
    let progress = Progress::new(args.quiet || args.json);
    let done = |bytes| progress.add(bytes);
    let store = Store::open(&location);
    let pushed = if is_layer(&args.image) {
        let caches = stored::caches()?;
        store.and_then(|store| push_layer(&store, &args.image, caches, options, &done))
    } else {
        let image = open(&args.image)?;
        let before = marks(&args.image);
        progress.expect(image.len());
        let unchanged = || marks(&args.image) == before;
        store.and_then(|store| push(&store, &*image, options, &unchanged, &done))
    };
    progress.finish();
    show(args, &pushed.map_err(|error| caused(&args.stored, error))?)
}

/// The image. One that Linux may write through a loop device is refused.
fn open(image: &Path) -> Result<Arc<dyn BlockDevice>, Failure> {
    if let Some(device) = source::connect(image, OpenMode::ReadOnly)? {
        return Ok(device);
    }
    let device = FileDevice::open(image, OpenMode::ReadOnly)?;
    match device.loops().iter().find(|one| !one.read_only) {
        None => Ok(Arc::new(device)),
        Some(one) => {
            let by = one.device.display();
            let why = format!("in use by Linux, through the loop device {by}");
            Err(Failure::at(image.display(), why))
        }
    }
}

/// Marks of a file that change with its content; none where `image` is no file of the host.
fn marks(image: &Path) -> Option<[i64; 5]> {
    let found = image.metadata().ok().filter(Metadata::is_file)?;
    let len = i64::try_from(found.len()).unwrap_or(i64::MAX);
    Some([
        len,
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec(),
    ])
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
