//! `extant fallocate` beside fallocate(1) on Linux's ext4: the same sequence, the same file.

use std::fs;

use extant_testkit::{Cmd, Image, Need, Result, Subject, content, ensure, need};

const NEEDS: &[Need] = &[
    Need::Loop,
    Need::Tool("fallocate"),
    Need::Tool("filefrag"),
    Need::Tool("mke2fs"),
];

fn extant(args: &[&str]) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args)
}

/// The calls on the file, in order. Options are the same for both programs.
const STEPS: &[&str] = &[
    "-l 100KiB",
    "-n -o 200KiB -l 20000",
    "-p -o 10001 -l 30K",
    "-z -o 60000 -l 0x",
    "-z -o 60000 -l 50KB",
    "-i -o 16K -l 32K",
    "-c -o 64KiB -l 8KiB",
    "-c -o 1000 -l 8KiB",
    "-i -o 1M -l 4K",
    "-z -n -o 120K -l 40K",
    "--zero-range --offset 150K --length 10K",
    "--collapse-range --offset 0 --length 4K",
    "--insert-range --offset 8K --length 4K",
    "--punch-hole --offset 4K --length 4K",
    "--keep-size --length 300K",
];

/// A letter per block of 4 KiB from lines of first block, length, state.
fn letters(runs: impl IntoIterator<Item = (usize, usize, char)>) -> String {
    let mut all = Vec::new();
    for (first, len, letter) in runs {
        all.resize(all.len().max(first + len), '.');
        all[first..first + len].fill(letter);
    }
    all.into_iter().collect()
}

fn numbers(line: &str) -> Vec<usize> {
    let words = line.split([':', '.', ' ']);
    words.filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn it_does_what_fallocate_does() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let make = || -> Result<Image> {
        let image = Image::of_mib(32).args("-b 4096").make()?;
        let source = image.path().with_extension("source");
        fs::write(&source, content::fill(3, 0, 90_000))?;
        let at = format!("{}:/f", image.path().display());
        extant(&["cp", &source.display().to_string(), &at]).ok()?;
        Ok(image)
    };
    let (theirs, ours) = (make()?, make()?);
    let at = format!("{}:/f", ours.path().display());
    let mount = Subject::Ext4.mount(theirs.path(), "")?;
    let path = mount.join("f");
    for step in STEPS {
        let args: Vec<&str> = step.split(' ').collect();
        let expected = Cmd::new("fallocate").args(&args).arg(&path).run()?;
        let got = extant(&["fallocate"]).args(&args).arg(&at).run()?;
        ensure!(
            (got.code == Some(0)) == (expected.code == Some(0)),
            "{step}: {} but {}",
            got.describe(),
            expected.describe()
        );
        let out = ours.path().with_extension("out");
        extant(&["cp", &at, &out.display().to_string()]).ok()?;
        ensure!(fs::read(&out)? == fs::read(&path)?, "{step}: bytes");
        Cmd::new("sync").arg(&path).ok()?;
        let found = Cmd::new("filefrag").arg("-v").arg(&path).ok()?.out;
        let theirs = letters(found.lines().filter_map(|line| {
            let letter = if line.contains("unwritten") { 'u' } else { 'w' };
            match numbers(line)[..] {
                [_, first, _, _, _, len, ..] if line.matches("..").count() == 2 => {
                    Some((first, len, letter))
                }
                _ => None,
            }
        }));
        let found = extant(&["map", &at]).ok()?.out;
        let ours = letters(found.lines().skip(2).filter_map(|line| {
            let letter = match line.split_whitespace().last()? {
                "hole" => return None,
                "unwritten" => 'u',
                _ => 'w',
            };
            match numbers(line)[..] {
                [first, _, _, _, len] => Some((first, len, letter)),
                _ => None,
            }
        }));
        ensure!(ours == theirs, "{step}: {ours} but {theirs}");
        ensure!(ours.contains(['u', 'w']), "{step}: {ours}");
    }
    mount.unmount()?;
    ours.fsck_clean()
}

#[test]
fn what_it_says() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    let at = |path: &str| format!("{}:{path}", image.path().display());
    // A file that is not there is made, but only to be allocated.
    extant(&["fallocate", "-l", "1M", &at("/new"), &at("/other")]).ok()?;
    let stat = extant(&["stat", "--json", &at("/new")]).ok()?.out;
    ensure!(stat.contains("\"size\":1048576"), "{stat}");
    for (args, status, message) in [
        (
            &["-p", "-l", "4K", &at("/none")][..],
            1,
            "No such file or directory",
        ),
        (
            &["-c", "-l", "4K", "-o", "1", &at("/new")],
            1,
            "offset and length have to be multiples of the block size, 1024",
        ),
        (&["-l", "1T", &at("/new")], 1, "No space left on device"),
        (&["-l", "0", &at("/new")], 1, "a range of 0 bytes"),
        (&["-l", "4K", &at("/")], 1, "Is a directory"),
    ] {
        let o = extant(&["fallocate"]).args(args).run()?;
        ensure!(o.code == Some(status), "{}", o.describe());
        ensure!(o.err.trim_end().ends_with(message), "{}", o.describe());
    }
    for args in [
        &["-l", "4Q", &at("/new")][..],
        &[&at("/new")],
        &["-p", "-z", "-l", "4K", &at("/new")],
        &["-c", "-n", "-l", "4K", &at("/new")],
    ] {
        let o = extant(&["fallocate"]).args(args).run()?;
        ensure!(o.code == Some(2), "{}", o.describe());
    }
    let help = extant(&["fallocate", "--help"]).ok()?.out;
    ensure!(help.contains("--collapse-range"), "{help}");
    image.fsck_clean()
}
