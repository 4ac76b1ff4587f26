//! The commands on real images: what they do is judged by e2fsck and debugfs, what they say by its
//! text and exit status.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use extant_testkit::{Cmd, Image, Need, Result, TempDir, ensure, need, tools};

const NEEDS: &[Need] = &[Need::Tool("mke2fs"), Need::Tool("debugfs")];

fn extant(args: &[&str]) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args)
}

/// An image and operands in it.
struct Disk(Image);

impl Disk {
    fn new() -> Result<Disk> {
        Ok(Disk(Image::of_mib(32).make()?))
    }

    fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.0.path().display())
    }

    /// Runs a command that must succeed; what it printed.
    fn run(&self, args: &[&str]) -> Result<String> {
        Ok(extant(args).ok()?.out)
    }

    /// Runs a command that must fail in order, with `status` and a line that ends in `message`.
    fn fails(&self, args: &[&str], status: i32, message: &str) -> Result<()> {
        let o = extant(args).run()?;
        ensure!(o.code == Some(status), "{}", o.describe());
        ensure!(
            o.err.trim_end().ends_with(message),
            "{message:?} is not the end of: {}",
            o.describe()
        );
        Ok(())
    }
}

#[test]
fn files_go_in_are_changed_and_come_out() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Disk::new()?;
    let host = TempDir::new("host")?;
    fs::write(host.join("in"), b"content")?;
    let input = host.join("in").display().to_string();
    disk.run(&["mkdir", "-p", &disk.at("/a/b/c")])?;
    disk.run(&["mkdir", "-m", "700", &disk.at("/private")])?;
    disk.run(&["cp", &input, &disk.at("/a/b")])?;
    ensure!(disk.run(&["cat", &disk.at("/a/b/in")])? == "content", "cat");
    disk.run(&["mv", &disk.at("/a/b/in"), &disk.at("/a/moved")])?;
    disk.run(&["ln", &disk.at("/a/moved"), &disk.at("/a/hard")])?;
    disk.run(&["ln", "-s", "a/moved", &disk.at("/soft")])?;
    disk.run(&["chown", "-R", "12:34", &disk.at("/a")])?;
    // After the new owner, which takes set-id bits away.
    disk.run(&["chmod", "u=rw,go=,u+s", &disk.at("/a/moved")])?;
    ensure!(
        disk.run(&["cat", &disk.at("/soft")])? == "content",
        "through the link"
    );
    let stat: String = disk.run(&["stat", "--json", &disk.at("/a/hard")])?;
    for part in [
        "\"mode\":\"4600\"",
        "\"nlink\":2",
        "\"uid\":12",
        "\"gid\":34",
        "\"size\":7",
    ] {
        ensure!(stat.contains(part), "{part} is not in {stat}");
    }
    let tree = disk.run(&["tree", &disk.at("/")])?;
    ensure!(
        tree.contains("│   └── moved") && tree.contains("soft -> a/moved"),
        "{tree}"
    );
    ensure!(
        disk.run(&["ls", &disk.at("/a")])? == "b\nhard\nmoved\n",
        "ls"
    );
    let out = host.join("out").display().to_string();
    disk.run(&["cp", &disk.at("/a/hard"), &out])?;
    ensure!(fs::read(&out)? == b"content", "copied out");
    disk.0.fsck_clean()?;
    ensure!(
        disk.0.debugfs("stat /a/moved")?.contains("Links: 2"),
        "debugfs sees one link"
    );
    disk.run(&["rm", "-r", &disk.at("/a"), &disk.at("/private")])?;
    disk.run(&["rm", &disk.at("/soft")])?;
    ensure!(
        disk.run(&["ls", &disk.at("/")])? == "lost+found\n",
        "removed"
    );
    disk.0.fsck_clean()
}

