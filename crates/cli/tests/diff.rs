//! `extant diff`: each thing that can differ is found, and nothing else; exit status as diff(1).

use std::fs;
use std::path::Path;

use extant_testkit::{Cmd, Image, Need, Result, TempDir, ensure, need};
use serde_json::Value;

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
    Need::Tool("setfattr"),
    Need::Tool("setfacl"),
];

fn extant(args: &[&str]) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args)
}

fn at(disk: &Image, path: &str) -> String {
    format!("{}:{path}", disk.path().display())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn shell(dir: &Path, script: &str) -> Result<()> {
    let script = format!("set -e; {script}");
    Cmd::new("bash").args(["-c", &script]).dir(dir).ok()?;
    Ok(())
}

/// Something of everything.
const PLANT: &str = "mkdir -p sub/empty sub/deep; printf 'text' > plain
    head -c 200000 /dev/urandom > sub/large; ln sub/large sub/deep/other; ln sub/large third
    truncate -s 5M sparse; printf 'middle' | dd of=sparse bs=1 seek=3000000 conv=notrunc status=none
    ln -s plain link; mkfifo pipe; mknod node b 259 70000; mknod char c 5 1
    chown 77:88 plain; chmod 4751 plain; chown -h 5:6 link
    setfattr -n user.word -v text plain; setfattr -n trusted.bytes -v 0x0a00 plain
    printf x > acled; setfacl -m u:10:rw acled; setfacl -d -m g:11:rx sub
    touch -h -d @1234567890.25 link; find . ! -type l -exec touch -d @1234567890.5 {} +";

/// Changes of a copy of the tree, each with the path that differs then, and how.
const CHANGES: &[(&str, &str, &str)] = &[
    ("chmod 4750 plain", "./plain", "mode"),
    ("chown 78 plain; chmod 4751 plain", "./plain", "owner"),
    ("chgrp 89 plain; chmod 4751 plain", "./plain", "group"),
    ("touch -d @1234567890.6 plain", "./plain", "mtime"),
    (
        "chgrp -h 7 link; touch -h -d @1234567890.25 link",
        "./link",
        "group",
    ),
    ("printf more >> plain", "./plain", "size"),
    ("printf tExt > plain", "./plain", "content"),
    (
        "printf x | dd of=sparse bs=1 seek=4999999 conv=notrunc status=none",
        "./sparse",
        "content",
    ),
    ("ln -sfn plane link; chown -h 5:6 link", "./link", "target"),
    ("rm char; mknod char c 5 2", "./char", "device"),
    ("rm pipe; printf x > pipe", "./pipe", "kind"),
    ("setfattr -n user.word -v test plain", "./plain", "xattr"),
    (
        "setfattr -x trusted.bytes plain",
        "./plain",
        "xattr_only_right",
    ),
    ("setfattr -n user.new -v 1 sub", "./sub", "xattr_only_left"),
    (
        "setfacl -m u:10:r acled; setfacl -m m:rw acled",
        "./acled",
        "xattr",
    ),
    ("setfacl -k sub", "./sub", "xattr_only_right"),
    ("rm -r sub/empty", "./sub/empty", "only_right"),
    (
        "mkdir sub/deep/new; touch sub/deep/new/x",
        "./sub/deep/new",
        "only_left",
    ),
    ("cp -a third copy; mv copy third", "./third", "links"),
];

#[test]
fn each_change_is_found_and_nothing_else() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = TempDir::new_in(&std::env::temp_dir(), "diff")?;
    let tree = host.join("tree");
    fs::create_dir(&tree)?;
    shell(&tree, PLANT)?;
    let disk = Image::of_mib(32).make()?;
    let place = at(&disk, "/t");
    extant(&["cp", "-a", &text(&tree), &place]).ok()?;
    let o = extant(&["diff", &text(&tree), &place]).run()?;
    ensure!(o.code == Some(0) && o.out.is_empty(), "{}", o.describe());
    for (change, path, word) in CHANGES {
        let work = host.join("work");
        Cmd::new("cp")
            .args(["-a", &text(&tree), &text(&work)])
            .ok()?;
        shell(&work, change)?;
        // A change of content or names changes times as well.
        if *word != "mtime" {
            shell(&work, "find . ! -type l -exec touch -d @1234567890.5 {} +")?;
            shell(&work, "touch -h -d @1234567890.25 link")?;
        }
        let o = extant(&["diff", "--json", &text(&work), &place]).run()?;
        let lines: Vec<Value> = (o.out.lines())
            .map(|line| serde_json::from_str(line).unwrap_or_default())
            .collect();
        let right = lines.len() == 1 && lines[0]["path"] == *path && lines[0]["differs"] == *word;
        ensure!(o.code == Some(1) && right, "{change}: {}", o.describe());
        if *path == "./sparse" {
            ensure!(lines[0]["byte"] == 4_999_999, "{}", o.describe());
        }
        let plain = extant(&["diff", &text(&work), &place]).run()?;
        let line = plain.out.starts_with(&format!("{path}: ")) && plain.out.lines().count() == 1;
        ensure!(
            plain.code == Some(1) && line,
            "{change}: {}",
            plain.describe()
        );
        let quiet = extant(&["diff", "-q", &place, &text(&work)]).run()?;
        ensure!(
            quiet.code == Some(1) && quiet.out.is_empty(),
            "{}",
            quiet.describe()
        );
        fs::remove_dir_all(&work)?;
    }
    Ok(())
}

