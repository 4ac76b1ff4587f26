//! A recovered volume as the judge sees it: through Extant, or through a mount by Linux.

use std::path::{Path, PathBuf};

use extant_engine::{Error, FileKind, Node, Volume};

/// `FS_VERITY_FL`.
const VERITY: u32 = 0x10_0000;

/// Looks into a volume. Paths have no leading slash; what is missing is `None`.
pub(crate) trait View {
    /// The content of a file.
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, String>;
    /// An attribute of a file.
    fn attr(&self, path: &str, key: &str) -> Result<Option<Vec<u8>>, String>;
    /// The space that a file takes, in bytes.
    fn space(&self, path: &str) -> Result<Option<u64>, String>;
    /// The paths of all regular files.
    fn files(&self) -> Result<Vec<String>, String>;
}

/// Through the library.
pub(crate) struct ByExtant<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) root: Node,
}

fn found<T>(what: &str, result: Result<T, Error>) -> Result<Option<T>, String> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::NotFound | Error::NotDir | Error::NoAttribute) => Ok(None),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

impl ByExtant<'_> {
    fn node(&self, path: &str) -> Result<Option<Node>, String> {
        let mut node = self.root.clone();
        for name in path.split('/') {
            match found(path, self.volume.lookup(&node, name.as_bytes()))? {
                Some(next) => node = next,
                None => return Ok(None),
            }
        }
        Ok(Some(node))
    }

    /// Fails for a file that has a part of a Merkle tree, and not all of one. Its name ends with
    /// the length that it gets.
    pub(crate) fn is_sealed_or_plain(&self, path: &str) -> Result<(), String> {
        let what = |error| format!("{path}: {error}");
        let node = self.node(path)?.ok_or("it is not there")?;
        if self.volume.flags(&node).map_err(what)? & VERITY != 0 {
            // Its data was read, which the tree vouches for.
            return self.volume.measure_verity(&node).map(drop).map_err(what);
        }
        let end = path.rsplit('-').next().and_then(|len| len.parse().ok());
        let end: u64 = end.ok_or("a name without a length")?;
        let behind = end.next_multiple_of(1 << 16);
        match self.volume.map(&node, behind).next() {
            None => Ok(()),
            Some(extent) => Err(format!("{path} of {end} bytes has {extent:?}")),
        }
    }

    fn list(&self, dir: &Node, prefix: &str, out: &mut Vec<String>) -> Result<(), String> {
        let mut entries = Vec::new();
        let listed = self.volume.readdir(dir, 0, &mut |entry| {
            entries.push(entry.name.to_vec());
            true
        });
        listed.map_err(|error| format!("listing /{prefix}: {error}"))?;
        for name in entries {
            if name == b"." || name == b".." {
                continue;
            }
            let path = format!("{prefix}{}", String::from_utf8_lossy(&name));
            let node = self.volume.lookup(dir, &name);
            let node = node.map_err(|error| format!("{path} is listed, but: {error}"))?;
            match node.kind() {
                FileKind::Regular => out.push(path),
                FileKind::Directory => self.list(&node, &format!("{path}/"), out)?,
                _ => {}
            }
        }
        Ok(())
    }
}

impl View for ByExtant<'_> {
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(node) = self.node(path)? else {
            return Ok(None);
        };
        let what = |error| format!("{path}: {error}");
        let size = self.volume.getattr(&node).map_err(what)?.size;
        let mut bytes = vec![0; usize::try_from(size).map_err(|e| e.to_string())?];
        let read = self.volume.read(&node, 0, &mut bytes).map_err(what)?;
        if read != bytes.len() {
            return Err(format!("{path}: {read} of {size} bytes can be read"));
        }
        Ok(Some(bytes))
    }

    fn attr(&self, path: &str, key: &str) -> Result<Option<Vec<u8>>, String> {
        match self.node(path)? {
            Some(node) => found(path, self.volume.getxattr(&node, key.as_bytes())),
            None => Ok(None),
        }
    }

    fn space(&self, path: &str) -> Result<Option<u64>, String> {
        let Some(node) = self.node(path)? else {
            return Ok(None);
        };
        let attr = found(path, self.volume.getattr(&node))?;
        Ok(attr.map(|attr| attr.blocks * 512))
    }

    fn files(&self) -> Result<Vec<String>, String> {
        let mut out = Vec::new();
        self.list(&self.root, "", &mut out)?;
        Ok(out)
    }
}

/// Through a directory where Linux has it mounted.
pub(crate) struct ByLinux {
    pub(crate) root: PathBuf,
}

impl ByLinux {
    fn list(&self, dir: &Path, out: &mut Vec<String>) -> std::io::Result<()> {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() && entry.file_name() != "lost+found" {
                self.list(&entry.path(), out)?;
            } else if kind.is_file() {
                let path = entry.path();
                let path = path.strip_prefix(&self.root).unwrap_or(&path);
                out.push(path.to_string_lossy().into_owned());
            }
        }
        Ok(())
    }
}

impl View for ByLinux {
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, String> {
        match std::fs::read(self.root.join(path)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("{path}: {error}")),
        }
    }

    fn attr(&self, path: &str, key: &str) -> Result<Option<Vec<u8>>, String> {
        let mut value = vec![0; 65_536];
        match rustix::fs::getxattr(self.root.join(path), key, &mut value) {
            Ok(len) => {
                value.truncate(len);
                Ok(Some(value))
            }
            Err(rustix::io::Errno::NODATA | rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(format!("{path}: {error}")),
        }
    }

    fn space(&self, path: &str) -> Result<Option<u64>, String> {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(self.root.join(path));
        Ok(metadata.ok().map(|metadata| metadata.blocks() * 512))
    }

    fn files(&self) -> Result<Vec<String>, String> {
        let mut out = Vec::new();
        self.list(&self.root, &mut out)
            .map_err(|error| format!("listing: {error}"))?;
        Ok(out)
    }
}
