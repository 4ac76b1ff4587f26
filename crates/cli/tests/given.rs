//! `--owner` and `--mode`: the owner and the permissions of the files that commands make,
//! whatever user runs the command.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use extant_testkit::{Cmd, Need, Result, TempDir, ensure, need, tools};

fn extant<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args)
}

/// An empty image in a folder.
struct Disk(TempDir);

impl Disk {
    fn new(name: &str) -> Result<Disk> {
        let disk = Disk(TempDir::new(name)?);
        extant(["mkfs", "-q", &disk.image(), "16M"]).ok()?;
        Ok(disk)
    }

    fn image(&self) -> String {
        self.0.join("disk.img").display().to_string()
    }

    fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.image())
    }

    /// Owner, group and permissions of what is at a path.
    fn is(&self, path: &str, right: &str) -> Result<()> {
        let stat = extant(["stat", "--json", &self.at(path)]).ok()?.out;
        let field = |name: &str| {
            let (_, rest) = stat.split_once(&format!("\"{name}\":")).unwrap_or_default();
            let end = rest.find([',', '}']).unwrap_or(rest.len());
            rest[..end].trim_matches('"').to_owned()
        };
        let is = format!("{}:{} {}", field("uid"), field("gid"), field("mode"));
        ensure!(is == right, "{path}: {is}, not {right}: {stat}");
        Ok(())
    }
}

#[test]
fn copies_belong_to_the_owner_that_is_named() -> Result<()> {
    let disk = Disk::new("given-cp")?;
    let from = disk.0.join("from");
    fs::create_dir_all(from.join("sub"))?;
    fs::write(from.join("sub/file"), "x")?;
    fs::set_permissions(from.join("sub/file"), fs::Permissions::from_mode(0o640))?;
    symlink("file", from.join("sub/link"))?;
    let from = from.display().to_string();

    extant([
        "cp",
        "-r",
        "--owner",
        "12:34",
        "--mode",
        "go=rX",
        &from,
        &disk.at("/r"),
    ])
    .ok()?;
    disk.is("/r/sub", "12:34 0755")?;
    disk.is("/r/sub/file", "12:34 0644")?;
    disk.is("/r/sub/link", "12:34 0777")?;
    extant([
        "cp",
        "-a",
        "--owner",
        "12",
        "--mode",
        "u+s",
        &from,
        &disk.at("/a"),
    ])
    .ok()?;
    let gid = std::os::unix::fs::MetadataExt::gid(&fs::metadata(&from)?);
    disk.is("/a/sub/file", &format!("12:{gid} 4640"))?;
    // What was there keeps its own, but for a file that is written anew.
    extant(["mkdir", &disk.at("/old")]).ok()?;
    extant(["chown", "5:6", &disk.at("/old")]).ok()?;
    extant([
        "cp",
        "-r",
        "--owner",
        "12:34",
        &format!("{from}/."),
        &disk.at("/old"),
    ])
    .ok()?;
    disk.is("/old", "5:6 0755")?;
    disk.is("/old/sub", "12:34 0755")?;
    let wrong = extant(["cp", "--mode", "rwx", &from, &disk.at("/x")]).run()?;
    ensure!(
        wrong.code == Some(2) && wrong.err.contains("neither octal"),
        "{}",
        wrong.describe()
    );
    Ok(())
}

#[test]
fn directories_links_and_unpacked_files_do_too() -> Result<()> {
    let disk = Disk::new("given-made")?;
    extant([
        "mkdir",
        "-p",
        "--owner",
        "1:2",
        "-m",
        "700",
        &disk.at("/a/b/c"),
    ])
    .ok()?;
    disk.is("/a", "1:2 0755")?;
    disk.is("/a/b", "1:2 0755")?;
    disk.is("/a/b/c", "1:2 0700")?;
    extant(["mkdir", "-p", "--owner", "3:4", &disk.at("/a/b/d")]).ok()?;
    disk.is("/a/b", "1:2 0755")?;
    disk.is("/a/b/d", "3:4 0755")?;
    extant(["ln", "-s", "--owner", ":9", "b", &disk.at("/a/link")]).ok()?;
    let stat = extant(["stat", "--json", &disk.at("/a/link")]).ok()?.out;
    ensure!(stat.contains("\"gid\":9"), "{stat}");
    let hard = extant(["ln", "--owner", "1", &disk.at("/a/b"), &disk.at("/l")]).run()?;
    ensure!(
        hard.code == Some(2) && hard.err.contains("--symbolic"),
        "{}",
        hard.describe()
    );

    extant([
        "tar",
        "-f",
        &disk.0.join("a.tar").display().to_string(),
        &disk.at("/a"),
    ])
    .ok()?;
    extant(["mkdir", &disk.at("/new")]).ok()?;
    let archive = disk.0.join("a.tar").display().to_string();
    extant([
        "untar",
        "-f",
        &archive,
        "--owner",
        "0:0",
        "--mode",
        "go-x",
        &disk.at("/new"),
    ])
    .ok()?;
    disk.is("/new/b", "0:0 0744")?;
    disk.is("/new/b/c", "0:0 0700")?;
    let clean = extant(["check", &disk.image()]).run()?;
    ensure!(clean.code == Some(0), "{}", clean.describe());
    Ok(())
}

