//! Permissions of a mount's callers: without the capability that Linux asks for a caller is refused
//! what changes the whole volume or another user's file, uid 0 like any other.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;

use extant_testkit::{Cmd, Image, Need, Result, Subject, ensure, need, tools};
use rustix::fs::statvfs;

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Tool("perl"),
    Need::Tool("setpriv"),
    Need::Tool("unshare"),
    Need::Tool("mke2fs"),
];

/// A caller: its name, and what starts a program as it.
type Caller = (&'static str, &'static [&'static str]);

const USER: Caller = (
    "a user",
    &[
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ],
);
/// Callers with uid 0 that Linux gives none of the capabilities in question.
const BARE: [Caller; 3] = [
    (
        "root of a container",
        &["setpriv", "--bounding-set=-all", "--inh-caps=-all"],
    ),
    (
        "root with others",
        &[
            "setpriv",
            "--bounding-set=-all,+setuid,+fowner,+linux_immutable,+net_admin",
        ],
    ),
    // It has all capabilities, in its own namespace.
    (
        "root of a namespace",
        &["unshare", "--user", "--map-root-user"],
    ),
];
const ROOT: Caller = ("root", &["env"]);

/// An ordinary user with one of root's capabilities.
macro_rules! user_with {
    ($capability:literal) => {
        (
            concat!("a user with ", $capability),
            &[
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                concat!("--inh-caps=+", $capability),
                concat!("--ambient-caps=+", $capability),
            ],
        )
    };
}
const ADMINISTRATOR: Caller = user_with!("sys_admin");
const FIXER: Caller = user_with!("linux_immutable");
const KEEPER: Caller = user_with!("fowner");
const GROWER: Caller = user_with!("sys_resource");

/// Makes an ioctl on a file with a zeroed argument that begins with some bytes (in hexadecimal) and
/// has the size that the number says. Prints 0, or the error's number.
const IOCTL: &str = r#"
my ($path, $number, $begins) = ($ARGV[0], hex $ARGV[1], pack "H*", $ARGV[2]);
open(my $file, "<", $path) or die "$path: $!";
my $argument = $begins . "\0" x (($number >> 16 & 0x3fff) - length $begins);
print defined ioctl($file, $number, $argument) ? 0 : $! + 0;
"#;

/// Command that runs the program of its next arguments as that caller.
fn by((_, starts): Caller) -> Cmd {
    Cmd::new(starts[0]).args(&starts[1..])
}

fn ioctl(caller: Caller, path: &Path, number: u32, begins: &str) -> Result<i32> {
    let cmd = by(caller).args(["perl", "-e", IOCTL]).arg(path);
    let out = cmd.arg(format!("{number:x}")).arg(begins).ok()?.out;
    Ok(out.trim().parse()?)
}

const SHUTDOWN: u32 = 0x8004_587d;
const FITRIM: u32 = 0xc018_5879;
const RESIZE_FS: u32 = 0x4008_6610;
const GROW: u32 = 0xc100_4552;
const SETFSLABEL: u32 = 0x4100_9432;
const SETFLAGS: u32 = 0x4008_6602;
const SETFLAGS_OF_32_BITS: u32 = 0x4004_6602;

/// Commands to the whole volume, with the beginnings of their arguments: 64 MiB in blocks and in
/// bytes, a label.
const OF_THE_VOLUME: [(&str, u32, &str); 5] = [
    ("RESIZE_FS", RESIZE_FS, "00000100"),
    ("GROW", GROW, "00000004"),
    ("SETFSLABEL", SETFSLABEL, "6e6577"),
    ("FITRIM", FITRIM, "0000000000000000ffffffffffffffff"),
    ("SHUTDOWN", SHUTDOWN, "01000000"),
];

const EPERM: i32 = 1;
const EACCES: i32 = 13;
const ENOTTY: i32 = 25;

fn volume_is_the_administrators(options: &str) -> Result<()> {
    let image = Image::of_mib(32).args("-b 1024 -L old").make()?;
    let mount = Subject::Extant.mount(image.path(), options)?;
    fs::write(mount.join("f"), "x")?;
    let blocks = statvfs(mount.dir())?.f_blocks;
    for caller in BARE.iter().copied().chain([USER]) {
        for (name, number, begins) in OF_THE_VOLUME {
            let refused = ioctl(caller, mount.dir(), number, begins)?;
            ensure!(refused == EPERM, "{}: {name}: {refused}", caller.0);
        }
        let grows = by(caller).arg(tools::extant()?).arg("resize");
        let grows = grows.arg(mount.dir()).arg("64M").run()?;
        ensure!(grows.code == Some(1), "{}: {}", caller.0, grows.describe());
    }
    fs::write(mount.join("f"), "y")?;
    ensure!(statvfs(mount.dir())?.f_blocks == blocks, "it has grown");
    for (name, number, begins) in OF_THE_VOLUME {
        let done = ioctl(ROOT, mount.dir(), number, begins)?;
        ensure!(done == 0, "root: {name}: {done}");
    }
    ensure!(fs::write(mount.join("f"), "z").is_err(), "it goes on");
    mount.unmount()?;
    Subject::Extant.mount(image.path(), "")?.unmount()?;
    image.fsck_clean()?;
    let stored = Cmd::new("e2label").arg(image.path()).ok()?.out;
    ensure!(stored.trim() == "new", "{stored}");
    ensure!(fs::metadata(image.path())?.len() == 64 << 20, "its length");
    Ok(())
}

#[test]
fn the_volume_is_the_administrators() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("e2label")]) {
        return Ok(());
    }
    volume_is_the_administrators("allow_other")?;
    volume_is_the_administrators("allow_other,nosandbox")
}

