//! Shared parts of the tests of `check`: small images of many feature sets, and both verdicts on
//! one.

// Each test binary uses a part of it.
#![allow(dead_code, reason = "shared by several test binaries")]

pub(crate) mod exceptions;
pub(crate) mod mutants;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use extant_blockdev::{FileDevice, OpenMode};
use extant_check::{CheckOptions, Error, Finding, check};
use extant_disk::damage::CorruptKind;
use extant_disk::superblock::Superblock;
use extant_jbd2::JournalError;
use extant_testkit::{Cmd, Image, Result, TempDir, bail, ensure, mutate};

/// A small feature set: name, size in MiB, arguments of mke2fs, and whether the journal keeps a
/// transaction.
pub(crate) type FeatureSet = (&'static str, u64, &'static str, bool);

/// Feature sets of volumes that are written.
pub(crate) const BASES: &[FeatureSet] = &[
    ("default", 4, "-b 1024 -N 160", false),
    (
        "ext3",
        4,
        "-b 1024 -N 160 -I 128 -O ^extent,^64bit,^metadata_csum,^flex_bg,^huge_file,^dir_nlink",
        false,
    ),
    (
        "groups",
        4,
        "-b 1024 -N 192 -g 1024 -O ^has_journal,^metadata_csum,uninit_bg,^resize_inode",
        false,
    ),
    (
        "checksummed groups",
        6,
        "-b 1024 -N 192 -g 1024 -O ^has_journal,^flex_bg",
        false,
    ),
    ("4k", 24, "-b 4096 -N 160 -J size=4 -O orphan_file", false),
    (
        "sparse_super2",
        4,
        "-b 2048 -N 256 -g 512 -I 512 \
         -O sparse_super2,^has_journal,^resize_inode,metadata_csum_seed",
        false,
    ),
    ("dirty", 4, "-b 1024 -N 160 -O ^64bit", true),
    (
        "casefold",
        4,
        "-b 1024 -N 160 -O casefold -E encoding=utf8,encoding_flags=strict",
        false,
    ),
    // Two meta groups.
    (
        "meta_bg",
        6,
        "-b 1024 -N 384 -g 256 -O meta_bg,^resize_inode,^has_journal",
        false,
    ),
    (
        "inline_data",
        4,
        "-b 1024 -N 160 -I 512 -O inline_data,^metadata_csum",
        false,
    ),
    (
        "ea_inode",
        4,
        "-b 1024 -N 160 -O ea_inode,large_dir,^metadata_csum",
        false,
    ),
    ("quota", 4, "-b 1024 -N 160 -O quota,project", false),
    (
        "quota of values",
        4,
        "-b 2048 -N 160 -O quota,ea_inode,^has_journal,^extent,^64bit -E quotatype=usrquota",
        false,
    ),
];

/// Feature sets of volumes that are written, with blocks larger than a page.
pub(crate) const LARGE_BLOCKS: &[FeatureSet] = &[
    (
        "8k",
        8,
        "-b 8192 -N 160 -O ^has_journal,^metadata_csum,uninit_bg,^extent,^64bit",
        false,
    ),
    (
        "16k dirty",
        40,
        "-b 16384 -N 160 -J size=16 -O orphan_file",
        true,
    ),
    ("32k", 20, "-b 32768 -N 192 -g 256 -O ^has_journal", false),
    ("64k", 16, "-b 65536 -N 160 -O ^has_journal", false),
];

/// Feature sets of volumes that are only read.
pub(crate) const READ_ONLY: &[FeatureSet] = &[
    (
        "encrypt",
        4,
        "-b 1024 -N 160 -O casefold,encrypt,verity \
         -E encoding=utf8,hash_seed=6b1dd4d5-0d5c-4f11-9d5e-0a3f3c5c2b11",
        false,
    ),
    // The feature is set once files share blocks: mke2fs does not know it.
    (
        "shared blocks",
        4,
        "-b 1024 -N 160 -O orphan_file,shared_blocks",
        false,
    ),
];

