//! Sound images to start from: small, made by mke2fs with many feature sets, filled by Extant.
//!
//! They are made once per process, or read from the folder `extant-seeds` beside the executable
//! ([`save`]). Nothing of them is kept in the repository: what they hold
//! depends on the mke2fs of the machine, and a recipe of a corpus gives another hostile image where
//! another mke2fs is at work. UUID, hash seed and clock are fixed, so that the same mke2fs makes
//! the same image.

mod contexts;
mod fill;
mod kept;
mod log;

pub(crate) use self::fill::tuning;

use std::path::Path;
use std::sync::OnceLock;

use extant_testkit::mutate::{Kind, Map};
use extant_testkit::{Cmd, Result, TempDir};

/// A sound image.
pub struct Seed {
    /// Name of the image.
    pub name: &'static str,
    /// Its bytes.
    pub image: Vec<u8>,
    /// Its structures.
    pub map: Map,
    /// True if it is mounted at all; the others are refused for a feature.
    pub mounts: bool,
    /// True if a mount writes it.
    pub is_written: bool,
}

impl Seed {
    /// Returns whether it has a structure of this kind.
    pub fn has(&self, kind: Kind) -> bool {
        self.map.kinds().contains(&kind)
    }
}

/// Treatment of a fresh image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Nothing.
    Leave,
    /// It is filled and unmounted; so many names in the largest directory.
    Fill(u32),
    /// It is filled and copied while transactions wait in its log and orphans for their end.
    Dirty,
    /// debugfs writes a log: copies and revoke records, checksums as given.
    Log(&'static str),
    /// The fast-commit area gets records.
    FastCommit,
    /// A part of its tree gets encryption contexts.
    Encrypt,
    /// A small file gets the first block of a large one.
    Share,
}

struct Shape {
    name: &'static str,
    kib: u64,
    args: &'static str,
    then: Then,
    mounts: bool,
}

const fn shape(name: &'static str, kib: u64, args: &'static str, then: Then) -> Shape {
    Shape {
        name,
        kib,
        args,
        then,
        mounts: true,
    }
}

const fn refused(name: &'static str, kib: u64, args: &'static str) -> Shape {
    Shape {
        name,
        kib,
        args,
        then: Then::Leave,
        mounts: false,
    }
}

