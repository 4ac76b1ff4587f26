//! Directories that fold the case of names (`casefold`), through a mount: what programs see, what
//! the kernel may remember of names, and that e2fsck finds every name where it looks for it. (Few
//! kernels have the tables, so Linux is not asked.)

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use extant_testkit::{
    Cmd, Image, Mount, Need, Result, Subject, TempDir, bail, ensure, need, report, tools,
};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Tool("mke2fs"),
    Need::Tool("chattr"),
];

/// The same name in other spellings: of another case, composed and decomposed, and with a character
/// that counts for nothing.
fn spellings(number: u32) -> [String; 4] {
    [
        format!("Straße von Ångström {number}"),
        format!("STRASSE VON ÅNGSTRÖM {number}"),
        format!("strasse von a\u{30a}ngstro\u{308}m {number}"),
        format!("straSSe von \u{212b}ngstr\u{ad}öm {number}"),
    ]
}

/// Changes the flags of `path` as chattr does.
fn chattr(change: &str, path: &Path) -> Result<()> {
    Cmd::new("chattr").arg(change).arg(path).ok().map(drop)
}

fn names_of(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

/// Both checkers find nothing wrong with an image.
fn is_sound(image: &Image) -> Result<()> {
    image.fsck_clean()?;
    let check = Cmd::new(tools::extant()?).arg("check").arg(image.path());
    check.ok().map(drop)
}

/// Many names in a folded directory and in one below it, which has the flag from above.
fn fill(mount: &Mount, names: u32) -> Result<()> {
    let dir = mount.join("folded");
    fs::create_dir(&dir)?;
    chattr("+F", &dir)?;
    fs::create_dir(dir.join("Below"))?;
    for number in 0..names {
        let [first, ..] = spellings(number);
        fs::write(dir.join(&first), format!("{number}"))?;
        let other = dir.join("bELOW").join(&first);
        fs::hard_link(dir.join(&first), other)?;
    }
    Ok(())
}

/// Every name is found by every spelling, and listed as it was given.
fn look(mount: &Mount, names: u32) -> Result<()> {
    let dir = mount.join("folded");
    let mut given: Vec<String> = (0..names).map(|n| spellings(n)[0].clone()).collect();
    given.sort_unstable();
    ensure!(names_of(&dir.join("BELOW"))? == given, "names of BELOW");
    given.push("Below".to_owned());
    given.sort_unstable();
    ensure!(names_of(&dir)? == given, "names of folded");
    for number in (0..names).step_by(7) {
        for name in spellings(number) {
            let text = fs::read_to_string(dir.join("below").join(&name))?;
            ensure!(text == format!("{number}"), "{name}: {text}");
        }
    }
    ensure!(!dir.join(&spellings(names)[1]).exists(), "no such name");
    Ok(())
}

/// Changes by other spellings than the one that a name was given.
fn change(mount: &Mount) -> Result<()> {
    let dir = mount.join("folded");
    let [first, upper, apart, mixed] = spellings(3);
    // The kernel knows that these are missing, or are there, until they are not.
    let (new, new_upper) = (dir.join("new"), dir.join("NEW"));
    ensure!(!new.exists() && !new_upper.exists(), "not there yet");
    fs::write(&new_upper, "here")?;
    ensure!(fs::read_to_string(&new)? == "here", "by the other spelling");
    let again = fs::File::create_new(dir.join("New")).map_err(|error| error.kind());
    ensure!(matches!(again, Err(ErrorKind::AlreadyExists)), "{again:?}");
    fs::remove_file(&new)?;
    ensure!(!new.exists() && !new_upper.exists(), "gone by both");

    // A rename onto itself changes nothing, as in Linux; one onto another takes its name.
    fs::rename(dir.join(&first), dir.join(&upper))?;
    ensure!(names_of(&dir)?.contains(&first), "it has its name");
    fs::write(dir.join("other"), "other")?;
    fs::rename(dir.join("OTHER"), dir.join(&apart))?;
    ensure!(fs::read_to_string(dir.join(&mixed))? == "other", "replaced");
    ensure!(names_of(&dir)?.contains(&first), "under the name it had");
    fs::rename(dir.join(&mixed), dir.join("bElow/Moved"))?;
    ensure!(!dir.join(&first).exists(), "moved away");
    fs::rename(dir.join("Below/moved"), dir.join(&first))?;
    fs::remove_file(dir.join(&upper))?;
    fs::hard_link(dir.join("below").join(&mixed), dir.join(&first))?;
    let links = fs::metadata(dir.join(&apart))?.nlink();
    ensure!(links == 2, "{links} links");
    Ok(())
}

/// A name that the kernel took along from a directory that does not fold is looked up again.
fn arrive(mount: &Mount) -> Result<()> {
    let (dir, plain) = (mount.join("folded"), mount.join("plain"));
    fs::create_dir(&plain)?;
    fs::write(plain.join("one"), "one")?;
    fs::rename(plain.join("one"), dir.join("Arrived"))?;
    fs::remove_file(dir.join("ARRIVED"))?;
    ensure!(!dir.join("Arrived").exists(), "it went");
    fs::write(dir.join("arrived"), "two")?;
    let text = fs::read_to_string(dir.join("Arrived"))?;
    ensure!(text == "two", "{text}");
    // As programs save a file.
    for (text, name) in [("three", "Arrived"), ("four", "ARRIVED")] {
        fs::write(plain.join("new"), text)?;
        fs::rename(plain.join("new"), dir.join(name))?;
    }
    for name in ["Arrived", "ARRIVED", "arrived"] {
        let text = fs::read_to_string(dir.join(name))?;
        ensure!(text == "four", "{name}: {text}");
    }
    let exchange = rustix::fs::RenameFlags::EXCHANGE;
    fs::write(plain.join("other"), "five")?;
    let (from, to) = (plain.join("other"), dir.join("aRRIVED"));
    rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, exchange)?;
    fs::remove_file(dir.join("Arrived"))?;
    ensure!(!dir.join("aRRIVED").exists(), "it went");
    Ok(())
}

