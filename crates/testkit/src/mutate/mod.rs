//! A structure-aware mutator of ext4 images.
//!
//! It finds the structures of an image (`walk`), changes a few of their fields (`step`): bit flips,
//! borders, off by one, numbers of other blocks and inodes, swapped pointers, one structure copied
//! over another, zeroed tails; and then, mostly, makes every checksum right again ([`seal()`]), so
//! that what reads the image is not stopped by them.
//!
//! A mutation is a [`Script`] of steps of fixed size, made from a seed or taken from any bytes: so
//! a fuzzer that knows nothing of ext4 can cut, join and flip scripts and still gets images whose
//! damage lies where it matters. The same image and script give the same result. Nothing here
//! panics, whatever the image: mutating a mutated image is the rule.
//!
//! ```no_run
//! let mut image = std::fs::read("disk.img").unwrap();
//! let mutation = extant_testkit::mutate::mutate(&mut image, 42);
//! println!("{mutation}"); // inode 12: extent root: entry 0 len 0x3 -> 0xffff; checksums fixed
//! ```

mod bytes;
mod checksum;
mod fields;
mod geometry;
mod map;
mod seal;
mod step;
#[cfg(test)]
mod tests;
mod walk;

pub use self::map::Map;
pub use self::step::{STEP_BYTES, Script};
pub use self::walk::{Found, Kind};

use crate::Rng;
use std::fmt;

/// Changes that a mutation made.
#[derive(Clone, Debug, Default)]
pub struct Mutation {
    /// Each change, in words.
    pub changes: Vec<String>,
    /// True if the checksums were made right afterwards.
    pub sealed: bool,
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.changes.is_empty() {
            f.write_str("nothing")?;
        }
        f.write_str(&self.changes.join("; "))?;
        f.write_str(if self.sealed {
            "; checksums fixed"
        } else {
            "; checksums left"
        })
    }
}

impl Map {
    /// Changes `image`, of whose structures this is the map, as `script` says.
    pub fn apply(&self, image: &mut [u8], script: &Script) -> Mutation {
        let mut mutation = Mutation {
            sealed: script.seal,
            ..Mutation::default()
        };
        for step in script.steps() {
            mutation.changes.extend(step::run(self, image, step));
        }
        if script.seal {
            seal(image);
        }
        mutation
    }
}

/// Changes `image` in one to four places, drawn from `seed`; four times out of five the checksums
/// are right afterwards.
pub fn mutate(image: &mut [u8], seed: u64) -> Mutation {
    Map::of(image).apply(image, &Script::random(&mut Rng::new(seed), 4))
}

/// Makes every checksum of `image` right that can be found.
pub fn seal(image: &mut [u8]) {
    if let (Some(geometry), found) = walk::walk(image) {
        seal::seal(image, &geometry, &found);
    }
}
