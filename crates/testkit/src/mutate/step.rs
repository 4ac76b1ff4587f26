//! One step of a mutation: 16 bytes that choose a structure, a field and what becomes of it.

use super::bytes::{get, index, le16, le32, put};
use super::fields::{Field, fields};
use super::map::{Map, bytes_of};
use super::walk::{Found, Kind};
use crate::Rng;

/// Bytes of a step.
pub const STEP_BYTES: usize = 16;

/// The steps of a mutation, as bytes that anything may have made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// True if the checksums are made right at the end.
    pub seal: bool,
    bytes: Vec<u8>,
}

impl Script {
    /// The script that `bytes` stand for; what is left at the end of whole steps is a step padded
    /// with zeros.
    pub fn new(bytes: &[u8], seal: bool) -> Script {
        Script {
            seal,
            bytes: bytes.to_vec(),
        }
    }

    /// One to `most` steps, sealed four times out of five.
    pub fn random(rng: &mut Rng, most: u64) -> Script {
        let steps = index(rng.between(1, most.max(1)));
        let bytes = (0..steps * 2).flat_map(|_| rng.next_u64().to_le_bytes());
        let bytes = bytes.collect();
        Script {
            seal: rng.chance(80),
            bytes,
        }
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        self.bytes.chunks(STEP_BYTES).map(|chunk| {
            let mut padded = [0; STEP_BYTES];
            for (to, from) in padded.iter_mut().zip(chunk) {
                *to = *from;
            }
            Step(padded)
        })
    }
}

/// A step's bytes: kind (1), structure (2), field (2), what to do (1), how (2), a value (8).
#[derive(Clone, Copy)]
pub(super) struct Step([u8; STEP_BYTES]);

impl Step {
    fn number(&self, at: usize, width: usize) -> u64 {
        get(&self.0, at, width, false)
    }

    fn value(&self) -> u64 {
        self.number(8, 8)
    }
}

fn choose<T>(all: &[T], number: u64) -> Option<&T> {
    all.get(index(number.checked_rem(all.len() as u64)?))
}

/// Does one step; what was done, `None` if nothing could be.
pub(super) fn run(map: &Map, image: &mut [u8], step: Step) -> Option<String> {
    let kind = *choose(&map.kinds, step.number(0, 1))?;
    let target = *choose(map.of_kind(kind), step.number(1, 2))?;
    match step.number(5, 1) % 20 {
        0..12 => set(map, image, step, &target),
        12..14 => swap(map, image, step, &target),
        14 => copy(map, image, step, &target, map.of_kind(kind)),
        15 => {
            let other = *choose(&map.kinds, step.value() >> 32)?;
            copy(map, image, step, &target, map.of_kind(other))
        }
        16 | 17 => flip(image, step, &target),
        18 => fill(image, step, &target),
        _ => shorten(image, step, &target),
    }
}

fn pick_field(map: &Map, image: &[u8], found: &Found, number: u64) -> Option<Field> {
    let geometry = map.geometry.as_ref()?;
    let all = fields(image, geometry, map.log.as_ref(), found);
    choose(&all, number).copied()
}

fn set(map: &Map, image: &mut [u8], step: Step, found: &Found) -> Option<String> {
    let field = pick_field(map, image, found, step.number(3, 2))?;
    let old = get(image, field.at, field.width, field.big);
    let new = new_value(map, image, step, field.width, old);
    put(image, field.at, field.width, field.big, new);
    Some(format!("{found}: {field} {old:#x} -> {new:#x}"))
}

