//! Conversions between unwritten and written, and new locations for blocks.

use extant_disk::extent::{Extent, ExtentError, MAX_END};
use extant_units::{Lblk, at_most_u32};

use super::insert_extent::join_neighbours;
use super::node_store::NodesMut;
use super::replace_entries::replace;
use super::tree_path::TreePath;
use crate::types::error::Result;

/// Finds the first extent in `from..to` whose state is not `unwritten`, and gives its part in that
/// range this state, splitting and merging as needed. Returns the part as it is now; `None` if none
/// is left: the whole range is done.
///
/// # Errors
/// No space for a node, or damage; the tree is as before this step.
pub(in crate::map) fn convert_one<N: NodesMut>(
    nodes: &mut N,
    from: Lblk,
    to: u64,
    unwritten: bool,
) -> Result<Option<Extent>> {
    let mut at = u64::from(from.get());
    while at < to.min(MAX_END) {
        let Ok(raw) = u32::try_from(at) else { break };
        let path = TreePath::to(nodes, Lblk::new(raw))?;
        let leaf = path.leaf();
        let index = leaf
            .extents
            .iter()
            .position(|e| e.end() > at && e.unwritten != unwritten);
        let Some((index, &extent)) = index.and_then(|i| Some((i, leaf.extents.get(i)?))) else {
            // Each leaf ends further right than the one before.
            at = leaf.end.max(at + 1);
            continue;
        };
        let start = extent.lblk.max(from);
        let Some(part) = to
            .checked_sub(u64::from(start.get()))
            .filter(|&left| left > 0)
            .and_then(|left| extent.slice(start, at_most_u32(left)))
        else {
            break;
        };
        // A written extent may be one block longer than an unwritten one.
        let len = part.len.min(Extent::max_len(unwritten));
        let part = Extent {
            len,
            unwritten,
            ..part
        };
        put_part(nodes, &path, index, &extent, part)?;
        return Ok(Some(part));
    }
    Ok(None)
}

/// Gives the blocks of `part`, which lie in one extent, the location and the state of `part`.
///
/// # Errors
/// No space for a node, or damage, or there is no such extent; the tree is as before.
pub(in crate::map) fn put_one<N: NodesMut>(nodes: &mut N, part: Extent) -> Result<()> {
    let path = TreePath::to(nodes, part.lblk)?;
    let holds = |extent: &Extent| extent.lblk <= part.lblk && part.end() <= extent.end();
    let leaf = path.leaf();
    let found = leaf.extents.iter().position(holds);
    let Some((index, extent)) = found.and_then(|at| Some((at, *leaf.extents.get(at)?))) else {
        let why = ExtentError::OutOfOrder {
            index: 0,
            lblk: part.lblk,
        };
        return Err(nodes.damaged(path.nearest_block(), why));
    };
    put_part(nodes, &path, index, &extent, part)
}

/// Replaces a part of `extent`, the leaf's entry `index`, by `part`.
fn put_part<N: NodesMut>(
    nodes: &mut N,
    path: &TreePath<N::Bytes>,
    index: usize,
    extent: &Extent,
    part: Extent,
) -> Result<()> {
    debug_assert!(
        extent.lblk <= part.lblk && part.len > 0 && part.end() <= extent.end(),
        "{part:?} is a part of {extent:?}"
    );
    let before = part
        .lblk
        .distance_from(extent.lblk)
        .filter(|&len| len > 0)
        .and_then(|len| extent.slice(extent.lblk, len));
    let after = part
        .lblk
        .checked_add(part.len)
        .and_then(|next| extent.slice(next, u32::MAX));
    let pieces = before.into_iter().chain([part]).chain(after).collect();
    let (range, joined) = join_neighbours(path.leaf(), index..index + 1, pieces);
    replace(nodes, path, range, &joined)
}