/// Feature sets of volumes with clusters.
pub(crate) const CLUSTERS: &[FeatureSet] = &[
    ("bigalloc", 8, "-b 1024 -N 160 -O bigalloc -C 4096", false),
    // Here `-g` counts clusters.
    (
        "bigalloc, groups",
        16,
        "-b 1024 -N 320 -g 1024 -C 4096 -O bigalloc,resize_inode,metadata_csum,^has_journal",
        false,
    ),
    (
        "bigalloc, quota",
        8,
        "-b 1024 -N 160 -O quota,project,bigalloc -C 4096",
        false,
    ),
    (
        "bigalloc, orphan file",
        12,
        "-b 1024 -N 160 -O bigalloc,orphan_file,^metadata_csum -C 8192",
        false,
    ),
];

/// A volume that is not mutated: e2fsck 1.47 may run for minutes where it gives all groups new
/// bitmaps and tables.
pub(crate) const SPREAD_CLUSTERS: FeatureSet = (
    "bigalloc, meta_bg",
    18,
    "-b 1024 -N 320 -g 256 -C 4096 \
     -O bigalloc,meta_bg,^resize_inode,^metadata_csum,uninit_bg,^has_journal",
    false,
);

/// Owners of some files, and limits: in two blocks of entries.
const OWNERS: &str = "\
    sif file uid 1000\nsif file gid 100\nsif sub uid 70000\nsif sub gid 70000\n\
    sif tiny uid 4294967295\nsif big/a_rather_long_file_name_to_fill_blocks_1 uid 1001\n\
    sif big/a_rather_long_file_name_to_fill_blocks_2 uid 1002\n\
    sif big/a_rather_long_file_name_to_fill_blocks_3 uid 1003\n\
    sif big/a_rather_long_file_name_to_fill_blocks_4 uid 1004\n\
    sif big/a_rather_long_file_name_to_fill_blocks_5 uid 1005\n\
    sif big/a_rather_long_file_name_to_fill_blocks_6 uid 1006\n\
    sif big/a_rather_long_file_name_to_fill_blocks_7 uid 1007\n\
    sif big/a_rather_long_file_name_to_fill_blocks_8 uid 1008\n\
    sif big/a_rather_long_file_name_to_fill_blocks_9 uid 1009\n\
    sif big/a_rather_long_file_name_to_fill_blocks_10 uid 1010\n\
    sif big/a_rather_long_file_name_to_fill_blocks_11 uid 1011\n\
    sif big/a_rather_long_file_name_to_fill_blocks_12 uid 1012\n";

