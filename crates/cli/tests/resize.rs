//! `extant resize`: what it prints, its exit status, and the length of files.

use std::fs;

use extant_testkit::{Cmd, Image, Need, Result, TempDir, ensure, need};
use serde_json::Value;

const NEEDS: &[Need] = &[Need::Tool("mke2fs"), Need::Tool("e2fsck")];

fn resize(image: &Image, args: &[&str]) -> Cmd {
    let cmd = Cmd::new(env!("CARGO_BIN_EXE_extant")).arg("resize");
    cmd.arg(image.path()).args(args)
}

#[test]
fn an_image_grows_and_shrinks_with_its_file() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16).args("-b 4096").make()?;
    let len = || fs::metadata(image.path()).map(|meta| meta.len());
    let o = resize(&image, &["300M"]).ok()?;
    ensure!(
        o.out.ends_with(": resized: 76800 blocks, 300 MiB\n"),
        "{}",
        o.describe()
    );
    ensure!(len()? == 300 << 20, "{}", len()?);
    let o = resize(&image, &["300M"]).ok()?;
    ensure!(o.out.contains("has this size already"), "{}", o.describe());
    let o = resize(&image, &["--json", "min"]).ok()?;
    let said: Value = serde_json::from_str(&o.out)?;
    ensure!(
        said["blocks_before"] == 76800 && said["bytes"] == len()?,
        "{}",
        o.describe()
    );
    ensure!(len()? < 16 << 20, "{}", len()?);
    image.fsck_clean()
}

#[test]
fn refusals_are_plain_and_leave_the_file() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    let before = image.fingerprint()?;
    for (args, code, says) in [
        (&["10K"][..], 1, "too small"),
        (&["much"], 2, "not a number of bytes"),
        (&["16E"], 2, "too large"),
        (&[], 2, "SIZE"),
    ] {
        let o = resize(&image, args).run()?;
        ensure!(
            o.code == Some(code) && o.err.contains(says),
            "{args:?}: {}",
            o.describe()
        );
    }
    ensure!(image.fingerprint()? == before, "written");
    let dir = TempDir::new("resize")?;
    let o = Cmd::new(env!("CARGO_BIN_EXE_extant"))
        .arg("resize")
        .arg(dir.path())
        .arg("1G")
        .run()?;
    ensure!(
        o.code == Some(1) && o.err.contains("not a mount of Extant"),
        "{}",
        o.describe()
    );
    Ok(())
}
