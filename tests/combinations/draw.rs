//! Combinations of features, drawn at random.

use extant_testkit::Rng;

/// Which kernel is Linux's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    /// The host's.
    Host,
    /// Debian's, in a virtual machine.
    Debian,
}

/// Features that a combination adds or leaves out, with the chance of each in a hundred. Both
/// kernels mount all of them.
const SWITCHES: &[(&str, u64)] = &[
    ("inline_data", 40),
    ("bigalloc", 25),
    ("ea_inode", 30),
    ("meta_bg,^resize_inode", 25),
    ("large_dir", 25),
    ("orphan_file", 30),
    ("encrypt", 30),
    ("stable_inodes", 15),
    ("metadata_csum_seed", 25),
    ("^metadata_csum", 25),
    ("^64bit", 20),
    ("^resize_inode", 20),
    ("^flex_bg", 20),
    ("^has_journal", 15),
    ("fast_commit", 40),
    ("sparse_super2,^resize_inode", 10),
    ("^extent,^64bit", 15),
    ("^huge_file", 15),
    ("^dir_nlink", 15),
    ("^extra_isize", 10),
    ("^large_file", 10),
    ("^dir_index", 15),
    ("^filetype", 10),
];

/// The same of features that few kernels mount: Debian's does.
const OF_DEBIAN: &[(&str, u64)] = &[
    ("casefold", 50),
    ("verity", 40),
    ("quota", 60),
    ("project", 50),
];

/// One combination.
#[derive(Debug)]
pub(super) struct Combination {
    pub(super) seed: u64,
    /// Arguments of mke2fs and of `extant mkfs`.
    pub(super) args: String,
    /// Which of the two makes the volume.
    pub(super) by_extant: bool,
    features: Vec<&'static str>,
}

impl Combination {
    /// The combination of a seed. It is the same in every process.
    pub(super) fn drawn(seed: u64, kernel: Kernel) -> Self {
        let mut rng = Rng::new(seed);
        let features = features(&mut rng, kernel);
        let args = arguments(&mut rng, &features);
        // `extant mkfs` has no sizes of groups.
        let by_extant = !args.contains(" -g ") && rng.chance(70);
        Self {
            seed,
            args,
            by_extant,
            features,
        }
    }

    /// Returns whether the volume is asked for the feature, or for being without it (`^extent`).
    pub(super) fn has(&self, feature: &str) -> bool {
        let mut words = self.features.iter().flat_map(|words| words.split(','));
        words.any(|word| word == feature)
    }

    /// The numbers for one storm on the volume.
    pub(super) fn rng(&self, storm: u64) -> Rng {
        Rng::new(self.seed.wrapping_mul(1_000_003).wrapping_add(storm))
    }

    /// The longest value of an attribute.
    pub(super) fn longest_value(&self) -> usize {
        if self.has("ea_inode") { 60_000 } else { 700 }
    }
}

impl std::fmt::Display for Combination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let maker = if self.by_extant { "extant" } else { "mke2fs" };
        write!(f, "seed {}: {}, made by {maker}", self.seed, self.args)
    }
}

fn features(rng: &mut Rng, kernel: Kernel) -> Vec<&'static str> {
    let more = if kernel == Kernel::Debian {
        OF_DEBIAN
    } else {
        &[]
    };
    let mut features = Vec::new();
    for (switch, chance) in SWITCHES.iter().chain(more) {
        if rng.chance(*chance) {
            features.push(*switch);
        }
    }
    let has = |features: &[&str], start: &str| features.iter().any(|has| has.starts_with(start));
    if has(&features, "^metadata_csum") {
        features.retain(|feature| *feature != "metadata_csum_seed");
        if rng.chance(50) {
            features.push("uninit_bg");
        }
    }
    if has(&features, "meta_bg") {
        features.retain(|feature| !feature.starts_with("sparse_super2"));
    }
    if has(&features, "bigalloc") {
        features.retain(|feature| !feature.contains("^extent"));
    }
    if has(&features, "^has_journal") {
        features.retain(|feature| !["fast_commit", "orphan_file"].contains(feature));
    }
    features
}

fn arguments(rng: &mut Rng, features: &[&str]) -> String {
    // Linux 6.1 mounts `verity` with blocks of a page only.
    let drawn = 1024 << rng.below(3);
    let has = |feature: &str| features.contains(&feature);
    let block = if has("verity") { 4096 } else { drawn };
    let inode = 256 << rng.below(if block == 1024 { 3 } else { 2 });
    let mut args = format!("-b {block} -I {inode} -N 2000");
    if !features.is_empty() {
        args += &format!(" -O {}", features.join(","));
    }
    if has("bigalloc") {
        args += &format!(" -C {}", block << rng.between(1, 6));
    }
    if rng.chance(40) {
        args += &format!(" -g {}", (rng.between(2, 16) * 512).min(block * 8));
    }
    if has("casefold") && rng.chance(30) {
        args += " -E encoding_flags=strict";
    }
    args
}
