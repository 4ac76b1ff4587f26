//! Shared parts of the tests of power cuts: a filled volume that records its writes, and the
//! questions to each state that a cut leaves.

use std::sync::Arc;

use extant::{Filesystem, Options};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_check::check;
use extant_testkit::crash::{CrashState, Failure};
use extant_testkit::{Error, Image, Recorder, Result, Rng};
use extant_units::DevOff;

use super::{fill, options};

pub(crate) type Recorded = Arc<Recorder<MemoryDevice>>;

/// A volume of `mib` MiB made with `args`, of which `share` percent are filled, on a device of at
/// least `len` bytes: its bytes, and the device.
pub(crate) fn recorded(mib: u64, args: &str, share: u64, len: u64) -> Result<(Vec<u8>, Recorded)> {
    let image = Image::of_mib(mib).args(args).make()?;
    fill(&image, &mut Rng::new(mib), share)?;
    let mut before = std::fs::read(image.path())?;
    before.resize(before.len().max(extant_units::index(len)), 0);
    let recorder = Recorder::new(MemoryDevice::from_bytes(&before));
    Ok((before, Arc::new(recorder)))
}

pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The failure of the run `name` in words.
pub(crate) fn told(name: &str, failure: Failure) -> Error {
    Error::new(format!("{name}, {}: {}", failure.cut, failure.why))
}

pub(crate) fn mounted(dev: Arc<dyn BlockDevice>) -> extant::Result<Filesystem> {
    Options::new().write(true).open_device(dev)
}

/// Returns whether the check has nothing to say of `state`.
pub(crate) fn is_sound(state: &CrashState) -> std::result::Result<(), String> {
    let checked = check(Arc::clone(&state.device) as _, &options().check).map_err(text)?;
    match checked.is_clean() {
        true => Ok(()),
        false => Err(format!("found: {:?}", checked.findings)),
    }
}

/// Checks that e2fsck replays the first `len` bytes of `state`, and has nothing to say then.
pub(crate) fn by_e2fsck(state: &CrashState, len: usize) -> Result<()> {
    let mut bytes = vec![0; len];
    state.device.read_at(DevOff::ZERO, &mut bytes)?;
    let image = Image::of_bytes(&bytes)?;
    image.fsck_replay()?;
    image.fsck_clean()
}
