//! Trees of which images are made, the same on every machine.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use extant_host::{Cmd, Result, Rng, TempDir, content};

use crate::plan::Size;

/// A kind of tree.
pub(super) struct Shape {
    pub(super) name: &'static str,
    /// Entries of it, in a run that is neither tiny nor quick.
    entries: u32,
    fill: fn(&Path, u32) -> Result<()>,
}

/// All trees.
pub(super) const SHAPES: &[Shape] = &[
    Shape {
        name: "root",
        entries: 15_000,
        fill: root,
    },
    Shape {
        name: "tree",
        entries: 100_000,
        fill: small,
    },
    Shape {
        name: "flat",
        entries: 500_000,
        fill: flat,
    },
    Shape {
        name: "large",
        entries: 1000,
        fill: large,
    },
];

/// A tree, and an archive of it.
pub(crate) struct MadeTree {
    dir: TempDir,
    entries: u64,
    inodes: u64,
    mib: u64,
}

impl MadeTree {
    /// Makes a tree.
    pub(super) fn make(shape: &Shape, size: Size) -> Result<MadeTree> {
        let entries = match size {
            Size::Tiny => 60,
            Size::Quick => shape.entries / 10,
            Size::Usual | Size::Full => shape.entries,
        };
        let dir = TempDir::new("source")?;
        let folder = dir.join("tree");
        fs::create_dir(&folder)?;
        (shape.fill)(&folder, entries)?;
        let tar = Cmd::new("tar").args(["--format=pax", "--sparse", "-cf"]);
        let tar = tar.arg(dir.join("tree.tar")).arg("-C").arg(&folder);
        tar.arg(".").ok()?;
        let usage = Cmd::new("du").args(["-sm", "--apparent-size"]).arg(&folder);
        let words = match shape.name {
            "large" => Cmd::new("du").arg("-sm").arg(&folder).ok()?.out,
            _ => usage.ok()?.out,
        };
        let mib: u64 = words.split_whitespace().next().unwrap_or("0").parse()?;
        let inodes = u64::from(entries) + 1000;
        Ok(MadeTree {
            dir,
            entries: entries_below(&folder)?,
            inodes,
            // Half a block for each file, its inode, and a journal.
            mib: mib + mib / 20 + inodes * (4096 + 256) / (1 << 20) + 200,
        })
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.dir.join("tree")
    }

    pub(super) fn archive(&self) -> PathBuf {
        self.dir.join("tree.tar")
    }

    /// Files, directories and links of the tree.
    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    /// Inodes that a volume needs.
    pub(super) fn inodes(&self) -> u64 {
        self.inodes
    }

    /// MiB that a volume needs.
    pub(super) fn mib(&self) -> u64 {
        self.mib
    }

    /// The same as mke2fs takes it.
    pub(super) fn size(&self) -> String {
        format!("{}M", self.mib)
    }
}

/// Counts what is below a directory.
fn entries_below(dir: &Path) -> Result<u64> {
    let mut entries = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        entries += 1;
        if entry.file_type()?.is_dir() {
            entries += entries_below(&entry.path())?;
        }
    }
    Ok(entries)
}

/// A tree like the root of a small Debian: 670 MiB in 15,000 entries.
fn root(top: &Path, entries: u32) -> Result<()> {
    spread(top, entries, |rng| match rng.below(100) {
        0..=59 => rng.between(200, 4000),
        60..=89 => rng.between(4000, 60_000),
        90..=98 => rng.between(60_000, 500_000),
        _ => rng.between(500_000, 3_500_000),
    })
}

/// Many small files in a tree.
fn small(top: &Path, entries: u32) -> Result<()> {
    spread(top, entries, |rng| rng.between(100, 4000))
}

/// Files of the sizes that `size` says, in a tree: one entry in twelve is a directory, one in
/// twelve a link.
fn spread(top: &Path, entries: u32, size: impl Fn(&mut Rng) -> u64) -> Result<()> {
    let mut rng = Rng::new(20_261_122);
    let mut dirs = vec![top.to_path_buf()];
    for number in 0..entries {
        let path = dirs[rng.index(dirs.len())].join(format!("entry-{number}"));
        match number % 12 {
            0 => {
                fs::create_dir(&path)?;
                dirs.push(path);
            }
            1 => symlink(format!("entry-{}", number + 1), path)?,
            _ => {
                let len = usize::try_from(size(&mut rng))?;
                fs::write(path, content::fill(number.into(), 0, len))?;
            }
        }
    }
    Ok(())
}

/// Small files in one directory.
fn flat(top: &Path, entries: u32) -> Result<()> {
    for number in 0..entries {
        fs::write(top.join(format!("file-{number}")), format!("{number}\n"))?;
    }
    Ok(())
}

/// One file of so many pieces of 1 MiB, with holes of 9 MiB between.
fn large(top: &Path, pieces: u32) -> Result<()> {
    const MIB: usize = 1 << 20;
    let file = File::create(top.join("large"))?;
    for piece in 0..u64::from(pieces) {
        let bytes = content::fill(piece, 0, MIB);
        file.write_all_at(&bytes, piece * 10 * MIB as u64)?;
    }
    file.set_len(u64::from(pieces) * 10 * MIB as u64)?;
    Ok(())
}