/// New ones go to the end: recipes choose by number.
const SHAPES: &[Shape] = &[
    shape("1k", 1024, "-b 1024 -N 96 -O ^has_journal", Then::Fill(500)),
    shape("4k", 1536, "-b 4096 -N 96 -O ^has_journal", Then::Fill(40)),
    shape(
        "2k, small inodes",
        1024,
        "-b 2048 -N 96 -I 128 -O ^has_journal",
        Then::Fill(40),
    ),
    shape(
        "crc16",
        1024,
        "-b 1024 -N 96 -O ^has_journal,^metadata_csum,uninit_bg",
        Then::Fill(40),
    ),
    shape(
        "no checksums",
        1024,
        "-b 1024 -N 96 -O ^has_journal,^metadata_csum,^64bit,^flex_bg",
        Then::Fill(40),
    ),
    shape(
        "many groups",
        1024,
        "-b 1024 -g 256 -N 128 -O ^has_journal,^resize_inode",
        Then::Fill(40),
    ),
    shape(
        "two backups, seed stored",
        1024,
        "-b 1024 -g 256 -N 128 -O ^has_journal,^resize_inode,sparse_super2,metadata_csum_seed",
        Then::Fill(40),
    ),
    shape(
        "large inodes",
        1024,
        "-b 1024 -N 64 -I 1024 -O ^has_journal",
        Then::Fill(40),
    ),
    shape("log, waiting", 2304, "-b 1024 -N 96", Then::Dirty),
    shape(
        "log and orphan file, waiting",
        2304,
        "-b 1024 -N 96 -O orphan_file",
        Then::Dirty,
    ),
    shape(
        "log without checksums, waiting",
        2304,
        "-b 1024 -N 96 -O ^metadata_csum,^64bit",
        Then::Dirty,
    ),
    shape(
        "log by debugfs, v3",
        2304,
        "-b 1024 -N 64",
        Then::Log("-c -v 3"),
    ),
    shape(
        "log by debugfs, v2",
        2304,
        "-b 1024 -N 64",
        Then::Log("-c -v 2"),
    ),
    shape(
        "log by debugfs, none",
        2304,
        "-b 1024 -N 64 -O ^64bit",
        Then::Log(""),
    ),
    shape(
        "fast commits",
        2304,
        "-b 1024 -N 64 -O fast_commit",
        Then::FastCommit,
    ),
    shape(
        "block maps",
        1024,
        "-b 1024 -N 96 -O ^has_journal,^extent,^64bit",
        Then::Leave,
    ),
    shape(
        "clusters",
        1024,
        "-b 1024 -N 64 -O ^has_journal,bigalloc -C 4096",
        Then::Leave,
    ),
    shape(
        "groups of clusters",
        2304,
        "-b 1024 -g 256 -N 96 -O ^has_journal,^resize_inode,meta_bg,bigalloc -C 2048",
        Then::Leave,
    ),
    shape(
        "quota",
        1024,
        "-b 1024 -N 64 -O ^has_journal,quota,project",
        Then::Leave,
    ),
    shape(
        "meta_bg",
        1024,
        "-b 1024 -g 256 -N 64 -O ^has_journal,^resize_inode,meta_bg",
        Then::Leave,
    ),
    shape(
        "inline data",
        1024,
        "-b 1024 -N 64 -O ^has_journal,inline_data",
        Then::Leave,
    ),
    shape(
        "folded case",
        1024,
        "-b 1024 -N 64 -O ^has_journal,casefold",
        Then::Leave,
    ),
    shape(
        "16k",
        3584,
        "-b 16384 -N 96 -O ^has_journal",
        Then::Fill(150),
    ),
    refused("journal device", 2048, "-b 1024 -O journal_dev"),
    shape("64k", 4096, "-b 65536 -N 64 -O ^has_journal", Then::Leave),
    shape(
        "meta groups",
        5120,
        "-b 1024 -g 256 -N 160 -O ^has_journal,^resize_inode,meta_bg",
        Then::Fill(40),
    ),
    shape(
        "values of attributes",
        1024,
        "-b 1024 -N 64 -O ^has_journal,ea_inode",
        Then::Fill(20),
    ),
    shape(
        "encrypted",
        1024,
        "-b 1024 -N 64 -O ^has_journal,^metadata_csum,encrypt",
        Then::Encrypt,
    ),
    shape("shared blocks", 2304, "-b 1024 -N 64", Then::Share),
];

/// Every seed, made at the first call.
///
/// # Panics
/// Without mke2fs and debugfs, or if Extant cannot fill an image.
pub fn all() -> &'static [Seed] {
    static ALL: OnceLock<Vec<Seed>> = OnceLock::new();
    ALL.get_or_init(|| {
        let folder = kept::folder();
        let made = SHAPES.iter().enumerate().map(|(number, shape)| {
            let image = match &folder {
                Some(folder) => kept::read(folder, number),
                None => make(shape),
            };
            let image = image.unwrap_or_else(|why| panic!("seed {:?}: {why:?}", shape.name));
            Seed {
                name: shape.name,
                map: Map::of(&image),
                image,
                mounts: shape.mounts,
                is_written: shape.mounts && shape.then != Then::Share,
            }
        });
        made.collect()
    })
}

/// Writes all of them to a folder.
///
/// # Errors
/// A file cannot be written.
pub fn save(folder: &Path) -> Result<()> {
    let mut all = all().iter().enumerate();
    all.try_for_each(|(number, seed)| kept::write(folder, number, &seed.image))
}

