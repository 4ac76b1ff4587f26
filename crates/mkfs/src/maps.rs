//! Maps of files as bytes: extent trees and block maps.

use extant_disk::csum::Crc32c;
use extant_disk::extent::{Extent, ExtentError, ROOT_BYTES, store_tree};
use extant_disk::features::Incompat;
use extant_disk::geometry::Geometry;
use extant_units::{Lblk, Pblk, exact_u32};

use crate::error::Result;
use crate::file_map::Map;

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
    let mut extents = Vec::with_capacity(map.runs.len());
    for run in &map.runs {
        let len = exact_u32(run.end - run.start);
        extents.push(Extent {
            lblk: Lblk::new(lblk),
            len,
            pblk: Pblk::new(run.start),
            unwritten: false,
        });
        lblk += len;
    }
    let nodes: Vec<Pblk> = map.nodes.iter().copied().map(Pblk::new).collect();
    let (i_block, blocks) = store_tree(&extents, &nodes, geometry.block_size, seed)?;
    let blocks = blocks.into_iter().map(|(at, bytes)| (at.get(), bytes));
    Ok(Stored {
        i_block,
        blocks: blocks.collect(),
    })
}

/// Block numbers of indirect blocks under way. The plan has chosen those.
struct Tables<'a> {
    nodes: std::slice::Iter<'a, u64>,
    tables: Vec<(u64, Vec<u64>)>,
}

impl Tables<'_> {
    /// A new table: its index, and its block.
    fn begin(&mut self) -> (usize, u64) {
        let node = self.nodes.next();
        let node = *node.expect("the plan has a block for each indirect block");
        self.tables.push((node, Vec::new()));
        (self.tables.len() - 1, node)
    }

    fn push(&mut self, table: usize, block: u64) {
        self.tables[table].1.push(block);
    }
}

fn store_blocks(geometry: &Geometry, map: &Map) -> Stored {
    let per_block = geometry.addresses_per_block();
    let mut root = [0_u64; 15];
    let mut tables = Tables {
        nodes: map.nodes.iter(),
        tables: Vec::new(),
    };
    // The table that is being filled, by its level above the data.
    let mut open = [0_usize; 3];
    for (at, block) in map.data().enumerate() {
        if at < 12 {
            root[at] = block;
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
            let (table, node) = tables.begin();
            match at_level == level {
                true => root[12 + level] = node,
                false => tables.push(open[at_level + 1], node),
            }
            open[at_level] = table;
            span /= per_block;
        }
        tables.push(open[0], block);
    }
    assert!(tables.nodes.next().is_none(), "each indirect block is used");
    let bs = geometry.block_size.bytes();
    let blocks = tables.tables.iter();
    Stored {
        i_block: numbers(&root, ROOT_BYTES)
            .try_into()
            .expect("as many bytes as were asked for"),
        blocks: blocks
            .map(|(node, numbers_of)| (*node, numbers(numbers_of, bs)))
            .collect(),
    }
}

/// Block numbers as a block map has them, filled with zeros to `len` bytes.
pub(crate) fn numbers(blocks: &[u64], len: usize) -> Vec<u8> {
    let narrow = |block: &u64| u32::try_from(*block).expect("a block map lies below block 2^32");
    let mut bytes: Vec<u8> = blocks
        .iter()
        .map(narrow)
        .flat_map(u32::to_le_bytes)
        .collect();
    assert!(bytes.len() <= len, "the numbers have room");
    bytes.resize(len, 0);
    bytes
}
