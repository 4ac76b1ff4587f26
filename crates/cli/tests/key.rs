//! `extant key` and `--key`: encrypted directories in images and on mounts.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use extant_testkit::{Cmd, Image, Mount, Need, Result, Subject, TempDir, content, ensure, need};
use serde_json::Value;

const NEEDS: &[Need] = &[Need::Tool("mke2fs"), Need::Tool("e2fsck")];
const MOUNTED: &[Need] = &[Need::Fuse, Need::Tool("mke2fs"), Need::Tool("e2fsck")];
/// The name of the key in policies of version 1.
const DESCRIPTOR: &str = "00112233445566ff";
const ENOKEY: i32 = 126;
const EXDEV: i32 = 18;

fn extant(args: &[&str]) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args)
}

fn errno<T>(result: std::io::Result<T>) -> i32 {
    let error = result.err().and_then(|error| error.raw_os_error());
    error.unwrap_or(0)
}

/// A file with a key, and one with another.
fn keys(dir: &TempDir) -> Result<[String; 2]> {
    let mut names = Vec::new();
    for (seed, name) in [(1, "key"), (2, "other")] {
        fs::write(dir.join(name), content::fill(seed, 0, 64))?;
        names.push(dir.join(name).display().to_string());
    }
    let [key, other] = <[String; 2]>::try_from(names).unwrap_or_default();
    Ok([key, other])
}

fn lines(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        names.push(entry?.file_name().into_string().unwrap_or_default());
    }
    names.sort();
    Ok(names)
}

/// A mount of a new volume, with a key, and an encrypted directory in it.
struct Encrypted {
    image: Image,
    mount: Mount,
    id: String,
    key: String,
    _dir: TempDir,
}

fn encrypted(dir: TempDir, options: &str) -> Result<Encrypted> {
    let [key, _] = keys(&dir)?;
    let image = Image::of_mib(64).args("-O encrypt").make()?;
    let mount = Subject::Extant.mount(image.path(), options)?;
    let top = mount.dir().display().to_string();
    let id = extant(&["key", "add", &top, &key]).ok()?.out;
    let id = id.trim().to_owned();
    let private = mount.dir().join("private");
    fs::create_dir(&private)?;
    let private = private.display().to_string();
    extant(&["key", "encrypt", "--key-id", &id, &private]).ok()?;
    Ok(Encrypted {
        image,
        mount,
        id,
        key,
        _dir: dir,
    })
}

fn refusals(dir: &TempDir, inside: &impl Fn(&str) -> String, files: [&str; 3]) -> Result<()> {
    let [key, other, host] = files;
    for (args, says) in [
        (&["cat", &inside("d/a name")][..], "No such file"),
        (
            &["--key", other, "cat", &inside("d/a name")],
            "No such file",
        ),
        (&["cp", host, &inside("d/b")], "Required key not available"),
        (&["mkdir", &inside("d/b")], "Required key not available"),
        (&["--key", host, "ls", &inside("d")], "more than 64 bytes"),
        (
            &["--key", "/dev/null", "ls", &inside("d")],
            "0 bytes are no master key",
        ),
        (&["--key", "/none", "ls", &inside("d")], "No such file"),
        (
            &["key", "encrypt", "--key-id", "12", &inside("d")],
            "16 or 32",
        ),
        (
            &["key", "encrypt", "--key-id", DESCRIPTOR, &inside("")],
            "Operation not permitted",
        ),
        (
            &["key", "encrypt", "--key-id", DESCRIPTOR, &inside("d")],
            "by another policy",
        ),
        (
            &["key", "add", dir.path().to_str().unwrap_or_default(), key],
            "not a mount",
        ),
    ] {
        let o = extant(args).run()?;
        ensure!(
            o.code != Some(0) && o.err.contains(says),
            "{args:?}: {}",
            o.describe()
        );
    }
    Ok(())
}

#[test]
fn directories_in_images_are_encrypted() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let dir = TempDir::new("key")?;
    let [key, other] = keys(&dir)?;
    let image = dir.join("image").display().to_string();
    let inside = |name: &str| format!("{image}:/{name}");
    extant(&["mkfs", "-q", "-O", "encrypt", &image, "32M"]).ok()?;
    extant(&["mkdir", &inside("d")]).ok()?;
    let with_key = format!("{DESCRIPTOR}={key}");
    let adiantum = [
        "key",
        "encrypt",
        "--contents",
        "adiantum",
        "--keys",
        "direct",
    ];
    let v1 = extant(&adiantum).args(["--key-id", DESCRIPTOR, &inside("d")]);
    v1.ok()?;
    let host = dir.join("host");
    fs::write(&host, content::fill(3, 0, 100_000))?;
    let host = host.display().to_string();
    let cp = extant(&["--key", &with_key, "cp", &host, &inside("d/a name")]);
    cp.ok()?;
    let copy = dir.join("copy").display().to_string();
    let cp = extant(&["cp", "--key", &with_key, &inside("d/a name"), &copy]);
    cp.ok()?;
    ensure!(fs::read(&copy)? == content::fill(3, 0, 100_000), "the data");
    let told = extant(&["key", "policy", "--json", &inside("d"), &inside("")]).ok()?;
    let told: Value = serde_json::from_str(&told.out)?;
    ensure!(
        told[0]["key"] == DESCRIPTOR && told[0]["version"] == 1 && told[0]["keys"] == "direct",
        "{told}"
    );
    ensure!(told[1]["encrypted"] == false, "{told}");
    refusals(&dir, &inside, [&key, &other, &host])?;
    extant(&["check", &image]).ok()?;
    Image::fsck_clean_at(Path::new(&image))
}

