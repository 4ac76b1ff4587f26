//! `extant cp` beside cp(1): what is read and written without a tree, targets that are links and
//! devices, and the errors for names that are no text.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;

use extant_testkit::{Cmd, Image, Need, Result, TempDir, ensure, need, tools};

const NEEDS: &[Need] = &[Need::Tool("mke2fs"), Need::Tool("debugfs")];

fn extant<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args)
}

/// A place in an image, as an operand.
fn at(disk: &Image, path: &str) -> String {
    format!("{}:{path}", disk.path().display())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn refused(cmd: Cmd, code: i32, message: &str) -> Result<()> {
    let o = cmd.run()?;
    ensure!(o.code == Some(code), "{}", o.describe());
    ensure!(o.err.contains(message), "{message:?}: {}", o.describe());
    Ok(())
}

#[test]
fn standard_input_and_pipes_are_read_to_their_end() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Image::of_mib(32).make()?;
    let bytes: Vec<u8> = (0..250_u8).cycle().take(3 << 20).collect();
    for (from, to) in [("-", "/dash"), ("/dev/stdin", "/device")] {
        extant(["cp", from, &at(&disk, to)])
            .stdin(bytes.clone())
            .ok()?;
        let host = TempDir::new("out")?;
        let out = host.join("out");
        extant(["cp", &at(&disk, to), &text(&out)]).ok()?;
        ensure!(fs::read(&out)? == bytes, "{from} came out differently");
    }
    extant(["cp", "/dev/null", &at(&disk, "/empty")]).ok()?;
    let stat = extant(["stat", "--json", &at(&disk, "/empty")]).ok()?.out;
    ensure!(
        stat.contains("\"kind\":\"file\"") && stat.contains("\"size\":0"),
        "{stat}"
    );
    refused(
        extant(["cp", "-", &at(&disk, "/")]),
        1,
        "say what the file is called",
    )?;
    refused(extant(["cp", &at(&disk, "/dash"), "-"]), 2, "extant cat")?;
    disk.fsck_clean()
}

#[test]
fn pipes_of_the_host_are_written_to_and_never_replaced() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Image::of_mib(32).make()?;
    let host = TempDir::new("host")?;
    // A file with a hole in its middle.
    let sparse = host.join("sparse");
    let mut bytes = vec![0; 300_000];
    bytes[..4].copy_from_slice(b"head");
    bytes[299_996..].copy_from_slice(b"tail");
    fs::File::create(&sparse)?.set_len(300_000)?;
    Cmd::new("sh")
        .args([
            "-c",
            "printf head | dd of=\"$0\" conv=notrunc status=none
             printf tail | dd of=\"$0\" bs=1 seek=299996 conv=notrunc status=none",
        ])
        .arg(&sparse)
        .ok()?;
    ensure!(fs::read(&sparse)? == bytes, "the file was not made");
    extant(["cp", &text(&sparse), &at(&disk, "/f")]).ok()?;

    let (dir, fifo) = (host.join("dev"), host.join("dev/f"));
    fs::create_dir(&dir)?;
    Cmd::new("mkfifo").arg(&fifo).ok()?;
    let script = "cat \"$2\" >\"$2.out\" & \"$0\" cp \"$1\" \"$2\" && wait";
    Cmd::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_extant"), &at(&disk, "/f")])
        .arg(&fifo)
        .ok()?;
    let through = fs::read(host.join("dev/f.out"))?;
    ensure!(through == bytes, "{} bytes went through", through.len());
    refused(
        extant(["cp", &at(&disk, "/f"), &text(&dir)]),
        1,
        "a device, pipe or socket, in the way of a file",
    )?;
    ensure!(
        fs::symlink_metadata(&fifo)?.file_type().is_fifo(),
        "the pipe is gone"
    );
    let pipe = Cmd::new("sh")
        .args(["-c", "exec \"$0\" cp \"$1\" /dev/stdout | od -An -tx1 -v"])
        .args([env!("CARGO_BIN_EXE_extant"), &at(&disk, "/f")])
        .ok()?;
    let dumped: Vec<u8> = pipe
        .out
        .split_whitespace()
        .filter_map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    ensure!(dumped == bytes, "{} bytes came out", dumped.len());

    // There is nothing behind a node in an image.
    extant(["cp", "-r", &text(&fifo), &at(&disk, "/node")]).ok()?;
    refused(
        extant(["cp", &at(&disk, "/node"), &text(&host.join("x"))]),
        1,
        "copy it with -r",
    )?;
    disk.fsck_clean()
}

