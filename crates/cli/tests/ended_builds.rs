//! `extant build` that a signal ends: there is no half an image, and no file that nothing names.

use std::fs;
use std::path::Path;

use extant_testkit::apart::LET_GO;
use extant_testkit::{Cmd, Context, Image, Need, Result, TempDir, content, ensure, need};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Tool("e2fsck"),
    Need::Tool("strace"),
    Need::Tool("unshare"),
];

const SIGNALS: [&str; 3] = ["SIGINT", "SIGTERM", "SIGKILL"];

/// The points of a build at which its signal comes: a system call, and which one of its thread's.
const POINTS: &[(&str, u32)] = &[
    // It reads the source,
    ("llistxattr", 50),
    // copies data, or writes what surrounds it,
    ("pwrite64", 1),
    ("pwrite64", 3),
    // makes the image durable,
    ("fsync", 1),
];
/// The calls that give a complete image its name: a file without one, or with a temporary one.
const NAMED: [&str; 2] = ["linkat", "renameat2"];

/// A host with a tree to build of.
struct Host {
    dir: TempDir,
    /// Files without a name can get one.
    has_nameless: bool,
}

impl Host {
    fn new(has_nameless: bool) -> Result<Self> {
        let dir = TempDir::new("ended")?;
        fs::create_dir(dir.join("tree"))?;
        fs::create_dir(dir.join("out"))?;
        for number in 0..200 {
            let bytes = content::fill(number, 0, 30_000);
            fs::write(dir.join("tree").join(number.to_string()), bytes)?;
        }
        Ok(Self { dir, has_nameless })
    }

    /// Builds, with `signal` at `point`. Returns the files that are there afterwards; an image
    /// among them is complete.
    fn built(&self, (call, number): (&str, u32), signal: &str) -> Result<Vec<String>> {
        let out = self.dir.join("out");
        let traced = format!("trace={call}");
        let inject = format!("inject={call}:signal={signal}:when={number}");
        let strace = Cmd::new("strace").args(["-f", "-o", "log", "-e", &traced, "-e", &inject]);
        let strace = match self.has_nameless {
            true => strace,
            // Files without a name get theirs through /proc.
            false => {
                let script = "mount -t tmpfs none /proc; exec \"$@\"";
                let strace = strace.args(["unshare", "--mount", "sh", "-c", LET_GO, " "]);
                strace.args(["sh", "-c", script, "-"])
            }
        };
        let build = strace.arg(env!("CARGO_BIN_EXE_extant")).arg("build");
        let build = build.args(["-q", "--threads", "1", "tree", "out/image"]);
        let ended = build.dir(self.dir.path()).run()?;
        let log = fs::read_to_string(self.dir.join("log"))?;
        ensure!(log.contains(signal), "no {signal}: {}", ended.describe());
        let mut left = Vec::new();
        for entry in fs::read_dir(&out)? {
            let entry = entry?;
            left.push(entry.file_name().to_string_lossy().into_owned());
            if entry.file_name() == "image" {
                sound(&entry.path())?;
            }
            fs::remove_file(entry.path())?;
        }
        // A handler of the signal may come too late, but no other end is a good one.
        let is_whole = left == ["image"];
        ensure!(ended.code.is_none() || is_whole, "{}", ended.describe());
        Ok(left)
    }
}

/// Checks that an image has the whole tree.
fn sound(image: &Path) -> Result<()> {
    Image::fsck_clean_at(image)?;
    let tree = image.with_file_name("../tree");
    Cmd::new(env!("CARGO_BIN_EXE_extant"))
        .arg("diff")
        .args([tree.as_path(), image])
        .ok()?;
    Ok(())
}

#[test]
fn a_build_that_a_signal_ends_leaves_an_image_or_nothing() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = Host::new(true)?;
    for signal in SIGNALS {
        let named = (NAMED[0], 1);
        for &point in POINTS.iter().chain([&named]) {
            let left = host.built(point, signal);
            let left = left.context(|| format!("{signal} at {point:?}"))?;
            let is_good = left.is_empty() || left == ["image"];
            ensure!(is_good, "{signal} at {point:?} leaves {left:?}");
            // It leaves no time for anything else.
            let is_killed = signal == "SIGKILL" && point != named;
            ensure!(!is_killed || left.is_empty(), "{point:?}: {left:?}");
        }
    }
    Ok(())
}

#[test]
fn a_temporary_name_goes_with_a_build_that_a_signal_ends() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = Host::new(false)?;
    for signal in SIGNALS {
        let named = (NAMED[1], 1);
        for &point in POINTS.iter().chain([&named]) {
            let left = host.built(point, signal);
            let left = left.context(|| format!("{signal} at {point:?}"))?;
            let is_temporary = |name: &String| name.starts_with(".extant-new-");
            let is_good = match left.as_slice() {
                [] => true,
                [name] if signal == "SIGKILL" => name == "image" || is_temporary(name),
                [name] => name == "image",
                _ => false,
            };
            ensure!(is_good, "{signal} at {point:?} leaves {left:?}");
        }
    }
    Ok(())
}
