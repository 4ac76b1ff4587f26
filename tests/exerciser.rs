//! fsx, the file system exerciser: random reads, writes, truncates, allocations, holes, copies and
//! memory-mapped access to one file, every byte checked. Four runs of 15,000 operations, two at a
//! time, differ in the shape of the file. All that fsx knows is switched on. Taking ranges out and
//! putting them in, which neither fsx nor FUSE knows, is the part of `crates/engine/tests/model`.
//! `EXTANT_OPS` asks for another number of operations, `EXTANT_SEED` for another seed.

use extant_testkit::tools::{FSX, from_crates_io};
use extant_testkit::{Cmd, Image, Need, Result, Subject, TempDir, need, report};
use std::time::Duration;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Tool("mke2fs")];

/// fsx's operations, and how often each comes.
const WEIGHTS: [(&str, u32); 14] = [
    ("read", 10),
    ("write", 10),
    ("mapread", 10),
    ("mapwrite", 10),
    ("truncate", 5),
    ("close_open", 1),
    ("invalidate", 1),
    ("fsync", 1),
    ("fdatasync", 1),
    ("sendfile", 2),
    ("posix_fadvise", 1),
    ("copy_file_range", 2),
    ("posix_fallocate", 2),
    ("punch_hole", 3),
];
/// Operations of a run, unless the environment says otherwise.
const OPERATIONS: u64 = 15_000;

#[test]
fn a_dense_file() -> Result<()> {
    exercise(1, "dense", 1 << 18, 1 << 16, "")
}

#[test]
fn a_tiny_file_in_small_blocks() -> Result<()> {
    exercise(2, "tiny", 1 << 14, 700, "-b 1024")
}

#[test]
fn a_wide_and_sparse_file() -> Result<()> {
    exercise(3, "wide", 1 << 23, 1 << 17, "")
}

#[test]
fn a_file_in_small_blocks() -> Result<()> {
    exercise(4, "small-blocks", 1 << 20, 1 << 16, "-b 1024")
}

/// Runs fsx on a file of at most `length` bytes, with operations of at most `largest` bytes, on an
/// image that `mke2fs` makes with `args`. The seed differs from `run` to run.
fn exercise(run: u64, name: &str, length: u64, largest: u64, args: &str) -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let tool = from_crates_io(FSX)?;
    let asked = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let seed = asked("EXTANT_SEED").unwrap_or(0);
    let operations = asked("EXTANT_OPS").unwrap_or(OPERATIONS);
    let image = Image::of_mib(64).args(args).junk().make()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    let work = TempDir::new("fsx")?;
    std::fs::write(work.join("fsx.toml"), configuration(length, largest))?;
    let fsx = Cmd::new(&tool)
        .args(["-q", "-N", &operations.to_string()])
        .args(["-S", &(seed + run).to_string()])
        .arg("-f")
        .arg(work.join("fsx.toml"))
        .arg("-P")
        .arg(work.path())
        .arg(mount.join(format!("fsx-{name}")));
    fsx.limit(Duration::from_secs(900)).ok()?;
    mount.unmount()?;
    image.fsck_clean()?;
    report(&format!(
        "fsx: {name}: {operations} operations, every byte right"
    ));
    Ok(())
}

/// Operations of fsx, and how often each comes.
fn configuration(length: u64, largest: u64) -> String {
    let mut text = format!("flen = {length}\n[opsize]\nmax = {largest}\n[weights]\n");
    for (operation, weight) in WEIGHTS {
        text += &format!("{operation} = {weight}\n");
    }
    text
}
