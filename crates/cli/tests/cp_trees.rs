//! `extant cp` of trees that are made to lead it astray: links swapped in while it runs, trees
//! deeper than a path can say, and directories with many names; and what it makes of holes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use extant_testkit::{Cmd, Image, Need, Result, TempDir, ensure, need};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, mkdirat, openat, renameat_with};

const NEEDS: &[Need] = &[Need::Tool("mke2fs"), Need::Tool("debugfs")];

fn extant<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args)
}

/// A place in an image, as an operand.
fn at(disk: &Image, path: &str) -> String {
    format!("{}:{path}", disk.path().display())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Copies `/t` of the image while directories of the copy are swapped for links.
#[test]
fn a_tree_that_is_swapped_for_links_meanwhile_leads_nowhere() -> Result<()> {
    /// Copies: enough that a copy by paths writes outside in one of them, as far as that was tried.
    const ROUNDS: usize = 12;
    const FILES: usize = 40;
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Image::of_mib(32).make()?;
    let host = TempDir::new("host")?;
    let tree = host.join("t/sub/deep");
    fs::create_dir_all(&tree)?;
    for number in 0..FILES {
        fs::write(tree.join(format!("f{number}")), "copied")?;
    }
    extant(["cp", "-r", &text(&host.join("t")), &at(&disk, "/t")]).ok()?;

    let (out, outside) = (host.join("out"), host.join("outside"));
    fs::create_dir_all(out.join("t/sub/deep"))?;
    fs::create_dir_all(outside.join("deep"))?;
    for dir in [outside.clone(), outside.join("deep")] {
        for number in 0..FILES {
            fs::write(dir.join(format!("f{number}")), "outside")?;
        }
    }
    let (sub, deep) = (out.join("t/sub"), out.join("t/sub/deep"));
    symlink(&outside, out.join("t/link"))?;
    symlink(&outside, sub.join("link"))?;
    let before = shape(&outside)?;
    let stop = AtomicBool::new(false);
    let swap = || {
        while !stop.load(Ordering::Relaxed) {
            // A pair of swaps brings each back.
            for (one, two) in [(&sub, out.join("t/link")), (&deep, sub.join("link"))] {
                for _ in 0..2 {
                    let _ = renameat_with(CWD, one, CWD, &two, RenameFlags::EXCHANGE);
                }
            }
        }
    };
    let copied = std::thread::scope(|scope| {
        scope.spawn(swap);
        let copied = (0..ROUNDS).try_for_each(|_| {
            // Failures are right: names change under the copy.
            extant(["cp", "-a", &at(&disk, "/t"), &text(&out)]).run()?;
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        copied
    });
    copied.and_then(|()| {
        let after = shape(&outside)?;
        ensure!(after == before, "{after:?}, was {before:?}");
        Ok(())
    })
}

/// All of a tree that a copy could change.
fn shape(dir: &Path) -> Result<Vec<String>> {
    let mut shape = Vec::new();
    let mut stack = vec![dir.to_owned()];
    while let Some(path) = stack.pop() {
        let metadata = fs::symlink_metadata(&path)?;
        let content = if metadata.is_dir() {
            for entry in fs::read_dir(&path)? {
                stack.push(entry?.path());
            }
            String::new()
        } else {
            fs::read_to_string(&path)?
        };
        shape.push(format!(
            "{path:?} {:o} {}:{} {} {content}",
            metadata.mode(),
            metadata.uid(),
            metadata.gid(),
            metadata.mtime()
        ));
    }
    shape.sort_unstable();
    Ok(shape)
}

/// 600 directories in each other, called d.
fn deep_tree(top: &Path, levels: usize) -> Result<()> {
    fs::create_dir(top)?;
    let flags = OFlags::DIRECTORY | OFlags::RDONLY;
    let mut dir = openat(CWD, top, flags, Mode::empty())?;
    for _ in 0..levels {
        mkdirat(&dir, "d", Mode::RWXU)?;
        dir = openat(&dir, "d", flags, Mode::empty())?;
    }
    Ok(())
}

#[test]
fn trees_deeper_than_paths_and_descriptors_go() -> Result<()> {
    const LEVELS: usize = 600;
    if !need(NEEDS) {
        return Ok(());
    }
    let (disk, other) = (
        Image::of_mib(64).args("-N 4096").make()?,
        Image::of_mib(64).args("-N 4096").make()?,
    );
    let host = TempDir::new("host")?;
    deep_tree(&host.join("d"), LEVELS - 1)?;
    // Fewer descriptors than levels.
    let limited = |args: &[&str]| -> Result<()> {
        let script = "ulimit -n 200; exec \"$0\" \"$@\"";
        let cmd = Cmd::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_extant")]);
        cmd.args(args).ok()?;
        Ok(())
    };
    let source = text(&host.join("d"));
    for times in 0..4 {
        let path = format!("{}/", "/d".repeat(times * LEVELS));
        limited(&["cp", "-r", &source, &at(&disk, &path)])?;
    }
    limited(&["cp", "-r", &at(&disk, "/d"), &at(&other, "/")])?;
    for image in [&disk, &other] {
        let said = extant([OsStr::new("check"), image.path().as_os_str()])
            .ok()?
            .out;
        // With the root and lost+found.
        let right = format!("{} of them directories", 4 * LEVELS + 2);
        ensure!(said.contains(&right), "{said}");
    }
    let path = "/d".repeat(3 * LEVELS);
    let out = host.join("out");
    fs::create_dir(&out)?;
    limited(&["cp", "-a", &at(&other, &path), &text(&out)])?;
    let mut depth = 0;
    while out.join("d/".repeat(depth + 1)).is_dir() {
        depth += 1;
    }
    ensure!(depth == LEVELS + 1, "{depth} levels came out");
    Ok(())
}

#[test]
fn a_directory_with_many_names_is_copied_once() -> Result<()> {
    const LEVELS: usize = 10;
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Image::of_mib(16).make()?;
    // Each directory leads to the next one by two names.
    let mut requests = String::from("mkdir top\n");
    for level in 0..LEVELS {
        let here = format!("/top{}", "/a".repeat(level));
        requests.push_str(&format!("mkdir {here}/a\nln {here}/a {here}/b\n"));
    }
    let script = disk.path().with_extension("debugfs");
    fs::write(&script, &requests)?;
    let debugfs = Cmd::new("debugfs").args(["-w", "-f"]).arg(&script);
    debugfs.arg(disk.path()).ok()?;

    let host = TempDir::new("host")?;
    let fresh = Image::of_mib(16).make()?;
    for to in [text(&host.join("out")), at(&fresh, "/out")] {
        let o = extant(["cp", "-r", &at(&disk, "/top"), &to]).run()?;
        let second = o.err.matches("a directory with a second name").count();
        ensure!(
            o.code == Some(1) && second == LEVELS && o.err.lines().count() == LEVELS,
            "{}",
            o.describe()
        );
    }
    let found = Cmd::new("find").arg(host.join("out")).ok()?.out;
    ensure!(found.lines().count() == LEVELS + 1, "{found}");
    fresh.fsck_clean()
}

#[test]
fn holes_stay_come_and_go_as_asked() -> Result<()> {
    const SIZE: u64 = 1 << 20;
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Image::of_mib(32).make()?;
    let host = TempDir::new("host")?;
    // 64 KiB of data, 64 KiB of zeros that are written, and holes before, between and after.
    let source = host.join("f");
    let file = fs::File::create(&source)?;
    file.set_len(SIZE)?;
    file.write_all_at(&[7; 64 << 10], 128 << 10)?;
    file.write_all_at(&[0; 64 << 10], 512 << 10)?;
    file.sync_all()?;
    let bytes = fs::read(&source)?;
    ensure!(
        fs::metadata(&source)?.blocks() * 512 < SIZE,
        "the host's files have no holes here"
    );
    for (when, right) in [("auto", 128 << 10), ("always", 64 << 10), ("never", SIZE)] {
        let inside = at(&disk, &format!("/{when}"));
        let sparse = format!("--sparse={when}");
        extant(["cp", &sparse, &text(&source), &inside]).ok()?;
        let stat = extant(["stat", "--json", &inside]).ok()?.out;
        let blocks = format!("\"blocks\":{},", right / 512);
        ensure!(stat.contains(&blocks), "{when}: {stat}");
        // In the other direction, from a file with all of its zeros written or with holes.
        let from = at(&disk, if when == "always" { "/never" } else { "/auto" });
        if when == "always" {
            extant(["cp", "--sparse=never", &text(&source), &from]).ok()?;
        }
        let out = host.join(when);
        extant(["cp", &sparse, &from, &text(&out)]).ok()?;
        let taken = fs::metadata(&out)?.blocks() * 512;
        ensure!(taken == right, "{when}: {taken} bytes on the host");
        ensure!(fs::read(&out)? == bytes, "{when}: other bytes");
    }
    disk.fsck_clean()
}
