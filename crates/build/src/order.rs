//! A list of paths whose data lie first on the volume: in the order of a boot, for one.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::error::{At, Result};
use crate::options::Watch;
use crate::origin::has_data;
use crate::placer::{Placer, shown};
use crate::tree::{NodeId, Tree};

/// The positions of files in the list at `path`, a path in a line.
///
/// # Errors
/// Those of the host; paths that no volume has.
pub(crate) fn read(
    path: &Path,
    placer: &mut Placer<'_>,
    watch: &dyn Watch,
) -> Result<HashMap<NodeId, usize>> {
    let text = fs::read(path).at(path)?;
    let mut positions = HashMap::new();
    for line in text.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        match placer.find(line)? {
            Some(id) => {
                let next = positions.len();
                positions.entry(id).or_insert(next);
            }
            None => watch.warn(format!("{}: {} is not there", path.display(), shown(line))),
        }
    }
    Ok(positions)
}

/// The files with data: those of the list first, then the others in the order of their sources.
pub(crate) fn files(tree: &Tree, positions: &HashMap<NodeId, usize>) -> Vec<NodeId> {
    let mut files: Vec<NodeId> = tree
        .node_ids()
        .filter(|id| tree.node(*id).links > 0 && has_data(tree.node(*id)))
        .collect();
    files.sort_unstable_by_key(|id| {
        let node = tree.node(*id);
        // What the list does not name comes last.
        let position = positions.get(id).copied().unwrap_or(usize::MAX);
        (position, node.origin, node.data)
    });
    files
}