#[test]
fn a_path_with_dots_gives_away_what_it_makes_alone() -> Result<()> {
    let disk = Disk::new("given-dots")?;
    let make = |path: &str, more: &[&str]| {
        let args = ["mkdir", "-p", "--owner", "1:2"];
        extant(args).args(more).arg(disk.at(path)).ok()
    };
    make("/a/../b", &[])?;
    disk.is("/a", "1:2 0755")?;
    disk.is("/b", "1:2 0755")?;
    make("/c/..", &["-m", "700"])?;
    disk.is("/c", "1:2 0755")?;
    disk.is("/", "0:0 0755")
}

/// A file of the host with set-id bits, and its owner.
fn tool(disk: &Disk) -> Result<(String, String)> {
    use std::os::unix::fs::MetadataExt;
    let path = disk.0.join("tool");
    fs::write(&path, "elf")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6755))?;
    let found = fs::metadata(&path)?;
    let owner = format!("{}:{}", found.uid(), found.gid());
    Ok((path.display().to_string(), owner))
}

#[test]
fn copies_give_no_set_id_bits_to_another_owner() -> Result<()> {
    let disk = Disk::new("given-setid")?;
    let (tool, own) = tool(&disk)?;
    for (owner, to, mode) in [(own.as_str(), "/same", "6755"), ("77:88", "/other", "0755")] {
        extant(["cp", "-a", "--owner", owner, &tool, &disk.at(to)]).ok()?;
        disk.is(to, &format!("{owner} {mode}"))?;
    }
    Ok(())
}

#[test]
fn unpacked_files_give_no_set_id_bits_to_another_owner() -> Result<()> {
    let disk = Disk::new("given-untar")?;
    let (tool, own) = tool(&disk)?;
    for dir in ["/dir", "/new"] {
        extant(["mkdir", &disk.at(dir)]).ok()?;
    }
    extant(["cp", "-a", &tool, &disk.at("/dir/tool")]).ok()?;
    let archive = disk.0.join("a.tar").display().to_string();
    extant(["tar", "-f", &archive, &disk.at("/dir")]).ok()?;
    for (owner, mode) in [("77:88", "0755"), (own.as_str(), "6755")] {
        let new = disk.at("/new");
        extant(["untar", "-f", &archive, "--owner", owner, &new]).ok()?;
        disk.is("/new/tool", &format!("{owner} {mode}"))?;
    }
    Ok(())
}

/// A user without root cannot give its files away: the copy says so.
#[test]
fn an_owner_that_the_host_refuses_is_a_failure() -> Result<()> {
    if !need(&[Need::Root, Need::Tool("setpriv")]) {
        return Ok(());
    }
    let disk = Disk::new("given-refused")?;
    fs::write(disk.0.join("in"), "x")?;
    let input = disk.0.join("in").display().to_string();
    extant(["cp", &input, &disk.at("/f")]).ok()?;
    // Where programs may run, and another user may read and write.
    let host = TempDir::new_in(&std::env::temp_dir(), "refused")?;
    let (program, image, out) = (host.join("extant"), host.join("image"), host.join("out"));
    tools::copy_program(env!("CARGO_BIN_EXE_extant"), &program)?;
    fs::copy(disk.image(), &image)?;
    fs::create_dir(&out)?;
    for (path, mode) in [(host.path(), 0o755), (&image, 0o644), (&out, 0o777)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    let from = format!("{}:/f", image.display());
    for preserve in [&["-p"][..], &[]] {
        let ids = ["--reuid=12345", "--regid=12345", "--clear-groups"];
        let cp = Cmd::new("setpriv").args(ids).arg(&program).arg("cp");
        let cp = cp.args(preserve).args(["--owner", "0:0", &from]);
        let o = cp.arg(out.join("f")).run()?;
        ensure!(
            o.code == Some(1) && o.err.contains("--owner: Operation not permitted"),
            "{preserve:?}: {}",
            o.describe()
        );
        let _ = fs::remove_file(out.join("f"));
    }
    Ok(())
}
