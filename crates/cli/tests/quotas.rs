//! `extant quota`: reports, limits and projects, of images and of a mount; quota tools and e2fsck
//! judge.

use std::fs;

use extant_testkit::{Cmd, Image, Need, Result, TempDir, ensure, need};
use serde_json::Value;

const NEEDS: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("e2fsck"),
    Need::Tool("debugfs"),
];

fn counted() -> Result<Image> {
    let kinds = "-E quotatype=usrquota:grpquota:prjquota";
    Image::of_mib(16)
        .args("-O quota,project")
        .args(kinds)
        .make()
}

fn quota(line: &str, image: &Image) -> Cmd {
    let cmd = Cmd::new(env!("CARGO_BIN_EXE_extant")).arg("quota");
    cmd.args(line.split_whitespace()).arg(image.path())
}

fn entry(report: &Value, kind: &str, id: u64) -> Value {
    let entries = report[kind]["entries"].as_array();
    let found = entries.and_then(|all| all.iter().find(|entry| entry["id"] == id));
    found.cloned().unwrap_or_default()
}

#[test]
fn limits_are_set_and_shown() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = counted()?;
    quota("edit -u 1000 --space-hard 10M --inodes-soft 5", &image).ok()?;
    quota("edit --user 1000 --space-soft 9M", &image).ok()?;
    quota("edit -g 7 --inodes-grace 60", &image).ok()?;
    let told = quota("report --json", &image).ok()?.out;
    let report: Value = serde_json::from_str(&told)?;
    let user = entry(&report, "user", 1000);
    ensure!(
        user["space_hard"] == 10 << 20 && user["space_soft"] == 9 << 20,
        "{user}"
    );
    ensure!(user["inodes_soft"] == 5 && user["inodes"] == 0, "{user}");
    ensure!(report["group"]["inodes_grace"] == 60, "{told}");
    ensure!(report["user"]["inodes_grace"] == 604_800, "{told}");
    let root = entry(&report, "project", 0);
    ensure!(root["inodes"] == 2 && root["space"] == 13_312, "{root}");
    let told = quota("report -u", &image).ok()?.out;
    ensure!(
        told.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words == ["1000", "--", "0", "9216", "10240", "0", "5", "0"]
        }),
        "{told}"
    );
    ensure!(!told.contains("group"), "{told}");
    let listed = image.debugfs("list_quota user")?;
    ensure!(listed.contains("1000"), "{listed}");
    image.fsck_clean()
}

#[test]
fn projects_are_given_to_trees() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = counted()?;
    {
        let fs = extant::Options::new().write(true).open(image.path())?;
        fs.create_dir("/dir")?;
        fs.write("/dir/file", [1; 5000])?;
        fs.unmount()?;
    }
    let extant = |line: &str| {
        let at = format!("{}:/dir", image.path().display());
        let cmd = Cmd::new(env!("CARGO_BIN_EXE_extant")).arg("quota");
        cmd.args(line.split_whitespace()).arg(at)
    };
    extant("project 41").ok()?;
    let usage = |id| -> Result<(Value, Value)> {
        let told = quota("report --json -P", &image).ok()?.out;
        let found = entry(&serde_json::from_str(&told)?, "project", id);
        Ok((found["inodes"].clone(), found["space"].clone()))
    };
    ensure!(usage(41)? == (1.into(), 1024.into()), "{:?}", usage(41)?);
    extant("project -R 42").ok()?;
    ensure!(usage(42)? == (2.into(), 6144.into()), "{:?}", usage(42)?);
    ensure!(usage(41)? == (0.into(), 0.into()), "{:?}", usage(41)?);
    {
        let fs = extant::Options::new().write(true).open(image.path())?;
        fs.write("/dir/more", [1; 10])?;
        fs.unmount()?;
    }
    ensure!(usage(42)?.0 == 3, "inherited: {:?}", usage(42)?);
    image.fsck_clean()
}

#[test]
fn refusals_are_plain_and_leave_the_image() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    let before = image.fingerprint()?;
    for (line, code, says) in [
        (
            "report",
            1,
            "quotas of this kind, which the volume does not count",
        ),
        ("edit -u 5 --space-hard 1M", 1, "does not count"),
        ("edit --space-hard 1M", 2, "--user"),
        ("edit -u no-such-user --space-hard 1M", 2, "no such user"),
        ("edit -u 5", 2, "a limit or a grace time is needed"),
        ("edit -u 5 --space-hard 9E", 2, "too large"),
        ("edit -u 5 -g 5 --space-hard 1M", 2, "cannot be used with"),
    ] {
        let o = quota(line, &image).run()?;
        ensure!(
            o.code == Some(code) && o.err.contains(says),
            "{line}: {}",
            o.describe()
        );
    }
    ensure!(image.fingerprint()? == before, "the image has changed");
    Ok(())
}

/// A mount answers for itself, and refuses a write in time.
#[test]
fn a_mount_is_asked() -> Result<()> {
    if !need(&[Need::Tool("mke2fs"), Need::Tool("e2fsck"), Need::Fuse]) {
        return Ok(());
    }
    let image = counted()?;
    let dir = TempDir::new("quotas")?;
    let point = dir.join("mnt");
    fs::create_dir(&point)?;
    let extant = |args: &[&str]| {
        let cmd = Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args);
        cmd.dir(dir.path())
    };
    let at = image.path().to_string_lossy().into_owned();
    extant(&["mount", "-o", "prjquota", &at, "mnt"]).ok()?;
    let asked = || -> Result<()> {
        extant(&["quota", "edit", "-P", "9", "--inodes-hard", "3", "mnt"]).ok()?;
        fs::write(point.join("file"), [1; 3000])?;
        let report = extant(&["quota", "report", "--json", "mnt"]).ok()?.out;
        let report: Value = serde_json::from_str(&report)?;
        ensure!(entry(&report, "project", 9)["inodes_hard"] == 3, "{report}");
        ensure!(entry(&report, "user", 0)["inodes"] == 3, "{report}");
        let o = extant(&["quota", "report", "."]).run()?;
        ensure!(
            o.code == Some(1) && o.err.contains("not a mount"),
            "{}",
            o.describe()
        );
        Ok(())
    };
    let result = asked();
    extant(&["umount", "mnt"]).ok()?;
    result?;
    image.fsck_clean()
}
