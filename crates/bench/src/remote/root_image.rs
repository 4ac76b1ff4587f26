//! The image that is measured: the root of a system, and the list of files that a start reads.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use extant_host::{Cmd, Result, Rng, TempDir, content, ensure};

use crate::images::{MadeTree, root_tree};
use crate::plan::{Plan, Size};

/// Files that a start reads.
const LISTED: usize = 500;
const LISTED_TINY: usize = 20;

/// Chooses them.
const SEED: u64 = 20_261_129;

/// Files that differ in the second version, of a hundred listed ones.
const CHANGED: usize = 5;

/// An image of a tree, in RAM where the host has room for it there.
pub(super) struct RootImage {
    dir: TempDir,
    bytes: u64,
    files: usize,
    listed: Vec<(PathBuf, u64)>,
}

impl RootImage {
    /// Makes an image of the plan's tree, or of one like the root of a small system.
    pub(super) fn make(plan: &Plan) -> Result<Self> {
        let dir = TempDir::new("remote")?;
        let made: Option<MadeTree> = match &plan.tree {
            Some(_) => None,
            None => Some(root_tree(plan.size)?),
        };
        let folder = match (&plan.tree, &made) {
            (Some(folder), _) => folder.clone(),
            (None, made) => made.as_ref().map(MadeTree::folder).unwrap_or_default(),
        };
        let image = dir.join("image");
        let build = Cmd::new(&plan.extant).args(["build", "-q", "--free", "64M"]);
        let build = build.arg(&folder).arg(&image);
        build.limit(Duration::from_secs(1800)).ok()?;
        let mut files = Vec::new();
        regular_files(&folder, Path::new(""), &mut files)?;
        files.sort();
        let wanted = match plan.size {
            Size::Tiny => LISTED_TINY,
            _ => LISTED,
        };
        let listed = chosen(&files, wanted);
        ensure!(!listed.is_empty(), "{}: no files to read", folder.display());
        Ok(Self {
            bytes: fs::metadata(&image)?.len(),
            dir,
            files: files.len(),
            listed,
        })
    }

    /// The image's file.
    pub(super) fn path(&self) -> PathBuf {
        self.dir.join("image")
    }

    /// Its length.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Files of the tree.
    pub(super) fn file_count(&self) -> usize {
        self.files
    }

    /// Paths of the files that a start reads, below the root, and their lengths.
    pub(super) fn listed(&self) -> &[(PathBuf, u64)] {
        &self.listed
    }

    /// The bytes of these files.
    pub(super) fn listed_bytes(&self) -> u64 {
        self.listed.iter().map(|(_, len)| len).sum()
    }

    /// Reads the files of a start below a mount.
    pub(super) fn read_listed(&self, mount: &Path) -> Result<()> {
        for (path, len) in &self.listed {
            let read = fs::read(mount.join(path))?;
            let found = read.len() as u64;
            ensure!(found == *len, "{}: {found} bytes", path.display());
        }
        Ok(())
    }

    /// Writes new content to some of the listed files, of the same length.
    pub(super) fn change(&self, extant: &Path) -> Result<()> {
        let new = self.dir.join("new");
        let every = 100 / CHANGED;
        for (nth, (path, len)) in self.listed.iter().enumerate().step_by(every) {
            fs::write(
                &new,
                content::fill(nth as u64 + 1, 0, usize::try_from(*len)?),
            )?;
            let to = format!("{}:/{}", self.path().display(), path.display());
            Cmd::new(extant).arg("cp").arg(&new).arg(to).ok()?;
        }
        Ok(())
    }
}

/// The regular files below a folder, by their paths below it, and their lengths.
fn regular_files(top: &Path, below: &Path, all: &mut Vec<(PathBuf, u64)>) -> Result<()> {
    for entry in fs::read_dir(top.join(below))? {
        let entry = entry?;
        let (path, kind) = (below.join(entry.file_name()), entry.file_type()?);
        if kind.is_dir() {
            regular_files(top, &path, all)?;
        } else if kind.is_file() {
            all.push((path, entry.metadata()?.len()));
        }
    }
    Ok(())
}

/// So many of the files, by the seed, in the order in which they are chosen.
fn chosen(files: &[(PathBuf, u64)], count: usize) -> Vec<(PathBuf, u64)> {
    let mut left: Vec<_> = files.to_vec();
    let mut rng = Rng::new(SEED);
    (0..count.min(left.len()))
        .map(|_| left.swap_remove(rng.index(left.len())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_the_same_each_time_and_has_no_file_twice() {
        let files: Vec<_> = (0..100)
            .map(|n| (PathBuf::from(format!("{n}")), n))
            .collect();
        let mut first = chosen(&files, 60);
        assert_eq!(first, chosen(&files, 60));
        first.sort();
        first.dedup();
        assert_eq!(first.len(), 60);
        assert_eq!(chosen(&files, 500).len(), 100);
    }
}