/// Nothing in an encrypted directory is read or made without the key.
fn is_locked(private: &Path, hidden: &[String]) -> Result<()> {
    for name in hidden {
        let path = private.join(name);
        let kind = fs::symlink_metadata(&path)?.file_type();
        if kind.is_file() {
            ensure!(errno(File::open(&path)) == ENOKEY, "{name}");
        } else if kind.is_symlink() {
            ensure!(fs::read_link(&path)? != Path::new("a target"), "{name}");
        }
    }
    ensure!(
        errno(fs::write(private.join("new"), b"x")) == ENOKEY,
        "nothing new"
    );
    ensure!(
        errno(fs::create_dir(private.join("new"))) == ENOKEY,
        "nothing new"
    );
    Ok(())
}

/// With the key, all is as it was written, and nothing unencrypted comes in.
fn is_plain(on: &Encrypted, bytes: &[u8]) -> Result<()> {
    let private = on.mount.dir().join("private");
    ensure!(
        fs::symlink_metadata(private.join("link"))?.len() == 8,
        "its length"
    );
    ensure!(
        fs::read(private.join("plan"))? == *bytes,
        "as it was written"
    );
    fs::write(on.mount.dir().join("plain"), b"plain")?;
    let moved = fs::rename(on.mount.dir().join("plain"), private.join("plain"));
    ensure!(errno(moved) == EXDEV, "as on Linux");
    Ok(())
}

/// The kernel shows what there is with the key and without, also of what it knew before; a file
/// that is open stays usable.
#[test]
fn a_mount_shows_what_the_key_opens() -> Result<()> {
    if !need(MOUNTED) {
        return Ok(());
    }
    let on = encrypted(TempDir::new("key")?, "")?;
    let top = on.mount.dir().display().to_string();
    let private = on.mount.dir().join("private");
    let bytes = content::fill(7, 0, 300_000);
    fs::write(private.join("plan"), &bytes)?;
    fs::create_dir(private.join("deep"))?;
    std::os::unix::fs::symlink("a target", private.join("link"))?;
    is_plain(&on, &bytes)?;
    let state = |verb: &str| -> Result<String> {
        let said = extant(&["key", verb, &top, &on.id]).ok()?.out;
        Ok(said.trim().to_owned())
    };
    ensure!(state("status")? == "present", "it was added");

    let mut open = OpenOptions::new()
        .append(true)
        .read(true)
        .open(private.join("plan"))?;
    ensure!(state("remove")? == "partly removed", "a file is open");
    open.write_all(b"more")?;
    let hidden = lines(&private)?;
    ensure!(
        hidden.len() == 3 && !hidden.contains(&"plan".into()),
        "{hidden:?}"
    );
    ensure!(!private.join("plan").exists(), "the name is known no more");
    drop(open);
    let removed = state("remove")?;
    ensure!(removed == "absent", "{removed}");
    is_locked(&private, &hidden)?;

    extant(&["key", "add", &top, &on.key]).ok()?;
    ensure!(
        lines(&private)? == ["deep", "link", "plan"],
        "with the key again"
    );
    let mut read = Vec::new();
    File::open(private.join("plan"))?.read_to_end(&mut read)?;
    ensure!(
        read == [&bytes[..], b"more"].concat(),
        "what was written is there"
    );
    ensure!(
        fs::read_link(private.join("link"))? == Path::new("a target"),
        "the link"
    );
    for name in &hidden {
        ensure!(!private.join(name).exists(), "{name} is no name now");
    }
    on.mount.unmount()?;
    on.image.fsck_clean()?;
    let mount = Subject::Extant.mount(on.image.path(), "ro")?;
    ensure!(
        lines(&mount.dir().join("private"))?.len() == 3,
        "without the key"
    );
    mount.unmount().map(drop)
}

/// Only the owner of a mount, and those that may administer, add and remove keys; an owner of a
/// directory encrypts it.
#[test]
fn keys_are_for_those_that_may_administer() -> Result<()> {
    if !need(MOUNTED) || !need(&[Need::Root, Need::Tool("setpriv")]) {
        return Ok(());
    }
    let on = encrypted(TempDir::new("key")?, "allow_other")?;
    let top = on.mount.dir().display().to_string();
    let theirs = on.mount.dir().join("theirs");
    fs::create_dir(&theirs)?;
    std::os::unix::fs::chown(&theirs, Some(4321), Some(4321))?;
    let theirs = theirs.display().to_string();
    fs::set_permissions(&on.key, std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    let as_user = |args: &[&str]| {
        let user = ["--reuid", "4321", "--regid", "4321", "--clear-groups", "--"];
        let program = Cmd::new("setpriv").args(user);
        program.arg(env!("CARGO_BIN_EXE_extant")).args(args).run()
    };
    for args in [
        &["key", "add", &top, &on.key],
        &["key", "remove", &top, &on.id],
    ] {
        let o = as_user(args)?;
        ensure!(
            o.code != Some(0) && o.err.contains("not permitted"),
            "{}",
            o.describe()
        );
    }
    let o = as_user(&["key", "status", &top, &on.id])?;
    ensure!(
        o.code == Some(0) && o.out == "present\n",
        "{}",
        o.describe()
    );
    let private = on.mount.dir().join("private").display().to_string();
    let o = as_user(&["key", "encrypt", "--key-id", &on.id, &private])?;
    ensure!(
        o.code != Some(0) && o.err.contains("Permission denied"),
        "{}",
        o.describe()
    );
    let o = as_user(&["key", "encrypt", "--key-id", &on.id, &theirs])?;
    ensure!(o.code == Some(0), "{}", o.describe());
    on.mount.unmount()?;
    on.image.fsck_clean()
}