#[test]
fn flags_are_the_owners() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("lsattr")]) {
        return Ok(());
    }
    let image = Image::of_mib(32).make()?;
    let mount = Subject::Extant.mount(image.path(), "allow_other")?;
    let file = mount.join("f");
    fs::write(&file, "x")?;
    let flags = || -> Result<String> {
        let out = Cmd::new("lsattr").arg("-l").arg(&file).ok()?.out;
        Ok(out)
    };
    let before = flags()?;
    // What a 64-bit process makes of the number of a 32-bit one no kernel looks at: NOATIME.
    for (caller, number, expected) in [
        (USER, SETFLAGS_OF_32_BITS, ENOTTY),
        (ROOT, SETFLAGS_OF_32_BITS, ENOTTY),
        (USER, SETFLAGS, EPERM),
        (BARE[0], SETFLAGS, 0),
    ] {
        ensure!(flags()? == before, "{}: they changed", caller.0);
        let told = ioctl(caller, &file, number, "80000800")?;
        let same = told == expected || (expected == EPERM && told == EACCES);
        ensure!(same, "{}: {number:x}: {told}", caller.0);
    }
    ensure!(flags()? != before, "the owner may not");
    // Linux asks for a capability before data is journalled.
    for (caller, expected) in [(BARE[0], EPERM), (ROOT, 0)] {
        let told = ioctl(caller, &file, SETFLAGS, "80400800")?;
        ensure!(told == expected, "{}: journalled data: {told}", caller.0);
    }
    mount.unmount()?;
    image.fsck_clean()
}

/// A capability counts, whatever the uid: as on Linux's ext4, which passes the same test.
fn capabilities_count(subject: Subject, options: &str) -> Result<()> {
    let image = Image::of_mib(32).args("-b 1024 -L old").make()?;
    let mount = subject.mount(image.path(), options)?;
    let [own, other] = ["own", "other"].map(|name| mount.join(name));
    for path in [&own, &other] {
        fs::write(path, "x")?;
    }
    chown(&own, Some(65534), Some(65534))?;
    let is_told = |told: i32, expected| told == expected || (expected == EPERM && told == EACCES);
    // Immutable, append-only, NOATIME.
    const FIXED: [&str; 2] = ["10000800", "20000800"];
    for (caller, path, begins, expected) in [
        (USER, &own, &FIXED[..], EPERM),
        (FIXER, &own, &FIXED[..], 0),
        (FIXER, &other, &FIXED[..], EPERM),
        (KEEPER, &other, &FIXED[..], EPERM),
        (KEEPER, &other, &["80000800"], 0),
        (ADMINISTRATOR, &own, &FIXED[..], EPERM),
    ] {
        for begins in begins {
            let told = ioctl(caller, path, SETFLAGS, begins)?;
            ensure!(is_told(told, expected), "{}: {begins}: {told}", caller.0);
            let back = ioctl(ROOT, path, SETFLAGS, "00000800")?;
            ensure!(back == 0, "root: {back}");
        }
    }
    let of_the_volume = |name: &str| OF_THE_VOLUME.iter().find(|one| one.0 == name);
    for name in ["SETFSLABEL", "FITRIM", "SHUTDOWN"] {
        let (_, number, begins) = *of_the_volume(name).expect("it is in the table");
        for (caller, expected) in [(KEEPER, EPERM), (FIXER, EPERM), (ADMINISTRATOR, 0)] {
            let told = ioctl(caller, mount.dir(), number, begins)?;
            ensure!(told == expected, "{}: {name}: {told}", caller.0);
        }
    }
    ensure!(fs::write(mount.join("f"), "z").is_err(), "it goes on");
    mount.unmount()?;
    Ok(())
}