#[test]
fn links_on_the_host_are_followed_where_they_were_named_only() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Image::of_mib(32).make()?;
    let host = TempDir::new("host")?;
    let (outside, out) = (host.join("outside"), host.join("out"));
    fs::create_dir(&outside)?;
    fs::write(outside.join("file"), "theirs")?;
    fs::create_dir(host.join("in"))?;
    fs::create_dir(host.join("in/dir"))?;
    fs::write(host.join("in/dir/file"), "ours")?;
    fs::write(host.join("in/top"), "ours")?;
    extant(["cp", "-r", &text(&host.join("in")), &at(&disk, "/in")]).ok()?;

    // What an earlier copy left: names that lead elsewhere.
    fs::create_dir(&out)?;
    symlink(&outside, out.join("dir"))?;
    symlink(outside.join("file"), out.join("top"))?;
    let o = extant(["cp", "-r", &at(&disk, "/in/."), &text(&out)]).run()?;
    ensure!(
        o.code == Some(1) && o.err.contains("in the way of a directory"),
        "{}",
        o.describe()
    );
    ensure!(
        fs::read_to_string(outside.join("file"))? == "theirs",
        "a link led out of the copy"
    );
    ensure!(
        fs::symlink_metadata(out.join("top"))?.is_file(),
        "the link in the way is still there"
    );

    // An operand may be a link.
    let named = host.join("named");
    symlink(outside.join("file"), &named)?;
    extant(["cp", &at(&disk, "/in/top"), &text(&named)]).ok()?;
    ensure!(
        fs::read_to_string(outside.join("file"))? == "ours",
        "the link that was named is not followed"
    );
    symlink(host.join("nowhere"), host.join("dangling"))?;
    refused(
        extant(["cp", &at(&disk, "/in/top"), &text(&host.join("dangling"))]),
        1,
        "leads nowhere",
    )?;
    refused(
        extant(["cp", &at(&disk, "/in/top"), &text(&host.join("new/"))]),
        1,
        "Not a directory",
    )?;

    // In an image they lead nowhere else: /lib may be a link to usr/lib.
    extant(["mkdir", "-p", &at(&disk, "/usr/dir")]).ok()?;
    extant(["ln", "-s", "usr/dir", &at(&disk, "/dir")]).ok()?;
    extant([
        "cp",
        "-r",
        &format!("{}/.", text(&host.join("in"))),
        &at(&disk, "/"),
    ])
    .ok()?;
    ensure!(
        extant(["cat", &at(&disk, "/usr/dir/file")]).ok()?.out == "ours",
        "the link in the image was not followed"
    );
    disk.fsck_clean()
}

#[test]
fn set_id_bits_are_not_given_to_another_owner() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Root, Need::Tool("setpriv")]) {
        return Ok(());
    }
    let disk = Image::of_mib(32).make()?;
    // Where programs may run.
    let host = TempDir::new_in(&std::env::temp_dir(), "host")?;
    fs::write(host.join("f"), "x")?;
    extant(["cp", &text(&host.join("f")), &at(&disk, "/f")]).ok()?;
    extant(["chmod", "4755", &at(&disk, "/f")]).ok()?;
    Cmd::new("chmod")
        .args(["-R", "a+rX"])
        .arg(disk.path().parent().unwrap_or(Path::new("/")))
        .ok()?;
    let out = host.join("out");
    fs::create_dir(&out)?;
    Cmd::new("chmod").args(["777", &text(&out)]).ok()?;
    Cmd::new("chmod").args(["a+x", &text(host.path())]).ok()?;
    let program = host.join("extant");
    tools::copy_program(env!("CARGO_BIN_EXE_extant"), &program)?;
    let (to, from) = (out.join("f"), at(&disk, "/f"));
    Cmd::new("setpriv")
        .args(["--reuid=12345", "--regid=12345", "--clear-groups"])
        .arg(&program)
        .args(["cp", "-a", &from, &text(&to)])
        .ok()?;
    let copied = fs::metadata(&to)?;
    ensure!(
        copied.uid() == 12345 && copied.mode() & 0o7777 == 0o755,
        "{} {:o}",
        copied.uid(),
        copied.mode()
    );
    extant(["cp", "-a", &from, &text(&out.join("kept"))]).ok()?;
    let kept = fs::metadata(out.join("kept"))?.mode() & 0o7777;
    ensure!(kept == 0o4755, "root kept {kept:o}");
    Ok(())
}

