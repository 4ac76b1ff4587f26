//! Volumes built of archives: as those of folders, and what is refused.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use common::{build, expect_equal, fill};
use extant_archive::{Member, Piece, Writer, kind};
use extant_build::{Options, Source, Watch};
use extant_testkit::{Cmd, Need, TempDir, need};

const MOUNTED: &[Need] = &[
    Need::Loop,
    Need::Tool("e2fsck"),
    Need::Tool("setfattr"),
    Need::Tool("setfacl"),
    Need::Tool("tar"),
];

fn pack(folder: &Path, archive: &Path, args: &[&str]) {
    Cmd::new("tar")
        .args(args)
        .arg("-C")
        .arg(folder)
        .arg("-cf")
        .arg(archive)
        .arg(".")
        .ok()
        .unwrap();
}

#[test]
fn linux_finds_every_entry_of_an_archive() {
    if !need(MOUNTED) {
        return;
    }
    let dir = TempDir::new("build").unwrap();
    let (folder, archive) = (dir.join("folder"), dir.join("archive.tar"));
    fill(&folder);
    // A pax header has no place for the numbers of devices this large in some versions of tar.
    pack(
        &folder,
        &archive,
        &["--format=pax", "--xattrs", "--xattrs-include=*", "--sparse"],
    );
    let image = dir.join("image");
    build(&[&archive], &image, &Options::default()).unwrap();
    expect_equal(&image, &folder);
    // The same by the same bytes, whatever the threads.
    let again = dir.join("again");
    let threads = Options {
        threads: Some(5),
        ..Options::default()
    };
    build(&[&archive], &again, &threads).unwrap();
    assert!(fs::read(&image).unwrap() == fs::read(&again).unwrap());
}

/// An archive of members without contents.
fn archive(dir: &TempDir, members: &[Member]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    for member in members {
        let content = vec![b'x'; usize::try_from(member.size.min(1 << 20)).unwrap()];
        writer.append(member, content.as_slice()).unwrap();
    }
    writer.finish().unwrap();
    let path = dir.join("bad.tar");
    fs::write(&path, bytes).unwrap();
    path
}

fn member(kind: u8, name: &[u8], link: &[u8]) -> Member {
    Member {
        kind,
        name: name.to_vec(),
        link: link.to_vec(),
        mode: 0o644,
        ..Member::default()
    }
}

fn file(name: &[u8]) -> Member {
    member(kind::REGULAR, name, b"")
}

/// A file with so many extended attributes.
fn attributes(count: usize) -> Member {
    let named = (0..count).map(|number| (format!("user.{number}").into_bytes(), b"v".to_vec()));
    Member {
        xattrs: named.collect(),
        ..file(b"f")
    }
}

/// Members that no volume can have, and what is said of them.
fn bad_members() -> Vec<(Vec<Member>, &'static str)> {
    let link = |name: &[u8], to: &[u8]| member(kind::SYMLINK, name, to);
    let hard = |to: &[u8]| vec![member(kind::LINK, b"h", to)];
    let dir = |name: &[u8]| member(kind::DIRECTORY, name, b"");
    let holes = Member {
        size: 1 << 50,
        pieces: Some(vec![Piece { start: 0, len: 0 }]),
        ..file(b"holes")
    };
    let owner = Member {
        uid: u32::MAX,
        ..file(b"f")
    };
    let numbers = Member {
        major: 5000,
        ..member(kind::CHAR, b"c", b"")
    };
    let long = b"a/".repeat(32 << 10);
    vec![
        (vec![file(b"../f")], "../f: a name with \"..\" in it"),
        (vec![file(b"a/../../f")], "a name with \"..\" in it"),
        (vec![file(&[b'a'; 256])], "a name of more than 255 bytes"),
        (vec![file(&long)], "a path of more than 4095 bytes"),
        (
            hard(b"nothing"),
            "h: a hard link to what is not there: nothing",
        ),
        (hard(b"h"), "h: a hard link to what is not there: h"),
        (hard(b"."), "h: a hard link to a directory: ."),
        (hard(b"../etc/passwd"), "a name with \"..\" in it"),
        (vec![link(b"l", b"")], "l: a link to nothing"),
        (
            vec![link(b"l", b"l"), file(b"l/f")],
            "too many links on its path",
        ),
        (
            vec![link(b"l", &[b'a'; 300]), file(b"l/f")],
            "l/f: a name of more than 255 bytes",
        ),
        (
            vec![file(b"f"), file(b"f/g")],
            "a part of its path is no directory",
        ),
        (
            vec![dir(b"d"), file(b"d")],
            "d: something else is in its way",
        ),
        (vec![member(b'M', b"m", b"")], "m: of type 'M', not known"),
        (vec![owner], "f: an owner that ext4 cannot store"),
        (
            vec![numbers],
            "device 5000:0 has numbers that ext4 cannot store",
        ),
        (vec![holes], "1125899906842624 bytes: files have at most"),
        (vec![file(b"lost+found")], "it has to be a directory"),
    ]
}