#[test]
fn options_leave_out_what_they_name() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = TempDir::new_in(&std::env::temp_dir(), "diff")?;
    let tree = host.join("tree");
    fs::create_dir(&tree)?;
    shell(&tree, PLANT)?;
    let disk = Image::of_mib(32).make()?;
    // The image alone is its root, whose lost+found is nothing that differs.
    let image = text(disk.path());
    extant(&["cp", "-a", &format!("{}/.", text(&tree)), &at(&disk, "/")]).ok()?;
    let equal = |options: &[&str]| -> Result<bool> {
        let o = extant(&["diff"])
            .args(options)
            .args([&text(&tree), &image])
            .run()?;
        ensure!(matches!(o.code, Some(0 | 1)), "{}", o.describe());
        Ok(o.code == Some(0))
    };
    ensure!(equal(&[])?, "the copy differs");
    let itself = extant(&["diff", &image, &at(&disk, "/")]).run()?;
    ensure!(itself.code == Some(0), "{}", itself.describe());
    for (change, options) in [
        ("touch -d @7 plain", &["--no-times"][..]),
        ("chown -R 500:500 sub", &["--no-owners"]),
        ("setfattr -n user.new -v 1 sparse", &["--no-xattrs"]),
        ("touch sub/deep/a.o", &["--no-times", "--ignore", "*.o"]),
        (
            "mkdir sub/new; touch sub/new/x third/../y",
            &["--no-times", "--ignore=/sub/ne?", "--ignore=./y"],
        ),
    ] {
        let kept = host.join("kept");
        Cmd::new("cp")
            .args(["-a", &text(&tree), &text(&kept)])
            .ok()?;
        let change = change.replace("third/../", "");
        shell(&tree, &change)?;
        ensure!(!equal(&[])?, "{change} is not found");
        ensure!(equal(options)?, "{change} is found with {options:?}");
        fs::remove_dir_all(&tree)?;
        fs::rename(&kept, &tree)?;
    }
    // Something in it is a difference.
    disk.debugfs_write("write /dev/null /lost+found/#12")?;
    ensure!(
        !equal(&["--no-times"])?,
        "an inode in lost+found is not found"
    );
    Ok(())
}

#[test]
fn trouble_is_two_and_ends_nothing_else() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Image::of_mib(8).make()?;
    for request in [
        "mkdir /a",
        "mkdir /b",
        "mkdir /c",
        "mkdir /b/x",
        "write /dev/null /c/new",
    ] {
        disk.debugfs_write(request)?;
    }
    let other = disk.copy()?;
    other.debugfs_write("rm /c/new")?;
    // Its blocks are gone: it cannot be listed.
    disk.debugfs_write("sif /b block[0] 0")?;
    disk.debugfs_write("sif /b block[2] 0")?;
    let o = extant(&["diff", "--no-times", &at(&disk, "/"), &at(&other, "/")]).run()?;
    let both = o.err.contains(":/b: ") && o.out.contains("./c/new: only in ");
    ensure!(o.code == Some(2) && both, "{}", o.describe());
    ensure!(!o.out.contains("./b"), "{}", o.describe());
    let host = TempDir::new("diff")?;
    fs::write(host.join("empty"), "")?;
    let disk = text(disk.path());
    for (left, right) in [
        (&disk, &text(&host.join("missing"))),
        (&format!("{disk}:/missing"), &text(host.path())),
        (&format!("{}:/", text(&host.join("empty"))), &disk),
    ] {
        let o = extant(&["diff", left, right]).run()?;
        ensure!(o.code == Some(2) && o.out.is_empty(), "{}", o.describe());
        ensure!(o.err.lines().count() == 1, "{}", o.describe());
    }
    // A file of the host that is no image is a file.
    let o = extant(&["diff", &text(&host.join("empty")), &disk]).run()?;
    ensure!(
        o.code == Some(1) && o.out == ".: kind file, directory\n",
        "{}",
        o.describe()
    );
    ensure!(
        extant(&["diff", &disk]).run()?.code == Some(2),
        "one operand"
    );
    Ok(())
}

