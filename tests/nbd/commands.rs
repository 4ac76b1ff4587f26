//! Every command on an address as on a file.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use extant_testkit::{Cmd, Image, Need, Result, TempDir, content, ensure, need, tools};

use crate::servers::NbdServer;

const NEEDS: &[Need] = &[
    Need::Tool("nbdkit"),
    Need::Tool("qemu-nbd"),
    Need::Tool("qemu-img"),
    Need::Tool("mke2fs"),
];

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Runs the command; it has to succeed. Returns what it printed.
pub(crate) fn extant(arguments: &[&str]) -> Result<String> {
    Ok(Cmd::new(tools::extant()?).args(arguments).ok()?.out)
}

/// Runs the command; it has to fail with status 1 and one line that contains `why`.
pub(crate) fn refused(arguments: &[&str], why: &str) -> Result<()> {
    let output = Cmd::new(tools::extant()?).args(arguments).run()?;
    let told =
        output.code == Some(1) && output.err.contains(why) && output.err.lines().count() == 1;
    ensure!(told, "{why}: {}", output.describe());
    Ok(())
}

/// Fills the volume at `at` by commands, looks at it by others, and returns a tree that was copied
/// out of it.
pub(crate) fn use_by_commands(at: &str) -> Result<TempDir> {
    let dir = TempDir::new("nbd-commands")?;
    let (tree, out) = (dir.join("tree"), dir.join("out"));
    fs::create_dir(&tree)?;
    for number in 0..20_u64 {
        let len = usize::try_from(number * number * 1500)?;
        fs::write(
            tree.join(format!("f{number}")),
            content::fill(number, 0, len),
        )?;
    }
    let inside = |path: &str| format!("{at}:{path}");
    let (tree, out) = (tree.display().to_string(), out.display().to_string());
    extant(&["mkfs", "-q", at, "48M"])?;
    extant(&["cp", "-r", &tree, &inside("/tree")])?;
    extant(&["mkdir", "-p", &inside("/a/b")])?;
    extant(&["mv", &inside("/tree/f3"), &inside("/a/b/moved")])?;
    extant(&["ln", &inside("/tree/f4"), &inside("/a/linked")])?;
    extant(&["rm", &inside("/tree/f5")])?;
    extant(&["chmod", "600", &inside("/tree/f6")])?;
    extant(&["fallocate", "-l", "1M", &inside("/a/room")])?;
    ensure!(extant(&["ls", &inside("/a")])? == "b\nlinked\nroom\n", "ls");
    ensure!(extant(&["ls", at])?.contains("tree"), "the root");
    ensure!(
        extant(&["stat", &inside("/tree/f6")])?.contains("600"),
        "stat"
    );
    ensure!(
        extant(&["map", &inside("/tree/f9")])?.lines().count() > 0,
        "map"
    );
    ensure!(extant(&["info", at])?.contains("48"), "info");
    extant(&["trim", at])?;
    ensure!(extant(&["check", at])?.contains("clean"), "check");
    extant(&["cp", "-r", &inside("/tree"), &out])?;
    extant(&["cp", &inside("/a/b/moved"), &format!("{out}/f3")])?;
    for number in (0..20_u64).filter(|&number| number != 5) {
        let len = usize::try_from(number * number * 1500)?;
        let copied = fs::read(Path::new(&out).join(format!("f{number}")))?;
        ensure!(copied == content::fill(number, 0, len), "f{number}");
    }
    Ok(dir)
}

#[test]
fn commands_take_addresses() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let server = NbdServer::nbdkit(&words(&["memory", "64M"]))?;
    use_by_commands(&server.address("connections=2"))?;
    Ok(())
}

/// The server takes only whole blocks of 4096 bytes, and at most 64 KiB at a time.
#[test]
fn block_sizes_are_honoured() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let server = NbdServer::nbdkit(&words(&[
        "--filter=blocksize-policy",
        "memory",
        "64M",
        "blocksize-minimum=4096",
        "blocksize-preferred=64K",
        "blocksize-maximum=64K",
        "blocksize-error-policy=error",
    ]))?;
    use_by_commands(&server.address(""))?;
    Ok(())
}

#[test]
fn qemu_serves_raw_images_and_qcow2() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for format in ["raw", "qcow2"] {
        let dir = TempDir::new("nbd-qemu")?;
        let disk = dir.join("disk");
        let create = Cmd::new("qemu-img").args(["create", "-q", "-f", format]);
        create.arg(&disk).arg("64M").ok()?;
        let mut server = NbdServer::qemu(&disk, format)?;
        use_by_commands(&server.address(""))?;
        server.kill()?;
        // What was acknowledged is in the file. It is for e2fsck to judge.
        let plain = dir.join("plain");
        let convert = Cmd::new("qemu-img").args(["convert", "-f", format, "-O", "raw"]);
        convert.arg(&disk).arg(&plain).ok()?;
        Image::fsck_clean_at(&plain)?;
    }
    Ok(())
}

