//! The sources of a volume, read one after the other into the tree.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use extant_archive::Window;

use crate::container::{Container, Wanted};
use crate::entry_rules::EntryRules;
use crate::error::{At, Error, Result};
use crate::folder::{FileKey, FolderScan};
use crate::manifest::Manifest;
use crate::members::MemberScan;
use crate::order;
use crate::origin::Origin;
use crate::placer::{Over, Placer};
use crate::spool::{Compression, spool};
use crate::stamp::Stamp;
use crate::tree::{Node, NodeId, Tree};
use crate::volume::{self, VolumeScan};

/// A source that a volume is built of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// A folder, an archive, an ext4 image, an OCI layout, or an archive that holds a container
    /// image.
    Path(PathBuf),
    /// A directory of an ext4 image.
    Inside {
        /// The image.
        image: PathBuf,
        /// The directory; links on the way are not followed.
        dir: PathBuf,
    },
    /// An archive that comes through standard input.
    Stdin,
}

impl Source {
    /// Returns whether it is an image or another disk that can be used as it is: neither a folder
    /// nor an archive, nor a part of an image. An archive is known by its compression, or by the
    /// mark of tar.
    ///
    /// # Errors
    /// Those of the host.
    pub fn is_ready_image(&self) -> io::Result<bool> {
        let Self::Path(path) = self else {
            return Ok(false);
        };
        let kind = path.metadata()?.file_type();
        if kind.is_block_device() || !kind.is_file() {
            return Ok(kind.is_block_device());
        }
        let file = File::open(path)?;
        if volume::is_image(&file, 0) {
            return Ok(true);
        }
        let mut head = [0; volume::ARCHIVE_AT + volume::ARCHIVE.len()];
        let mut len = 0;
        while len < head.len() {
            match file.read_at(&mut head[len..], len as u64)? {
                0 => break,
                more => len += more,
            }
        }
        let is_archive = head[volume::ARCHIVE_AT..] == *volume::ARCHIVE;
        Ok(!is_archive && matches!(Compression::of(&head[..len]), Ok(Compression::None)))
    }

    /// The file or folder of the host, if it is one.
    pub(crate) fn host(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::Inside { image, .. } => Some(image),
            Self::Stdin => None,
        }
    }
}

/// Sources that are being read.
pub(crate) struct Reading<'a> {
    pub(crate) tree: &'a mut Tree,
    pub(crate) rules: &'a EntryRules<'a>,
    /// For directories that no source has.
    pub(crate) implied: Node,
    /// Files that are no part of a folder.
    pub(crate) skipped: &'a [FileKey],
    pub(crate) origins: Vec<Origin>,
    /// The folder that archives are unpacked to.
    pub(crate) folder: &'a Path,
    /// Bytes that they may still unpack to.
    pub(crate) left: u64,
    /// Power of a source over earlier ones.
    pub(crate) over: Over,
    /// A source was a container image.
    pub(crate) has_container: bool,
}

