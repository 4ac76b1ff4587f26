//! Commands that look, and small changes: tree, find, du, df, touch, setfattr, and what copies tell
//! programs.

use std::fs;
use std::os::unix::fs::symlink;

use extant_testkit::{Cmd, Need, Result, TempDir, ensure, need};

/// An image of a small tree, in a folder.
struct Disk(TempDir);

impl Disk {
    fn new() -> Result<Disk> {
        let disk = Disk(TempDir::new("looks")?);
        fs::create_dir_all(disk.0.join("tree/etc/conf.d"))?;
        fs::write(disk.0.join("tree/etc/hosts"), "127.0.0.1\n")?;
        fs::write(disk.0.join("tree/etc/conf.d/a.conf"), vec![1; 300_000])?;
        fs::hard_link(
            disk.0.join("tree/etc/conf.d/a.conf"),
            disk.0.join("tree/etc/conf.d/b.conf"),
        )?;
        symlink("hosts", disk.0.join("tree/etc/link"))?;
        let sparse = fs::File::create(disk.0.join("tree/sparse"))?;
        sparse.set_len(8 << 20)?;
        let told = disk.run("build --size 32M tree disk.img")?;
        // A hole is no data.
        ensure!(told.contains(" 300010 bytes of data"), "{told}");
        Ok(disk)
    }

    fn cmd(&self, line: &str) -> Cmd {
        let cmd = Cmd::new(env!("CARGO_BIN_EXE_extant")).dir(self.0.path());
        cmd.args(line.split_whitespace())
    }

    fn run(&self, line: &str) -> Result<String> {
        Ok(self.cmd(line).ok()?.out)
    }

    fn is(&self, line: &str, right: &str) -> Result<()> {
        let out = self.run(line)?;
        ensure!(out == right, "{line}: {out}, not {right}");
        Ok(())
    }
}

#[test]
fn an_image_alone_stands_for_its_root() -> Result<()> {
    let disk = Disk::new()?;
    disk.is("ls disk.img", "etc\nlost+found\nsparse\n")?;
    let long = disk.run("ls -lh disk.img")?;
    ensure!(long.contains(" 8.0M ") && long.contains(" 4.0K "), "{long}");
    for line in [
        "ls --json disk.img",
        "tree disk.img",
        "find disk.img",
        "du disk.img",
    ] {
        let named = disk.run(&format!("{line}:/"))?;
        disk.is(line, &named)?;
    }
    // The short option of the help is that of sizes.
    ensure!(
        disk.run("ls --help")?.contains("human-readable"),
        "ls --help"
    );
    Ok(())
}

#[test]
fn paths_are_found_by_name_and_kind() -> Result<()> {
    let disk = Disk::new()?;
    disk.is(
        "find --name *.conf disk.img",
        "/etc/conf.d/a.conf\n/etc/conf.d/b.conf\n",
    )?;
    disk.is("find -n conf.d/a.* disk.img:/etc", "/etc/conf.d/a.conf\n")?;
    disk.is(
        "find --type d,l disk.img:/etc",
        "/etc\n/etc/conf.d\n/etc/link\n",
    )?;
    disk.is(
        "find -L 1 -0 disk.img:/etc",
        "/etc\0/etc/conf.d\0/etc/hosts\0/etc/link\0",
    )?;
    let json = disk.run("find --json --type l disk.img")?;
    ensure!(
        json.starts_with('[') && json.contains("\"path\":\"/etc/link\""),
        "{json}"
    );
    disk.is("find --json --name none disk.img", "[]\n")?;
    let tree = disk.run("tree --json disk.img:/etc")?;
    for part in ["\"path\":\"/etc\"", "\"depth\":2", "\"target\":\"hosts\""] {
        ensure!(tree.contains(part), "{part}: {tree}");
    }
    Ok(())
}