fn make(shape: &Shape) -> Result<Vec<u8>> {
    let dir = TempDir::new("seed")?;
    let path = dir.join("disk.img");
    std::fs::File::create(&path)?.set_len(shape.kib << 10)?;
    let tree = dir.join("tree");
    let is_tree_of_tools = matches!(shape.then, Then::Leave | Then::Encrypt | Then::Share);
    if is_tree_of_tools && shape.mounts {
        // What Extant mounts read-only is filled by mke2fs.
        fill::tree(&tree)?;
        if shape.then == Then::Encrypt {
            contexts::tree(&tree)?;
        }
    } else {
        std::fs::create_dir(&tree)?;
    }
    Cmd::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4"])
        .args(shape.args.split_whitespace())
        .args(["-U", "e7a17000-0000-4000-8000-00000000f022"])
        .args(["-E", "hash_seed=e7a17000-0000-4000-8000-00000000f023"])
        .arg("-d")
        .arg(&tree)
        .arg(&path)
        .env("E2FSPROGS_FAKE_TIME", "1700000000")
        .env("MKE2FS_FIRST_META_BG", "0")
        .ok()?;
    if shape.then == Then::Share {
        fill::share(&path)?;
    }
    if shape.args.contains("quota") || shape.then == Then::Share {
        // mke2fs counts before it copies the tree, and debugfs frees no block.
        Cmd::new("e2fsck")
            .args(["-fy"])
            .arg(&path)
            .env("E2FSCK_TIME", "1700000000")
            .env("E2FSPROGS_FAKE_TIME", "1700000000")
            .run()?;
    }
    let fresh = || -> Result<Vec<u8>> { Ok(std::fs::read(&path)?) };
    match shape.then {
        Then::Leave | Then::Share => fresh(),
        Then::Fill(names) => fill::filled(fresh()?, names),
        Then::Dirty => fill::dirty(fresh()?),
        Then::Log(checksums) => log::by_debugfs(&path, &dir, checksums),
        Then::FastCommit => log::fast_commits(fresh()?),
        Then::Encrypt => contexts::written(&path, &dir),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use extant::{CheckOptions, Error, Filesystem, check};
    use extant_testkit::{Need, need};

    /// A seed that is damaged or refused already would hide what the mutations do.
    #[test]
    fn seeds_are_sound_and_have_every_structure() {
        if !need(&[Need::Tool("mke2fs"), Need::Tool("debugfs")]) {
            return;
        }
        for seed in all() {
            let disk = || Arc::new(crate::disk::Disk::new(seed.image.clone(), false));
            let mounted = Filesystem::options().open_device(disk());
            let refused = mounted.as_ref().err().map(ToString::to_string);
            assert_eq!(refused.is_none(), seed.mounts, "{}: {refused:?}", seed.name);
            if seed.mounts {
                let report = check(disk(), &CheckOptions::default());
                let clean = match &report {
                    Ok(report) => report.is_clean(),
                    Err(error) => matches!(error, Error::UnsupportedFeature(_)),
                };
                assert!(clean, "{}: {report:?}", seed.name);
            }
        }
        let kinds = |kind| all().iter().filter(|seed| seed.has(kind)).count();
        for kind in [
            Kind::Superblock,
            Kind::Backup,
            Kind::Descriptor,
            Kind::BlockBitmap,
            Kind::InodeBitmap,
            Kind::Inode,
            Kind::ExtentRoot,
            Kind::ExtentNode,
            Kind::Indirect,
            Kind::DirLeaf,
            Kind::DirRoot,
            Kind::DirNode,
            Kind::XattrArea,
            Kind::XattrBlock,
            Kind::OrphanBlock,
            Kind::QuotaHeader,
            Kind::QuotaNode,
            Kind::QuotaEntries,
            Kind::JournalSuper,
            Kind::JournalDescriptor,
            Kind::JournalRevoke,
            Kind::JournalCommit,
            Kind::JournalCopy,
            Kind::FastCommit,
        ] {
            assert!(kinds(kind) > 0, "no seed has a {kind:?}");
        }
    }
}