/// A base image: sound for both sides, with all kinds of structures: an index, an extent tree of
/// two levels or indirect blocks, attributes in inodes and blocks, links of all kinds, special
/// files.
pub(crate) fn base(mib: u64, args: &str, dirty: bool) -> Result<Image> {
    let tree = TempDir::new("tree")?;
    let make = |name: &str, bytes: &[u8]| std::fs::write(tree.join(name), bytes);
    for dir in ["sub", "sub/deep", "big", "empty"] {
        std::fs::create_dir(tree.join(dir))?;
    }
    make("file", &[7; 5000])?;
    make("tiny", b"tiny")?;
    std::fs::hard_link(tree.join("tiny"), tree.join("sub/deep/hard"))?;
    std::os::unix::fs::symlink("short", tree.join("fast"))?;
    std::os::unix::fs::symlink("z".repeat(100), tree.join("slow"))?;
    if args.contains("casefold") {
        for number in 0..20 {
            make(&format!("big/In_GROSSEN_Buchstaben_Ä_{number}"), b"")?;
        }
    }
    let block = block_size(args);
    crowd_and_sparse(&tree, block)?;
    let image = Image::of_mib(mib)
        .args(&args.replace(",shared_blocks", ""))
        .args("-d")
        .args(&tree.path().display().to_string())
        .make()?;
    let long = "v".repeat(300);
    let owners = if args.contains("quota") { OWNERS } else { "" };
    let requests = format!(
        "{owners}mknod fifo p\nmknod chr c 5 1\nmknod blk b 259 1000\nea_set file user.small abc\n\
         ea_set file user.long {long}\nea_set sub user.long {long}\nea_set tiny user.in abc\n"
    );
    script(&image, &requests)?;
    if args.contains("ea_inode") {
        let value = tree.join("value");
        std::fs::write(&value, [b'v'; 9000])?;
        let big = value.display();
        script(
            &image,
            &format!("ea_set -f {big} file user.big\nea_set -f {big} sub user.big\n"),
        )?;
    }
    if args.contains("casefold") {
        script(&image, "set_inode_field big flags 0x40080000\n")?;
    }
    if args.contains("shared_blocks") {
        share_blocks(&image)?;
    }
    // Indexes come from e2fsck; it also counts the special files' names.
    let made = Cmd::new("e2fsck").args(["-fyD"]).arg(image.path()).run()?;
    ensure!(matches!(made.code, Some(0 | 1)), "{}", made.describe());
    if dirty {
        let copy = std::fs::read(image.path())?;
        // The superblock's block as it is: a replay changes nothing but the time.
        let (path, len) = (tree.join("block"), usize::try_from(block)?);
        let number = 1024 / len;
        let bytes = copy.get(number * len..).and_then(|rest| rest.get(..len));
        std::fs::write(&path, bytes.unwrap_or_default())?;
        let path = path.display();
        script(&image, &format!("jo -c\njw -b {number} {path}\njc\n"))?;
    }
    let groups = group_count(&image)?;
    ensure!(groups > 1 || !args.contains("-g "), "{args}: one group");
    let verdict = verdict(image.path())?;
    ensure!(
        verdict.e2fsck_is_clean() && verdict.is_clean(),
        "the base is not clean: {verdict:?}"
    );
    Ok(image)
}

/// Gives three files blocks together.
fn share_blocks(image: &Image) -> Result<()> {
    let block = image.debugfs("bmap file 1")?;
    let (two, next) = (block.trim(), image.debugfs("bmap sparse 0")?);
    let shares = format!(
        "feature shared_blocks\nsif tiny block[5] {two}\n\
         sif big/a_rather_long_file_name_to_fill_blocks_1 block[0] 0x1f30a\n\
         sif big/a_rather_long_file_name_to_fill_blocks_1 block[4] 1\n\
         sif big/a_rather_long_file_name_to_fill_blocks_1 block[5] {}\n\
         sif big/a_rather_long_file_name_to_fill_blocks_1 size 700\n\
         sif big/a_rather_long_file_name_to_fill_blocks_1 blocks 2\n",
        next.trim()
    );
    script(image, &shares)
}

/// Names of files, in more than a block, and a file with a block here and there, so that the map
/// has levels.
fn crowd_and_sparse(tree: &TempDir, block: u64) -> Result<()> {
    // Files at first, then names of one of them, of which each name takes no inode.
    let name = |number| {
        tree.join(format!(
            "big/a_rather_long_file_name_to_fill_blocks_{number}"
        ))
    };
    for number in 0..90.max(block / 36) {
        match number {
            0..90 => std::fs::write(name(number), b"")?,
            _ => std::fs::hard_link(name(0), name(number))?,
        }
    }
    let sparse = std::fs::File::create(tree.join("sparse"))?;
    let stride = (1 << 14).max(2 * block);
    for piece in 0..30 {
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"x", piece * stride)?;
    }
    Ok(())
}

/// The groups of an image.
fn group_count(image: &Image) -> Result<u32> {
    let bytes = std::fs::read(image.path())?;
    let (bytes, _) = (bytes.get(1024..).unwrap_or_default())
        .split_first_chunk()
        .unwrap_or((&[0; 1024], &[]));
    Ok(Superblock::parse(bytes)?.group_count())
}