/// The same with links that lead astray and attributes without an end.
fn more_bad_members() -> Vec<(Vec<Member>, &'static str)> {
    let link = |name: &[u8], to: &[u8]| member(kind::SYMLINK, name, to);
    let dir = |name: &[u8]| member(kind::DIRECTORY, name, b"");
    vec![
        (vec![attributes(5000)], "more than 4096 extended attributes"),
        (
            vec![attributes(4000)],
            "extended attributes that do not fit a block",
        ),
        (
            vec![link(b"l", b"/../.."), file(b"l/lost+found")],
            "it has to be a directory",
        ),
        (
            vec![link(b"a", b"b"), link(b"b", b"a"), dir(b"a/d")],
            "too many links on its path",
        ),
        (vec![link(b"l", &[b'a'; 5000])], "a link of 5000 bytes"),
        (
            vec![file(b"f"), member(kind::LINK, b"f/g", b"f")],
            "a part of its path is no directory",
        ),
    ]
}

#[test]
fn what_cannot_be_built_is_refused_and_leaves_nothing() {
    let dir = TempDir::new("build").unwrap();
    let image = dir.join("image");
    let refused = |path: &Path, what: &str| {
        let said = build(&[path], &image, &Options::default()).unwrap_err();
        let said = said.to_string();
        assert!(said.contains(what), "{said:?} instead of {what:?}");
        let left = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 1, "{what}: a file stays");
    };
    for (members, what) in bad_members().into_iter().chain(more_bad_members()) {
        refused(&archive(&dir, &members), what);
    }
    let path = dir.join("bad.tar");
    for (bytes, what) in [
        (&b"no archive"[..], "it ends in the middle of a header"),
        (&[7; 2048][..], "no header of an archive"),
    ] {
        fs::write(&path, bytes).unwrap();
        refused(&path, what);
    }
    // A member that claims more than there is.
    let claim = Member {
        size: 9999,
        ..file(b"f")
    };
    let bytes = fs::read(archive(&dir, &[claim])).unwrap();
    fs::write(&path, &bytes[..4096]).unwrap();
    refused(&path, "it ends in the middle of a file");
    // One that claims less: its content would be headers.
    let text = Member {
        size: 2000,
        ..file(b"f")
    };
    let long = fs::read(archive(&dir, &[text])).unwrap();
    let mut bytes = fs::read(archive(&dir, &[file(b"f")])).unwrap();
    bytes.splice(512..512, long[512..2560].iter().copied());
    fs::write(&path, &bytes).unwrap();
    refused(&path, "no header of an archive");
}

/// Puts a file in the place of the image while it is built.
struct Meddler(PathBuf);

impl Watch for Meddler {
    fn expect(&self, _: u64) {
        fs::write(&self.0, b"a letter").unwrap();
    }

    fn copied(&self, _: u64) {}

    fn warn(&self, _: String) {}
}

