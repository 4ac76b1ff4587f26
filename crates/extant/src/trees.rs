//! Whole trees: creating the directories above a path, removing everything below one.

use std::collections::VecDeque;
use std::path::Path;

use extant_engine::damage::LinkDamage;
use extant_engine::{Error, FileKind, Location, Node, Result};

use crate::filesystem::Filesystem;
use crate::last_name::{ends_in_slash, parent_of_dir};
use crate::walk::resolve;

/// Names taken from a directory at once.
const BATCH: usize = 1024;

/// A directory on the way to its removal.
struct Doomed {
    parent: Node,
    name: Vec<u8>,
    dir: Node,
    /// Names in it that are still to be removed.
    names: VecDeque<Vec<u8>>,
    /// The position behind them.
    pos: u64,
    /// A name was removed since the last look from the start.
    progress: bool,
}

impl Filesystem {
    /// Creates a directory and those above it that are missing. A directory that exists is no
    /// error.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        // Without slashes and dots at the end, which mkdir(2) does not take where nothing is.
        let path = path.as_ref().components().as_path();
        let mut missing = Vec::new();
        for dir in path.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
            match resolve(self.volume(), dir, true) {
                Ok(node) if node.kind() == FileKind::Directory => break,
                Ok(_) if dir == path => return Err(Error::Exists),
                Ok(_) => return Err(Error::NotDir),
                Err(Error::NotFound) => missing.push(dir),
                Err(error) => return Err(error),
            }
        }
        for dir in missing.into_iter().rev() {
            match self.create_dir(dir) {
                Err(Error::Exists) if self.metadata(dir)?.is_dir() => {}
                made => made?,
            }
        }
        Ok(())
    }

    /// Removes a directory and everything in it; of a symbolic link, only the link.
    ///
    /// # Errors
    /// As unlink(2) and rmdir(2): [`Error::NotDir`] for a link with a slash behind it. What was
    /// removed until then stays removed.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let volume = self.volume();
        let (parent, name) = parent_of_dir(volume, path.as_ref())?;
        let dir = volume.lookup(&parent, name)?;
        if dir.kind() != FileKind::Directory {
            if ends_in_slash(path.as_ref()) {
                return Err(Error::NotDir);
            }
            return volume.unlink(&parent, name);
        }
        // A stack and not recursion: the depth of a tree is a matter of the image.
        let mut stack = vec![Doomed {
            parent,
            name: name.to_vec(),
            dir,
            names: VecDeque::new(),
            pos: 0,
            progress: false,
        }];
        while let Some(top) = stack.last_mut() {
            if top.names.is_empty() {
                self.next_names(top)?;
            }
            let Some(name) = top.names.pop_front() else {
                volume.rmdir(&top.parent, &top.name)?;
                stack.pop();
                continue;
            };
            let node = match volume.lookup(&top.dir, &name) {
                Err(Error::NotFound) => continue,
                found => found?,
            };
            top.progress = true;
            if node.kind() == FileKind::Directory {
                let parent = top.dir.clone();
                if stack.iter().any(|above| above.dir.ino() == node.ino()) {
                    return Err(Error::corrupt(
                        Location::Inode(node.ino()),
                        LinkDamage::ContainsItself,
                    ));
                }
                stack.push(Doomed {
                    parent,
                    name,
                    dir: node,
                    names: VecDeque::new(),
                    pos: 0,
                    progress: false,
                });
            } else {
                volume.unlink(&top.dir, &name)?;
            }
        }
        Ok(())
    }

    /// Takes the next names of a directory. They follow those before, as a search from the start
    /// would go through the blocks of all that is removed already; once nothing follows, what was
    /// added meanwhile is looked for from the start, as long as that leads anywhere.
    fn next_names(&self, doomed: &mut Doomed) -> Result<()> {
        let Doomed {
            dir,
            names,
            pos,
            progress,
            ..
        } = doomed;
        loop {
            let from = *pos;
            self.volume().readdir(dir, from, &mut |entry| {
                *pos = entry.next_pos;
                if entry.name != b"." && entry.name != b".." {
                    names.push_back(entry.name.to_vec());
                }
                names.len() < BATCH
            })?;
            if !names.is_empty() || from == 0 || !std::mem::take(progress) {
                return Ok(());
            }
            *pos = 0;
        }
    }
}
