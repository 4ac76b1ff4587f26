//! Each swap by another process of a file that a copy has looked at, step by step.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use extant_engine::FileKind;
use extant_testkit::{Result, TempDir, ensure};

use super::HostTree;
use crate::copy::sides::{FileTree, FirstName, Found};

/// `in` is the directory of the copy; `out/file` and `out` are what links lead to.
struct Swapped {
    tmp: TempDir,
}

impl Swapped {
    fn new() -> Result<Swapped> {
        let tmp = TempDir::new("swap")?;
        fs::create_dir_all(tmp.join("in/sub"))?;
        fs::create_dir(tmp.join("out"))?;
        fs::write(tmp.join("in/file"), "mine")?;
        fs::write(tmp.join("out/file"), "theirs")?;
        Ok(Swapped { tmp })
    }

    fn dir(&self, path: &str) -> Found<'static> {
        let found = HostTree.item(&self.tmp.join(path), false);
        let found = found.ok().flatten();
        found.and_then(|found| found.enter().ok()).expect(path)
    }

    /// Puts a link to `out`, or to what is called `to` in it, in the place of `path`.
    fn swap(&self, path: &str, to: &str) -> Result<()> {
        let path = self.tmp.join(path);
        if fs::symlink_metadata(&path).is_ok() {
            fs::rename(&path, path.with_extension("away"))?;
        }
        Ok(symlink(self.tmp.join("out").join(to), path)?)
    }

    /// Fails if anything outside of `in` changed.
    fn check(&self) -> Result<()> {
        let (out, file) = (self.tmp.join("out"), self.tmp.join("out/file"));
        ensure!(
            fs::read_to_string(&file)? == "theirs",
            "the file is written"
        );
        let names = fs::read_dir(&out)?.count();
        ensure!(names == 1, "{names} names outside");
        for path in [&out, &file] {
            let metadata = fs::metadata(path)?;
            ensure!(
                metadata.mode() & 0o1000 == 0,
                "{path:?} has new permissions"
            );
            ensure!(metadata.mtime() != 77, "{path:?} has new times");
        }
        Ok(())
    }
}

fn name(name: &str) -> &OsStr {
    OsStr::new(name)
}

#[test]
fn a_directory_stays_the_one_that_was_opened() -> Result<()> {
    let swapped = Swapped::new()?;
    let sub = swapped.dir("in").find(name("sub")).unwrap().unwrap();
    let entered = sub.enter().unwrap();
    // Between it was found and entered, and between it was entered and filled.
    swapped.swap("in/sub", "")?;
    let late = sub.enter().unwrap();
    for (dir, file) in [(&entered, "one"), (&late, "two")] {
        dir.create(name(file), 0o600).map(drop).unwrap();
        dir.mkdir(name(&format!("{file}.d")), 0o700)
            .map(drop)
            .unwrap();
        dir.symlink(name(&format!("{file}.l")), Path::new("x"))
            .map(drop)
            .unwrap();
        dir.set_perm(0o1755).unwrap();
    }
    let filled = fs::read_dir(swapped.tmp.join("in/sub.away"))?.count();
    ensure!(filled == 6, "{filled} names in the directory");
    swapped.check()
}

#[test]
fn a_file_swapped_for_a_link_is_not_written() -> Result<()> {
    let swapped = Swapped::new()?;
    let dir = swapped.dir("in");
    let file = dir.find(name("file")).unwrap().unwrap();
    let mut like = file.attributes().clone();
    like.mtime.secs = 77;
    swapped.swap("in/file", "file")?;
    let said = file.rewrite().err().map(|failure| failure.to_string());
    ensure!(
        said.as_deref() == Some("replaced while it was being copied"),
        "{said:?}"
    );
    ensure!(file.open().is_err(), "another file is read");
    // Attributes go to the file that was found.
    file.set_perm(0o1600).unwrap();
    file.set_times(&like).unwrap();
    let away = fs::metadata(swapped.tmp.join("in/file.away"))?;
    ensure!(
        away.mode() & 0o7777 == 0o1600 && away.mtime() == 77,
        "{away:?}"
    );
    swapped.check()
}