impl Reading<'_> {
    /// Reads one source.
    ///
    /// # Errors
    /// Those of the host; what is no source; entries that no volume can have.
    pub(crate) fn source(&mut self, source: &Source) -> Result<()> {
        let path = match source {
            Source::Path(path) => path,
            Source::Inside { image, dir } => return self.image(image, dir, None),
            Source::Stdin => {
                let name = Path::new("standard input");
                let input = io::stdin().as_fd().try_clone_to_owned().at(name)?;
                return self.file("standard input", File::from(input));
            }
        };
        if !path.is_dir() {
            let name = path.display().to_string();
            let file = File::open(path).at(path)?;
            if volume::is_image(&file, 0) {
                return self.image(path, Path::new("/"), None);
            }
            return self.file(&name, file);
        }
        if let Some(container) = Container::in_folder(path) {
            return self.container(&container);
        }
        let origin = self.next()?;
        let mut placer = Placer::new(self.tree, origin, self.over, self.implied.clone());
        let scan = FolderScan::new(&mut placer, self.rules, origin, self.skipped);
        let read = scan.all(path)?;
        warn_replaced(self.rules, &placer);
        self.origins.push(read);
        Ok(())
    }

    /// Reads a directory of an image: of the one at `path`, or of `file`, which has no path.
    fn image(&mut self, path: &Path, dir: &Path, file: Option<File>) -> Result<()> {
        let (origin, name) = (self.next()?, path.display().to_string());
        let volume = volume::open(path, file)?;
        let mut placer = Placer::new(self.tree, origin, self.over, self.implied.clone());
        let scan = VolumeScan {
            placer: &mut placer,
            rules: self.rules,
            origin,
            name: &name,
            volume: &volume,
        };
        scan.all(dir)?;
        warn_replaced(self.rules, &placer);
        self.origins.push(Origin::Volume { name, volume });
        Ok(())
    }

    /// The number of the next source.
    fn next(&self) -> Result<u16> {
        let next = u16::try_from(self.origins.len()).ok();
        let next = next.filter(|&next| next < u16::MAX - 1);
        next.ok_or_else(|| Error::Options("too many sources and layers".to_owned()))
    }

    /// Reads an archive, or the container image in one.
    fn file(&mut self, name: &str, file: File) -> Result<()> {
        let (file, range) = self.unpacked(name, file, None)?;
        if volume::is_image(&file, range.start) {
            return self.image(Path::new(name), Path::new("/"), Some(file));
        }
        match Container::in_archive(name, &file, range.end)? {
            Some(container) => self.container(&container),
            None => self.archive(name, file, range),
        }
    }

    /// A part of a file, or all of it, that can be read anywhere and is not compressed.
    fn unpacked(
        &mut self,
        name: &str,
        file: File,
        range: Option<Range<u64>>,
    ) -> Result<(File, Range<u64>)> {
        let metadata = file.metadata().at(Path::new(name))?;
        if !metadata.is_file() {
            let (file, len) = spool(name, file, self.folder, self.left)?;
            self.left -= len;
            return Ok((file, 0..len));
        }
        let range = range.unwrap_or(0..metadata.len());
        let mut head = [0; 8];
        let len = file.read_at(&mut head, range.start).at(Path::new(name))?;
        let compression = Compression::of(&head[..len]);
        match compression.map_err(|what| Error::at(name, what))? {
            Compression::None => Ok((file, range)),
            _ => {
                let window = Window::new(&file, range);
                let (file, len) = spool(name, window, self.folder, self.left)?;
                self.left -= len;
                Ok((file, 0..len))
            }
        }
    }

    fn archive(&mut self, name: &str, file: File, range: Range<u64>) -> Result<()> {
        let origin = self.next()?;
        let found = file.metadata().at(Path::new(name))?;
        let stamp = self.rules.stamped.then(|| Stamp::of(&found));
        let mut placer = Placer::new(self.tree, origin, self.over, self.implied.clone());
        let scan = MemberScan {
            placer: &mut placer,
            rules: self.rules,
            origin,
            name,
        };
        scan.all(&file, range)?;
        warn_replaced(self.rules, &placer);
        let name = name.to_owned();
        self.origins.push(Origin::Archive { name, file, stamp });
        Ok(())
    }

    /// Reads the layers of a container image.
    fn container(&mut self, container: &Container) -> Result<()> {
        let options = self.rules.options;
        let wanted = Wanted {
            name: options.image.as_deref(),
            platform: options.platform.as_deref(),
        };
        self.has_container = true;
        let before = std::mem::replace(&mut self.over, Over::Layer);
        for (name, (file, range)) in container.layers(wanted)? {
            let (file, range) = self.unpacked(&name, file, Some(range))?;
            self.archive(&name, file, range)?;
        }
        self.over = before;
        Ok(())
    }

    /// Applies a list of attributes and nodes.
    ///
    /// # Errors
    /// Those of the host; lines that say nothing sensible.
    pub(crate) fn manifest(&mut self, path: &Path) -> Result<()> {
        let origin = self.next()?;
        let mut placer = Placer::new(self.tree, origin, Over::Nothing, self.implied.clone());
        let manifest = Manifest {
            placer: &mut placer,
            rules: self.rules,
            origin,
            files: Vec::new(),
        };
        let files = manifest.apply(path)?.into_iter().map(|path| {
            let found = self.rules.stamped.then(|| path.metadata()).transpose();
            let stamp = found.at(&path)?.map(|found| Stamp::of(&found));
            Ok((path, stamp))
        });
        self.origins
            .push(Origin::Files(files.collect::<Result<_>>()?));
        Ok(())
    }

    /// The positions of files in a list.
    ///
    /// # Errors
    /// Those of the host; paths that no volume has.
    pub(crate) fn order(&mut self, path: &Path) -> Result<HashMap<NodeId, usize>> {
        let origin = self.next()?;
        let mut placer = Placer::new(self.tree, origin, Over::Nothing, self.implied.clone());
        order::read(path, &mut placer, self.rules.watch)
    }
}

/// Tells which directories of earlier sources something else took the place of.
fn warn_replaced(rules: &EntryRules<'_>, placer: &Placer<'_>) {
    for path in &placer.replaced {
        let what = format!("{path}: it replaces a directory of an earlier source");
        rules.watch.warn(what);
    }
}
