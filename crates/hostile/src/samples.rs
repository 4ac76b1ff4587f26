//! Inputs to begin with: recipes for every seed, and the structures that the seeds hold.

use extant_testkit::Rng;
use extant_testkit::mutate::{Kind, STEP_BYTES};

use crate::{Target, recipe, seeds};

/// The inputs that a target begins with, always the same.
pub fn of(target: Target) -> Vec<Vec<u8>> {
    let mut rng = Rng::new(0xf022);
    match target {
        Target::Structures => structures(),
        Target::FastCommit => (0..20).map(|_| noise(&mut rng, 200)).collect(),
        Target::Names => names(),
        _ => recipes(target, &mut rng),
    }
}

/// A random input for a target, as a fuzzer without coverage would make it.
pub fn random(target: Target, rng: &mut Rng, samples: &[Vec<u8>]) -> Vec<u8> {
    let mut input = samples
        .get(rng.index(samples.len()))
        .cloned()
        .unwrap_or_default();
    match target {
        Target::Structures | Target::Names | Target::FastCommit => {
            for _ in 0..1 + rng.below(4) {
                let at = rng.index(input.len());
                if let Some(byte) = input.get_mut(at) {
                    let [random, ..] = rng.next_u64().to_le_bytes();
                    *byte = random;
                }
            }
            if rng.chance(10) {
                input.truncate(rng.index(input.len() + 1));
            }
            input
        }
        _ => {
            let seed = rng.next_u64().to_le_bytes()[0];
            // The promises of a power cut are of sound images.
            let most = if cuts_power(target) && rng.chance(60) {
                0
            } else {
                3
            };
            one(target, rng, seed, most)
        }
    }
}

fn noise(rng: &mut Rng, most: u64) -> Vec<u8> {
    let len = rng.below(most);
    (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect()
}

/// Returns whether a target cuts the power.
fn cuts_power(target: Target) -> bool {
    matches!(target, Target::Crash | Target::CutRepair)
}

/// The most bytes that say what is done with an image: a request takes more than an operation.
fn most_rest(target: Target) -> u64 {
    match target {
        Target::Requests | Target::Wire => 1000,
        _ => 200,
    }
}

/// Each seed as it is, and four mutations of it; one where a run is long.
fn recipes(target: Target, rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (seed, _) in (0u8..).zip(seeds::all()) {
        let rest = noise(rng, most_rest(target));
        let flags = if target.is_long() {
            rest.len().to_le_bytes()[0]
        } else {
            0
        };
        all.push(recipe::write(seed, flags, &[], &rest));
        let mutations = if target.is_long() { 1 } else { 4 };
        all.extend((0..mutations).map(|_| one(target, rng, seed, 4)));
    }
    all
}

fn one(target: Target, rng: &mut Rng, seed: u8, most: u64) -> Vec<u8> {
    let mut steps = Vec::new();
    for _ in 0..rng.between(1.min(most), most) {
        let mut step = [0; STEP_BYTES];
        for half in step.chunks_mut(8) {
            half.copy_from_slice(&rng.next_u64().to_le_bytes()[..half.len()]);
        }
        steps.push(step);
    }
    let [flags, ..] = rng.next_u64().to_le_bytes();
    let rest = noise(rng, most_rest(target));
    recipe::write(seed, flags, &steps, &rest)
}

/// Structures of the seeds, behind the two bytes that choose the parser, the numbers that parsers
/// take first left zero.
fn structures() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for seed in seeds::all() {
        let mut last = None;
        for found in seed.map.found() {
            // A few of each kind are enough.
            let fresh = last.replace(found.kind) != Some(found.kind);
            let (which, how, skip) = match found.kind {
                Kind::Superblock => (0, 3, 0),
                Kind::Descriptor => (1, 0b1000, 4),
                Kind::Inode => (2, 2 | 16 | 32, 4),
                Kind::BlockBitmap => (4, 0, 6),
                Kind::ExtentRoot => (5, 4, 1),
                Kind::ExtentNode => (5, 8, 1),
                Kind::DirLeaf => (7, 4 | 8, 5),
                Kind::DirRoot => (9, 8 | 16, 9),
                Kind::DirNode => (9, 8, 9),
                Kind::XattrBlock => (11, 16, 8),
                Kind::XattrArea => (11, 4, 9),
                Kind::OrphanBlock => (13, 2, 14),
                Kind::JournalSuper => (14, 4, 3),
                Kind::JournalDescriptor | Kind::JournalRevoke => (15, 12 | 16 | 32, 4),
                Kind::JournalCommit => (15, 12 | 32, 4),
                _ => continue,
            };
            let bytes = seed.image.get(found.at..found.at + found.len);
            if let (true, Some(bytes)) = (fresh, bytes) {
                let mut input = vec![which, how];
                input.resize(2 + skip, 0);
                input.extend(bytes);
                all.push(input);
            }
        }
    }
    // Contexts of both versions, with a name or a block behind them.
    let first = [&[1, 9, 9, 6], [3; 24].as_slice()].concat();
    let second = [&[2, 1, 10, 3, 9, 0, 0, 0], [3; 32].as_slice()].concat();
    for context in [first, second] {
        all.push([&[12, 0x80, 12, 0, 0, 0], context.as_slice(), &[5; 40]].concat());
    }
    all
}

fn names() -> Vec<Vec<u8>> {
    let texts: [(u8, &[u8]); 14] = [
        (0, b"/dir/deep/../deep/./deeper"),
        (0, b"short/deeper/"),
        (0, b"dir/loop/x"),
        (0, b"/////"),
        (1, b"ro,noload,errors=remount-ro,commit=5"),
        (1, b"data=ordered,barrier=0,nodiscard"),
        (1, b"commit=99999999999999999999,data=,=,,"),
        (2, b"user.name"),
        (2, b"system.posix_acl_access"),
        (2, b"trusted."),
        (3, &[2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255]),
        (3, &[2, 0, 0, 0]),
        (0, b"long"),
        (1, b"max_dir_size_kb=3,resuid=7,init_itable=1"),
    ];
    texts
        .iter()
        .map(|(which, text)| [&[*which], *text].concat())
        .collect()
}
