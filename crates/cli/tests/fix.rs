//! `extant fix`: what it prints, its exit status, and that it writes only where it says so.

use std::fs;

use extant_testkit::{Cmd, Image, Need, Result, TempDir, ensure, need};
use serde_json::Value;

const NEEDS: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
    Need::Tool("e2fsck"),
];

fn fix(options: &[&str], image: &Image) -> Cmd {
    let cmd = Cmd::new(env!("CARGO_BIN_EXE_extant")).arg("fix");
    cmd.args(options).arg(image.path())
}

#[test]
fn what_is_fixed_and_left_is_told_to_people_and_programs() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(8).make()?;
    for request in ["mkdir /d", "write /dev/null /d/f", "write /dev/null /d/g"] {
        image.debugfs_write(request)?;
    }
    let clean = fs::read(image.path())?;
    let o = fix(&[], &image).run()?;
    ensure!(
        o.code == Some(0) && o.out.ends_with(": clean\n"),
        "{}",
        o.describe()
    );
    ensure!(
        fs::read(image.path())? == clean,
        "a clean image was written"
    );

    image.debugfs_write("sif /d/f links_count 9")?;
    let damaged = fs::read(image.path())?;
    let o = fix(&["-n"], &image).run()?;
    let told = o.out.contains("link count 9, found 1: would be fixed\n");
    ensure!(o.code == Some(4) && told, "{}", o.describe());
    ensure!(fs::read(image.path())? == damaged, "a dry run has written");
    let o = fix(&["--json"], &image).run()?;
    let object: Value = serde_json::from_str(&o.out)?;
    let fixed = object["fixed"].as_array().map_or(0, Vec::len);
    ensure!(o.code == Some(1) && fixed == 1, "{}", o.describe());
    ensure!(
        object["clean"] == true && object["dry_run"] == false,
        "{}",
        o.describe()
    );
    image.fsck_clean()?;

    // An entry that leads nowhere is a choice.
    image.debugfs_write("clri /d/g")?;
    let damaged = fs::read(image.path())?;
    let o = fix(&[], &image).run()?;
    let told = o.out.contains("which is not in use: left\n");
    ensure!(o.code == Some(4) && told, "{}", o.describe());
    ensure!(
        fs::read(image.path())? == damaged,
        "what is left was written"
    );
    Ok(())
}

#[test]
fn what_is_no_image_or_in_use_is_refused() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let dir = TempDir::new("fix")?;
    let file = dir.join("file");
    fs::write(&file, vec![7; 1 << 20])?;
    let extant = |args: &[&str]| Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args);
    for path in [&file, &dir.join("missing")] {
        let o = extant(&["fix", &path.display().to_string()]).run()?;
        ensure!(
            o.code == Some(8) && o.err.lines().count() == 1,
            "{}",
            o.describe()
        );
    }
    let o = extant(&["fix", "--json", &file.display().to_string()]).run()?;
    let object: Value = serde_json::from_str(&o.out)?;
    ensure!(
        o.code == Some(8) && object["clean"].is_null(),
        "{}",
        o.describe()
    );
    ensure!(extant(&["fix"]).run()?.code == Some(2), "no operand");
    Ok(())
}