#[test]
fn options_may_stand_between_operands() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Disk::new()?;
    let host = TempDir::new("host")?;
    fs::create_dir_all(host.join("tree/below"))?;
    fs::write(host.join("file"), b"content")?;
    let [tree, file] = ["tree", "file"].map(|name| host.join(name).display().to_string());
    let [root, two, copy] = ["/", "/two", "/copy"].map(|path| disk.at(path));
    let [copied, moved] = ["/copy/file", "/two/file"].map(|path| disk.at(path));
    disk.run(&["mkdir", &disk.at("/one"), "-m", "700", &two, "-p", &copy])?;
    disk.run(&["cp", &file, "-r", &tree, "--quiet", &copy])?;
    disk.run(&["mv", &copied, "-n", &disk.at("/copy/tree"), &two])?;
    disk.run(&["touch", &moved, "-d", "@7", &two])?;
    disk.run(&["chown", "-n", "1", &moved, "-R", &two])?;
    disk.run(&["chmod", "-x", &moved, "-R", &two])?;
    disk.run(&["setfattr", &moved, "-n", "user.a", &two, "-v", "1"])?;
    ensure!(disk.run(&["cat", &moved])? == "content", "cat");
    disk.run(&["rm", &moved, "-r", &disk.at("/one"), &two])?;
    ensure!(disk.run(&["ls", &root])? == "copy\nlost+found\n", "ls");
    for (command, operand) in [("cp", &file), ("mv", &two)] {
        let needed = format!("a source and a destination are needed (see extant {command} --help)");
        disk.fails(&[command, operand], 2, &needed)?;
        ensure!(extant(&[command]).run()?.code == Some(2), "{command} alone");
    }
    Ok(())
}

#[test]
fn an_archive_survives_the_way_in_and_out() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Root]) {
        return Ok(());
    }
    let disk = Disk::new()?;
    let host = TempDir::new("host")?;
    let tree = host.join("tree");
    fs::create_dir_all(tree.join("sub/empty"))?;
    fs::write(tree.join("file"), vec![7; 100_000])?;
    fs::hard_link(tree.join("file"), tree.join("sub/again"))?;
    symlink("../nowhere", tree.join("sub/link"))?;
    fs::File::create(tree.join("sparse"))?.set_len(5 << 20)?;
    fs::set_permissions(tree.join("file"), fs::Permissions::from_mode(0o6751))?;
    fs::set_permissions(tree.join("sub"), fs::Permissions::from_mode(0o500))?;
    Cmd::new("chown")
        .args(["-h", "77:88"])
        .arg(tree.join("sub/link"))
        .ok()?;
    Cmd::new("mkfifo").arg(tree.join("pipe")).ok()?;
    Cmd::new("mknod")
        .arg(tree.join("null"))
        .args(["c", "1", "3"])
        .ok()?;
    Cmd::new("touch")
        .args(["-hd", "2039-01-02 03:04:05.678901234"])
        .arg(tree.join("file"))
        .ok()?;
    let (from, back) = (
        tree.display().to_string(),
        host.join("back").display().to_string(),
    );
    disk.run(&["cp", "-a", &from, &disk.at("/tree")])?;
    disk.0.fsck_clean()?;
    disk.run(&["cp", "-a", &disk.at("/tree"), &disk.at("/twice")])?;
    disk.run(&["cp", "-a", &disk.at("/twice"), &back])?;
    disk.0.fsck_clean()?;
    compare(&tree, Path::new(&back))?;
    Cmd::new("diff")
        .args([
            "-r",
            "--no-dereference",
            "-x",
            "pipe",
            "-x",
            "null",
            &from,
            &back,
        ])
        .ok()?;
    let (one, two) = (
        fs::metadata(host.join("back/file"))?,
        fs::metadata(host.join("back/sub/again"))?,
    );
    ensure!(one.ino() == two.ino(), "the hard link became two files");
    ensure!(
        fs::metadata(host.join("back/sparse"))?.blocks() < 64,
        "holes were filled"
    );
    Ok(())
}

