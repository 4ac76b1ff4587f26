//! Images: made by `mke2fs`, judged by `e2fsck`, looked into with `debugfs`.

use crate::{Cmd, Context, Result, TempDir, bail, cmd::Output, content, ensure};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// An image file in a directory of its own.
#[derive(Debug)]
pub struct Image {
    _dir: TempDir,
    path: PathBuf,
    /// The device of its journal, if that is not in it.
    journal: Option<PathBuf>,
}

/// How an image is to be made.
#[derive(Clone, Debug)]
pub struct Maker {
    size: u64,
    args: Vec<String>,
    junk: bool,
    below: Option<PathBuf>,
    /// Bytes that resize2fs shrinks it to afterwards.
    shrunk: Option<u64>,
}

impl Maker {
    /// Adds arguments to mke2fs's command line, split at spaces.
    #[must_use]
    pub fn args(mut self, args: &str) -> Maker {
        self.args.extend(args.split_whitespace().map(str::to_owned));
        self
    }

    /// Fills the device with [`content::JUNK`] first, so that a stale byte shows.
    #[must_use]
    pub fn junk(mut self) -> Maker {
        self.junk = true;
        self
    }

    /// Makes it below `dir`, rather than where temporary directories are.
    #[must_use]
    pub fn below(mut self, dir: &Path) -> Maker {
        self.below = Some(dir.to_owned());
        self
    }

    /// Makes a file of its size with no file system in it.
    pub fn empty(&self) -> Result<Image> {
        let dir = match &self.below {
            None => TempDir::new("image")?,
            Some(below) => TempDir::new_in(below, "image")?,
        };
        let path = dir.join("disk.img");
        let f = File::create(&path).context(|| path.display())?;
        f.set_len(self.size)?;
        Ok(Image::in_dir(dir, path))
    }

    /// Makes it.
    pub fn make(self) -> Result<Image> {
        let image = self.empty()?;
        if self.junk {
            let mut f = File::options().write(true).open(image.path())?;
            let chunk = vec![content::JUNK; 1 << 20];
            for _ in 0..self.size.div_ceil(1 << 20) {
                f.write_all(&chunk)?;
            }
            f.set_len(self.size)?;
        }
        let mut mke2fs = Cmd::new("mke2fs").args(["-q", "-F"]);
        if !self.args.iter().any(|arg| arg == "-t") {
            mke2fs = mke2fs.args(["-t", "ext4"]);
        }
        if self.junk {
            mke2fs = mke2fs.args(["-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"]);
        }
        mke2fs.args(&self.args).arg(image.path()).ok()?;
        if let Some(size) = self.shrunk {
            let mib = format!("{}M", size >> 20);
            let resize2fs = Cmd::new("resize2fs").arg("-f").arg(image.path());
            resize2fs.arg(&mib).ok()?;
            File::options()
                .write(true)
                .open(image.path())?
                .set_len(size)?;
        }
        Ok(image)
    }
}

/// Parts of questions of e2fsck that are no findings: of maps that could be smaller, of the number
/// that the device of a journal has at the moment, of totals in the superblock, which a replay
/// alone leaves as they were, and of times that a test chose.
const NO_FINDINGS: [&str; 5] = [
    "Optimize? no",
    "hint for external superblock",
    "Free blocks count wrong (",
    "Free inodes count wrong (",
    "is in the future.",
];

/// Returns whether e2fsck asked about a finding. A question may begin on the line before.
fn asks(said: &str) -> bool {
    let lines = std::iter::once("").chain(said.lines());
    lines.zip(said.lines()).any(|(before, line)| {
        let begins = if line == "Fix? no" { before } else { line };
        line.contains("? no") && !NO_FINDINGS.iter().any(|part| begins.contains(part))
    })
}

impl Image {
    /// A sparse image of `mib` MiB, as `mke2fs -t ext4` makes it by default.
    pub fn of_mib(mib: u64) -> Maker {
        Image::of_kib(mib << 10)
    }

    /// The same of `kib` KiB.
    pub fn of_kib(kib: u64) -> Maker {
        Maker {
            size: kib << 10,
            args: Vec::new(),
            junk: false,
            below: None,
            shrunk: None,
        }
    }

    /// An image of blocks of `block` bytes with a small journal and `mib` MiB beside it. A journal
    /// has 1024 blocks at least, and mke2fs wants a volume of twice as many: resize2fs shrinks one
    /// that would be smaller.
    pub fn beside_journal(block: u64, mib: u64) -> Maker {
        let journal = (block >> 10).max(4);
        let (size, whole) = (journal + mib, 2 * journal + mib);
        let shrinks = mib < journal + journal / 8;
        let maker = Image::of_mib(if shrinks { whole } else { size });
        let maker = maker.args(&format!("-b {block} -J size={journal}"));
        Maker {
            shrunk: shrinks.then_some(size << 20),
            ..maker
        }
    }

