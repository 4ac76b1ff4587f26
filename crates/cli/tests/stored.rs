//! Images in a store: `push`, `pull` and `versions`, commands that read a version where it is, and
//! a mount of one.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::Duration;

use extant_testkit::{Cmd, Image, Need, Result, TempDir, ensure, need, wait_until};

fn extant<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Cmd {
    let cmd = Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args);
    cmd.env("EXTANT_CACHE", "")
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn refused(args: &[&str], message: &str) -> Result<()> {
    let o = extant(args).run()?;
    ensure!(o.code == Some(1), "{}", o.describe());
    ensure!(o.err.contains(message), "{message:?}: {}", o.describe());
    Ok(())
}

/// A volume with two files in it, and the address of it in a folder.
fn volume(folder: &TempDir) -> Result<(Image, String)> {
    let disk = Image::of_mib(32).args("-b 4096").make()?;
    let image = text(disk.path());
    let large = folder.join("large");
    let bytes: Vec<u8> = (0..2_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(&large, bytes)?;
    extant(["cp", &text(&large), &format!("{image}:/large")]).ok()?;
    extant(["cp", "-", &format!("{image}:/small")])
        .stdin(b"first".to_vec())
        .ok()?;
    let stored = format!("file://{}/root", text(&folder.join("store")));
    Ok((disk, stored))
}

#[test]
fn versions_are_pushed_pulled_and_read_where_they_are() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let folder = TempDir::new("stored")?;
    let (disk, stored) = volume(&folder)?;
    let image = text(disk.path());
    let said = extant(["push", &image, &stored]).ok()?.out;
    ensure!(said.contains("root@1: "), "{said}");
    let before = fs::read(disk.path())?;

    extant(["cp", "-", &format!("{image}:/small")])
        .stdin(b"second".to_vec())
        .ok()?;
    let said = extant(["push", "--json", &image, &stored]).ok()?.out;
    ensure!(said.contains("\"version\":2"), "{said}");
    let new = said.split("\"new_chunks\":").nth(1).unwrap_or_default();
    let new: u64 = new.split(',').next().unwrap_or_default().parse()?;
    ensure!((1..=4).contains(&new), "a small change sends {said}");

    let at = |version: &str, path: &str| format!("{stored}{version}:{path}");
    let small =
        |version| Ok::<_, extant_testkit::Error>(extant(["cat", &at(version, "/small")]).ok()?.out);
    ensure!(
        small("")? == "second" && small("@2")? == "second",
        "the current version"
    );
    ensure!(small("@1")? == "first", "the version before it");
    let listed = extant(["ls", &at("", "/")]).ok()?.out;
    ensure!(listed.contains("large"), "{listed}");
    extant(["check", &stored]).ok()?;
    extant(["diff", &stored, &image]).ok()?;
    let cache = folder.join("cache");
    let cached = extant(["cat", &at("", "/small")]).env("EXTANT_CACHE", &cache);
    ensure!(cached.ok()?.out == "second", "through a cache");
    ensure!(
        fs::read_dir(cache.join("chunks"))?.count() > 0,
        "nothing is cached"
    );
    let copy = folder.join("copy.img");
    extant(["pull", &format!("{stored}@1"), &text(&copy)]).ok()?;
    ensure!(
        fs::read(&copy)? == before,
        "what was pulled is not what was pushed"
    );
    let listed = extant(["versions", &stored]).ok()?.out;
    let lines: Vec<&str> = listed.lines().collect();
    ensure!(
        matches!(lines[..], [one, two] if one.starts_with("@1 ") && two.starts_with("@2 ")),
        "{listed}"
    );
    Ok(())
}

