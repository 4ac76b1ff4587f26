//! Walks over trees that no file system should have: they end, say what is wrong, and show the
//! rest.

use std::fmt::Write;

use extant_testkit::{Cmd, Image, Need, Result, TempDir, ensure, need};

const NEEDS: &[Need] = &[Need::Tool("mke2fs"), Need::Tool("debugfs")];

fn extant(args: &[&str]) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args)
}

/// Each directory has the next one, by twelve names: 12^20 paths.
fn graph() -> Result<Image> {
    let image = Image::of_mib(8).make()?;
    let (mut script, mut path) = (String::new(), String::new());
    for _ in 0..20 {
        path += "/d";
        let _ = writeln!(script, "mkdir {path}");
    }
    while path.len() > 2 {
        for name in 0..11 {
            let _ = writeln!(script, "ln {path} {}/e{name}", &path[..path.len() - 2]);
        }
        path.truncate(path.len() - 2);
    }
    let dir = TempDir::new("graph")?;
    let file = dir.join("script");
    std::fs::write(&file, script)?;
    Cmd::new("debugfs")
        .args(["-w", "-f"])
        .arg(&file)
        .arg(image.path())
        .ok()?;
    Ok(image)
}

#[test]
fn a_directory_is_entered_once_whatever_names_it_has() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = graph()?;
    let place = format!("{}:/d", image.path().display());
    for args in [
        &["tree"][..],
        &["tar"],
        &["chmod", "-R", "755"],
        &["chown", "-R", "5"],
    ] {
        let o = extant(args).arg(&place).run()?;
        let reported = o.err.matches("a directory with a second name").count();
        ensure!(o.code == Some(1) && reported == 19 * 11, "{}", o.describe());
        if args == ["tree"] {
            // The line of each name, an empty one and the totals.
            ensure!(
                o.out.lines().count() == 20 + 19 * 11 + 2,
                "{}",
                o.describe()
            );
        }
    }
    Ok(())
}

#[test]
fn a_directory_that_contains_itself_is_reported() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(8).make()?;
    image.debugfs_write("mkdir /a")?;
    image.debugfs_write("mkdir /a/b")?;
    image.debugfs_write("ln /a /a/b/c")?;
    let place = format!("{}:/", image.path().display());
    let o = extant(&["tree", &place]).run()?;
    ensure!(
        o.code == Some(1)
            && o.err
                .trim_end()
                .ends_with("/a/b/c: a directory that contains itself"),
        "{}",
        o.describe()
    );
    Ok(())
}

#[test]
fn an_entry_that_leads_nowhere_hides_no_other() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(8).make()?;
    for name in ["a", "b", "c"] {
        image.debugfs_write(&format!("write /dev/null {name}"))?;
    }
    image.debugfs_write("clri b")?;
    let place = format!("{}:/", image.path().display());
    for args in [&["ls"][..], &["ls", "-l"], &["ls", "--json"]] {
        let o = extant(args).arg(&place).run()?;
        let names = ["a", "c", "lost+found"];
        ensure!(
            o.code == Some(1)
                && o.err.contains("/b: corrupt inode 2")
                && names.iter().all(|name| o.out.contains(name)),
            "{}",
            o.describe()
        );
    }
    // Items of an array that is written piece by piece are an array.
    let o = extant(&["ls", "--json", &place]).run()?;
    ensure!(
        o.out.starts_with("[{") && o.out.ends_with("}]\n") && o.out.contains("},{"),
        "{}",
        o.describe()
    );
    image.debugfs_write("mkdir empty")?;
    let o = extant(&["ls", "--json", &format!("{place}empty")]).ok()?;
    ensure!(o.out == "[]\n", "{}", o.describe());
    Ok(())
}
