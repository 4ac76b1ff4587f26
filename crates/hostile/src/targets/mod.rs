//! The targets. Each is one file, and one function from bytes to what it cost.

mod check;
mod extents;
mod fast_commit;
mod htree;
mod names;
mod operations;
mod replay;
mod structures;
mod walk;
mod world;
mod xattrs;

use std::sync::Arc;

use extant::{CheckOptions, Error, Options, Report, Volume};
use extant_testkit::mutate::Mutation;

use crate::Target;
use crate::disk::Disk;
use crate::recipe::{Flags, Prepared};
use crate::seeds::{self, Seed};

/// What an execution took, beyond memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) image_bytes: usize,
    pub(crate) read_bytes: u64,
}

pub(crate) fn run(target: Target, data: &[u8]) -> Cost {
    match target {
        Target::Structures => structures::run(data),
        Target::Walk => walk::run(data),
        Target::Operations => operations::run(data),
        Target::Replay => replay::run(data),
        Target::Htree => htree::run(data),
        Target::Xattrs => xattrs::run(data),
        Target::Extents => extents::run(data),
        Target::FastCommit => fast_commit::run(data),
        Target::Check => check::run(data),
        Target::Names => names::run(data),
    }
}

/// A hostile image as a device, and what was done to it.
struct Hostile<'a> {
    disk: Arc<Disk>,
    image_bytes: usize,
    seed: &'a Seed,
    mutation: Option<Mutation>,
    flags: Flags,
    rest: &'a [u8],
}

impl<'a> Hostile<'a> {
    fn new(prepared: Prepared<'a>) -> Hostile<'a> {
        Hostile {
            image_bytes: prepared.image.len(),
            disk: Arc::new(Disk::new(prepared.image, false)),
            seed: prepared.seed,
            mutation: prepared.mutation,
            flags: prepared.flags,
            rest: prepared.rest,
        }
    }

    /// Whether the image is sound: then nothing may fail that does not fail otherwise.
    fn is_sound(&self) -> bool {
        self.mutation.is_none() && self.seed.mounts
    }

    fn mount(&self, write: bool) -> Option<Volume> {
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

    /// What a sound image became must pass the checker.
    fn assert_clean(&self, when: &str) {
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

    fn cost(&self) -> Cost {
        Cost {
            image_bytes: self.image_bytes,
            read_bytes: self.disk.read_bytes(),
        }
    }
}

/// Nothing was found, or the checker does not know a feature of the seed.
fn is_clean(report: &extant::Result<Report>) -> bool {
    match report {
        Ok(report) => report.is_clean(),
        Err(error) => matches!(error, Error::UnsupportedFeature(_)),
    }
}