#[test]
fn what_comes_to_the_name_of_an_image_meanwhile_stays() {
    let dir = TempDir::new("build").unwrap();
    let source = archive(&dir, &[file(b"f")]);
    let image = dir.join("image");
    let sources = [Source::Path(source)];
    let mut options = Options::default();
    for (force, what) in [
        (false, "not an ext image: it would be lost"),
        (true, "what is there changed meanwhile"),
    ] {
        options.volume.force = force;
        let meddler = Meddler(image.clone());
        let built = extant_build::build(&sources, &image, &options, &meddler);
        let said = built.unwrap_err().to_string();
        assert!(said.contains(what), "{said}");
        assert_eq!(fs::read(&image).unwrap(), b"a letter");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn an_image_that_is_replaced_keeps_its_owner_and_permissions() {
    if !need(&[Need::Root]) {
        return;
    }
    let dir = TempDir::new("build").unwrap();
    let source = archive(&dir, &[file(b"f")]);
    let (image, link) = (dir.join("image"), dir.join("link"));
    fs::write(&image, b"old").unwrap();
    fs::set_permissions(&image, fs::Permissions::from_mode(0o640)).unwrap();
    chown(&image, Some(5), Some(6)).unwrap();
    symlink("image", &link).unwrap();
    let mut options = Options::default();
    options.volume.force = true;
    // By a link: what it leads to is replaced, not the link.
    build(&[&source], &link, &options).unwrap();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    let found = image.metadata().unwrap();
    assert!(found.len() > 1 << 20);
    assert_eq!(
        (found.uid(), found.gid(), found.mode() & 0o7777),
        (5, 6, 0o640)
    );
}

#[test]
fn a_file_that_is_no_image_is_replaced_by_force_alone() {
    let dir = TempDir::new("build").unwrap();
    let source = archive(&dir, &[file(b"f")]);
    let (image, list) = (dir.join("image"), dir.join("list"));
    let options = |force| {
        let mut options = Options::default();
        options.volume.force = force;
        options
    };
    let refused = |image: &Path, options: &Options, what: &str| {
        let before = fs::read(image).unwrap();
        let said = build(&[&source], image, options).unwrap_err().to_string();
        assert!(said.contains(what), "{said:?} instead of {what:?}");
        assert!(fs::read(image).unwrap() == before, "{what}: it changed");
    };
    fs::write(&image, b"a letter").unwrap();
    refused(
        &image,
        &options(false),
        "not an ext image: it would be lost",
    );
    build(&[&source], &image, &options(true)).unwrap();
    // What the volume is built of is never replaced, whatever name it has.
    let other = dir.join("other");
    fs::hard_link(&source, &other).unwrap();
    for image in [&source, &other] {
        refused(image, &options(true), "the volume is built of it");
    }
    fs::write(&list, b"f\n").unwrap();
    let manifest = Options {
        manifest: Some(list.clone()),
        ..options(true)
    };
    refused(&list, &manifest, "the volume is built of it");
    let order = Options {
        order: Some(list.clone()),
        ..options(true)
    };
    refused(&list, &order, "the volume is built of it");
}

/// The files of quotas would have to say what every source uses.
#[test]
fn volumes_with_quotas_are_not_built() {
    let dir = TempDir::new("build").unwrap();
    let (source, image) = (archive(&dir, &[file(b"f")]), dir.join("image"));
    let mut options = Options::default();
    options.volume.features = extant_mkfs::parse_features("quota").unwrap();
    let said = build(&[&source], &image, &options).unwrap_err().to_string();
    assert!(said.contains("leave quota out of the features"), "{said}");
    assert!(!image.exists());
}

#[test]
fn links_to_what_is_excluded_are_named() {
    let dir = TempDir::new("build").unwrap();
    let source = archive(&dir, &[file(b"d/f"), member(kind::LINK, b"h", b"./d/f")]);
    let image = dir.join("image");
    let excluding = |patterns: &[&str]| Options {
        exclude: patterns
            .iter()
            .map(|text| OsString::from(text).into())
            .collect(),
        ..Options::default()
    };
    let said = build(&[&source], &image, &excluding(&["d/f"])).unwrap_err();
    let said = said.to_string();
    let right = "h: a hard link to ./d/f, which is excluded: exclude the link as well, or neither";
    assert!(said.contains(right), "{said}");
    for patterns in [&["d/f", "h"][..], &["h"]] {
        build(&[&source], &image, &excluding(patterns)).unwrap();
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn names_stay_within_the_volume() {
    if !need(MOUNTED) {
        return;
    }
    let dir = TempDir::new("build").unwrap();
    let members = [
        member(kind::REGULAR, b"/etc/absolute", b""),
        member(kind::SYMLINK, b"up", b"../../../../etc"),
        member(kind::REGULAR, b"up/through", b""),
        member(kind::SYMLINK, b"root", b"/"),
        member(kind::DIRECTORY, b"root/etc/d", b""),
        member(kind::DIRECTORY, b"up", b""),
        member(kind::REGULAR, b"twice", b""),
        member(kind::REGULAR, b"twice", b""),
    ];
    let path = archive(&dir, &members);
    let image = dir.join("image");
    build(&[&path], &image, &Options::default()).unwrap();
    let right = dir.join("right");
    let script = "set -e; mkdir -m 755 right; cd right; mkdir lost+found
        mkdir -m 755 etc; mkdir -m 644 etc/d
        touch etc/absolute etc/through twice; chmod 644 etc/absolute etc/through twice
        chmod 644 etc; ln -s ../../../../etc up; ln -s / root
        find . -depth | xargs touch -h -d @0";
    Cmd::new("sh")
        .args(["-c", script])
        .dir(dir.path())
        .ok()
        .unwrap();
    expect_equal(&image, &right);
    assert!(!Path::new("/etc/through").exists() && !Path::new("/etc/absolute").exists());
}

/// Warnings of a build.
#[derive(Default)]
struct Told(std::sync::Mutex<Vec<String>>);

impl Watch for Told {
    fn expect(&self, _: u64) {}

    fn copied(&self, _: u64) {}

    fn warn(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }
}

#[test]
fn what_is_no_archive_is_not_an_empty_one() {
    let dir = TempDir::new("build").unwrap();
    let (source, image) = (dir.join("source"), dir.join("image"));
    let mut disk = vec![0; 1 << 20];
    disk[100_000] = 1;
    for (bytes, what) in [
        (&b""[..], "nothing in it"),
        (&disk, "it begins with zeros"),
        (b"text", "it ends in the middle of a header"),
    ] {
        fs::write(&source, bytes).unwrap();
        let said = build(&[&source], &image, &Options::default()).unwrap_err();
        assert!(said.to_string().contains(what), "{said} instead of {what}");
        assert!(!image.exists());
    }
    fs::write(&source, vec![0; 10_240]).unwrap();
    build(&[&source], &image, &Options::default()).unwrap();
}

#[test]
fn an_image_is_a_source() {
    if !need(MOUNTED) {
        return;
    }
    let dir = TempDir::new("build").unwrap();
    let folder = dir.join("folder");
    fill(&folder);
    let (one, two) = (dir.join("one"), dir.join("two"));
    build(&[&folder], &one, &Options::default()).unwrap();
    build(&[&one], &two, &Options::default()).unwrap();
    expect_equal(&two, &folder);
    Cmd::new("gzip").arg("-k").arg(&one).ok().unwrap();
    let three = dir.join("three");
    build(&[&dir.join("one.gz")], &three, &Options::default()).unwrap();
    assert!(fs::read(&two).unwrap() == fs::read(&three).unwrap());
    // Over other sources, and below them.
    let (over, four) = (dir.join("over"), dir.join("four"));
    fs::create_dir(&over).unwrap();
    fs::write(over.join("small"), b"other").unwrap();
    build(&[&one, &over], &four, &Options::default()).unwrap();
    build(
        &[&over, &four, &one],
        &dir.join("five"),
        &Options::default(),
    )
    .unwrap();
    expect_equal(&dir.join("five"), &folder);
    // It is not its own source.
    let mut force = Options::default();
    force.volume.force = true;
    let said = build(&[&one], &one, &force).unwrap_err().to_string();
    assert!(said.contains("the volume is built of it"), "{said}");
}

#[test]
fn what_is_excluded_is_in_no_volume() {
    if !need(MOUNTED) {
        return;
    }
    let dir = TempDir::new("build").unwrap();
    let (folder, right) = (dir.join("folder"), dir.join("right"));
    let script = "mkdir -p folder/var/cache/deep folder/usr/var folder/lost+found
        for name in var/cache/deep/f var/a.pyc usr/var/f usr/kept; do echo x > folder/$name; done
        ln folder/usr/kept folder/usr/again
        cp -a folder right; rm -r right/var/cache/deep right/var/a.pyc right/usr/var
        find folder right | xargs touch -h -d @1700000000";
    Cmd::new("sh")
        .args(["-c", script])
        .dir(dir.path())
        .ok()
        .unwrap();
    pack(&folder, &dir.join("archive"), &["--format=pax"]);
    let whole = dir.join("whole");
    build(&[&folder], &whole, &Options::default()).unwrap();
    let patterns = ["*.pyc", "/var/cache/deep/", "usr/v?r"];
    let options = Options {
        exclude: patterns
            .map(|text| std::ffi::OsString::from(text).into())
            .to_vec(),
        ..Options::default()
    };
    for source in [&folder, &dir.join("archive"), &whole] {
        let image = dir.join("image");
        build(&[source], &image, &options).unwrap();
        expect_equal(&image, &right);
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn a_directory_that_something_else_replaces_is_told() {
    let dir = TempDir::new("build").unwrap();
    let script = "mkdir -p one/lib two/gone over/lib; echo x > one/lib/f; echo y > over/lib/g
        ln -s usr two/lib; ln -s nowhere two/gone/to; mkdir -p three/gone/to";
    Cmd::new("sh")
        .args(["-c", script])
        .dir(dir.path())
        .ok()
        .unwrap();
    let image = dir.join("image");
    let built = |names: &[&str]| {
        let sources = names.iter().map(|name| Source::Path(dir.join(name)));
        let sources: Vec<Source> = sources.collect();
        let told = Told::default();
        let mut options = Options::default();
        options.volume.force = true;
        let built = extant_build::build(&sources, &image, &options, &told);
        (built, told.0.into_inner().unwrap())
    };
    let (done, told) = built(&["one", "over"]);
    assert!(done.is_ok() && told.is_empty(), "{told:?}");
    let (done, told) = built(&["one", "two"]);
    assert!(done.is_ok());
    assert_eq!(told, ["/lib: it replaces a directory of an earlier source"]);
    // A link that leads nowhere cannot be filled.
    let said = built(&["two", "three"]).0.unwrap_err().to_string();
    assert!(said.contains("a link is in its way"), "{said}");
}