/// Attributes of everything in two trees.
fn compare(one: &Path, two: &Path) -> Result<()> {
    let list = |top: &Path| {
        let format = "%P %y %m %U %G %n %T@ %l";
        Cmd::new("find")
            .arg(top)
            .args(["-printf", &format!("{format}\\n")])
            .ok()
    };
    let sorted = |text: String| {
        // The top's own line depends on its name alone.
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let (a, b) = (sorted(list(one)?.out), sorted(list(two)?.out));
    ensure!(a == b, "{a:#?}\n{b:#?}");
    Ok(())
}

#[test]
fn failures_are_one_plain_line() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Disk::new()?;
    let missing = disk.at("/missing");
    disk.fails(
        &["cat", &missing],
        1,
        &format!("extant: cat: {missing}: No such file or directory"),
    )?;
    disk.fails(&["ls", &missing], 1, "No such file or directory")?;
    disk.fails(&["cat", &disk.at("/lost+found")], 1, "Is a directory")?;
    disk.fails(&["mkdir", &disk.at("/lost+found")], 1, "File exists")?;
    disk.fails(&["rm", &disk.at("/lost+found")], 1, "Is a directory")?;
    disk.fails(
        &["rm", "-r", &disk.at("/")],
        1,
        "a directory is not removed by this name",
    )?;
    disk.fails(
        &["mkdir", &disk.at(&format!("/{}", "n".repeat(256)))],
        1,
        "File name too long",
    )?;
    disk.fails(
        &["cp", "/etc/passwd", "/tmp/x"],
        2,
        "(see extant cp --help)",
    )?;
    disk.fails(&["chmod", "u+q", &missing], 2, "(see extant chmod --help)")?;
    let o = extant(&["cat", "no-colon"]).run()?;
    ensure!(
        o.code == Some(2) && o.err.contains("IMAGE:/path"),
        "{}",
        o.describe()
    );
    // One that fails does not stop the others.
    let o = extant(&["mkdir", &disk.at("/lost+found"), &disk.at("/made")]).run()?;
    ensure!(o.code == Some(1), "{}", o.describe());
    ensure!(
        disk.run(&["ls", &disk.at("/")])?.contains("made"),
        "the second was not made"
    );
    disk.0.fsck_clean()
}

#[test]
fn a_full_image_says_so_and_stays_whole() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Disk::new()?;
    let host = TempDir::new("host")?;
    fs::write(host.join("big"), vec![1; 40 << 20])?;
    let big = host.join("big").display().to_string();
    let o = extant(&["cp", &big, &disk.at("/big")]).run()?;
    ensure!(o.code == Some(1), "{}", o.describe());
    ensure!(
        o.err.contains("No space left on device"),
        "{}",
        o.describe()
    );
    disk.0.fsck_clean()
}

#[test]
fn info_agrees_with_dumpe2fs() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Disk(Image::of_mib(32).args("-L label").make()?);
    let image = disk.0.path().display().to_string();
    let info = disk.run(&["info", "--json", &image])?;
    for (label, key) in [
        ("Block count", "blocks"),
        ("Free blocks", "free_blocks"),
        ("Inode count", "inodes"),
    ] {
        let part = format!("\"{key}\":{}", disk.0.header(label)?);
        ensure!(info.contains(&part), "{part} is not in {info}");
    }
    ensure!(
        info.contains("\"label\":\"label\"") && info.contains("\"clean\":true"),
        "{info}"
    );
    ensure!(
        disk.run(&["info", &image])?.contains("has_journal"),
        "features"
    );
    Ok(())
}

#[test]
fn a_tree_is_not_copied_into_itself() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Disk::new()?;
    disk.run(&["mkdir", "-p", &disk.at("/a/b")])?;
    disk.fails(
        &["cp", "-r", &disk.at("/a"), &disk.at("/a/b/c")],
        1,
        "copying a directory into itself",
    )?;
    disk.fails(
        &["cp", "-r", &disk.at("/a"), &disk.at("/a/../a/.")],
        1,
        "copying a directory into itself",
    )?;
    disk.0.fsck_clean()
}

#[test]
fn convert_gives_block_maps_extents() -> Result<()> {
    if !need(&[Need::Tool("mke2fs"), Need::Tool("tune2fs")]) {
        return Ok(());
    }
    let disk = Disk(Image::of_mib(32).args("-t ext3").make()?);
    let host = TempDir::new("host")?;
    fs::write(host.join("in"), vec![7; 300_000])?;
    let input = host.join("in").display().to_string();
    let file = disk.at("/in");
    disk.run(&["cp", &input, &disk.at("/")])?;
    disk.fails(
        &["convert", &file],
        1,
        "not supported: extents on a volume without them",
    )?;
    Cmd::new("tune2fs")
        .args(["-O", "extent"])
        .arg(disk.0.path())
        .ok()?;
    disk.run(&["convert", &file, &file])?;
    let stat = disk.0.debugfs("stat /in")?;
    ensure!(stat.contains("EXTENTS:"), "{stat}");
    ensure!(disk.run(&["cat", &file])?.len() == 300_000, "cat");
    disk.0.fsck_clean()
}