#[test]
fn programs_get_one_value_with_every_byte() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Image::of_mib(32).make()?;
    let host = TempDir::new("host")?;
    let odd = host.join("d");
    fs::create_dir(&odd)?;
    fs::write(odd.join(OsStr::from_bytes(b"a\xff")), "x")?;
    extant(["cp", "-r", &text(&odd), &at(&disk, "/d")]).ok()?;
    let list = extant([
        "ls",
        "--json",
        &at(&disk, "/d"),
        &at(&disk, "/missing"),
        &at(&disk, "/"),
    ])
    .run()?;
    ensure!(list.code == Some(1), "{}", list.describe());
    for part in [
        "\"name_hex\":\"61ff\"",
        "\"path_hex\":\"2f642f61ff\"",
        "\"path\":\"/lost+found\"",
    ] {
        ensure!(list.out.contains(part), "{part}: {}", list.out);
    }
    ensure!(
        list.out.lines().count() == 1 && list.out.starts_with('[') && list.out.ends_with("]\n"),
        "not one array: {}",
        list.out
    );
    // Attributes whose names are no text go along with an archive.
    let mut name = at(&disk, "/d/a").into_bytes();
    name.push(0xff);
    ensure!(
        extant([OsStr::new("cat"), OsStr::from_bytes(&name)])
            .ok()?
            .out
            == "x",
        "cat"
    );
    Ok(())
}

#[test]
fn an_image_is_never_its_own_output() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Image::of_mib(32).make()?;
    let host = TempDir::new("host")?;
    let dir = host.join("out");
    fs::create_dir(&dir)?;
    fs::write(host.join("plain"), "content")?;
    extant(["cp", &text(&host.join("plain")), &at(&disk, "/f")]).ok()?;
    symlink("f", host.join("l"))?;
    extant(["cp", "-a", &text(&host.join("l")), &at(&disk, "/l")]).ok()?;

    // By its own name, by a link, and by another name in a tree.
    let before = fs::read(disk.path())?;
    symlink(disk.path(), host.join("link"))?;
    fs::hard_link(disk.path(), dir.join("f"))?;
    fs::hard_link(disk.path(), dir.join("l"))?;
    for (how, to) in [
        ("-p", text(disk.path())),
        ("-p", text(&host.join("link"))),
        ("-a", text(&dir)),
    ] {
        for from in ["/f", "/l"] {
            if from == "/l" && how == "-p" {
                continue;
            }
            refused(
                extant(["cp", how, &at(&disk, from), &to]),
                1,
                "the image itself",
            )?;
        }
    }
    ensure!(fs::read(disk.path())? == before, "the image has changed");
    ensure!(
        fs::read(dir.join("l"))? == before,
        "a name of the image is gone"
    );
    disk.fsck_clean()
}

#[test]
fn what_a_named_link_leads_to_gets_owner_and_permissions_together() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Root]) {
        return Ok(());
    }
    let disk = Image::of_mib(32).make()?;
    let host = TempDir::new_in(&std::env::temp_dir(), "host")?;
    fs::create_dir_all(host.join("tree/sub"))?;
    fs::write(host.join("tree/suid"), "x")?;
    extant(["cp", "-r", &text(&host.join("tree")), &at(&disk, "/tree")]).ok()?;
    let owner = ["/tree", "/tree/suid"].map(|path| at(&disk, path));
    extant(["chown", "1000:1001", &owner[0], &owner[1]]).ok()?;
    extant(["chmod", "4755", &owner[1]]).ok()?;
    extant(["chmod", "2755", &owner[0]]).ok()?;

    for how in ["-p", "-a"] {
        let top = host.join(how);
        fs::create_dir_all(top.join("deep"))?;
        fs::write(top.join("deep/file"), "root's")?;
        symlink("deep/by", top.join("link"))?;
        symlink("../deep/file", top.join("deep/by"))?;
        extant(["cp", how, &owner[1], &text(&top.join("link"))]).ok()?;
        let (link, file) = (
            fs::symlink_metadata(top.join("link"))?,
            fs::metadata(top.join("deep/file"))?,
        );
        ensure!(
            (file.uid(), file.gid(), file.mode() & 0o7777) == (1000, 1001, 0o4755),
            "{how}: {} {:o}",
            file.uid(),
            file.mode()
        );
        ensure!(link.is_symlink() && link.uid() == 0, "{how}: {link:?}");

        // The same inside of an image.
        let place = format!("/in{how}");
        extant(["mkdir", &at(&disk, &place)]).ok()?;
        extant([
            "cp",
            "-r",
            &format!("{}/.", text(&host.join("tree"))),
            &at(&disk, &place),
        ])
        .ok()?;
        extant([
            "ln",
            "-s",
            &format!("{place}/suid"),
            &at(&disk, &format!("{place}/l")),
        ])
        .ok()?;
        extant(["cp", how, &owner[1], &at(&disk, &format!("{place}/l"))]).ok()?;
        for (name, uid, mode) in [("suid", 1000, "4755"), ("l", 0, "0777")] {
            let path = at(&disk, &format!("{place}/{name}"));
            let stat = extant(["stat", "--json", &path]).ok()?.out;
            ensure!(
                stat.contains(&format!("\"uid\":{uid},"))
                    && stat.contains(&format!("\"mode\":\"{mode}\"")),
                "{how}: {name}: {stat}"
            );
        }
    }
    disk.fsck_clean()
}

