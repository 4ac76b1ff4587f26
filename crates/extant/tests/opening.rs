//! Opening files as open(2) does: names that end in a slash, races of creators, `O_SYNC`.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Duration;

use extant::testing::{device, filesystem};
use extant::{Error, FileKind, Filesystem, IoBuf, RenameFlags};
use extant_testkit::{Result, Watchdog};

const SIZE: u64 = 16 << 20;
/// That of the many volumes of one test.
const SMALL: u64 = 4 << 20;

/// A folder of the host, which is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder> {
        let path = std::env::temp_dir().join(format!("extant-opening-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Folder(path))
    }

    /// A path of the folder, with the slash that it may end in.
    fn at(&self, path: &str) -> PathBuf {
        let mut whole = OsString::from(&self.0);
        whole.push(path);
        whole.into()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The calls that make, move or remove a name.
const CALLS: [&str; 14] = [
    "create",
    "create_new",
    "mkdir",
    "symlink",
    "mkfifo",
    "link",
    "unlink",
    "rename from",
    "rename to",
    "rmdir",
    "create, no link",
    "exchange from",
    "exchange to",
    "no replacement",
];

/// Symbolic links, and what they say.
const LINKS: [(&str, &str); 7] = [
    ("/to-new", "new"),
    ("/to-new-slash", "new/"),
    ("/to-new-dot", "new/."),
    ("/to-file-slash", "file/"),
    ("/to-file-dot", "file/."),
    ("/to-dir-slash", "dir/"),
    ("/to-none-slash", "none/new/"),
];

/// Makes what there is before each call.
fn plant(
    dir: impl Fn(&str) -> io::Result<()>,
    file: impl Fn(&str) -> io::Result<()>,
) -> Result<()> {
    for path in ["/dir", "/empty"] {
        dir(path)?;
    }
    for path in ["/file", "/other", "/dir/inner"] {
        file(path)?;
    }
    Ok(())
}

fn on_host(folder: &Folder, call: &str, path: &str) -> io::Result<()> {
    use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, mknodat, open, renameat_with};
    use std::fs;
    let (at, other) = (folder.at(path), folder.at("/other"));
    match call {
        "create" => fs::File::create(at).map(drop),
        "create_new" => fs::File::create_new(at).map(drop),
        "mkdir" => fs::create_dir(at),
        "symlink" => std::os::unix::fs::symlink("somewhere", at),
        "mkfifo" => {
            let mode = Mode::from_raw_mode(0o600);
            Ok(mknodat(CWD, at, FileType::Fifo, mode, 0)?)
        }
        "link" => fs::hard_link(other, at),
        "unlink" => fs::remove_file(at),
        "rename from" => fs::rename(at, folder.at("/moved")),
        "rmdir" => fs::remove_dir(at),
        "create, no link" => {
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW;
            Ok(open(at, flags, Mode::RUSR | Mode::WUSR).map(drop)?)
        }
        "exchange from" => Ok(renameat_with(CWD, at, CWD, other, RenameFlags::EXCHANGE)?),
        "exchange to" => Ok(renameat_with(CWD, other, CWD, at, RenameFlags::EXCHANGE)?),
        "no replacement" => Ok(renameat_with(CWD, other, CWD, at, RenameFlags::NOREPLACE)?),
        "rename to" => fs::rename(other, at),
        _ => unreachable!("{call}"),
    }
}

fn inside(fs: &Filesystem, call: &str, path: &str) -> extant::Result<()> {
    match call {
        "create" => fs.create(path).map(drop),
        "create_new" => {
            let mut options = fs.open_options();
            options.write(true).create_new(true).open(path).map(drop)
        }
        "mkdir" => fs.create_dir(path),
        "symlink" => fs.symlink("somewhere", path),
        "mkfifo" => fs.make_node(path, FileKind::Fifo, 0o600, 0),
        "link" => fs.hard_link("/other", path),
        "unlink" => fs.remove_file(path),
        "rename from" => fs.rename(path, "/moved"),
        "rmdir" => fs.remove_dir(path),
        "create, no link" => {
            let mut options = fs.open_options();
            options.write(true).create(true).no_follow(true);
            options.open(path).map(drop)
        }
        "exchange from" => fs.rename_with(path, "/other", RenameFlags::EXCHANGE),
        "exchange to" => fs.rename_with("/other", path, RenameFlags::EXCHANGE),
        "no replacement" => fs.rename_with("/other", path, RenameFlags::NOREPLACE),
        "rename to" => fs.rename("/other", path),
        _ => unreachable!("{call}"),
    }
}

/// Each call at each kind of path has the errno that it has on the host, and leaves the same names.
#[test]
fn ends_of_paths_mean_what_they_do_on_linux() -> Result<()> {
    let paths = [
        "/new",
        "/new/",
        "/new//",
        "/file",
        "/file/",
        "/dir/",
        "/empty/",
        "/none/new/",
        "/file/new/",
        "/new/.",
        "/file/.",
        "/dir/.",
        "/empty/.",
        "/dir/..",
        "/file/..",
        "/none/..",
        "/.",
    ];
    let links = LINKS.map(|(link, _)| link);
    let slashes = links.map(|link| format!("{link}/"));
    let paths = paths.into_iter().chain(links);
    let paths: Vec<&str> = paths.chain(slashes.iter().map(String::as_str)).collect();
    for call in CALLS {
        for &path in &paths {
            let (folder, fs) = (Folder::new()?, filesystem(SMALL)?);
            plant(
                |path| std::fs::create_dir(folder.at(path)),
                |path| std::fs::write(folder.at(path), ""),
            )?;
            plant(
                |path| Ok(fs.create_dir(path)?),
                |path| Ok(fs.write(path, "")?),
            )?;
            fs.remove_dir("/lost+found")?;
            for (link, target) in LINKS {
                std::os::unix::fs::symlink(target, folder.at(link))?;
                fs.symlink(target, link)?;
            }
            let theirs = on_host(&folder, call, path).map_err(|error| error.raw_os_error());
            let ours = inside(&fs, call, path).map_err(|error| Some(error.errno()));
            assert_eq!(ours, theirs, "{call} {path}");
            let names = |all: &mut dyn Iterator<Item = OsString>| {
                let mut all: Vec<OsString> = all.collect();
                all.sort();
                all
            };
            let host =
                std::fs::read_dir(&folder.0)?.map_while(|entry| Some(entry.ok()?.file_name()));
            let left = names(&mut { host });
            let inside = fs
                .read_dir("/")?
                .map_while(|entry| Some(entry.ok()?.file_name()));
            assert_eq!(names(&mut { inside }), left, "{call} {path}");
        }
    }
    Ok(())
}

/// Of two threads that make or open one name, each gets a file.
#[test]
fn creators_that_race_for_a_name_all_get_a_file() -> Result<()> {
    let _watchdog = Watchdog::new(Duration::from_secs(120));
    const ROUNDS: u32 = 3000;
    let fs = filesystem(SIZE)?;
    let barrier = Barrier::new(2);
    let race = || {
        let one = |round| {
            barrier.wait();
            let mut options = fs.open_options();
            let opened = options.write(true).create(true).open(format!("/{round}"));
            opened.err().map(|error| format!("{round}: {error}"))
        };
        (0..ROUNDS).filter_map(one).collect::<Vec<String>>()
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(race), scope.spawn(race)];
        for thread in threads {
            let failed = thread.join().expect("no panic");
            assert!(failed.is_empty(), "{} failed: {}", failed.len(), failed[0]);
        }
    });
    Ok(())
}

