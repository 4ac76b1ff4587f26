//! fsx, the file system exerciser: random reads, writes, truncates, allocations, holes, copies and
//! memory-mapped access to one file, every byte checked, 200,000 operations in all. All that it
//! knows is switched on; taking ranges out and putting them in, which neither it nor FUSE knows, is
//! the part of `crates/engine/tests/model`.

use extant_testkit::tools::{FSX, from_crates_io};
use extant_testkit::{Cmd, Image, Need, Result, Subject, TempDir, ensure, need, report};
use std::fmt::Write as _;
use std::time::Duration;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Tool("mke2fs")];

/// Four runs of 50,000 whose shapes differ: what is small and dense, and what is large and sparse.
const RUNS: &[(&str, u64, u64, &str)] = &[
    // name, file length, largest operation, image
    ("dense", 1 << 18, 1 << 16, ""),
    ("tiny", 1 << 14, 700, "-b 1024"),
    ("wide", 1 << 23, 1 << 17, ""),
    ("small-blocks", 1 << 20, 1 << 16, "-b 1024"),
];
const OPERATIONS: u64 = 50_000;

#[test]
fn two_hundred_thousand_operations_with_mmap() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let tool = from_crates_io(FSX)?;
    let seed = std::env::var("EXTANT_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1u64);
    for (i, (name, flen, largest, args)) in RUNS.iter().enumerate() {
        let image = Image::of_mib(64).args(args).junk().make()?;
        let mount = Subject::under_test().mount(image.path(), "")?;
        let work = TempDir::new("fsx")?;
        let mut config = format!("flen = {flen}\n[opsize]\nmax = {largest}\n[weights]\n");
        for (op, weight) in [
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
        ] {
            writeln!(config, "{op} = {weight}")?;
        }
        std::fs::write(work.join("fsx.toml"), config)?;
        Cmd::new(&tool)
            .args([
                "-q",
                "-N",
                &OPERATIONS.to_string(),
                "-S",
                &(seed + i as u64).to_string(),
                "-f",
            ])
            .arg(work.join("fsx.toml"))
            .arg("-P")
            .arg(work.path())
            .arg(mount.join(format!("fsx-{name}")))
            .limit(Duration::from_secs(900))
            .ok()?;
        mount.unmount()?;
        image.fsck_clean()?;
    }
    let total = OPERATIONS * RUNS.len() as u64;
    ensure!(total >= 200_000, "only {total} operations");
    report(&format!(
        "fsx: {total} operations in {} runs, every byte right",
        RUNS.len()
    ));
    Ok(())
}