#[test]
fn nothing_is_removed_for_what_cannot_be_copied() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Image::of_mib(32).make()?;
    let host = TempDir::new("host")?;
    let out = host.join("out");
    fs::create_dir_all(host.join("in/z"))?;
    fs::create_dir(&out)?;
    fs::write(host.join("in/a"), "content")?;
    fs::hard_link(host.join("in/a"), host.join("in/b"))?;
    extant([
        "cp",
        "-a",
        &format!("{}/.", text(&host.join("in"))),
        &at(&disk, "/"),
    ])
    .ok()?;

    // Names of one file already, which stay names of it.
    extant(["cp", "-a", &at(&disk, "/a"), &at(&disk, "/b"), &text(&out)]).ok()?;
    fs::remove_file(out.join("b"))?;
    fs::hard_link(out.join("a"), out.join("b"))?;
    let ino = fs::metadata(out.join("a"))?.ino();
    extant(["cp", "-a", &at(&disk, "/."), &text(&out)]).ok()?;
    ensure!(
        fs::metadata(out.join("b"))?.ino() == ino && fs::read(out.join("b"))? == b"content",
        "the names were parted"
    );

    // A node in an image has no content: what is in its place stays.
    Cmd::new("mkfifo").arg(host.join("pipe")).ok()?;
    extant(["cp", "-r", &text(&host.join("pipe")), &at(&disk, "/pipe")]).ok()?;
    extant(["ln", "-s", "pipe", &at(&disk, "/kept")]).ok()?;
    refused(
        extant(["cp", &at(&disk, "/pipe"), &at(&disk, "/kept")]),
        1,
        "the same file",
    )?;
    extant(["cp", "-r", &text(&host.join("pipe")), &at(&disk, "/other")]).ok()?;
    let other = Image::of_mib(32).make()?;
    extant(["cp", "-r", &text(&host.join("pipe")), &at(&other, "/pipe")]).ok()?;
    refused(
        extant(["cp", &at(&other, "/pipe"), &at(&disk, "/other")]),
        1,
        "copy it with -r",
    )?;
    extant(["stat", &at(&disk, "/other")]).ok()?;
    disk.fsck_clean()
}

#[test]
fn warnings_do_not_control_the_terminal() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Image::of_mib(32).make()?;
    let host = TempDir::new("host")?;
    let _socket = std::os::unix::net::UnixListener::bind(host.join("a\x1b[2J\nextant: forged"))?;
    extant(["cp", "-r", &text(host.path()), &at(&disk, "/d")]).ok()?;
    let o = extant(["tar", &at(&disk, "/d"), "-f", "/dev/null"]).ok()?;
    ensure!(
        o.err.contains("a?[2J?extant: forged") && o.err.lines().count() == 1,
        "{:?}",
        o.err
    );
    Ok(())
}

/// Files of the host that have content and no length.
#[test]
fn files_without_a_length_are_copied_to_their_end() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Image::of_mib(32).make()?;
    for path in ["/proc/version", "/proc/sys/kernel/ostype"] {
        extant(["cp", path, &at(&disk, "/copy")]).ok()?;
        let (copied, right) = (
            extant(["cat", &at(&disk, "/copy")]).ok()?.out,
            fs::read_to_string(path)?,
        );
        ensure!(!right.is_empty() && copied == right, "{path}: {copied:?}");
    }
    disk.fsck_clean()
}