/// The times of an append-only file become "now" and no others: as on Linux's ext4.
fn touches_count(subject: Subject, options: &str) -> Result<()> {
    let image = Image::of_mib(32).make()?;
    let mount = subject.mount(image.path(), options)?;
    let path = mount.join("log");
    fs::write(&path, "x")?;
    for (flag, works) in [("a", true), ("i", false)] {
        Cmd::new("chattr").arg(format!("+{flag}")).arg(&path).ok()?;
        for (args, works) in [
            (&[][..], works),
            (&["-m"], false),
            (&["-d", "@5"], false),
            (&["-m", "-d", "@5"], false),
        ] {
            let told = Cmd::new("touch").args(args).arg(&path).run()?;
            let fine = (told.code == Some(0)) == works;
            ensure!(fine, "+{flag}, {args:?}: {}", told.describe());
        }
        Cmd::new("chattr").arg(format!("-{flag}")).arg(&path).ok()?;
    }
    mount.unmount()?;
    Ok(())
}

#[test]
fn an_append_only_file_can_be_touched() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Loop, Need::Tool("chattr")]) {
        return Ok(());
    }
    touches_count(Subject::Ext4, "")?;
    touches_count(Subject::Extant, "")
}

#[test]
fn capabilities_count_and_not_the_uid() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Loop]) {
        return Ok(());
    }
    capabilities_count(Subject::Ext4, "")?;
    capabilities_count(Subject::Extant, "allow_other")?;
    // Containers have no administrator of resources.
    if by(GROWER).arg("true").run()?.code != Some(0) {
        return Ok(());
    }
    let image = Image::of_mib(32).args("-b 1024").make()?;
    let mount = Subject::Extant.mount(image.path(), "allow_other")?;
    for (name, number, begins) in &OF_THE_VOLUME[..2] {
        let told = ioctl(GROWER, mount.dir(), *number, begins)?;
        ensure!(told == 0, "{}: {name}: {told}", GROWER.0);
    }
    mount.unmount()?;
    image.fsck_clean()
}

#[test]
fn trusted_names_are_roots() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("setfattr"), Need::Tool("getfattr")]) {
        return Ok(());
    }
    let image = Image::of_mib(32).make()?;
    let mount = Subject::Extant.mount(image.path(), "allow_other")?;
    let file = mount.join("f");
    fs::write(&file, "x")?;
    for name in ["trusted.hidden", "user.shown"] {
        let cmd = Cmd::new("setfattr").args(["-n", name, "-v", "1"]);
        cmd.arg(&file).ok()?;
    }
    for (caller, expected) in [(ROOT, "trusted.hidden user.shown"), (USER, "user.shown")] {
        let cmd = by(caller).args(["getfattr", "--absolute-names", "-m", "-"]);
        let listed = cmd.arg(&file).ok()?.out;
        let named = |line: &&str| !line.is_empty() && !line.starts_with('#');
        let mut names: Vec<&str> = listed.lines().filter(named).collect();
        names.sort_unstable();
        ensure!(names.join(" ") == expected, "{}: {listed}", caller.0);
    }
    mount.unmount()?;
    image.fsck_clean()
}