/// The size of the blocks that mke2fs makes with `args`.
fn block_size(args: &str) -> u64 {
    let mut words = args.split_whitespace();
    let named = words.find(|word| *word == "-b").and_then(|_| words.next());
    named.and_then(|size| size.parse().ok()).unwrap_or(1024)
}

/// Requests of debugfs. `{block N}` is replaced by a block of the journal, `{quota N}` by one of
/// the file of users' quotas, `{name FILE}` by the
/// location of the name of the first attribute in the inode of the file, `{value FILE}` by that of
/// the second byte of its value's size, `{place FILE}` of its value's offset, `{data FILE}` by the
/// first block of its data. With the last line `seal` all checksums are right afterwards.
pub(crate) fn damage(image: &Image, request: &str) -> Result<()> {
    if let Some(request) = request.strip_suffix("\nseal") {
        damage(image, request)?;
        let mut bytes = std::fs::read(image.path())?;
        mutate::seal(&mut bytes);
        return Ok(std::fs::write(image.path(), bytes)?);
    }
    let Some((before, rest)) = request.split_once('{') else {
        return script(image, request);
    };
    let (question, after) = rest.split_once('}').unwrap_or((rest, ""));
    let answer = match question.split_once(' ') {
        Some(("block", number)) => {
            let block = image.debugfs(&format!("bmap <8> {number}"))?;
            block.trim().to_owned()
        }
        Some(("quota", number)) => {
            let block = image.debugfs(&format!("bmap <3> {number}"))?;
            block.trim().to_owned()
        }
        Some(("data", file)) => image.debugfs(&format!("bmap {file} 0"))?.trim().to_owned(),
        Some(("name", file)) => in_first_entry(&image.debugfs(&format!("imap {file}"))?, 16, 0)?,
        Some(("place", file)) => in_first_entry(&image.debugfs(&format!("imap {file}"))?, 3, 255)?,
        Some(("value", file)) => in_first_entry(&image.debugfs(&format!("imap {file}"))?, 9, 3)?,
        _ => bail!("what is {question}?"),
    };
    script(image, &format!("{before}{answer}{after}"))
}

/// The byte `byte` in the first attribute's entry of the inode of 256 bytes that debugfs's `imap`
/// tells of, `inside` bytes on.
fn in_first_entry(imap: &str, inside: u64, byte: u8) -> Result<String> {
    let words: Vec<&str> = imap.split([' ', ',', '\n']).collect();
    let after = |word: &str| {
        let at = words.iter().position(|found| *found == word);
        let found = at.and_then(|at| words.iter().skip(at + 1).find(|word| !word.is_empty()));
        found.copied().unwrap_or_default()
    };
    let offset = u64::from_str_radix(after("offset").trim_start_matches("0x"), 16)?;
    // "located at block N": the last "block" of the answer.
    let block = words.iter().rposition(|word| *word == "block");
    let block = block.and_then(|at| words.get(at + 1)).copied();
    let at = offset + 128 + 32 + 4 + inside;
    Ok(format!(
        "-o {at} -l 1 -p {byte} {}",
        block.unwrap_or_default()
    ))
}

/// Requests of debugfs, one a line.
fn script(image: &Image, requests: &str) -> Result<()> {
    let commands = image.path().with_extension("debugfs");
    std::fs::write(&commands, requests)?;
    Cmd::new("debugfs")
        .args(["-w", "-f"])
        .arg(&commands)
        .arg(image.path())
        .ok()?;
    Ok(())
}

/// The verdicts of both on one image.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// e2fsck's exit status; `None` if a signal ended it.
    pub(crate) e2fsck: Option<i32>,
    /// The output of e2fsck.
    pub(crate) said: String,
    /// The findings, or the reason why there are none. Empty: clean.
    pub(crate) found: Vec<Found>,
}

