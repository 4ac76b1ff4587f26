//! `extant nbd`: serves an image, or sources as one, to clients of NBD.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant::build::{Source, VirtualImage};
use extant::device::{BlockDevice, FileDevice, OpenMode};
use extant_nbd::{ServeOptions, Server, Service};
use tracing::warn;

use super::build;
use crate::args::Nbd;
use crate::failure::{At, Failure, Outcome};
use crate::output::Output;
use crate::progress::Progress;
use crate::source;
use crate::unfinished::stop_when_ended;

pub(crate) fn run(args: &Nbd) -> Outcome {
    let device = match image_of(&args.sources) {
        Ok(Some(_)) if args.options.is_given() => {
            let what = "the options of extant build are for folders and archives";
            return Outcome::Usage(what.to_owned());
        }
        Ok(Some(image)) => open(image, args.read_only),
        Ok(None) => built(args),
        Err(failure) => return Outcome::Failed(failure),
    };
    device.and_then(|device| serve(args, device)).into()
}

fn serve(args: &Nbd, device: Arc<dyn BlockDevice>) -> Result<(), Failure> {
    let name = args.sources.first().map(|path| path.display().to_string());
    let name = name.unwrap_or_default();
    let mut options = ServeOptions::default();
    options.read_only = args.read_only;
    options.export.clone_from(&args.export);
    options.threads = args.threads.into();
    let service = Service::new(device, options).at(&name)?;
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
    server.run(args.once).at(&name)
}

/// The operand, if it is an image that is there already; none if an image is made of the sources.
fn image_of(sources: &[PathBuf]) -> Result<Option<&Path>, Failure> {
    let [one] = sources else {
        return Ok(None);
    };
    if source::is_remote(one) {
        return Ok(Some(one));
    }
    let is_image = build::source(one).is_ready_image().at(one.display())?;
    Ok(is_image.then_some(one))
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

/// The image of the sources, which is made as it is read.
fn built(args: &Nbd) -> Result<Arc<dyn BlockDevice>, Failure> {
    let options = build::options(&args.options, false)?;
    let sources: Vec<Source> = args
        .sources
        .iter()
        .map(|path| build::source(path))
        .collect();
    let progress = Progress::new(false);
    let planned = VirtualImage::plan(&sources, &options, &build::Shown::by(&progress));
    progress.finish();
    let first = args.sources.first().map_or(Path::new(""), PathBuf::as_path);
    let image = planned.map_err(|error| build::failure(first, error))?;
    Ok(Arc::new(image))
}