    /// An image of `mib` MiB, made with `args` of mke2fs. One of blocks larger than 4 KiB has a
    /// journal as a smaller one would have, and is larger by as much.
    pub fn with_args(mib: u64, args: &str) -> Maker {
        let mut words = args.split_whitespace();
        let block = words.find(|word| *word == "-b").and_then(|_| words.next());
        let block = block.and_then(|size| size.parse().ok());
        let maker = match block.filter(|_| !args.contains("^has_journal")) {
            Some(block @ 4097..) => Image::beside_journal(block, mib.saturating_sub(4)),
            _ => Image::of_mib(mib),
        };
        maker.args(args)
    }

    /// An image whose bytes the caller provides (bad ones, mostly).
    pub fn of_bytes(bytes: &[u8]) -> Result<Image> {
        let dir = TempDir::new("image")?;
        let path = dir.join("disk.img");
        std::fs::write(&path, bytes)?;
        Ok(Image::in_dir(dir, path))
    }

    fn in_dir(dir: TempDir, path: PathBuf) -> Image {
        Image {
            _dir: dir,
            path,
            journal: None,
        }
    }

    /// The same image, for which e2fsck is given the journal in the file or device `journal`.
    #[must_use]
    pub fn with_journal(self, journal: &Path) -> Image {
        Image {
            journal: Some(journal.to_owned()),
            ..self
        }
    }

    /// The path of the image.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A copy as of now, holes kept.
    pub fn copy(&self) -> Result<Image> {
        let dir = TempDir::new("image")?;
        let path = dir.join("disk.img");
        Cmd::new("cp")
            .arg("--sparse=always")
            .arg(&self.path)
            .arg(&path)
            .ok()?;
        Ok(Image::in_dir(dir, path))
    }

    /// A hash of all its bytes: "nothing was written" is provable.
    pub fn fingerprint(&self) -> Result<u64> {
        content::hash_file(&self.path)
    }

    /// Changes bytes at `at` through `change`.
    pub fn patch(&self, at: u64, len: usize, change: impl FnOnce(&mut [u8])) -> Result<()> {
        use std::os::unix::fs::FileExt;
        let f = File::options().read(true).write(true).open(&self.path)?;
        let mut bytes = vec![0; len];
        f.read_exact_at(&mut bytes, at)
            .context(|| format!("image at {at}"))?;
        change(&mut bytes);
        f.write_all_at(&bytes, at)?;
        Ok(())
    }

    /// `len` bytes at `at`.
    pub fn bytes(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.patch(at, len, |b| out.extend_from_slice(b))?;
        Ok(out)
    }

    /// `e2fsck -fn` finds nothing: exit 0.
    pub fn fsck_clean(&self) -> Result<()> {
        Self::is_clean(self.e2fsck("-fn"))
    }

    fn e2fsck(&self, how: &str) -> Cmd {
        let journal = self.journal.iter();
        let journal = journal.flat_map(|path| [OsStr::new("-j"), path.as_os_str()]);
        Cmd::new("e2fsck").arg(how).args(journal).arg(&self.path)
    }

    /// The same of an image that is not this kit's.
    pub fn fsck_clean_at(path: &Path) -> Result<()> {
        Self::is_clean(Cmd::new("e2fsck").arg("-fn").arg(path))
    }

    fn is_clean(e2fsck: Cmd) -> Result<()> {
        let o = e2fsck.run()?;
        // Some questions leave the status at 0.
        let clean = o.code == Some(0) && !asks(&o.out);
        ensure!(clean, "not clean: {}", o.describe());
        // With -n a journal that needs recovery is passed over with a warning only.
        ensure!(
            !o.err.contains("skipping journal recovery"),
            "journal is dirty: {}",
            o.describe()
        );
        Ok(())
    }

    /// e2fsck finds nothing after a replay of fast commits by Linux, but for what that leaves out:
    /// it adds the names by itself, and does not count the blocks by which it makes a directory
    /// larger. So it does with its own logs.
    pub fn fsck_clean_but_for_directories(&self) -> Result<()> {
        let repaired = self.fsck_repair()?;
        for line in repaired.out.lines().filter(|line| line.contains("? yes")) {
            let count = line.strip_prefix("Inode ");
            let count = count.and_then(|rest| rest.split_once(", i_blocks is "));
            let stat = match count {
                Some((ino, _)) => self.debugfs(&format!("stat <{ino}>"))?,
                None => String::new(),
            };
            ensure!(stat.contains("Type: directory"), "{}", repaired.describe());
        }
        self.fsck_clean()
    }