#[test]
fn defrag_puts_a_file_into_one_piece() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Disk::new()?;
    let host = TempDir::new("host")?;
    let content: Vec<u8> = (0..200_u8).cycle().take(400 * 4096).collect();
    fs::write(host.join("in"), &content)?;
    let input = host.join("in").display().to_string();
    disk.run(&["cp", &input, &disk.at("/f")])?;
    // Every other block is taken out of the front.
    for block in (0..100).rev() {
        let offset = ((2 * block + 1) * 4096).to_string();
        let range = ["-c", "-o", offset.as_str(), "-l", "4096"];
        let mut args = vec!["fallocate"];
        args.extend(range);
        let at = disk.at("/f");
        args.push(&at);
        disk.run(&args)?;
    }
    let before = extant(&["cat", &disk.at("/f")]).ok()?.out;
    let said = disk.run(&["defrag", "--json", &disk.at("/f")])?;
    ensure!(
        said.contains("\"extents_before\":101") || said.contains("\"extents_before\": 101"),
        "{said}"
    );
    let said = disk.run(&["defrag", &disk.at("/f")])?;
    ensure!(
        said == "/f: 1 extent before, 1 extent now, nothing moved\n",
        "{said}"
    );
    ensure!(extant(&["cat", &disk.at("/f")]).ok()?.out == before, "cat");
    disk.fails(&["defrag", &disk.at("/")], 1, "Is a directory")?;
    disk.0.fsck_clean()
}

#[test]
fn a_dirty_image_that_may_not_be_written_shows_what_it_will_be() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Root, Need::Tool("setpriv")]) {
        return Ok(());
    }
    let disk = Disk::new()?;
    // Where programs may run.
    let host = TempDir::new_in(&std::env::temp_dir(), "host")?;
    for (name, byte) in [("old", b'o'), ("new", b'n')] {
        fs::write(host.join(name), vec![byte; 4096])?;
    }
    let old = host.join("old").display().to_string();
    disk.run(&["cp", &old, &disk.at("/file")])?;
    let blocks: Vec<String> = (0..4)
        .map(|i| Ok(disk.0.debugfs(&format!("bmap /file {i}"))?.trim().into()))
        .collect::<Result<_>>()?;
    let script = format!(
        "jo\njw -b {}-{} {}\njc\n",
        blocks[0],
        blocks[3],
        host.join("new").display()
    );
    Cmd::new("debugfs")
        .args(["-w", "-f", "-"])
        .arg(disk.0.path())
        .stdin(script)
        .ok()?;
    ensure!(disk.0.needs_recovery()?, "debugfs left no log");
    let before = fs::read(disk.0.path())?;
    // Where another user can read it, and not write it.
    let (image, program) = (host.join("image"), host.join("extant"));
    fs::write(&image, &before)?;
    fs::set_permissions(&image, fs::Permissions::from_mode(0o444))?;
    tools::copy_program(env!("CARGO_BIN_EXE_extant"), &program)?;
    fs::set_permissions(host.path(), fs::Permissions::from_mode(0o755))?;
    let other = |args: &[&str]| {
        let ids = ["--reuid=12345", "--regid=12345", "--clear-groups"];
        Cmd::new("setpriv").args(ids).arg(&program).args(args)
    };
    let file = format!("{}:/file", image.display());
    let read = other(&["cat", &file]).ok()?.out;
    ensure!(read == "n".repeat(4096), "{read:.40}");
    let o = other(&["rm", &file]).run()?;
    ensure!(o.err.contains("Permission denied"), "{}", o.describe());
    ensure!(fs::read(&image)? == before, "the image changed");
    Ok(())
}

#[test]
fn a_check_of_what_is_no_image_is_an_object_too() -> Result<()> {
    let host = TempDir::new("host")?;
    let path = host.join("no-image");
    for content in [vec![], vec![0; 1 << 16]] {
        fs::write(&path, content)?;
        let o = extant(&["check", "--json", &path.display().to_string()]).run()?;
        ensure!(o.code == Some(8), "{}", o.describe());
        ensure!(
            o.out.starts_with("{\"clean\":null,\"error\":\"")
                && o.out.contains("not an ext4 file system")
                && o.out.lines().count() == 1,
            "{}",
            o.describe()
        );
    }
    Ok(())
}