#[test]
fn a_link_where_nothing_was_is_not_followed() -> Result<()> {
    let swapped = Swapped::new()?;
    let dir = swapped.dir("in");
    ensure!(dir.find(name("new")).unwrap().is_none(), "it is there");
    swapped.swap("in/new", "file")?;
    ensure!(dir.create(name("new"), 0o600).is_err(), "created");
    ensure!(dir.mkdir(name("new"), 0o700).is_err(), "made");
    symlink(
        swapped.tmp.join("out/created"),
        swapped.tmp.join("in/other"),
    )?;
    ensure!(dir.create(name("other"), 0o600).is_err(), "created outside");
    swapped.check()
}

#[test]
fn links_and_pipes_swapped_after_they_were_made_keep_their_attributes_to_themselves() -> Result<()>
{
    let swapped = Swapped::new()?;
    let dir = swapped.dir("in");
    let mut like = dir
        .find(name("file"))
        .unwrap()
        .unwrap()
        .attributes()
        .clone();
    let link = dir.symlink(name("link"), Path::new("nowhere")).unwrap();
    like.kind = FileKind::Fifo;
    like.mtime.secs = 77;
    let pipe = dir.make_node(name("pipe"), &like, 0o600).unwrap();
    swapped.swap("in/link", "file")?;
    swapped.swap("in/pipe", "file")?;
    link.set_times(&like).unwrap();
    pipe.set_times(&like).unwrap();
    pipe.set_perm(0o1600).unwrap();
    for path in ["in/link.away", "in/pipe.away"] {
        let away = fs::symlink_metadata(swapped.tmp.join(path))?;
        ensure!(away.mtime() == 77, "{path}: {away:?}");
    }
    swapped.check()
}

#[test]
fn another_name_is_given_to_the_first_copy_only() -> Result<()> {
    let swapped = Swapped::new()?;
    let dir = swapped.dir("in");
    let id = dir.find(name("file")).unwrap().unwrap().attributes().id;
    let first = |path: &str| FirstName {
        path: path.into(),
        id,
    };
    dir.hard_link(name("second"), &first("file")).unwrap();
    swapped.swap("in/file", "file")?;
    ensure!(
        dir.hard_link(name("third"), &first("file")).is_err(),
        "a link"
    );
    swapped.swap("in/sub", "")?;
    ensure!(
        dir.hard_link(name("fourth"), &first("sub/file")).is_err(),
        "through a link"
    );
    ensure!(
        dir.hard_link(name("fifth"), &first("../out/file")).is_err(),
        "up"
    );
    for made in ["in/third", "in/fourth", "in/fifth"] {
        ensure!(
            fs::symlink_metadata(swapped.tmp.join(made)).is_err(),
            "{made}"
        );
    }
    swapped.check()
}

#[test]
fn names_that_lead_elsewhere_are_refused() -> Result<()> {
    let swapped = Swapped::new()?;
    let dir = swapped.dir("in");
    for bad in [
        "",
        ".",
        "..",
        "../out/file",
        "sub/../../out/x",
        "/",
        "a/b",
        "a\0",
    ] {
        ensure!(dir.find(name(bad)).is_err(), "{bad:?} is found");
        ensure!(dir.create(name(bad), 0o600).is_err(), "{bad:?} is created");
        ensure!(dir.mkdir(name(bad), 0o700).is_err(), "{bad:?} is made");
        ensure!(dir.remove(name(bad)).is_err(), "{bad:?} is removed");
    }
    swapped.check()
}

#[test]
fn a_directory_that_was_moved_is_not_taken_for_the_one_above_it() -> Result<()> {
    let swapped = Swapped::new()?;
    let top = swapped.dir("in");
    let sub = top.find(name("sub")).unwrap().unwrap().enter().unwrap();
    let deep = sub.mkdir(name("deep"), 0o700).unwrap();
    sub.park();
    ensure!(
        sub.find(name("deep")).is_err(),
        "a parked directory is used"
    );
    deep.restore_parent().unwrap();
    ensure!(sub.find(name("deep")).unwrap().is_some(), "it is not back");
    sub.park();
    fs::rename(
        swapped.tmp.join("in/sub/deep"),
        swapped.tmp.join("out/deep"),
    )?;
    ensure!(
        deep.restore_parent().is_err(),
        "another directory is taken for it"
    );
    fs::remove_dir(swapped.tmp.join("out/deep"))?;
    swapped.check()
}