#[test]
fn what_cannot_be_used_is_named() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let here = "nbd+unix:///?socket=/nonexistent/socket";
    refused(
        &["ls", here],
        "cannot reach the server at /nonexistent/socket: No such file",
    )?;
    refused(
        &["info", "nbd://h/e?speed=9"],
        "speed: there is no such parameter",
    )?;
    refused(&["ls", "nbd+unix:///x:/"], "a Unix socket is needed")?;
    let server = NbdServer::nbdkit(&words(&["-r", "memory", "64M"]))?;
    refused(&["mkfs", &server.address("")], "read-only")?;
    refused(&["ls", &server.address("")], "not an ext4 file system")?;
    let server = NbdServer::nbdkit(&words(&["memory", "1M"]))?;
    refused(
        &["mkfs", &server.address(""), "2M"],
        "the device has 1048576",
    )?;
    let image = TempDir::new("nbd-export")?;
    fs::write(image.join("one"), [0; 4096])?;
    let dir = format!("dir={}", image.path().display());
    let server = NbdServer::nbdkit(&["file".to_owned(), dir])?;
    let address = server.address("").replacen(":///", ":///two", 1);
    refused(&["info", &address], "the server refuses the export \"two\"")
}

/// A server that fails some requests: a plain error, and nothing that was acknowledged is lost.
#[test]
fn a_failing_server_is_told_of() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let dir = TempDir::new("nbd-failing")?;
    let (disk, failing) = (dir.join("disk"), dir.join("failing"));
    fs::File::create(&disk)?.set_len(64 << 20)?;
    let server = NbdServer::nbdkit(&[
        "--filter=error".to_owned(),
        "file".to_owned(),
        disk.display().to_string(),
        "error=EIO".to_owned(),
        "error-rate=100%".to_owned(),
        format!("error-file={}", failing.display()),
    ])?;
    let at = server.address("");
    extant(&["mkfs", "-q", &at])?;
    let inside = |path: &str| format!("{at}:{path}");
    extant(&["mkdir", &inside("/kept")])?;
    fs::write(&failing, "")?;
    for arguments in [
        &["ls", &inside("/")][..],
        &["mkdir", &inside("/new")],
        &["info", &at],
    ] {
        refused(arguments, "Input/output error")?;
    }
    fs::remove_file(&failing)?;
    ensure!(
        extant(&["ls", &inside("/")])?.contains("kept"),
        "the directory"
    );
    extant(&["check", &at])?;
    drop(server);
    Image::fsck_clean_at(&disk)
}

/// A server that is slow, and one that pauses: both are waited for.
#[test]
fn slow_servers_are_waited_for() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let dir = TempDir::new("nbd-slow")?;
    let control = dir.join("control");
    let server = NbdServer::nbdkit(&[
        "--filter=pause".to_owned(),
        "--filter=delay".to_owned(),
        "memory".to_owned(),
        "64M".to_owned(),
        "delay-read=2ms".to_owned(),
        "delay-write=2ms".to_owned(),
        format!("pause-control={}", control.display()),
    ])?;
    let at = server.address("");
    extant(&["mkfs", "-q", &at])?;
    let file = dir.join("file");
    fs::write(&file, content::fill(1, 0, 8 << 20))?;
    let inside = format!("{at}:/file");
    let mut copy = Cmd::new(tools::extant()?)
        .arg("cp")
        .arg(&file)
        .arg(&inside)
        .spawn()?;
    say(&control, b"p", b"P")?;
    std::thread::sleep(Duration::from_millis(500));
    say(&control, b"r", b"R")?;
    let copied = copy.wait(Duration::from_secs(120))?;
    ensure!(copied.code == Some(0), "{}", copied.describe());
    let out = dir.join("out");
    extant(&["cp", &inside, &out.display().to_string()])?;
    ensure!(fs::read(out)? == content::fill(1, 0, 8 << 20), "the copy");
    extant(&["check", &at])?;
    Ok(())
}

/// Tells nbdkit's pause filter `word`, and waits for its `answer`.
fn say(control: &Path, word: &[u8], answer: &[u8]) -> Result<()> {
    use std::io::{Read, Write};
    let mut stream = UnixStream::connect(control)?;
    stream.write_all(word)?;
    let mut heard = [0];
    stream.read_exact(&mut heard)?;
    ensure!(heard == answer, "the pause filter answers {heard:?}");
    Ok(())
}