#[test]
fn what_cannot_be_done_is_told() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let folder = TempDir::new("stored")?;
    let (disk, stored) = volume(&folder)?;
    let image = text(disk.path());
    extant(["push", &image, &stored]).ok()?;
    refused(
        &["push", &image, &format!("{stored}@1")],
        "makes the next version",
    )?;
    refused(
        &["push", &image, "s3://bucket"],
        "no address of an image in a store",
    )?;
    refused(
        &["push", "--chunk-size", "5K", &image, &stored],
        "a power of two",
    )?;
    refused(&["rm", &format!("{stored}:/small")], "only read")?;
    let cached = extant(["cat", &format!("{stored}:/small")]);
    let o = cached.env("EXTANT_CACHE_SIZE", "much").run()?;
    ensure!(
        o.code == Some(1) && o.err.contains("EXTANT_CACHE_SIZE"),
        "{}",
        o.describe()
    );
    refused(
        &["cat", &format!("{stored}@7:/small")],
        "there is no version 7",
    )?;
    let copy = text(&folder.join("copy.img"));
    refused(&["pull", &format!("{stored}x"), &copy], "there is no image")?;
    ensure!(!Path::new(&copy).exists(), "half a pull is there");

    let chunks = folder.join("store/chunks");
    for dir in fs::read_dir(chunks)? {
        for chunk in fs::read_dir(dir?.path())? {
            fs::write(chunk?.path(), b"something else")?;
        }
    }
    refused(&["cat", &format!("{stored}:/large")], "chunks/")?;
    refused(&["pull", &stored, &copy], "is damaged")?;
    ensure!(!Path::new(&copy).exists(), "half a pull is there");
    Ok(())
}

/// Makes all files of a folder older by so many hours.
fn age(folder: &Path, hours: u64) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            age(&path, hours)?;
            continue;
        }
        let before = fs::metadata(&path)?.modified()? - Duration::from_secs(hours * 3600);
        fs::File::options()
            .write(true)
            .open(&path)?
            .set_modified(before)?;
    }
    Ok(())
}

#[test]
fn versions_that_are_not_kept_are_listed() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let folder = TempDir::new("stored")?;
    let (disk, stored) = volume(&folder)?;
    let image = text(disk.path());
    let store = format!("file://{}", text(&folder.join("store")));
    refused(&["gc", &store], "there is no store here")?;
    refused(&["gc", "/srv"], "no address of a store")?;
    extant(["push", &image, &stored]).ok()?;
    extant(["rm", &format!("{image}:/large")]).ok()?;
    extant(["push", &image, &stored]).ok()?;
    refused(&["gc", &stored], "there is no store here")?;
    age(&folder.join("store"), 13)?;

    let told = extant(["gc", "--dry-run", "--keep", "1", &store]).ok()?.out;
    ensure!(told.contains("1 versions would be removed"), "{told}");
    ensure!(!folder.join("store/gc").exists(), "a dry run writes");
    let said = extant(["gc", "--json", "--keep", "1", &store]).ok()?.out;
    ensure!(
        said.contains("\"versions_removed\":1") && said.contains("\"next_seconds\":86400"),
        "{said}"
    );
    refused(&["ls", &format!("{stored}@1")], "there is no version 1")?;
    // The files alone are old: what the list says of its time is not.
    age(&folder.join("store/gc"), 25)?;
    let said = extant(["gc", &store]).ok()?.out;
    ensure!(said.starts_with("0 chunks and 0 manifests"), "{said}");
    ensure!(said.contains(" wait, some until 24 h"), "{said}");
    extant(["check", &stored]).ok()?;
    // A push keeps off what is listed, and stores it once more.
    extant([
        "cp",
        &text(&folder.join("large")),
        &format!("{image}:/large"),
    ])
    .ok()?;
    let said = extant(["push", "--json", &image, &stored]).ok()?.out;
    ensure!(said.contains("\"version\":3"), "{said}");
    extant(["diff", &stored, &image]).ok()?;

    let version = folder.join("store/names/root/00000000000000000002");
    fs::write(version, "{}")?;
    refused(&["gc", &store], "is damaged")?;
    Ok(())
}