#[test]
fn deep_trees_and_trees_that_contain_themselves_end() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = TempDir::new_in(&std::env::temp_dir(), "diff")?;
    let tree = host.join("tree");
    // Deeper than descriptors are kept open.
    fs::create_dir_all(tree.join("d/".repeat(300)))?;
    fs::write(tree.join("z"), "after the way back")?;
    let disk = Image::of_mib(16).make()?;
    extant(&["cp", "-a", &text(&tree), &at(&disk, "/t")]).ok()?;
    let deep = format!("{}/{}x", text(&tree), "d/".repeat(300));
    fs::write(&deep, "")?;
    fs::write(tree.join("z"), "after the way bacK")?;
    let o = extant(&["diff", "--no-times", &text(&tree), &at(&disk, "/t")]).run()?;
    ensure!(
        o.code == Some(1) && o.out.lines().count() == 2,
        "{}",
        o.describe()
    );
    ensure!(
        o.out.contains("d/x: only in") && o.out.contains("./z: content"),
        "{}",
        o.describe()
    );
    // Each level has its own directory by a second name.
    let mut path = String::from("/u");
    for _ in 0..5 {
        disk.debugfs_write(&format!("mkdir {path}"))?;
        disk.debugfs_write(&format!("ln {path} {path}/again"))?;
        path += "/d";
    }
    let u = at(&disk, "/u");
    let o = extant(&["diff", &u, &u]).run()?;
    let told = o.err.matches("a directory with a second name").count();
    ensure!(o.code == Some(2) && told == 5, "{}", o.describe());
    Ok(())
}

#[test]
fn an_archive_is_a_side_like_any() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = TempDir::new_in(&std::env::temp_dir(), "diff")?;
    let tree = host.join("tree");
    fs::create_dir(&tree)?;
    shell(&tree, PLANT)?;
    shell(
        &tree,
        "mkdir -p usr/lib; ln -s usr/lib lib; ln -s loop loop; touch -h -d @7 lib loop
         touch -d @7 usr/lib usr .",
    )?;
    let archive = host.join("tree.tar");
    let disk = Image::of_mib(32).make()?;
    extant(&["cp", "-a", &text(&tree), &at(&disk, "/t")]).ok()?;
    for format in ["pax", "gnu"] {
        let pack = format!("tar -C tree --format={format} --sparse -cf tree.tar .");
        let pack = match format {
            "pax" => pack.replace("-cf", "--xattrs --xattrs-include=* --acls -cf"),
            _ => pack,
        };
        shell(host.path(), &pack)?;
        // The one format keeps no attributes, ACLs and parts of seconds.
        let less: &[&str] = match format {
            "gnu" => &["--no-xattrs", "--no-times"],
            _ => &[],
        };
        for (one, other) in [
            (text(&archive), text(&tree)),
            (at(&disk, "/t"), text(&archive)),
            (text(&archive), text(&archive)),
        ] {
            let o = extant(&["diff", &one, &other]).args(less).run()?;
            ensure!(
                o.code == Some(0) && o.out.is_empty(),
                "{format}: {}",
                o.describe()
            );
        }
    }
    Ok(())
}

/// Packs `tree` below `dir` as `archive`, with all that the format pax has.
fn pack(dir: &Path, archive: &str) -> Result<()> {
    let how = "--format=pax --sparse --xattrs --xattrs-include=* --acls";
    shell(dir, &format!("tar -C tree {how} -cf {archive} ."))
}