/// The flag goes with directories that are empty, and only with them.
fn flags(mount: &Mount, strict: bool) -> Result<()> {
    let dir = mount.join("flags");
    fs::create_dir(&dir)?;
    ensure!(!dir.join("Name").exists(), "known to be missing");
    let no_text = dir.join(OsStr::from_bytes(b"\xff"));
    ensure!(!no_text.exists(), "known to be missing");
    chattr("+F", &dir)?;
    match (strict, fs::File::create_new(&no_text)) {
        (false, Ok(_)) => fs::remove_file(&no_text)?,
        (true, Err(error)) if error.kind() == ErrorKind::InvalidInput => {}
        (_, other) => bail!("{other:?}"),
    }
    fs::write(dir.join("name"), "")?;
    ensure!(dir.join("Name").exists(), "the same name");
    ensure!(chattr("-F", &dir).is_err(), "it has a name");
    fs::remove_file(dir.join("NAME"))?;
    chattr("-F", &dir)?;
    fs::write(dir.join("name"), "")?;
    ensure!(!dir.join("Name").exists(), "another name");
    ensure!(chattr("+F", &dir).is_err(), "it has a name");
    ensure!(chattr("+F", &dir.join("name")).is_err(), "it is a file");
    Ok(())
}

/// Bytes that are no text: a name like any other, or none at all.
fn bytes(mount: &Mount, strict: bool) -> Result<()> {
    let dir = mount.join("folded");
    for name in [&b"\xff Name"[..], b"Name \xc3"] {
        let path = dir.join(OsStr::from_bytes(name));
        let made = fs::write(&path, "");
        if strict {
            let refused = made.map_err(|error| error.kind());
            ensure!(
                matches!(refused, Err(ErrorKind::InvalidInput)),
                "{refused:?}"
            );
            continue;
        }
        made?;
        let lower = name.to_ascii_lowercase();
        let other = dir.join(OsStr::from_bytes(&lower));
        ensure!(path.exists() && !other.exists(), "{name:?} has its case");
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Two names of which one is spelled as the other's key: by paths, each leads to its own file.
fn alike(image: &Image) -> Result<()> {
    let dir = format!("{}:/folded", image.path().display());
    let names = ["a\u{301}\u{ad}\u{323}", "a\u{301}\u{323}"];
    let paths = names.map(|name| format!("{dir}/{name}"));
    for (path, text) in paths.iter().zip(["one", "two"]) {
        let host = TempDir::new("alike")?;
        fs::write(host.join("text"), text)?;
        let cp = Cmd::new(tools::extant()?).arg("cp").arg(host.join("text"));
        cp.arg(path).ok()?;
    }
    let cat = Cmd::new(tools::extant()?).arg("cat").args(&paths).ok()?;
    ensure!(cat.out == "onetwo", "{}", cat.out);
    is_sound(image)
}

#[test]
fn names_are_found_in_any_spelling() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    // In several leaves of an index, or in several blocks.
    for (args, names, strict) in [
        ("-b 1024 -O casefold", 1000, false),
        ("-b 4096 -O casefold,^metadata_csum", 500, false),
        ("-b 4096 -O casefold -E encoding_flags=strict", 200, true),
        ("-b 4096 -O casefold,^dir_index,^has_journal", 200, false),
    ] {
        let theirs = Image::of_mib(64).args(args).make()?;
        let ours = Image::of_mib(64).empty()?;
        let mkfs = Cmd::new(tools::extant()?).arg("mkfs").args(args.split(' '));
        mkfs.arg(ours.path()).ok()?;
        for image in [&theirs, &ours] {
            let mount = Subject::Extant.mount(image.path(), "")?;
            fill(&mount, names)?;
            look(&mount, names)?;
            change(&mount)?;
            arrive(&mount)?;
            flags(&mount, strict)?;
            bytes(&mount, strict)?;
            mount.unmount()?;
            is_sound(image)?;
            alike(image)?;
        }
        let header = |image: &Image| image.header("Character encoding");
        ensure!(header(&theirs)? == header(&ours)?, "as mke2fs says");
    }
    report("casefold: names found in any spelling, e2fsck clean");
    Ok(())
}