/// One finding, or an error of the check.
#[derive(Debug)]
pub(crate) struct Found {
    /// As users see it.
    pub(crate) text: String,
    /// The kind, if it is damage.
    pub(crate) kind: Option<CorruptKind>,
}

/// A kind of damage that a test expects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) pattern: &'static str,
    pub(crate) matches: fn(&CorruptKind) -> bool,
}

/// The [`Expected`] of a pattern of [`CorruptKind`], without the name of that type.
macro_rules! kind {
    ($($pattern:tt)+) => {
        crate::check_kit::Expected {
            pattern: stringify!($($pattern)+),
            matches: |kind| matches!(kind, extant_disk::damage::CorruptKind::$($pattern)+),
        }
    };
}
pub(crate) use kind;

impl Expected {
    /// Returns whether one of `kinds` is the expected one.
    pub(crate) fn is_in<'a>(self, kinds: impl IntoIterator<Item = &'a CorruptKind>) -> bool {
        kinds.into_iter().any(self.matches)
    }
}

impl Found {
    fn error(error: &Error) -> Self {
        let kind = match error {
            Error::Corrupt { kind, .. } => Some(kind.clone()),
            Error::Superblock(error) => Some((*error).into()),
            Error::Journal(JournalError::Corrupt(damage)) => Some(damage.clone().into()),
            Error::Journal(
                JournalError::CorruptSuperblock(error) | JournalError::UnsupportedSuperblock(error),
            ) => Some((*error).into()),
            _ => None,
        };
        let text = error.to_string();
        Self { text, kind }
    }

    fn finding(finding: &Finding) -> Self {
        let kind = Some(finding.kind.clone());
        let text = finding.to_string();
        Self { text, kind }
    }
}

impl Verdict {
    pub(crate) fn e2fsck_is_clean(&self) -> bool {
        self.e2fsck == Some(0)
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.found.is_empty()
    }

    /// The kinds of what was found.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &CorruptKind> {
        self.found.iter().filter_map(|found| found.kind.as_ref())
    }

    pub(crate) fn agree(&self) -> bool {
        self.e2fsck_is_clean() == self.is_clean()
    }
}

/// Asks both.
///
/// e2fsck -n does not replay a journal; `check` does, in memory. So e2fsck also runs on a copy that
/// it may replay.
///
/// # Errors
/// A panic of the checker, or a tool that cannot be run.
pub(crate) fn verdict(image: &Path) -> Result<Verdict> {
    const SKIPPED: &str = "skipping journal recovery";
    let mut e2fsck = Cmd::new("e2fsck").arg("-fn").arg(image).run()?;
    if e2fsck.err.contains(SKIPPED) || e2fsck.out.contains(SKIPPED) {
        let copy = image.with_extension("replayed");
        std::fs::copy(image, &copy)?;
        let mut debugfs = Cmd::new("debugfs").args(["-w", "-R", "journal_run"]);
        debugfs = debugfs.arg(&copy);
        debugfs.run()?;
        e2fsck = Cmd::new("e2fsck").arg("-fn").arg(&copy).run()?;
        if e2fsck.err.contains(SKIPPED) || e2fsck.out.contains(SKIPPED) {
            // The journal cannot be replayed.
            e2fsck.code = e2fsck.code.max(Some(12));
        }
        std::fs::remove_file(&copy)?;
    }
    let findings = |device| match check(
        device,
        &CheckOptions {
            threads: 2,
            ..CheckOptions::default()
        },
    ) {
        Ok(report) => report.findings.iter().map(Found::finding).collect(),
        Err(error) => vec![Found::error(&error)],
    };
    let device = Arc::new(FileDevice::open(image, OpenMode::ReadOnly)?);
    let Ok(found) = catch_unwind(AssertUnwindSafe(|| findings(device))) else {
        bail!("the checker panicked at {}", image.display());
    };
    Ok(Verdict {
        e2fsck: e2fsck.code,
        said: e2fsck.out + &e2fsck.err,
        found,
    })
}