#[test]
fn each_change_beside_an_archive_is_found() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = TempDir::new_in(&std::env::temp_dir(), "diff")?;
    let (tree, work, archive) = (host.join("tree"), host.join("work"), host.join("tree.tar"));
    fs::create_dir(&tree)?;
    shell(&tree, PLANT)?;
    shell(
        &tree,
        "mkdir -p usr/lib; ln -s usr/lib lib; touch -h -d @7 lib; touch -d @7 usr/lib usr .",
    )?;
    pack(host.path(), "tree.tar")?;
    for (change, path, word) in CHANGES {
        shell(host.path(), "rm -rf work; cp -a tree work")?;
        shell(&work, change)?;
        let o = extant(&[
            "diff",
            "--no-times",
            "--json",
            &text(&work),
            &text(&archive),
        ])
        .run()?;
        let found = (o.out.lines())
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .any(|line| line["path"] == *path && line["differs"] == *word);
        ensure!(*word == "mtime" || found, "{change}: {}", o.describe());
    }
    // What is added behind the end of one goes through links and replaces.
    let (more, right) = (host.join("more.tar"), host.join("right"));
    pack(host.path(), "more.tar")?;
    shell(
        host.path(),
        "mkdir -p a/lib b; echo 1 > a/lib/new; echo 2 > a/plain; touch -d @7 a/lib/new a/plain
         tar --format=pax -C a -rf more.tar lib/new plain
         cp -a tree right; rm right/plain; cp -a a/lib/new right/usr/lib; cp -a a/plain right
         touch -d @7 right/usr/lib right",
    )?;
    let o = extant(&["diff", &text(&more), &text(&right)]).run()?;
    ensure!(o.code == Some(0) && o.out.is_empty(), "{}", o.describe());
    // A damaged one is trouble.
    let bytes = fs::read(&archive)?;
    for (cut, what) in [(bytes.len() / 2, "it ends"), (100_000, "it ends")] {
        fs::write(&archive, bytes.get(..cut).unwrap_or_default())?;
        let o = extant(&["diff", &text(&archive), &text(&tree)]).run()?;
        ensure!(
            o.code == Some(2) && o.err.contains(what),
            "{}",
            o.describe()
        );
    }
    Ok(())
}

/// A sparse file of several pieces: each piece is compared with its own bytes, and a hole reads as
/// zeros.
#[test]
fn a_file_of_several_pieces_is_compared_piece_by_piece() -> Result<()> {
    if !need(&[Need::Tool("tar")]) {
        return Ok(());
    }
    let host = TempDir::new("pieces")?;
    let tree = host.join("tree");
    fs::create_dir(&tree)?;
    let file = fs::File::create(tree.join("holes"))?;
    for (nth, at) in [100_000_u64, 700_000, 1_500_000, 3_000_000]
        .into_iter()
        .enumerate()
    {
        let bytes = [u8::try_from(nth)? + 1; 5000];
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, at)?;
    }
    file.set_len(4_000_000)?;
    shell(host.path(), "touch -d @1234567890 tree/holes tree")?;
    for format in ["gnu", "pax"] {
        shell(
            host.path(),
            &format!("tar -C tree --format={format} --sparse -cf t.tar ."),
        )?;
        let (archive, side) = (text(&host.join("t.tar")), text(&tree));
        let o = extant(&["diff", "--no-owners", &archive, &side]).run()?;
        ensure!(o.code == Some(0), "{format}: {}", o.describe());
        for at in [102_345, 702_345, 1_504_999, 3_000_000, 2_000_000, 3_999_999] {
            let byte = |value: u8| {
                std::os::unix::fs::FileExt::write_all_at(
                    &fs::File::options().write(true).open(tree.join("holes"))?,
                    &[value],
                    at,
                )
            };
            let old = fs::read(tree.join("holes"))?;
            byte(99)?;
            let o = extant(&[
                "diff",
                "--json",
                "--no-owners",
                "--no-times",
                &archive,
                &side,
            ])
            .run()?;
            let line: Value = serde_json::from_str(o.out.lines().next().unwrap_or_default())?;
            ensure!(
                o.code == Some(1) && line["byte"] == at,
                "{format}, {at}: {}",
                o.describe()
            );
            byte(old[usize::try_from(at)?])?;
        }
        shell(host.path(), "touch -d @1234567890 tree/holes tree")?;
    }
    Ok(())
}

/// Links on the way of a name are followed as far as Linux does, and no farther.
#[test]
fn links_in_an_archive_are_followed_within_a_bound() -> Result<()> {
    if !need(&[Need::Tool("tar")]) {
        return Ok(());
    }
    let host = TempDir::new("links")?;
    shell(
        host.path(),
        "mkdir empty dir; printf x > f; for n in $(seq 1 45); do ln -s l$((n-1)) l$n; done
         ln -s dir l0; tar -cf base.tar dir l*
         for n in 39 40; do
             cp base.tar $n.tar; tar --transform \"s,^f$,l$n/f,\" -rf $n.tar f
         done",
    )?;
    let (side, left) = (text(&host.join("empty")), |name: &str| {
        text(&host.join(name))
    });
    let o = extant(&["diff", &left("39.tar"), &side]).run()?;
    ensure!(o.code == Some(1), "{}", o.describe());
    let o = extant(&["diff", &left("40.tar"), &side]).run()?;
    ensure!(
        o.code == Some(2) && o.err.contains("too many links on its path"),
        "{}",
        o.describe()
    );
    Ok(())
}
