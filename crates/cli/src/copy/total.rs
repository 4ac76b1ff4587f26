//! How much a copy will be, for its progress bar.

use std::path::Path;
use std::rc::Rc;

use extant::FileKind;

use super::rules::CopyRules;
use super::sides::{Dir, FileTree, Found, Id, Names};
use crate::visited::Visited;

/// Directories that the count has open at once. It leaves out what is deeper.
const DEPTH_MAX: usize = 64;

/// Bytes in the files of a tree, as far as they can be found out.
pub(crate) fn size<'a>(tree: &dyn FileTree<'a>, top: &Path, rules: CopyRules) -> u64 {
    let recursive = rules.recursive;
    let mut count = Count {
        rules,
        total: 0,
        visited: Visited::default(),
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

struct Count {
    rules: CopyRules,
    total: u64,
    visited: Visited<Id>,
}

type Opened<'a> = (Rc<dyn Dir<'a> + 'a>, Names);

impl Count {
    /// Adds a file; opens a directory.
    fn one<'a>(&mut self, found: &Found<'a>) -> Option<Opened<'a>> {
        let attributes = found.attributes();
        match attributes.kind {
            FileKind::Regular => {
                let again = self.rules.archive && attributes.links > 1;
                if !again || self.visited.enter(attributes.id) {
                    // For the progress bar; sizes of sparse files add up to anything.
                    self.total = self.total.saturating_add(attributes.size);
                }
                None
            }
            FileKind::Directory if self.rules.recursive && self.visited.enter(attributes.id) => {
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
    use crate::copy::Host;
    use crate::images::Images;

    #[test]
    fn files_in_directories_count_and_other_names_do_so_once() -> Result<()> {
        let tmp = TempDir::new("size")?;
        fs::create_dir_all(tmp.join("a/b"))?;
        fs::write(tmp.join("a/b/one"), [0; 1000])?;
        fs::write(tmp.join("two"), [0; 200])?;
        fs::hard_link(tmp.join("two"), tmp.join("a/three"))?;
        let images = Images::read();
        let rules = |archive| CopyRules {
            archive,
            ..CopyRules::whole()
        };
        for (archive, right) in [(false, 1400), (true, 1200)] {
            let counted = size(&Host::beside(&images), tmp.path(), rules(archive));
            ensure!(counted == right, "{counted}, not {right}");
        }
        Ok(())
    }
}
