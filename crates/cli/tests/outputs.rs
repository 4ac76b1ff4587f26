//! Promise: output that cannot be written is told in one line, and ends nothing but the output. A
//! full disk below standard output is a failure, a reader that has gone away is none, and lines
//! that standard error does not take are lost.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use extant_testkit::{Cmd, LoopDevice, Need, Result, TempDir, ensure, need};
use rustix::fs::OFlags;

/// Runs a command with what a shell says of its files.
fn redirected(args: &[&str], files: &str) -> Cmd {
    let script = format!("exec \"$0\" \"$@\" {files}");
    let sh = Cmd::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_extant")]);
    sh.args(args)
}

/// A small image with a file, whose path comes second.
fn image(dir: &TempDir) -> Result<(String, String)> {
    let image = dir.join("disk.img").display().to_string();
    let input = dir.join("in");
    fs::write(&input, vec![7; 100_000])?;
    let extant = |args: &[&str]| Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args).ok();
    extant(&["mkfs", "-q", &image, "16M"])?;
    let file = format!("{image}:/file");
    extant(&["cp", &input.display().to_string(), &file])?;
    Ok((image, file))
}

/// The commands that print, as words; `IMAGE` and `FILE` stand for those. With the status where
/// output fails.
const PRINTING: [(&str, i32); 21] = [
    ("--help", 1),
    ("--version", 1),
    ("ls --help", 1),
    ("help", 1),
    ("help ls", 1),
    ("help images", 1),
    ("completions zsh", 1),
    ("ls IMAGE:/", 1),
    ("ls -l IMAGE:/", 1),
    ("ls --json IMAGE:/ IMAGE:/", 1),
    ("tree IMAGE:/", 1),
    ("stat FILE FILE", 1),
    ("stat --json FILE", 1),
    ("cat FILE FILE", 1),
    ("tar -f - IMAGE:/", 1),
    ("info IMAGE", 1),
    ("info --json IMAGE", 1),
    ("map FILE IMAGE:/", 1),
    ("map --json FILE", 1),
    ("check IMAGE", 8),
    ("check --json IMAGE", 8),
];

fn words<'a>(line: &str, image: &'a str, file: &'a str) -> Vec<String> {
    let word = |word: &str| word.replace("IMAGE", image).replace("FILE", file);
    line.split(' ').map(word).collect()
}

#[test]
fn a_full_disk_below_standard_output_is_one_failure() -> Result<()> {
    let dir = TempDir::new("full")?;
    let (image, file) = image(&dir)?;
    for (line, status) in PRINTING {
        let words = words(line, &image, &file);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let o = redirected(&words, ">/dev/full").run()?;
        ensure!(o.code == Some(status), "{line}: {}", o.describe());
        let said = "standard output: No space left on device\n";
        ensure!(
            o.err.starts_with("extant: ") && o.err.ends_with(said) && o.err.lines().count() == 1,
            "{line}: {}",
            o.describe()
        );
    }
    Ok(())
}

#[test]
fn a_reader_that_has_gone_away_is_no_failure() -> Result<()> {
    let dir = TempDir::new("gone")?;
    let (image, file) = image(&dir)?;
    // A part of an archive is none.
    for (line, _) in PRINTING.iter().filter(|(line, _)| !line.starts_with("tar")) {
        let (reader, writer) = io::pipe()?;
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_extant"));
        command
            .args(words(line, &image, &file))
            .stdin(Stdio::null());
        let o = command.stdout(writer).stderr(Stdio::piped()).output()?;
        let err = String::from_utf8_lossy(&o.stderr);
        ensure!(
            o.status.success() && err.is_empty(),
            "{line}: {}: {err}",
            o.status
        );
    }
    Ok(())
}

