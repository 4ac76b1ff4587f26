//! A source tree in an archive, the same on every machine: some 8,900 files in 600 directories,
//! most of them a few KiB, few of them large.

use std::path::PathBuf;

use extant_host::{Cmd, Result, Rng, TempDir, content};

/// The archive and what is in it.
#[derive(Debug)]
pub(super) struct Source {
    dir: TempDir,
    /// Number of files.
    pub(super) files: u32,
}

impl Source {
    /// Makes a tree of `files` files and its archive.
    pub(super) fn make(files: u32) -> Result<Source> {
        let dir = TempDir::new("tree")?;
        let mut rng = Rng::new(20_260_101);
        let mut dirs = vec![dir.join("tree")];
        std::fs::create_dir(dir.join("tree"))?;
        for i in 0..files {
            if i % 15 == 0 {
                let sub = dirs[rng.index(dirs.len())].join(format!("module{i}"));
                std::fs::create_dir(&sub)?;
                dirs.push(sub);
            }
            let at = &dirs[rng.index(dirs.len())];
            let size = match rng.below(100) {
                0..=59 => rng.between(200, 4000),
                60..=94 => rng.between(4000, 30_000),
                _ => rng.between(30_000, 200_000),
            };
            let name = format!("source_file_{i}.c");
            std::fs::write(
                at.join(name),
                content::fill(i.into(), 0, usize::try_from(size)?),
            )?;
        }
        Cmd::new("tar")
            .arg("-cf")
            .arg(dir.join("tree.tar"))
            .arg("-C")
            .arg(dir.path())
            .arg("tree")
            .ok()?;
        std::fs::remove_dir_all(dir.join("tree"))?;
        Ok(Source { dir, files })
    }

    /// Path of the archive.
    pub(super) fn archive(&self) -> PathBuf {
        self.dir.join("tree.tar")
    }
}
