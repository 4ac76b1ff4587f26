//! The memory that a command gives to each of its images.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use extant_testkit::{Cmd, Image, Need, Result, TempDir, ensure, need};

const NEEDS: &[Need] = &[Need::Tool("mke2fs"), Need::Tool("debugfs")];
/// Memory that the page caches of all images of a command may take, in MiB.
const WHOLE: u64 = 64;

/// The MiB that the page cache of each image may take, in the order in which a command opens them.
fn page_caches(args: &[&str]) -> Result<Vec<u64>> {
    let command = Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args);
    let o = command.env("EXTANT_LOG", "debug").run()?;
    let bytes = |line: &str| {
        let number = line.split_once("page_cache_bytes=")?.1;
        number.split(' ').next()?.parse::<u64>().ok()
    };
    Ok(o.err.lines().filter_map(bytes).map(|n| n >> 20).collect())
}

fn at(image: &Path, path: &str) -> String {
    format!("{}:{path}", image.display())
}

/// Two images with the file `/f`, and another name of the first.
struct Images {
    one: Image,
    two: Image,
    tmp: TempDir,
}

impl Images {
    fn new() -> Result<Images> {
        let tmp = TempDir::new("memory")?;
        fs::write(tmp.join("f"), "content")?;
        let image = || Image::of_mib(16).make();
        let images = Images {
            one: image()?,
            two: image()?,
            tmp,
        };
        symlink(images.one.path(), images.tmp.join("again"))?;
        for disk in [&images.one, &images.two] {
            let from = images.tmp.join("f").display().to_string();
            page_caches(&["cp", &from, &at(disk.path(), "/f")])?;
        }
        Ok(images)
    }
}

#[test]
fn images_of_a_list_share_the_memory_of_the_command() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let images = Images::new()?;
    let paths = [images.one.path(), images.two.path()].map(|image| at(image, "/f"));
    let again = at(&images.tmp.join("again"), "/f");
    let commands: &[&[&str]] = &[
        &["cat"],
        &["chmod", "600"],
        &["chown", "1:1"],
        &["convert"],
        &["defrag"],
        &["fallocate", "--length", "4096"],
        &["ls"],
        &["map"],
        &["mkdir", "-p"],
        &["stat"],
        &["tree"],
        &["rm"],
    ];
    for command in commands {
        for (operands, expected) in [
            ([&paths[0], &again], vec![WHOLE]),
            ([&paths[0], &paths[1]], vec![WHOLE / 2; 2]),
        ] {
            let operands = operands.map(String::as_str);
            let found = page_caches(&[command, operands.as_slice()].concat())?;
            ensure!(found == expected, "{command:?} {operands:?}: {found:?} MiB");
        }
    }
    Ok(())
}

#[test]
fn images_that_are_copied_or_compared_share_the_memory() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let images = Images::new()?;
    let text = |path: &Path| path.display().to_string();
    let (one, two) = (text(images.one.path()), text(images.two.path()));
    let (in_one, in_two) = (format!("{one}:/f"), format!("{two}:/f"));
    let again = at(&images.tmp.join("again"), "/f");
    let host = text(&images.tmp.join("f"));
    let dir = text(images.tmp.path());
    let copy = format!("{one}:/copy");
    let cases: [(&[&str], usize); 9] = [
        (&["diff", &in_one, &host], 1),
        (&["diff", &dir, &one], 1),
        (&["diff", &in_one, &again], 1),
        (&["diff", &in_one, &in_two], 2),
        (&["diff", &one, &two], 2),
        (&["cp", &host, &in_one], 1),
        (&["cp", &again, &copy], 1),
        (&["cp", &in_two, &copy], 2),
        (&["cp", &in_one, &in_two, &dir], 2),
    ];
    for (args, count) in cases {
        let found = page_caches(args)?;
        let expected = vec![WHOLE / count as u64; count];
        ensure!(found == expected, "{args:?}: {found:?} MiB");
    }
    Ok(())
}
