//! A hostile image: made by a recipe, mounted, judged by what it became.

use std::sync::Arc;

use extant::{CheckOptions, Error, Options, Report, Volume};
use extant_testkit::mutate::{Kind, Mutation};

use crate::disk::Disk;
use crate::feed::Feed;
use crate::recipe::{self, Flags, Prepared};
use crate::seeds::{self, Seed};

/// Costs of an execution, beyond memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) image_bytes: usize,
    pub(crate) read_bytes: u64,
    /// Bytes that the target itself has held.
    pub(crate) held_bytes: usize,
}

impl Cost {
    /// The target holds so many bytes for itself.
    pub(super) fn beside(self, held_bytes: usize) -> Cost {
        Cost { held_bytes, ..self }
    }

    /// The worse of two parts of an execution, each of which has to keep the contract by itself.
    pub(super) fn or(self, other: Cost) -> Cost {
        Cost {
            image_bytes: self.image_bytes.max(other.image_bytes),
            read_bytes: self.read_bytes.max(other.read_bytes),
            held_bytes: self.held_bytes.max(other.held_bytes),
        }
    }
}

/// A hostile image as a device, and what was done to it.
pub(super) struct Hostile<'a> {
    pub(super) disk: Arc<Disk>,
    image_bytes: usize,
    pub(super) seed: &'a Seed,
    mutation: Option<Mutation>,
    pub(super) flags: Flags,
    pub(super) rest: &'a [u8],
}

impl<'a> Hostile<'a> {
    pub(super) fn new(prepared: Prepared<'a>) -> Hostile<'a> {
        Hostile {
            image_bytes: prepared.image.len(),
            disk: Arc::new(Disk::new(prepared.image, false)),
            seed: prepared.seed,
            mutation: prepared.mutation,
            flags: prepared.flags,
            rest: prepared.rest,
        }
    }

    /// The same image later, with other bytes.
    pub(super) fn again(&self, bytes: Vec<u8>) -> Hostile<'a> {
        Hostile {
            image_bytes: bytes.len(),
            disk: Arc::new(Disk::new(bytes, false)),
            seed: self.seed,
            mutation: self.mutation.clone(),
            flags: self.flags,
            rest: self.rest,
        }
    }

    /// Returns whether the image is sound: then nothing may fail that does not fail otherwise.
    pub(super) fn is_sound(&self) -> bool {
        self.mutation.is_none() && self.seed.mounts
    }

    pub(super) fn mount(&self, write: bool) -> Option<Volume> {
        let mounted = Options::new()
            .write(write)
            .mount_options(self.flags.errors())
            .tuning(seeds::tuning())
            .open_volume_on(self.disk.clone());
        match mounted {
            Ok(volume) => Some(volume),
            Err(error) => {
                assert!(!self.is_sound(), "{}: {error}", self.seed.name);
                None
            }
        }
    }

    /// Checks that a sound image is still one.
    pub(super) fn assert_clean(&self, when: &str) {
        if !self.is_sound() {
            return;
        }
        let options = CheckOptions {
            threads: 1,
            ..CheckOptions::default()
        };
        let report = extant::check(self.disk.clone(), &options);
        assert!(is_clean(&report), "{} {when}: {report:?}", self.seed.name);
    }

    pub(super) fn cost(&self) -> Cost {
        Cost {
            image_bytes: self.image_bytes,
            read_bytes: self.disk.read_bytes(),
            held_bytes: 0,
        }
    }
}

/// Nothing was found, or the checker does not know a feature of the seed.
pub(super) fn is_clean(report: &extant::Result<Report>) -> bool {
    match report {
        Ok(report) => report.is_clean(),
        Err(error) => matches!(error, Error::UnsupportedFeature(_)),
    }
}

/// Mounts the image that `data` asks for, of a `wanted` seed with `focus` on some structures, for
/// writing, and has `work` change it by the bytes that are left; `work` says whether it has stopped
/// the volume. Then it is unmounted and checked.
pub(super) fn change(
    data: &[u8],
    focus: &[Kind],
    wanted: impl Fn(&Seed) -> bool,
    work: impl FnOnce(&Volume, &mut Feed<'_>) -> bool,
) -> Cost {
    let all: Vec<_> = seeds::all().iter().filter(|seed| wanted(seed)).collect();
    let Some(prepared) = recipe::prepare(data, &all, focus) else {
        return Cost::default();
    };
    let hostile = Hostile::new(prepared);
    if let Some(volume) = hostile.mount(true) {
        let stopped = work(&volume, &mut Feed::new(hostile.rest));
        finish(&hostile, &volume, stopped);
    }
    hostile.cost()
}

/// Unmounts; what a sound image has become is checked.
fn finish(hostile: &Hostile<'_>, volume: &Volume, stopped: bool) {
    let ended = volume.unmount();
    if hostile.is_sound() && !stopped {
        assert!(ended.is_ok(), "{}: unmount: {ended:?}", hostile.seed.name);
    }
    // A volume that was stopped in the middle is made right by its journal, if it has one.
    if !stopped || hostile.seed.has(Kind::JournalSuper) {
        hostile.assert_clean("after operations");
    }
}
