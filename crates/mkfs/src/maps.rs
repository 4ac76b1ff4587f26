//! Maps of files as bytes: extent trees and block maps.

use extant_disk::csum::Crc32c;
use extant_disk::extent::{
    Extent, ExtentError, Index, NodeMut, ROOT_BYTES, ROOT_CAPACITY, Slot, block_capacity,
    set_checksum,
};
use extant_disk::features::Incompat;
use extant_units::{Lblk, Pblk};

use crate::error::Result;
use crate::files::Map;
use crate::geometry::Geometry;

/// A block and what it holds.
pub(crate) type Block = (u64, Vec<u8>);

/// A map as it is stored: what the inode holds, and blocks.
pub(crate) struct Stored {
    pub(crate) i_block: [u8; ROOT_BYTES],
    pub(crate) blocks: Vec<Block>,
}

/// Stores `map`; `seed` starts the checksums of its owner's blocks.
pub(crate) fn store(geometry: &Geometry, map: &Map, seed: Option<Crc32c>) -> Result<Stored> {
    if geometry.features.has_incompat(Incompat::EXTENTS) {
        let stored = store_extents(geometry, map, seed);
        return stored.map_err(|error| std::io::Error::other(error).into());
    }
    Ok(store_blocks(geometry, map))
}

fn store_extents(
    geometry: &Geometry,
    map: &Map,
    seed: Option<Crc32c>,
) -> std::result::Result<Stored, ExtentError> {
    let mut lblk = 0_u32;
    let mut level: Vec<(Lblk, Slot)> = Vec::new();
    for run in &map.runs {
        let len = u32::try_from(run.end - run.start).unwrap_or(u32::MAX);
        let extent = Extent {
            lblk: Lblk::new(lblk),
            len,
            pblk: Pblk::new(run.start),
            unwritten: false,
        };
        level.push((extent.lblk, extent.encode()?));
        lblk += len;
    }
    let mut places = map.nodes.iter();
    let mut blocks = Vec::new();
    let mut depth = 0;
    while level.len() > usize::from(ROOT_CAPACITY) {
        let capacity = block_capacity(geometry.block_size);
        let mut above = Vec::new();
        for part in level.chunks(usize::from(capacity)) {
            let place = places.next().copied().unwrap_or_default();
            let mut bytes = vec![0; geometry.block_size.bytes()];
            fill_node(&mut bytes, depth, capacity, part)?;
            if let Some(seed) = seed {
                set_checksum(&mut bytes, seed)?;
            }
            blocks.push((place, bytes));
            let first = part.first().map_or(Lblk::ZERO, |(lblk, _)| *lblk);
            let child = Pblk::new(place);
            above.push((first, Index { lblk: first, child }.encode()?));
        }
        (level, depth) = (above, depth + 1);
    }
    let mut i_block = [0; ROOT_BYTES];
    fill_node(&mut i_block, depth, ROOT_CAPACITY, &level)?;
    Ok(Stored { i_block, blocks })
}

fn fill_node(
    bytes: &mut [u8],
    depth: u16,
    capacity: u16,
    entries: &[(Lblk, Slot)],
) -> std::result::Result<(), ExtentError> {
    let slots: Vec<Slot> = entries.iter().map(|(_, slot)| *slot).collect();
    NodeMut::init(bytes, depth, capacity)?.insert(0, &slots)
}

/// Block numbers of indirect blocks under way. Their places are known already.
struct Tables<'a> {
    places: std::slice::Iter<'a, u64>,
    tables: Vec<(u64, Vec<u64>)>,
}

impl Tables<'_> {
    /// A new table: its index, and its place.
    fn begin(&mut self) -> (usize, u64) {
        let place = self.places.next().copied().unwrap_or_default();
        self.tables.push((place, Vec::new()));
        (self.tables.len() - 1, place)
    }

    fn push(&mut self, table: usize, block: u64) {
        if let Some((_, numbers)) = self.tables.get_mut(table) {
            numbers.push(block);
        }
    }
}

fn store_blocks(geometry: &Geometry, map: &Map) -> Stored {
    let per_block = geometry.addresses_per_block();
    let mut root = [0_u64; 15];
    let mut tables = Tables {
        places: map.nodes.iter(),
        tables: Vec::new(),
    };
    // The table that is being filled, by its level above the data.
    let mut open = [0_usize; 3];
    for (at, block) in map.data().enumerate() {
        if let Some(slot) = root.get_mut(..12).and_then(|direct| direct.get_mut(at)) {
            *slot = block;
            continue;
        }
        let mut rest = at as u64 - 12;
        let mut span = per_block;
        let mut level = 0;
        while rest >= span {
            rest -= span;
            span *= per_block;
            level += 1;
        }
        for at_level in (0..=level).rev() {
            if !rest.is_multiple_of(span) {
                span /= per_block;
                continue;
            }
            let (table, place) = tables.begin();
            match (
                at_level == level,
                root.get_mut(12 + level),
                open.get(at_level + 1),
            ) {
                (true, Some(slot), _) => *slot = place,
                (false, _, Some(&above)) => tables.push(above, place),
                _ => {}
            }
            if let Some(slot) = open.get_mut(at_level) {
                *slot = table;
            }
            span /= per_block;
        }
        tables.push(open[0], block);
    }
    let bs = geometry.block_size.bytes();
    let blocks = tables.tables.iter();
    Stored {
        i_block: numbers(&root, ROOT_BYTES)
            .try_into()
            .unwrap_or([0; ROOT_BYTES]),
        blocks: blocks
            .map(|(place, block)| (*place, numbers(block, bs)))
            .collect(),
    }
}

/// Block numbers as a block map has them, filled with zeros to `len` bytes.
pub(crate) fn numbers(blocks: &[u64], len: usize) -> Vec<u8> {
    let narrow = |block: &u64| u32::try_from(*block).unwrap_or(0).to_le_bytes();
    let mut bytes: Vec<u8> = blocks.iter().flat_map(narrow).collect();
    bytes.resize(len, 0);
    bytes
}