#[test]
fn a_version_is_mounted() -> Result<()> {
    if !need(&[Need::Tool("mke2fs"), Need::Fuse]) {
        return Ok(());
    }
    let folder = TempDir::new("stored")?;
    let (disk, stored) = volume(&folder)?;
    extant(["push", &text(disk.path()), &stored]).ok()?;
    let dir = folder.join("mnt");
    fs::create_dir(&dir)?;
    let mnt = text(&dir);
    let list = folder.join("start.list");
    let record = format!("record={}", text(&list));
    let ahead = format!("nosandbox,prefetch={}", text(&list));
    for options in ["nosandbox", &record, &format!("nosandbox,{record}"), &ahead] {
        extant(["mount", "-o", options, &stored, &mnt]).ok()?;
        let read = fs::read(dir.join("small"));
        let written = fs::write(dir.join("small"), b"x");
        let stats = extant(["stats", "--json", &mnt]).run();
        extant(["umount", &mnt]).ok()?;
        ensure!(read? == b"first", "{options}: the file reads differently");
        ensure!(
            written.is_err_and(|error| error.kind() == std::io::ErrorKind::ReadOnlyFilesystem),
            "{options}: a version was written to"
        );
        let listed = fs::read_to_string(&list).unwrap_or_default();
        let begins = listed.starts_with("extant start list 1\nchunk-bytes 524288\n0\n");
        ensure!(
            begins == options.contains("record") || options == ahead,
            "{options}: {listed:?}"
        );
        if options == ahead {
            let stats = stats?.out;
            ensure!(!stats.contains("\"chunks_read_ahead\":0"), "{stats}");
        }
        if options.starts_with("nosandbox,record") {
            continue;
        }
        if options.contains("record") {
            fs::remove_file(&list)?;
        }
    }
    fs::write(&list, "no list")?;
    let said = format!("prefetch={}", text(&list));
    refused(
        &["mount", "-o", &said, &stored, &mnt],
        "start.list: it is no list",
    )?;
    refused(
        &["mount", &format!("{stored}@7"), &mnt],
        "there is no version 7",
    )?;
    let image = text(disk.path());
    refused(
        &["mount", "-o", &said, &image, &mnt],
        "are for images in an object store",
    )
}

#[test]
fn a_layer_takes_changes_and_becomes_the_next_version() -> Result<()> {
    if !need(&[Need::Tool("mke2fs"), Need::Tool("e2fsck"), Need::Fuse]) {
        return Ok(());
    }
    let folder = TempDir::new("layers")?;
    let (disk, stored) = volume(&folder)?;
    extant(["push", &text(disk.path()), &stored]).ok()?;
    let layer = text(&folder.join("changes"));
    let through = |args: &[&str]| extant(["--layer", &layer]).args(args);
    refused(
        &["rm", &format!("{stored}:/small")],
        "is only read: --layer",
    )?;
    through(&["cp", "-", &format!("{stored}:/new")])
        .stdin(b"written".to_vec())
        .ok()?;
    let new = |text: &str| {
        let said = through(&["cat", &format!("{stored}:/{text}")]).run()?;
        Ok::<_, extant_testkit::Error>(said.out)
    };
    ensure!(new("new")? == "written", "it reads what it wrote");
    refused(&["cat", &format!("{stored}:/new")], "No such file")?;

    // A mount goes on in the layer, and is killed.
    let mounted = folder.join("mnt");
    fs::create_dir(&mounted)?;
    let options = format!("layer={layer}");
    let mount = ["mount", "-f", "-o", &options, &stored, &text(&mounted)];
    let mut daemon = extant(mount).spawn()?;
    wait_until("the mount", || mounted.join("new").exists());
    refused(&["push", &layer, &stored], "in use")?;
    fs::write(mounted.join("synced"), "kept")?;
    fs::File::open(mounted.join("synced"))?.sync_all()?;
    daemon.kill()?;
    let _ = extant(["umount", "-l", &text(&mounted)]).run();
    ensure!(new("synced")? == "kept", "what was synced");

    let said = extant(["push", "--json", &layer, &stored]).ok()?.out;
    ensure!(said.contains("\"version\":2"), "{said}");
    let copy = folder.join("copy.img");
    extant(["pull", &stored, &text(&copy)]).ok()?;
    // Its journal is full: the mount was killed.
    let recovered = Cmd::new("e2fsck").args(["-fp", &text(&copy)]).run()?;
    ensure!(
        matches!(recovered.code, Some(0 | 1)),
        "{}",
        recovered.describe()
    );
    ensure!(
        extant(["cat", &format!("{stored}:/synced")]).ok()?.out == "kept",
        "pushed"
    );
    through(&["rm", &format!("{stored}:/new")]).ok()?;
    let said = extant(["push", "--json", &layer, &stored]).ok()?.out;
    ensure!(said.contains("\"version\":3"), "{said}");
    refused(&["cat", &format!("{stored}:/new")], "No such file")?;
    let old = format!("{stored}@1:/small");
    refused(
        &["--layer", &layer, "cat", &old],
        "it is a layer over version 3",
    )
}

