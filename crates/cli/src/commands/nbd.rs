//! `extant nbd`: serves an image to clients of NBD.

use std::path::Path;
use std::sync::Arc;

use extant::device::{BlockDevice, FileDevice, OpenMode};
use extant_nbd::{ServeOptions, Server, Service};
use tracing::warn;

use crate::args::Nbd;
use crate::failure::{At, Failure};
use crate::output::Output;
use crate::source;
use crate::unfinished::stop_when_ended;

pub(crate) fn run(args: &Nbd) -> Result<(), Failure> {
    let device = open(&args.image, args.read_only)?;
    let mut options = ServeOptions::default();
    options.read_only = args.read_only;
    options.export.clone_from(&args.export);
    options.threads = args.threads.into();
    let service = Service::new(device, options).at(args.image.display())?;
    let server = match &args.socket {
        Some(path) => Server::listen_unix(path, service).at(path.display()),
        None => Server::listen_tcp(&args.listen, service).at(&args.listen),
    }?;
    if !server.is_local() {
        warn!("each host that reaches {} can use the image", args.listen);
    }
    let stopper = server.stopper();
    stop_when_ended(move || stopper.stop()).map_err(Failure::new)?;
    let mut out = Output::new();
    out.text(format!("ready: {}\n", server.address()))?;
    out.finish()?;
    server.run(args.once).at(args.image.display())
}

/// The device of an image, claimed as by any other user of it.
fn open(image: &Path, read_only: bool) -> Result<Arc<dyn BlockDevice>, Failure> {
    let mode = match read_only || source::is_stored(image) {
        true => OpenMode::ReadOnly,
        false => OpenMode::ReadWrite,
    };
    match source::connect(image, mode)? {
        Some(device) => Ok(device),
        None => Ok(Arc::new(FileDevice::open(image, mode)?)),
    }
}
