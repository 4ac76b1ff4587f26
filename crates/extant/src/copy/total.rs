//! How much a copy will be, for its progress bar.

use std::collections::HashSet;
use std::path::Path;

use extant_engine::FileKind;

use super::copy_options::CopyOptions;
use super::sides::{FileTree, Found, Id, Names};

/// Directories that the count has open at once. It leaves out what is deeper.
const DEPTH_MAX: usize = 64;

/// Bytes in the files of a tree, as far as they can be found out.
pub(super) fn count<'a>(tree: &dyn FileTree<'a>, top: &Path, options: &CopyOptions<'_>) -> u64 {
    let recursive = options.recursive;
    let mut count = Count {
        options,
        total: 0,
        visited: HashSet::new(),
    };
    let mut stack = Vec::new();
    let top = tree.item(top, !recursive).ok().flatten();
    stack.extend(top.and_then(|top| count.one(&top)));
    while let Some((dir, names)) = stack.last_mut() {
        let Some(name) = names.next() else {
            stack.pop();
            continue;
        };
        let found = name.and_then(|name| dir.find(&name)).ok().flatten();
        let inner = found.and_then(|found| count.one(&found));
        if stack.len() < DEPTH_MAX {
            stack.extend(inner);
        }
    }
    count.total
}

struct Count<'o> {
    options: &'o CopyOptions<'o>,
    total: u64,
    visited: HashSet<Id>,
}

impl Count<'_> {
    /// Adds a file; opens a directory.
    fn one<'a>(&mut self, found: &Found<'a>) -> Option<(Found<'a>, Names)> {
        let attributes = found.attributes();
        match attributes.kind {
            FileKind::Regular => {
                let again = self.options.hard_links && attributes.links > 1;
                if !again || self.visited.insert(attributes.id) {
                    // For the progress bar; sizes of sparse files add up to anything.
                    self.total = self.total.saturating_add(attributes.size);
                }
                None
            }
            FileKind::Directory if self.options.recursive && self.visited.insert(attributes.id) => {
                let dir = found.enter().ok()?;
                let names = dir.names().ok()?;
                Some((dir, names))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use extant_testkit::{Result, TempDir, ensure};

    use super::*;
    use crate::copy::{CopyEnd, copy_size};

    #[test]
    fn files_in_directories_count_and_other_names_do_so_once() -> Result<()> {
        let tmp = TempDir::new("size")?;
        fs::create_dir_all(tmp.join("a/b"))?;
        fs::write(tmp.join("a/b/one"), [0; 1000])?;
        fs::write(tmp.join("two"), [0; 200])?;
        fs::hard_link(tmp.join("two"), tmp.join("a/three"))?;
        for (hard_links, right) in [(false, 1400), (true, 1200)] {
            let options = CopyOptions {
                hard_links,
                ..CopyOptions::whole()
            };
            let counted = copy_size(&CopyEnd::Host(tmp.path()), &options);
            ensure!(counted == right, "{counted}, not {right}");
        }
        Ok(())
    }
}
