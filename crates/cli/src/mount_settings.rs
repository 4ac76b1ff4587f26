//! The settings of a mount: its options, and what of them depends on the host's memory.

use extant::Tuning;
use extant_fuse::MountOptions;

use crate::args::Mount;
use crate::failure::{At, Failure};
use crate::size;

/// The least memory that caches work with.
const LEAST_MEMORY: u64 = 16 << 20;

/// Mount options of the command.
pub(crate) fn mount_options(args: &Mount) -> Result<MountOptions, Failure> {
    let mut options = MountOptions::default();
    for words in &args.options {
        options.add(words).map_err(Failure::new)?;
    }
    if args.read_only {
        options.set_read_only();
    }
    options.check().map_err(Failure::new)?;
    if args.fuse_fd.is_some() && !options.kernel_checks() {
        // The launcher has mounted, for whichever users it chose, and nothing can be asked of one.
        let what = "mount option nodefault_permissions: not for a mount that was handed over";
        return Err(Failure::new(what));
    }
    Ok(options)
}

/// The switches of the engine, with all that depends on the host's memory decided.
pub(crate) fn tuning(options: &MountOptions) -> Result<Tuning, Failure> {
    let mut tuning = Tuning::default();
    if let Some(bytes) = memory(options)? {
        tuning.bound_memory(bytes);
    }
    tuning.measure_memory();
    Ok(tuning)
}

/// The bound of `-o memory=`, in bytes.
pub(crate) fn memory(options: &MountOptions) -> Result<Option<u64>, Failure> {
    let Some(text) = options.memory() else {
        return Ok(None);
    };
    let word = || format!("mount option memory={text}");
    let bytes = size::parse(text).at(word())?;
    if bytes < LEAST_MEMORY {
        let what = format!("at least {} MiB are needed", LEAST_MEMORY >> 20);
        return Err(Failure::at(word(), what));
    }
    Ok(Some(bytes))
}