/// The child of `daemon` whose command line has this word.
fn child_with(daemon: u32, word: &str) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{daemon}/task/{daemon}/children")).ok()?;
    let has_word = |pid: &&str| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
            let mut words = line.split(|&byte| byte == 0);
            words.any(|one| one == word.as_bytes())
        })
    };
    children.split(' ').find(has_word)?.parse().ok()
}

#[test]
fn a_mount_outlives_the_process_that_fetches() -> Result<()> {
    if !need(&[Need::Tool("mke2fs"), Need::Fuse]) {
        return Ok(());
    }
    let folder = TempDir::new("fetched")?;
    let (disk, stored) = volume(&folder)?;
    extant(["push", &text(disk.path()), &stored]).ok()?;
    let dir = folder.join("mnt");
    fs::create_dir(&dir)?;
    let mut daemon = extant(["mount", "-f", &stored, &text(&dir)]).spawn()?;
    wait_until("the mount", || dir.join("small").exists());
    let fetcher = child_with(daemon.pid(), "--fetcher");
    let status = fs::read_to_string(format!("/proc/{}/status", fetcher.unwrap_or(0)))?;
    let held = |line: &str| line.starts_with("CapEff:") && line.ends_with("\t0000000000000000");
    ensure!(status.lines().any(held), "it has privileges: {status}");
    Cmd::new("kill")
        .args(["-9", &fetcher.unwrap_or(0).to_string()])
        .ok()?;
    let read = fs::read(dir.join("large"));
    let listed = fs::read_dir(&dir).map(Iterator::count);
    extant(["umount", &text(&dir)]).ok()?;
    let ended = daemon.wait(std::time::Duration::from_secs(20))?;
    ensure!(ended.code == Some(0), "{}", ended.describe());
    let eio = |error: &std::io::Error| error.raw_os_error() == Some(5);
    ensure!(
        read.as_ref().is_err_and(eio),
        "{:?}",
        read.map(|bytes| bytes.len())
    );
    ensure!(listed? >= 2, "what was read before");
    Ok(())
}

