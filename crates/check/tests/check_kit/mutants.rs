//! Images with random damage, which follow from a seed.

use std::ops::Range;

use extant_testkit::mutate::{Map, Script};
use extant_testkit::{Context, Need, Result, Rng, ensure};

use super::{FeatureSet, base};

/// Needs of the images.
pub(crate) const NEEDS: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
    Need::Tool("e2fsck"),
];

/// The images of a run: `EXTANT_MUTANTS` is their number, `EXTANT_SEED` (0) the first seed.
pub(crate) struct Mutants {
    bases: Vec<(&'static str, Vec<u8>, Map)>,
    /// Steps of damage of an image, at most.
    most: u64,
    first: u64,
    pub(crate) count: u64,
}

/// One image.
pub(crate) struct Mutant {
    /// Its seed, its base and its damage.
    pub(crate) what: String,
    pub(crate) bytes: Vec<u8>,
    /// The rest of the seed, behind the damage.
    pub(crate) rng: Rng,
}

impl Mutants {
    /// Images of 1 to `most` steps of damage, `count` unless the environment says otherwise, made
    /// from `sets` of features.
    pub(crate) fn new(count: u64, most: u64, sets: &[FeatureSet]) -> Result<Mutants> {
        let mut bases = Vec::new();
        for (name, mib, args, dirty) in sets {
            let image = base(*mib, args, *dirty).context(|| (*name).to_owned())?;
            let bytes = std::fs::read(image.path())?;
            let map = Map::of(&bytes);
            bases.push((*name, bytes, map));
        }
        Ok(Mutants {
            bases,
            most,
            first: from_env("EXTANT_SEED", 0) << 20,
            count: from_env("EXTANT_MUTANTS", count),
        })
    }

    /// The seeds of the images.
    pub(crate) fn seeds(&self) -> Range<u64> {
        self.first..self.first + self.count
    }

    /// The image of a seed.
    pub(crate) fn make(&self, seed: u64) -> Mutant {
        let mut rng = Rng::new(seed);
        let (name, bytes, map) = &self.bases[rng.index(self.bases.len())];
        let mut bytes = bytes.clone();
        let mutation = map.apply(&mut bytes, &Script::random(&mut rng, self.most));
        Mutant {
            what: format!("seed {seed}, {name}: {mutation}"),
            bytes,
            rng,
        }
    }

    /// Tries `one` with each image.
    ///
    /// # Errors
    /// All that failed.
    pub(crate) fn each(&self, mut one: impl FnMut(Mutant) -> Result<()>) -> Result<()> {
        let mut wrong = Vec::new();
        for seed in self.seeds() {
            let mutant = self.make(seed);
            let what = mutant.what.clone();
            if let Err(error) = one(mutant).context(|| what) {
                wrong.push(error.to_string());
            }
        }
        let (count, all) = (wrong.len(), wrong.join("\n"));
        ensure!(wrong.is_empty(), "{count} wrong:\n{all}");
        Ok(())
    }
}

fn from_env(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}
