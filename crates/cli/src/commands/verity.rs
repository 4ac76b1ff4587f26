//! `extant verity`: files whose content is fixed, and their digests.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use extant::{Error, MAX_SIGNATURE, TreeHash, VerityParams};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::args::{SealedFiles, Verity, VerityAction, VerityEnable};
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::{ImagePath, Operand};
use crate::output::{Output, enter};

/// The largest block of a tree.
const LARGEST_BLOCK: u64 = 4096;

pub(crate) fn run(args: &Verity) -> Outcome {
    match &args.action {
        VerityAction::Enable(args) => enable(args),
        VerityAction::Measure(args) => measure(&args.files),
    }
}

fn enable(args: &VerityEnable) -> Outcome {
    let signature = match args.signature.as_deref().map(signature).transpose() {
        Ok(signature) => signature.unwrap_or_default(),
        Err(failure) => return Err(failure).into(),
    };
    let seal = |images: &mut Images, at: &Operand| {
        let params = |blocks: u64| VerityParams {
            hash: args.hash,
            block_size: (args.block_size)
                .unwrap_or_else(|| u32::try_from(blocks.min(LARGEST_BLOCK)).unwrap_or_default()),
            salt: args.salt.0.clone(),
            signature: signature.clone(),
        };
        seal(images, at, params)
    };
    let files = &args.files;
    each(files, Images::write(), |images, at| {
        seal(images, at)?;
        // The digest is asked for only to be shown.
        files.json.then(|| digest(images, at)).transpose()
    })
}

fn measure(files: &SealedFiles) -> Outcome {
    each(files, Images::read(), |images, at| {
        digest(images, at).map(Some)
    })
}

/// A hash function, and the digest of a file by it.
type Measured = (TreeHash, Vec<u8>);

/// Runs `work` on each file, and shows the digests that it returns.
fn each(
    files: &SealedFiles,
    images: Images,
    mut work: impl FnMut(&mut Images, &Operand) -> Result<Option<Measured>, Failure>,
) -> Outcome {
    let mut failures = Failures::of("verity");
    let mut images = images.shared_by(files.paths.iter().filter_map(Operand::image));
    let mut out = Output::new();
    let mut all = Vec::new();
    for at in &files.paths {
        let Some(Some((hash, digest))) = failures.note(work(&mut images, at)) else {
            continue;
        };
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        if files.json {
            let mut value = json!({ "hash": hash.name(), "digest": digest });
            enter(&mut value, "path", path_of(at).as_os_str().as_bytes());
            all.push(value);
        } else {
            failures.note(line(&mut out, hash, &digest, at));
        }
    }
    if files.json {
        failures.note(out.json(&Value::Array(all)));
    }
    failures.note(out.finish());
    super::finish(images, failures)
}

/// A line as fsverity(1) has it.
fn line(out: &mut Output, hash: TreeHash, digest: &str, at: &Operand) -> Result<(), Failure> {
    out.text(format!("{}:{digest} ", hash.name()))?;
    out.name(path_of(at).as_os_str())?;
    out.text("\n")
}

fn path_of(at: &Operand) -> &Path {
    match at {
        Operand::Image(at) => &at.path,
        Operand::Host(path) => path,
    }
}

/// The signature in a file.
fn signature(file: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = std::fs::read(file).at(file.display())?;
    match bytes.len() {
        0 => Err(Failure::at(file.display(), "an empty signature".to_owned())),
        len if len > MAX_SIGNATURE => {
            let what = format!("a signature of {len} bytes, {MAX_SIGNATURE} are the most");
            Err(Failure::at(file.display(), what))
        }
        _ => Ok(bytes),
    }
}

/// Seals a file with the parameters that it gets on a volume with blocks of so many bytes.
fn seal(
    images: &mut Images,
    at: &Operand,
    params: impl FnOnce(u64) -> VerityParams,
) -> Result<(), Failure> {
    match at {
        Operand::Image(at) => seal_inside(images, at, params),
        Operand::Host(path) => {
            let totals = rustix::fs::statvfs(path).map_err(std::io::Error::from);
            let blocks = totals.at(path.display())?.f_bsize;
            let params = params(blocks);
            refuse_large_blocks(&params, blocks).at(path.display())?;
            let sealed = extant_fuse::enable_verity(path, &params);
            sealed.map_err(|error| told(path.display(), error.raw_os_error(), error))
        }
    }
}

fn seal_inside(
    images: &mut Images,
    at: &ImagePath,
    params: impl FnOnce(u64) -> VerityParams,
) -> Result<(), Failure> {
    let fs = images.of(at)?;
    let blocks = fs.volume().block_size().into();
    let params = params(blocks);
    refuse_large_blocks(&params, blocks).at(at)?;
    let sealed = fs.enable_verity(&at.path, &params);
    sealed.map_err(|error| told(at, Some(error.errno()), error))
}

/// Fails for a tree whose blocks are larger than the volume's.
fn refuse_large_blocks(params: &VerityParams, blocks: u64) -> Result<(), String> {
    match u64::from(params.block_size) > blocks {
        true => Err(format!(
            "blocks of {} bytes for the tree, on a volume whose blocks have {blocks}",
            params.block_size
        )),
        false => Ok(()),
    }
}

fn digest(images: &mut Images, at: &Operand) -> Result<Measured, Failure> {
    match at {
        Operand::Image(at) => {
            let measured = images.of(at)?.measure_verity(&at.path);
            measured.map_err(|error: Error| told(at, Some(error.errno()), error))
        }
        Operand::Host(path) => {
            let measured = extant_fuse::measure_verity(path);
            measured.map_err(|error| told(path.display(), error.raw_os_error(), error))
        }
    }
}

/// A failure, in plain words where the error's own mislead.
fn told(
    at: impl std::fmt::Display,
    errno: Option<i32>,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Failure {
    let what = match errno.map(Errno::from_raw_os_error) {
        Some(Errno::NODATA) => "not sealed by fs-verity",
        Some(Errno::EXIST) => "sealed by fs-verity already",
        Some(Errno::TXTBSY) => "open for writing in another program",
        _ => {
            let what = error.to_string();
            return Failure::at(at, Failure::caused_by(error, what));
        }
    };
    Failure::at(at, Failure::caused_by(error, what))
}