/// The number of commits so far.
fn commits(fs: &Filesystem) -> u64 {
    let all = fs.volume().stats();
    let commits = all.iter().find(|(name, _)| *name == "commits");
    commits.map_or(0, |(_, count)| *count)
}

#[test]
fn queued_writes_and_allocations_are_as_durable_as_the_file_was_opened_for() -> Result<()> {
    let _watchdog = Watchdog::new(Duration::from_secs(60));
    // No commit by time.
    let mut rare = Filesystem::options();
    rare.write(true).mount_options("commit=300");
    let fs = rare.open_device(device(SIZE)?)?;
    let open = |name: &str, sync, data_sync| {
        let mut options = fs.open_options();
        options.read(true).write(true).create(true).direct(true);
        options
            .sync(sync)
            .data_sync(data_sync)
            .open(Path::new(name))
    };
    let files = [
        (open("/plain", false, false)?, false),
        (open("/synced", true, false)?, true),
        (open("/data_synced", false, true)?, true),
    ];
    fs.sync()?;
    let mut wrong = Vec::new();
    for (file, syncs) in &files {
        let before = commits(&fs);
        let mut queue = fs.direct_queue(4);
        for tag in 0..4 {
            let buf = IoBuf::copy_of(&[7; 4096]);
            queue.write(file, tag * 4096, buf, tag)?;
        }
        for done in queue.wait(4) {
            assert_eq!(done.result?, 4096);
        }
        if (commits(&fs) > before) != *syncs {
            wrong.push(format!("written: {file:?}"));
        }
        fs.sync()?;
        let before = commits(&fs);
        file.allocate(0..1 << 20)?;
        if (commits(&fs) > before) != *syncs {
            wrong.push(format!("allocated: {file:?}"));
        }
        fs.sync()?;
    }
    assert_eq!(wrong, [""; 0]);
    let (plain, _) = &files[0];
    let mut queue = fs.direct_queue(1);
    queue.read(plain, 0, IoBuf::zeroed(4096), 9)?;
    let read = queue.wait(1).remove(0);
    assert_eq!((read.result?, read.tag, read.buf[0]), (4096, 9, 7));
    let read_only = fs.open_options().read(true).sync(true).open("/plain")?;
    let refused = queue.write(&read_only, 0, IoBuf::zeroed(4096), 0);
    assert!(matches!(refused, Err(Error::BadHandle)), "{refused:?}");
    Ok(())
}