    /// Lets e2fsck replay the journal and finish orphans, and accepts no other repair.
    pub fn fsck_replay(&self) -> Result<()> {
        let o = self.e2fsck("-fp").run()?;
        ensure!(
            matches!(o.code, Some(0 | 1)),
            "e2fsck could not replay: {}",
            o.describe()
        );
        // e2fsck 1.47 finishes the orphans of an orphan file and then finds the file not empty, or
        // the mark that it may not be, on two lines; it does so to Linux's images as well.
        let not_empty = |line: &str| {
            (line.contains("Orphan file (inode") && line.ends_with("is not clean."))
                || line.ends_with("Feature orphan_present is set but orphan file is clean.")
        };
        // It takes the block of attributes from an orphan that it truncates, and counts it on.
        let miscounted = |line: &str| {
            let rest = line.split_once(": Inode ").map_or("", |(_, rest)| rest);
            let number = rest.split(',').next();
            let cut = |number| format!("Truncating orphaned inode {number} (");
            line.contains(", i_blocks is ") && number.is_some_and(|n| o.out.contains(&cut(n)))
        };
        // It deletes an orphan, whose attributes have values in inodes of their own, and counts the
        // users of these on.
        let counted_on = |line: &str| {
            line.contains("Extended attribute inode ")
                && line.contains(" ref count is ")
                && o.out.contains("Clearing orphaned inode ")
        };
        let mut before = "";
        let repairs: Vec<&str> = o
            .out
            .lines()
            .filter(|&line| {
                let second = not_empty(std::mem::replace(&mut before, line));
                let of_file = not_empty(line) || (second && line.trim() == "CLEARED.");
                !is_ordinary(line) && !of_file && !miscounted(line) && !counted_on(line)
            })
            .collect();
        ensure!(
            repairs.is_empty(),
            "e2fsck had to repair: {}\n{}",
            repairs.join("\n"),
            o.describe()
        );
        Ok(())
    }

    /// Lets e2fsck repair whatever it finds; what it said.
    pub fn fsck_repair(&self) -> Result<Output> {
        self.e2fsck("-fy").run()
    }

    /// One debugfs request, read-only; its answer.
    pub fn debugfs(&self, request: &str) -> Result<String> {
        self.ask_debugfs(&[], request)
    }

    /// The same of an image whose journal waits for a replay. Until then the bitmaps on the device
    /// may be newer or older than the group descriptors that hold their checksums, so they are not
    /// read.
    pub fn debugfs_as_it_is(&self, request: &str) -> Result<String> {
        self.ask_debugfs(&["-c"], request)
    }

    /// One debugfs request with write access; its answer.
    pub fn debugfs_write(&self, request: &str) -> Result<String> {
        self.ask_debugfs(&["-w"], request)
    }

    fn ask_debugfs(&self, how: &[&str], request: &str) -> Result<String> {
        let debugfs = Cmd::new("debugfs").args(how).args(["-R", request]);
        let output = debugfs.arg(&self.path).ok()?;
        // It exits with success even if it could not open the image.
        ensure!(
            !output.err.contains("Filesystem not open"),
            "debugfs cannot open it: {}",
            output.describe()
        );
        Ok(output.out)
    }

    /// Has the root directory of a volume with `casefold` fold names, as those made in it then do.
    pub fn fold_root(&self) -> Result<()> {
        let extents_and_casefold = 0x4008_0000;
        let flags = format!("set_inode_field / flags {extents_and_casefold}");
        self.debugfs_write(&flags).map(drop)
    }

    /// A field of `dumpe2fs -h`, by its label.
    pub fn header(&self, label: &str) -> Result<String> {
        let text = Cmd::new("dumpe2fs").arg("-h").arg(&self.path).ok()?.out;
        let found = text
            .lines()
            .find_map(|l| l.strip_prefix(label)?.trim_start().strip_prefix(':'));
        match found {
            Some(v) => Ok(v.trim().to_owned()),
            None => bail!("dumpe2fs -h knows no {label:?}"),
        }
    }

    /// The block size in bytes.
    pub fn block_size(&self) -> Result<u64> {
        Ok(self.header("Block size")?.parse()?)
    }

    /// Returns whether the journal waits for a replay.
    pub fn needs_recovery(&self) -> Result<bool> {
        Ok(self
            .header("Filesystem features")?
            .contains("needs_recovery"))
    }
}

/// A line of `e2fsck -p` that belongs to an ordinary recovery.
fn is_ordinary(line: &str) -> bool {
    let ordinary = [
        "recovering journal",
        "Clearing orphaned inode",
        "Truncating orphaned inode",
        "Clearing orphan file",
        "could be shorter.  IGNORED",
        " files (",
        ": clean,",
    ];
    line.trim().is_empty() || ordinary.iter().any(|o| line.contains(o))
}