#[test]
fn a_store_with_a_key_is_nothing_without_it() -> Result<()> {
    if !need(&[Need::Tool("mke2fs"), Need::Fuse]) {
        return Ok(());
    }
    let folder = TempDir::new("sealed")?;
    let (disk, stored) = volume(&folder)?;
    let keys = ["one", "other", "none"].map(|name| text(&folder.join(name)));
    fs::write(&keys[0], "ab".repeat(32))?;
    fs::write(&keys[1], "cd".repeat(32))?;
    let with = |key: &str, args: &[&str]| extant(args).env("EXTANT_STORE_KEY", key);
    let small = format!("{stored}:/small");
    let image = text(disk.path());
    with(&keys[0], &["push", &image, &stored]).ok()?;
    ensure!(
        with(&keys[0], &["cat", &small]).ok()?.out == "first",
        "with the key"
    );
    with(&keys[0], &["diff", &stored, &image]).ok()?;
    for (key, said) in [
        ("", "EXTANT_STORE_KEY is empty"),
        (keys[1].as_str(), "is not of the key"),
        (keys[2].as_str(), "No such file"),
    ] {
        let o = with(key, &["cat", &small]).run()?;
        ensure!(
            o.code == Some(1) && o.err.contains(said),
            "{said}: {}",
            o.describe()
        );
    }
    let o = extant(["cat", &small]).run()?;
    ensure!(
        o.code == Some(1) && o.err.contains("it needs a key"),
        "{}",
        o.describe()
    );
    // A store that has other content in the clear is no store of this key.
    let plain = format!("file://{}/plain", text(&folder.join("clear")));
    extant(["push", &image, &plain]).ok()?;
    let o = with(&keys[0], &["cat", &format!("{plain}:/small")]).run()?;
    ensure!(
        o.code == Some(1) && o.err.contains("it has no key"),
        "{}",
        o.describe()
    );
    let dir = folder.join("mnt");
    fs::create_dir(&dir)?;
    let options = format!("layer={}", text(&folder.join("changes")));
    with(&keys[0], &["mount", "-o", &options, &stored, &text(&dir)]).ok()?;
    let written = fs::write(dir.join("new"), "written");
    extant(["umount", &text(&dir)]).ok()?;
    written?;
    with(&keys[0], &["push", &text(&folder.join("changes")), &stored]).ok()?;
    let new = format!("{stored}@2:/new");
    ensure!(
        with(&keys[0], &["cat", &new]).ok()?.out == "written",
        "through a layer"
    );
    hides(disk.path(), &folder.join("store"))
}

/// Fails if the number of the volume at `image` is in a file below `folder`.
fn hides(image: &Path, folder: &Path) -> Result<()> {
    let image = fs::read(image)?;
    let number = &image[1024 + 104..1024 + 120];
    let all = files(folder);
    ensure!(all.len() > 5, "{} files", all.len());
    for path in all {
        let bytes = fs::read(&path)?;
        let found = bytes.windows(16).any(|bytes| bytes == number);
        ensure!(!found, "{}: the volume's number", path.display());
    }
    Ok(())
}

#[test]
fn nothing_is_pushed_with_another_key_or_by_mistake_with_none() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let folder = TempDir::new("keys")?;
    let (disk, stored) = volume(&folder)?;
    let image = text(disk.path());
    let plain = format!("file://{}/plain", text(&folder.join("clear")));
    let keys = ["one", "other"].map(|name| text(&folder.join(name)));
    fs::write(&keys[0], "ab".repeat(32))?;
    fs::write(&keys[1], "cd".repeat(32))?;
    let push = |key: &str, to: &str| extant(["push", &image, to]).env("EXTANT_STORE_KEY", key);
    push(&keys[0], &stored).ok()?;
    extant(["push", &image, &plain]).ok()?;
    let there = files(folder.path()).len();
    refused(
        &["push", &image, &format!("{stored}-b")],
        "the store needs a key",
    )?;
    for (key, to, said) in [
        (&keys[1], &stored, "has another key"),
        (&keys[0], &plain, "has images without a key"),
    ] {
        let o = push(key, to).run()?;
        ensure!(
            o.code == Some(1) && o.err.contains(said),
            "{said}: {}",
            o.describe()
        );
    }
    ensure!(files(folder.path()).len() == there, "something was stored");
    Ok(())
}

/// The files below a folder.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let below = |path: std::path::PathBuf| match path.is_dir() {
        true => files(&path),
        false => vec![path],
    };
    paths.flat_map(below).collect()
}
