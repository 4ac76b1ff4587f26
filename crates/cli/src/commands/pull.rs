//! `extant pull`: makes a file of an image in an object store.

use extant::build::NewFile;
use extant::device::FileDevice;
use extant_store::{Error, Store, pull};

use crate::args::Pull;
use crate::failure::{At, Failure, caused};
use crate::output::{Output, size_word};
use crate::progress::Progress;
use crate::stored;

pub(crate) fn run(args: &Pull) -> Result<(), Failure> {
    let location = stored::location(&args.stored)?;
    let file = NewFile::begin(&args.image).at(args.image.display())?;
    let progress = Progress::new(args.quiet || args.json);
    let make = |bytes| {
        progress.expect(bytes);
        file.file().set_len(bytes)?;
        let writer = file.file().try_clone()?;
        FileDevice::from_file(writer, args.image.clone()).map_err(|error| match error {
            extant::device::OpenError::Io(_, error) => Error::Io(error),
            other => Error::Io(std::io::Error::other(other)),
        })
    };
    let done = |bytes| progress.add(bytes);
    let pulled = Store::open(&location).and_then(|store| pull(&store, make, &done));
    progress.finish();
    let (pulled, device) = pulled.map_err(|error| caused(&args.stored, error))?;
    drop(device);
    file.finish().at(args.image.display())?;
    let mut out = Output::new();
    if args.json {
        out.json(&serde_json::json!({
            "version": pulled.version.number,
            "bytes": pulled.version.bytes,
            "chunks": pulled.chunks,
        }))?;
    } else {
        out.text(format!(
            "{}: version {}, {} in {} chunks\n",
            args.image.display(),
            pulled.version.number,
            size_word(pulled.version.bytes),
            pulled.chunks
        ))?;
    }
    out.finish()
}
