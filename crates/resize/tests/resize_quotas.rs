//! Volumes with quotas, both ways: the files follow, and say what is used.

mod resize_kit;

use extant_resize::{Report, Target};
use extant_testkit::{Cmd, Image, Result, TempDir, ensure, need};
use resize_kit::{NEEDS, content_of, run, same};

const MIB: u64 = 1 << 20;

/// Requests of debugfs, one a line.
fn script(image: &Image, requests: &str) -> Result<()> {
    let commands = image.path().with_extension("debugfs");
    std::fs::write(&commands, requests)?;
    let debugfs = Cmd::new("debugfs").args(["-w", "-f"]);
    debugfs.arg(&commands).arg(image.path()).ok()?;
    Ok(())
}

/// Has e2fsck count what debugfs did not. What it optimizes on the way it counts the next time.
fn count(image: &Image) -> Result<()> {
    for _ in 0..2 {
        Cmd::new("e2fsck").arg("-fy").arg(image.path()).run()?;
    }
    image.fsck_clean()?;
    Ok(())
}

/// A volume whose free space is in pieces up to its end, with files of several owners and a
/// project: each lies between others that were removed, after the requests `first`.
fn scattered(mib: u64, args: &str, files: u32, kib: usize, first: &str) -> Result<Image> {
    let tree = TempDir::new("tree")?;
    for number in 0..files {
        let name = tree.join(format!("file{number}"));
        std::fs::write(name, vec![7; kib << 10])?;
    }
    let image = Image::of_mib(mib)
        .args(args)
        .args("-d")
        .args(&tree.path().display().to_string())
        .make()?;
    let mut requests = first.to_owned();
    for number in 0..files {
        requests += &match number % 2 {
            0 => format!("rm file{number}\n"),
            _ => format!(
                "sif file{number} uid {0}\nsif file{number} gid {1}\nsif file{number} projid {1}\n",
                1000 + number % 5,
                70_000 * (number % 3)
            ),
        };
    }
    script(&image, &requests)?;
    count(&image)?;
    Ok(image)
}

/// Resizes, and expects a sound volume with what it held.
fn resized(image: &Image, target: Target) -> Result<Report> {
    let before = content_of(image)?;
    let report = run(image, target)?;
    image.fsck_clean()?;
    same(&content_of(image)?, &before)?;
    Ok(report)
}

#[test]
fn volumes_with_quotas_grow_and_shrink() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (mib, args, files, kib) in [
        (64, "-b 1024 -g 2048 -O quota,project", 120, 150),
        (64, "-b 4096 -O quota,project -J size=4", 60, 300),
        (
            48,
            "-b 1024 -g 1024 -O quota,project,^has_journal,^extent,^64bit",
            80,
            150,
        ),
        (
            48,
            "-b 1024 -g 1024 -O quota,project,orphan_file,^resize_inode,meta_bg -J size=4",
            80,
            150,
        ),
        (64, "-b 2048 -O quota -E quotatype=grpquota", 60, 300),
    ] {
        let image = scattered(mib, args, files, kib, "")?;
        for target in [
            Target::Bytes(2 * mib * MIB),
            Target::Least,
            Target::Bytes(mib * MIB),
        ] {
            let resized = resized(&image, target);
            resized.map_err(|error| {
                extant_testkit::Error::new(format!("{args}, {target:?}: {error}"))
            })?;
        }
    }
    Ok(())
}

/// A file that is moved into pieces has an extent tree with nodes then: its owner uses more.
#[test]
fn nodes_of_moved_files_are_counted() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let tree = TempDir::new("tree")?;
    let large = tree.join("large");
    std::fs::write(&large, vec![9; 12 << 20])?;
    let large = large.display();
    let first = format!("write {large} large\nsif large uid 4242\nsif large projid 17\n");
    let args = "-b 1024 -g 2048 -N 512 -O quota,project,^has_journal";
    let image = scattered(48, args, 200, 60, &first)?;
    let used = |image: &Image| image.debugfs("get_quota user 4242");
    let before = used(&image)?;
    let report = resized(&image, Target::Least)?;
    ensure!(report.blocks_moved > 0, "{report:?}");
    ensure!(used(&image)? != before, "no node was needed: {before}");
    Ok(())
}

/// The file of projects has any number: where that is cut off, it gets another.
#[test]
fn the_file_of_projects_gets_another_number() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let args = "-b 1024 -g 1024 -N 768 -O ^has_journal,^resize_inode";
    let tree = TempDir::new("tree")?;
    for number in 0..500 {
        std::fs::write(tree.join(format!("file{number}")), b"content")?;
    }
    let image = Image::of_mib(24)
        .args(args)
        .args("-d")
        .args(&tree.path().display().to_string())
        .make()?;
    let tune = |words: [&str; 2]| Cmd::new("tune2fs").args(words).arg(image.path()).ok();
    tune(["-O", "quota,project"])?;
    // The numbers before it are freed again.
    let requests: Vec<String> = (0..470).map(|at| format!("rm file{at}")).collect();
    let number = || -> Result<u32> {
        let shown = Cmd::new("dumpe2fs").arg("-h").arg(image.path()).ok()?;
        let line = shown
            .out
            .lines()
            .find(|line| line.starts_with("Project quota inode"));
        Ok(line
            .and_then(|line| line.split_whitespace().last())
            .unwrap_or("0")
            .parse()?)
    };
    let before = number()?;
    script(&image, &requests.join("\n"))?;
    count(&image)?;
    let report = resized(&image, Target::Least)?;
    let after = number()?;
    ensure!(
        before != after && after > 0,
        "{before}, {after}: {report:?}"
    );
    Ok(())
}