/// Returns the new value of a field whose value was `old`.
fn new_value(map: &Map, image: &[u8], step: Step, width: usize, old: u64) -> u64 {
    let bits = u32::try_from(width * 8).unwrap_or(64).clamp(8, 64);
    let mask = u64::MAX >> (64 - bits);
    let value = step.value();
    let (block_size, blocks, inodes) = map.geometry.as_ref().map_or((1024, 1, 1), |g| {
        let inodes = u64::from(g.inodes_per_group) * u64::from(g.groups);
        (g.block_size as u64, g.blocks, inodes)
    });
    let new = match step.number(6, 1) % 18 {
        0 | 1 => {
            old ^ 1u64
                .checked_shl(super::bytes::low32(value % 64) % bits)
                .unwrap_or(1)
        }
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => 0,
        5 => mask,
        6 => mask >> 1,
        7 => (mask >> 1) + 1,
        8 => old.wrapping_mul(2),
        9 => old / 2,
        10 => value,
        11 => value % 256,
        12 => {
            let borders = [
                blocks,
                blocks.wrapping_sub(1),
                blocks.wrapping_add(1),
                inodes,
                inodes.wrapping_add(1),
                block_size,
                block_size.wrapping_sub(1),
                block_size.wrapping_sub(12),
                block_size * 8,
                u64::from(u32::MAX),
                1 << 31,
                0x8000,
                0x8001,
            ];
            choose(&borders, value).copied().unwrap_or(blocks)
        }
        13 => value % blocks.max(1),
        14 => 1 + value % inodes.max(1),
        // The block of another structure: two owners, or an owner of another kind.
        15 | 16 => choose(&map.found, value).map_or(value, |f| f.at as u64 / block_size),
        // What some other structure has at its start.
        _ => choose(&map.found, value).map_or(value, |f| match width {
            0..=2 => le16(image, f.at),
            _ => le32(image, f.at),
        }),
    };
    new & mask
}

fn swap(map: &Map, image: &mut [u8], step: Step, found: &Found) -> Option<String> {
    let other = *choose(map.of_kind(found.kind), step.value())?;
    let a = pick_field(map, image, found, step.number(3, 2))?;
    // The same field of the other structure, or another one of this.
    let number = if step.number(6, 1).is_multiple_of(2) {
        step.number(3, 2)
    } else {
        step.value() >> 32
    };
    let b = pick_field(map, image, &other, number)?;
    let (of_a, of_b) = (
        get(image, a.at, a.width, a.big),
        get(image, b.at, b.width, b.big),
    );
    put(image, a.at, a.width, a.big, of_b);
    put(image, b.at, b.width, b.big, of_a);
    Some(format!(
        "{found}: {a} ({of_a:#x}) swapped with {other}: {b} ({of_b:#x})"
    ))
}

fn copy(
    map: &Map,
    image: &mut [u8],
    step: Step,
    found: &Found,
    sources: &[Found],
) -> Option<String> {
    let source = *choose(sources, step.value())?;
    // Superblocks decide whether there is anything to look at: they are copied among themselves
    // only.
    let guarded = |f: &Found| f.kind <= Kind::Backup;
    if map.geometry.is_none() || guarded(found) != guarded(&source) {
        return None;
    }
    let bytes = bytes_of(image, &source).to_vec();
    let to = image.get_mut(found.at..found.at + found.len)?;
    for (to, from) in to.iter_mut().zip(&bytes) {
        *to = *from;
    }
    Some(format!("{source} copied over {found}"))
}

fn flip(image: &mut [u8], step: Step, found: &Found) -> Option<String> {
    let bits = 1 + step.number(6, 1) % 4;
    let mut rng = Rng::new(step.value());
    let mut places = Vec::new();
    for _ in 0..bits {
        let bit = rng.below(found.len as u64 * 8);
        let byte = image.get_mut(found.at + index(bit / 8))?;
        *byte ^= 1 << (bit % 8);
        places.push(bit.to_string());
    }
    Some(format!("{found}: bits {} flipped", places.join(", ")))
}

fn fill(image: &mut [u8], step: Step, found: &Found) -> Option<String> {
    let mut rng = Rng::new(step.value());
    let from = rng.index(found.len);
    let len = 1 + rng.index((found.len - from).min(64));
    let how = step.number(6, 1) % 3;
    for byte in image.get_mut(found.at + from..)?.iter_mut().take(len) {
        let random = super::bytes::low32(rng.next_u64()).to_le_bytes()[0];
        *byte = [0, 0xff, random][index(how)];
    }
    let what = ["zeros", "ones", "noise"][index(how)];
    Some(format!("{found}: {what} in bytes {from}..{}", from + len))
}

fn shorten(image: &mut [u8], step: Step, found: &Found) -> Option<String> {
    let from = index(step.value() % found.len as u64);
    image
        .get_mut(found.at + from..found.at + found.len)?
        .fill(0);
    Some(format!("{found}: zeros from byte {from} on"))
}
