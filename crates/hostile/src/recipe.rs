//! How a hostile image is made from a sound one: few bytes instead of the image.
//!
//! Byte 0 chooses the seed, byte 1 holds [`Flags`], byte 2 the number of mutation steps; the steps
//! follow, and behind them what the target does with the image. Any bytes are a recipe.

use extant_testkit::mutate::{Kind, Map, Mutation, STEP_BYTES, Script};

use crate::seeds::Seed;

/// The most steps of a mutation.
const MAX_STEPS: usize = 8;

/// Byte 1.
#[derive(Clone, Copy, Debug)]
pub struct Flags(pub u8);

impl Flags {
    /// Returns whether checksums are made right after the mutation: mostly.
    pub const fn seal(self) -> bool {
        self.0 & 3 != 3
    }

    /// Returns whether mutations are limited to the structures that the target is about: mostly.
    pub const fn focused(self) -> bool {
        self.0 & 0xc != 0xc
    }

    /// Policy for faults, as a mount option.
    pub const fn errors(self) -> &'static str {
        match self.0 >> 4 & 3 {
            0 | 1 => "errors=continue",
            2 => "errors=remount-ro",
            _ => "errors=panic",
        }
    }
}

/// An image to be used, and what to do with it.
pub struct Prepared<'a> {
    /// The seed that it was made from.
    pub seed: &'a Seed,
    /// Its bytes.
    pub image: Vec<u8>,
    /// Mutation of the image; `None` if it is as sound as the seed.
    pub mutation: Option<Mutation>,
    /// Byte 1.
    pub flags: Flags,
    /// The bytes that are left.
    pub rest: &'a [u8],
}

/// A recipe made of parts, for callers without a fuzzer.
pub fn write(seed: u8, flags: u8, steps: &[[u8; STEP_BYTES]], rest: &[u8]) -> Vec<u8> {
    let steps = steps.get(..MAX_STEPS.min(steps.len())).unwrap_or_default();
    let count = u8::try_from(steps.len()).unwrap_or(0);
    let mut all = vec![seed, flags, count];
    all.extend(steps.iter().flatten());
    all.extend(rest);
    all
}

/// Follows a recipe. `seeds` are those to choose from, `focus` the structures that are mutated
/// where the recipe keeps to them (all if empty).
///
/// With `$EXTANT_HOSTILE_KEEP` set the image is also written to the file that it names, and what
/// was done to it to standard error.
pub fn prepare<'a>(data: &'a [u8], seeds: &[&'a Seed], focus: &[Kind]) -> Option<Prepared<'a>> {
    let (head, rest) = data.split_at_checked(3)?;
    let [seed, flags, steps] = head else {
        return None;
    };
    let seed = *seeds.get(usize::from(*seed).checked_rem(seeds.len())?)?;
    let flags = Flags(*flags);
    let steps = usize::from(*steps) % (MAX_STEPS + 1);
    let (script, rest) = rest.split_at((steps * STEP_BYTES).min(rest.len()));
    let mut image = seed.image.clone();
    let mut mutation = None;
    if !script.is_empty() {
        let script = Script::new(script, flags.seal());
        let map: &Map = &seed.map;
        let done = if flags.focused() && !focus.is_empty() {
            map.clone().only(focus).apply(&mut image, &script)
        } else {
            map.apply(&mut image, &script)
        };
        mutation = Some(done);
    }
    let prepared = Prepared {
        seed,
        image,
        mutation,
        flags,
        rest,
    };
    if let Some(path) = std::env::var_os("EXTANT_HOSTILE_KEEP") {
        match &prepared.mutation {
            Some(mutation) => eprintln!("{}: {mutation}", seed.name),
            None => eprintln!("{}: as it is", seed.name),
        }
        if let Err(error) = std::fs::write(path, &prepared.image) {
            eprintln!("cannot keep the image: {error}");
        }
    }
    Some(prepared)
}
