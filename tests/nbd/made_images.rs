//! `extant nbd` of folders and archives: clients get the bytes that `extant build` writes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use extant_testkit::{Cmd, Image, Need, Result, TempDir, content, ensure, need, tools};

use crate::commands::{extant, refused};
use crate::serving::Serving;

const NEEDS: &[Need] = &[
    Need::Tool("nbdcopy"),
    Need::Tool("e2fsck"),
    Need::Tool("tar"),
];
const UUID: &str = "00112233-4455-4677-8899-aabbccddeeff";

/// A folder of 400 files, some of them with holes.
fn fill(dir: &TempDir) -> Result<PathBuf> {
    let folder = dir.join("folder");
    for sub in ["a", "b/c", "d"] {
        fs::create_dir_all(folder.join(sub))?;
        for number in 0..130_u64 {
            let len = usize::try_from(number * number * 5)?;
            let file = folder.join(sub).join(format!("file {number}"));
            fs::write(&file, content::fill(number, 0, len))?;
            if number % 50 == 1 {
                let file = fs::File::options().write(true).open(&file)?;
                file.set_len(3 << 20)?;
            }
        }
    }
    symlink("a/file 3", folder.join("link"))?;
    fs::hard_link(folder.join("a/file 99"), folder.join("d/again"))?;
    Ok(folder)
}

/// Serves `arguments`, and compares what nbdcopy gets with what a build of them writes.
fn expect_equal(dir: &TempDir, arguments: &[&str]) -> Result<()> {
    let (image, copy) = (dir.join("image"), dir.join("copy"));
    let _ = fs::remove_file(&image);
    let build = Cmd::new(tools::extant()?).args(["build", "-q"]);
    build.args(arguments).arg(&image).ok()?;
    let serving = Serving::start(&dir.join("socket"), arguments)?;
    let at = serving.address();
    Cmd::new("nbdcopy").arg(&at).arg(&copy).ok()?;
    Cmd::new("cmp").arg(&image).arg(&copy).ok()?;
    ensure!(extant(&["check", &at])?.contains("clean"), "check");
    refused(&["mkdir", &format!("{at}:/x")], "read-only")?;
    let out = dir.join("out");
    let file = format!("{at}:/a/file 3");
    extant(&["cp", &file, &out.display().to_string()])?;
    ensure!(fs::read(&out)? == content::fill(3, 0, 9 * 5), "a file");
    fs::remove_file(&out)?;
    serving.stop()?;
    Image::fsck_clean_at(&copy)?;
    fs::remove_file(&copy)?;
    Ok(())
}

#[test]
fn folders_and_archives_are_served_as_they_are_built() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let dir = TempDir::new("nbd-made")?;
    let folder = fill(&dir)?;
    let (tar, packed) = (dir.join("tar"), dir.join("packed"));
    let script = "tar -S -C folder -cf tar . && gzip -c tar >packed";
    Cmd::new("sh").args(["-c", script]).dir(dir.path()).ok()?;
    let word = |path: &Path| path.display().to_string();
    let (folder, tar, packed) = (word(&folder), word(&tar), word(&packed));
    expect_equal(&dir, &[&folder])?;
    expect_equal(
        &dir,
        &["-U", UUID, "--owner", "0:0", "--free", "10M", &folder],
    )?;
    expect_equal(
        &dir,
        &["-b", "1024", "-L", "made", "--mtime", "77", &folder],
    )?;
    expect_equal(&dir, &["--size", "200M", "-O", "bigalloc", &folder])?;
    expect_equal(&dir, &[&tar])?;
    expect_equal(&dir, &["-U", UUID, &packed])?;
    expect_equal(&dir, &["-U", UUID, &tar, &folder])
}

/// A file that changed after the start is an error that the log names, and all else is served.
#[test]
fn a_file_that_changes_is_an_error() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let dir = TempDir::new("nbd-changed")?;
    let folder = fill(&dir)?;
    let changed = folder.join("b/c/file 120");
    let path = folder.display().to_string();
    let mut serving = Serving::start(&dir.join("socket"), &["-U", UUID, &path])?;
    let at = serving.address();
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(&changed, content::fill(5, 0, 120 * 120 * 5))?;
    let out = dir.join("out").display().to_string();
    let inside = |name: &str| format!("{at}:/{name}");
    refused(&["cp", &inside("b/c/file 120"), &out], "Input/output error")?;
    extant(&["cp", &inside("b/c/file 119"), &out])?;
    ensure!(
        fs::read(&out)? == content::fill(119, 0, 119 * 119 * 5),
        "another"
    );
    let copied = Cmd::new("nbdcopy").arg(&at).arg(dir.join("copy")).run()?;
    ensure!(copied.code != Some(0), "{}", copied.describe());
    let told = serving.log()?;
    let why = format!("{}: it changed meanwhile", changed.display());
    ensure!(told.contains(&why), "{told}");
    serving.stop()
}

#[test]
fn options_of_volumes_are_not_for_images() -> Result<()> {
    let dir = TempDir::new("nbd-options")?;
    let image = dir.join("image");
    fs::write(&image, [0; 4096])?;
    let socket = dir.join("socket");
    let cmd = Cmd::new(tools::extant()?).args(["nbd", "-L", "x", "--socket"]);
    let told = cmd.arg(&socket).arg(&image).run()?;
    let is_usage = told.code == Some(2) && told.err.contains("for folders and archives");
    ensure!(is_usage && !socket.exists(), "{}", told.describe());
    let path = image.display().to_string();
    refused(&["nbd", &path, "/nonexistent"], "No such file")
}
