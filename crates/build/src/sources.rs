//! The sources of a volume, read one after the other into the tree.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::error::{At, Result};
use crate::folder::{FileKey, FolderScan};
use crate::keeper::Keeper;
use crate::members::MemberScan;
use crate::origin::Origin;
use crate::placer::Placer;
use crate::tree::{Node, Tree};

/// What a volume is built of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// A folder or an archive.
    Path(PathBuf),
    /// An archive that comes through standard input.
    Stdin,
}

/// Sources that are being read.
pub(crate) struct Reading<'a> {
    pub(crate) tree: &'a mut Tree,
    pub(crate) keeper: &'a Keeper<'a>,
    /// For directories that no source has.
    pub(crate) implied: Node,
    /// Files that are no part of a folder.
    pub(crate) skipped: &'a [FileKey],
    pub(crate) origins: Vec<Origin>,
    /// Whether names may remove what earlier sources have.
    pub(crate) whiteouts: bool,
}

impl Reading<'_> {
    /// Reads one source.
    ///
    /// # Errors
    /// Those of the host; what is no source; entries that no volume can have.
    pub(crate) fn source(&mut self, path: &Path) -> Result<()> {
        let origin = u16::try_from(self.origins.len()).unwrap_or(u16::MAX);
        if path.is_dir() {
            let mut placer = Placer::new(self.tree, origin, self.whiteouts, self.implied.clone());
            let scan = FolderScan::new(&mut placer, self.keeper, origin, self.skipped);
            let read = scan.all(path)?;
            self.origins.push(read);
            return Ok(());
        }
        let file = File::open(path).at(path)?;
        let len = file.metadata().at(path)?.len();
        self.archive(&path.display().to_string(), file, 0..len)
    }

    fn archive(&mut self, name: &str, file: File, range: std::ops::Range<u64>) -> Result<()> {
        let origin = u16::try_from(self.origins.len()).unwrap_or(u16::MAX);
        let mut placer = Placer::new(self.tree, origin, self.whiteouts, self.implied.clone());
        let scan = MemberScan {
            placer: &mut placer,
            keeper: self.keeper,
            origin,
            name,
        };
        scan.all(&file, range)?;
        let name = name.to_owned();
        self.origins.push(Origin::Archive { name, file });
        Ok(())
    }
}