/// A log, a failure and a wrong usage, where standard error takes nothing.
#[test]
fn lines_that_standard_error_does_not_take_are_lost() -> Result<()> {
    let dir = TempDir::new("lost")?;
    let (image, file) = image(&dir)?;
    let missing = format!("{image}:/missing");
    for (args, status) in [
        (&["cat", &file][..], 0),
        (&["cat", &missing, &file], 1),
        (&["cat", "--nonsense"], 2),
        (&["chmod", "u+q", &file], 2),
    ] {
        for files in ["2>/dev/full", "2>&-"] {
            let o = redirected(args, files).env("EXTANT_LOG", "trace").run()?;
            ensure!(o.code == Some(status), "{args:?} {files}: {}", o.describe());
            let whole = status == 2 || o.out.len() == 100_000;
            ensure!(whole, "{args:?} {files}: {} bytes", o.out.len());
        }
    }
    Ok(())
}

/// An image without a place, and one on a disk that is too small for it: each is named, once.
#[test]
fn an_image_that_cannot_be_had_is_named() -> Result<()> {
    let dir = TempDir::new("named")?;
    let nowhere = dir.join("missing/disk.img").display().to_string();
    let from = dir.path().display().to_string();
    let missing = format!("{nowhere}: No such file or directory\n");
    for args in [
        &["resize", &nowhere, "1G"][..],
        &["mkfs", &nowhere, "16M"],
        &["build", &from, &nowhere],
        &["check", &nowhere],
        &["fix", &nowhere],
        &["info", &nowhere],
    ] {
        let o = Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args).run()?;
        let said = format!("extant: {}: {missing}", args[0]);
        ensure!(o.code != Some(0) && o.err == said, "{}", o.describe());
    }
    // A limit on the size of files stands for a full disk.
    let input = dir.join("in");
    fs::create_dir(&input)?;
    fs::write(input.join("file"), vec![7; 1 << 20])?;
    let (input, image) = (input.display().to_string(), dir.join("disk.img"));
    let image = image.display().to_string();
    let limited = Cmd::new("sh").args(["-c", "ulimit -f 8; exec \"$0\" \"$@\""]);
    let limited = limited.args([env!("CARGO_BIN_EXE_extant"), "build", &input, &image]);
    let o = limited.run()?;
    let said = format!("extant: build: {image}: File too large\n");
    ensure!(o.code == Some(1) && o.err == said, "{}", o.describe());
    ensure!(fs::metadata(&image).is_err(), "{image} is there");
    Ok(())
}

#[test]
fn a_measurement_whose_results_have_no_place_does_not_begin() -> Result<()> {
    let dir = TempDir::new("results")?;
    let page = dir.join("page.md").display().to_string();
    fs::write(&page, "no marks\n")?;
    let nowhere = dir.join("missing/rows").display().to_string();
    for (option, path, why) in [
        ("--json", &nowhere, "No such file or directory"),
        ("--write", &nowhere, "No such file or directory"),
        (
            "--write",
            &page,
            "the page has no line <!-- measured: begin -->",
        ),
        ("--plot", &page, "File exists"),
    ] {
        let o = Cmd::new(env!("CARGO_BIN_EXE_extant"))
            .args(["bench", "overwrite", "--quick", "--runs", "1", option, path])
            .run()?;
        let said = format!("extant: bench: {path}: {why}\n");
        ensure!(o.code == Some(1) && o.err == said, "{}", o.describe());
    }
    ensure!(fs::read_to_string(&page)? == "no marks\n", "the page");
    Ok(())
}

/// Each command that could replace or empty a file of the host. `IMAGE` and `FILE` are what is
/// read, `OUT` is the file, in the directory `DIR`; `tree` of the image has a file of that name.
/// It has the names of a report's page and of a page of the manual, too.
const REPLACING: [&str; 10] = [
    "build -q -F DIR/in OUT",
    "export IMAGE:/ OUT",
    "tar -f OUT IMAGE:/",
    "cp FILE OUT",
    "cp -r IMAGE:/tree/. DIR",
    "cp -a IMAGE:/linked/. DIR",
    "map --plot OUT FILE",
    "bench overwrite --quick --runs 1 --json OUT",
    "bench overwrite --quick --runs 1 --plot DIR",
    "manual DIR",
];

