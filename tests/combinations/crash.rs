//! Copies of images that are mounted, as a power cut would leave them: the other side replays one,
//! and shows what was fsynced.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use extant_testkit::content::hash_file;
use extant_testkit::{Cmd, Context, Error, Image, Mount, Result, Rng, Subject, ensure, tools};

use crate::draw::Combination;
use crate::volume::{Key, repair_after_linux};

/// Files that are fsynced, at most.
const PROMISES: usize = 8;

/// Fast commits of Linux that Extant does not replay (`docs/COMPATIBILITY.md`).
const REFUSALS: [&str; 2] = [
    "fast commits of a file without extents",
    "fast commits in a directory inside of its inode, or with encrypted names",
];

/// How a replay went.
pub(super) enum Replay {
    /// There was nothing to replay.
    Empty,
    /// It was refused, as documented.
    Refused,
    /// It showed what was fsynced, but for so many files that its own side lost as well.
    Done { lost: usize },
}

/// A copy of an image that was mounted, and files that it must have.
pub(super) struct Crashed {
    image: Image,
    by: Subject,
    promises: Vec<(PathBuf, u64)>,
}

impl Crashed {
    /// Fsyncs some files of the mount, and copies the image behind it.
    pub(super) fn after(
        (by, mount): (Subject, &Mount),
        image: &Image,
        files: &[PathBuf],
        rng: &mut Rng,
    ) -> Result<Self> {
        let mut promises = Vec::new();
        for _ in 0..PROMISES.min(files.len()) {
            let path = &files[rng.index(files.len())];
            let hash = hash_file(path)?;
            File::open(path)?.sync_all()?;
            promises.push((path.strip_prefix(mount.dir())?.to_owned(), hash));
        }
        // A commit in the background may pass between two parts of a copy: two equal ones saw none.
        let mut copy = image.copy()?;
        for attempt in 0.. {
            let again = image.copy()?;
            if again.fingerprint()? == copy.fingerprint()? {
                break;
            }
            ensure!(attempt < 50, "the image does not come to rest");
            copy = again;
        }
        let image = copy;
        Ok(Self {
            image,
            by,
            promises,
        })
    }

    /// Has the other side replay it.
    pub(super) fn replayed_by(
        self,
        other: Subject,
        drawn: &Combination,
        key: &Key,
    ) -> Result<Replay> {
        let waits = self.image.needs_recovery()?;
        let own = self.image.copy()?;
        let told = || format!("{}'s crash, replayed by {}", self.by.name(), other.name());
        let refused = |error: &Error| {
            let text = error.to_string();
            other == Subject::Extant && REFUSALS.iter().any(|refusal| text.contains(refusal))
        };
        let broken = match self.broken_by(other, &self.image, (drawn, key)) {
            Err(error) if refused(&error) => return Ok(Replay::Refused),
            broken => broken.context(told)?,
        };
        if !broken.is_empty() {
            // Linux loses what was fsynced inside of an inode: its own replay does not show it.
            let by_itself = self.broken_by(self.by, &own, (drawn, key))?;
            ensure!(
                self.by == Subject::Ext4 && by_itself == broken,
                "{}: not as fsynced: {broken:?}; after its own replay: {by_itself:?}",
                told()
            );
        }
        self.judge(other, drawn).context(told)?;
        Ok(match (waits, broken.len()) {
            (false, _) => Replay::Empty,
            (true, lost) => Replay::Done { lost },
        })
    }

    /// Mounts a copy, and unmounts it again; the files that are not as they were fsynced.
    fn broken_by(
        &self,
        side: Subject,
        image: &Image,
        (drawn, key): (&Combination, &Key),
    ) -> Result<BTreeSet<PathBuf>> {
        let mount = key.mount(side, image.path(), (drawn, ""))?;
        let mut broken = BTreeSet::new();
        for (path, hash) in &self.promises {
            if !hash_file(&mount.join(path)).is_ok_and(|shown| shown == *hash) {
                broken.insert(path.clone());
            }
        }
        mount.unmount()?;
        Ok(broken)
    }

    fn judge(&self, other: Subject, drawn: &Combination) -> Result<()> {
        match other == Subject::Ext4 && drawn.has("fast_commit") {
            // Other repairs are for what Linux is known to leave.
            true if drawn.has("ea_inode") || drawn.has("^filetype") => {
                self.image.fsck_repair()?;
            }
            true => self.image.fsck_clean_but_for_directories()?,
            false => repair_after_linux(&self.image, drawn).map(drop)?,
        }
        let check = Cmd::new(tools::extant()?).arg("check");
        check.arg(self.image.path()).ok().map(drop)
    }
}

/// The fast commits that a mount has made, as it says itself.
pub(super) fn fast_commits(side: Subject, mount: &Mount) -> Result<u64> {
    let count = match side {
        Subject::Ext4 => {
            let table = std::fs::read_to_string("/proc/self/mountinfo")?;
            let of_mount = |line: &&str| line.split(' ').nth(4).map(Path::new) == Some(mount.dir());
            let line = table.lines().find(of_mount).unwrap_or_default();
            let device = line.split(' ').find_map(|word| word.strip_prefix("/dev/"));
            let info = Path::new("/proc/fs/ext4").join(device.unwrap_or_default());
            let said = std::fs::read_to_string(info.join("fc_info"))?;
            let line = said.lines().find_map(|line| line.strip_suffix(" commits"));
            line.and_then(|count| count.trim().parse().ok())
        }
        _ => {
            let said = Cmd::new(tools::extant()?)
                .arg("stats")
                .arg(mount.dir())
                .ok()?
                .out;
            let mut words = said
                .split_whitespace()
                .skip_while(|word| *word != "fast_commits");
            words.nth(1).and_then(|count| count.parse().ok())
        }
    };
    Ok(count.unwrap_or(0))
}
