//! The parts of files with holes: what lies between the holes.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::{Error, Result};
use crate::ids::NodeId;

/// The most parts of all files together: their memory is bounded.
const MAX_PARTS: usize = 1 << 22;

/// A part of a file between holes, and where its bytes are behind those of the file's beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) stored: u64,
}

/// The parts of a file of `size` bytes that has its bytes at their own offsets. `next` finds the
/// first data at or behind a position: where it begins and ends, `None` if there is none.
///
/// # Errors
/// Those of `next`.
pub(crate) fn find_parts<E>(
    size: u64,
    mut next: impl FnMut(u64) -> std::result::Result<Option<(u64, u64)>, E>,
) -> std::result::Result<Vec<Part>, E> {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < size {
        let Some((start, end)) = next(at)? else { break };
        let end = end.min(size);
        if start < end {
            parts.push(Part {
                start,
                len: end - start,
                stored: start,
            });
        }
        at = end.max(start + 1);
    }
    Ok(parts)
}

/// The parts of all files that have holes.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    of: BTreeMap<NodeId, Vec<Part>>,
    /// How many there are in all.
    count: usize,
}

impl Parts {
    /// The parts of a file; `None` for one without holes.
    pub(crate) fn get(&self, id: NodeId) -> Option<&[Part]> {
        self.of.get(&id).map(Vec::as_slice)
    }

    /// Stores the parts of a file instead of those that it had. `path` is for messages.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn set(
        &mut self,
        id: NodeId,
        parts: Vec<Part>,
        path: impl fmt::Display,
    ) -> Result<()> {
        self.remove(id);
        if self.count + parts.len() > MAX_PARTS {
            let what = format!("files with holes have more than {MAX_PARTS} parts in all");
            return Err(Error::at(path, what));
        }
        self.count += parts.len();
        self.of.insert(id, parts);
        Ok(())
    }

    /// Forgets the parts of a file.
    pub(crate) fn remove(&mut self, id: NodeId) {
        if let Some(parts) = self.of.remove(&id) {
            debug_assert!(parts.len() <= self.count, "those of all files");
            self.count -= parts.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_gone_make_room() {
        let part = Part {
            start: 0,
            len: 1,
            stored: 0,
        };
        let mut parts = Parts::default();
        let [one, other] = [NodeId::ROOT, NodeId(1)];
        for id in [one, one, other] {
            parts.set(id, vec![part; MAX_PARTS / 2], "f").unwrap();
        }
        assert!(parts.set(NodeId(2), vec![part], "f").is_err());
        parts.remove(one);
        parts.remove(one);
        parts.set(NodeId(2), vec![part; 7], "f").unwrap();
        assert_eq!(parts.count, MAX_PARTS / 2 + 7);
        assert_eq!(parts.get(one), None);
    }
}