/// Runs them all, and expects each to be refused.
fn expect_in_use(dir: &TempDir, by: &str) -> Result<()> {
    let (out, image) = (dir.join("out"), dir.join("disk.img").display().to_string());
    let before = fs::read(&out)?;
    for line in REPLACING {
        let words = words(line, &image, &format!("{image}:/file"));
        let place = |word: String| {
            let word = word.replace("OUT", &out.display().to_string());
            word.replace("DIR", &dir.path().display().to_string())
        };
        let words = words.into_iter().map(place);
        let o = Cmd::new(env!("CARGO_BIN_EXE_extant")).args(words).run()?;
        let said = format!("in use by {by}");
        ensure!(
            o.code == Some(1) && o.err.contains(&said),
            "{}",
            o.describe()
        );
        ensure!(fs::read(&out)? == before, "{line}: written");
    }
    Ok(())
}

/// A program that looks at new devices, as that of udev, has one for a moment only.
#[test]
fn a_device_that_is_held_for_a_moment_is_waited_for() -> Result<()> {
    if !need(&[Need::Loop]) {
        return Ok(());
    }
    let dir = TempDir::new("device")?;
    let (image, file) = image(&dir)?;
    let backing = dir.join("backing");
    fs::File::create(&backing)?.set_len(1 << 20)?;
    let device = LoopDevice::over(&backing, 512)?;
    let to = device.path().display().to_string();
    let copy = || Cmd::new(env!("CARGO_BIN_EXE_extant")).args(["cp", &file, &to]);
    let held = || {
        let mut options = fs::File::options();
        let open = options
            .read(true)
            .custom_flags(OFlags::EXCL.bits().cast_signed());
        open.open(device.path())
    };
    // On a busy machine a command may be too late: one of several rounds has to succeed.
    let mut copies = (0..5).map(|_| -> Result<bool> {
        let holder = held()?;
        let mut copy = copy().spawn()?;
        std::thread::sleep(Duration::from_millis(300));
        drop(holder);
        Ok(copy.wait(Duration::from_secs(60))?.code == Some(0))
    });
    ensure!(
        copies.any(|copied| copied.is_ok_and(|copied| copied)),
        "refused"
    );
    let _holder = held()?;
    let o = copy().run()?;
    let told = o.err.contains("in use by another process");
    ensure!(o.code == Some(1) && told, "{}", o.describe());
    drop(image);
    Ok(())
}

#[test]
fn what_is_in_use_is_not_replaced() -> Result<()> {
    let dir = TempDir::new("used")?;
    let (image, _) = image(&dir)?;
    let extant = |line: &str| {
        let words = line.split(' ').map(|word| word.replace("IMAGE", &image));
        Cmd::new(env!("CARGO_BIN_EXE_extant"))
            .args(words)
            .dir(dir.path())
    };
    extant("mkdir IMAGE:/tree IMAGE:/linked").ok()?;
    extant("cp in IMAGE:/tree/out").ok()?;
    extant("ln -s target IMAGE:/linked/out").ok()?;
    fs::rename(dir.join("in"), dir.join("text"))?;
    fs::create_dir(dir.join("in"))?;
    let out = dir.join("out");
    extant("mkfs -q out 16M").ok()?;
    for name in ["report.html", "extant.1"] {
        fs::hard_link(&out, dir.join(name))?;
    }
    {
        // A program that has it open as an emulator has its disk.
        let _open = fs::File::options().read(true).write(true).open(&out)?;
        expect_in_use(&dir, "another process, which has it open for writing")?;
    }
    if need(&[Need::Loop]) {
        let device = LoopDevice::over(&out, 512)?;
        expect_in_use(&dir, "Linux, through the loop device /dev/loop")?;
        drop(device);
        let device = LoopDevice::read_only(&out)?;
        expect_in_use(&dir, "Linux, through the loop device /dev/loop")?;
        drop(device);
    }
    // What has no byte, as a program makes it to get a name, can be filled while it is open.
    for line in ["cp IMAGE:/file empty", "export IMAGE:/ empty"] {
        let _open = fs::File::create(dir.join("empty"))?;
        extant(line).ok()?;
    }
    Ok(())
}