#[test]
fn space_counts_once() -> Result<()> {
    let disk = Disk::new()?;
    // 74 blocks of the file with two names, one of each directory and of the hosts.
    disk.is("du -s disk.img:/etc", "308\t/etc\n")?;
    disk.is(
        "du disk.img:/etc/conf.d disk.img:/sparse",
        "300\t/etc/conf.d\n0\t/sparse\n",
    )?;
    disk.is("du -sh disk.img:/etc", "308K\t/etc\n")?;
    let line = disk.run("df disk.img")?;
    let fields: Vec<&str> = line
        .lines()
        .nth(1)
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    ensure!(fields.len() == 6 && fields[5] == "disk.img", "{line}");
    let json = disk.run("df --json disk.img")?;
    let used: u64 = fields[1].parse()?;
    ensure!(
        json.contains(&format!("\"used\":{}", used * 1024)),
        "{json} {line}"
    );
    Ok(())
}

#[test]
fn times_and_attributes_are_set() -> Result<()> {
    let disk = Disk::new()?;
    disk.run("touch -d @1500000000.5 --owner 7:8 disk.img:/new disk.img:/etc/hosts")?;
    let stat = disk.run("stat --json disk.img:/new")?;
    for part in [
        "\"mtime\":{\"nanos\":500000000,\"secs\":1500000000}",
        "\"uid\":7",
        "\"size\":0",
    ] {
        ensure!(stat.contains(part), "{part}: {stat}");
    }
    disk.run("touch -c -a -d @5 disk.img:/none disk.img:/etc/hosts")?;
    let stat = disk.run("stat --json disk.img:/etc/hosts")?;
    ensure!(
        stat.contains("\"atime\":{\"nanos\":0,\"secs\":5}"),
        "{stat}"
    );
    ensure!(
        stat.contains("\"secs\":1500000000") && stat.contains("\"size\":10"),
        "{stat}"
    );
    ensure!(!disk.run("ls disk.img")?.contains("none"), "made");

    disk.run("setfattr -n user.note -v hello disk.img:/new")?;
    disk.run("setfattr -n user.bytes -v 0x00ff disk.img:/new")?;
    let stat = disk.run("stat --json disk.img:/new")?;
    ensure!(stat.contains("\"user.note\":\"68656c6c6f\""), "{stat}");
    ensure!(stat.contains("\"user.bytes\":\"00ff\""), "{stat}");
    disk.run("setfattr -x user.note disk.img:/new")?;
    ensure!(
        !disk.run("stat disk.img:/new")?.contains("user.note"),
        "removed"
    );
    if need(&[Need::Tool("e2fsck")]) {
        extant_testkit::Image::fsck_clean_at(&disk.0.join("disk.img"))?;
    }
    Ok(())
}

#[test]
fn copies_tell_programs_what_they_did() -> Result<()> {
    let disk = Disk::new()?;
    let told = disk.run("cp --json disk.img:/etc/hosts disk.img:/sparse tree")?;
    ensure!(told == "{\"bytes\":8388618,\"files\":2}\n", "{told}");
    // A file with two names is one.
    let told = disk.run("export --json disk.img:/ new.tar")?;
    ensure!(told == "{\"bytes\":8688618,\"files\":3}\n", "{told}");
    let refused = disk.cmd("export --json disk.img:/ -").run()?;
    ensure!(
        refused.code == Some(2) && refused.out.is_empty(),
        "{}",
        refused.describe()
    );
    Ok(())
}

#[test]
fn a_copy_to_a_missing_directory_says_what_makes_it() -> Result<()> {
    let disk = Disk::new()?;
    let refused = disk.cmd("cp -r tree disk.img:/srv/site").run()?;
    let said = "extant: cp: disk.img:/srv/site: its directory is missing: \
                extant mkdir -p disk.img:/srv makes it\n";
    ensure!(
        refused.code == Some(1) && refused.err == said,
        "{}",
        refused.describe()
    );
    disk.run("mkdir -p disk.img:/srv")?;
    disk.run("cp -r tree disk.img:/srv/site")?;
    disk.is("cat disk.img:/srv/site/etc/hosts", "127.0.0.1\n")
}
