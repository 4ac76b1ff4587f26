//! A mount under Linux's overlayfs: what is copied up keeps its privileges, and loses them where
//! Linux's ext4 takes them.

use extant_testkit::{Cmd, Image, Need, Result, Subject, TempDir, ensure, need};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

/// `cap_net_raw=ep`, as setcap stores it.
const CAPABILITY: &str = "0x0100000200200000000000000000000000000000";

/// An overlay; unmounted when dropped.
struct Overlay<'a>(&'a Path);

impl Drop for Overlay<'_> {
    fn drop(&mut self) {
        let _ = Cmd::new("umount").arg(self.0).run();
    }
}

fn give_privileges(file: &Path) -> Result<()> {
    fs::set_permissions(file, fs::Permissions::from_mode(0o6755))?;
    let set = ["-n", "security.capability", "-v", CAPABILITY];
    Cmd::new("setfattr").args(set).arg(file).ok().map(drop)
}

/// Mode, owner and capabilities.
fn privileges(file: &Path) -> Result<String> {
    let meta = fs::symlink_metadata(file)?;
    let get = ["--only-values", "-n", "security.capability"];
    let capable = Cmd::new("getfattr").args(get).arg(file).run()?.code == Some(0);
    let (mode, uid, gid) = (meta.mode(), meta.uid(), meta.gid());
    Ok(format!("{mode:o} {uid}:{gid} capable {capable}"))
}

/// Outcome for files of the lower directory that are touched, given another owner, written and
/// renamed above it.
fn copied_up(subject: Subject, options: &str) -> Result<Vec<String>> {
    let image = Image::of_mib(32).make()?;
    let mount = subject.mount(image.path(), options)?;
    let dir = TempDir::new("overlay")?;
    let (lower, merged) = (dir.join("lower"), dir.join("merged"));
    let (upper, work) = (mount.join("upper"), mount.join("work"));
    for made in [&lower, &merged, &upper, &work] {
        fs::create_dir(made)?;
    }
    let names = ["touched", "owned", "written", "moved", "cut"];
    for name in names {
        let file = lower.join(name);
        fs::write(&file, b"a program")?;
        chown(&file, Some(1000), Some(1000))?;
        give_privileges(&file)?;
    }
    let dirs = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    let overlay = ["-t", "overlay", "overlay", "-o", &dirs];
    Cmd::new("mount").args(overlay).arg(&merged).ok()?;
    let guard = Overlay(&merged);
    let mut found = Vec::new();
    let mut note = |what: &str, file: &Path| -> Result<()> {
        found.push(format!("{what}: {}", privileges(file)?));
        Ok(())
    };
    Cmd::new("touch").arg(merged.join("touched")).ok()?;
    chown(merged.join("owned"), Some(1001), None)?;
    fs::write(merged.join("written"), b"another")?;
    fs::rename(merged.join("moved"), merged.join("there"))?;
    File::options()
        .write(true)
        .open(merged.join("cut"))?
        .set_len(3)?;
    for name in ["touched", "owned", "written", "there", "cut"] {
        note(name, &merged.join(name))?;
        note("above", &upper.join(name))?;
    }
    // In the upper directory already: now chown(2) and write(2) of a user arrive.
    for name in ["touched", "there"] {
        give_privileges(&merged.join(name))?;
        note("given", &upper.join(name))?;
    }
    chown(merged.join("touched"), Some(1002), Some(1002))?;
    note("owned above", &upper.join("touched"))?;
    fs::write(merged.join("there"), b"another")?;
    note("written above", &upper.join("there"))?;
    plain(&mount.join("plain"), &mut note)?;
    drop(guard);
    mount.unmount()?;
    image.fsck_clean()?;
    Ok(found)
}

/// Changes a file without an overlay, and notes its privileges after each change.
fn plain(file: &Path, note: &mut dyn FnMut(&str, &Path) -> Result<()>) -> Result<()> {
    fs::write(file, b"a program")?;
    give_privileges(file)?;
    note("plain", file)?;
    for (uid, gid) in [(Some(1), Some(2)), (Some(3), None), (None, Some(4))] {
        give_privileges(file)?;
        chown(file, uid, gid)?;
        note("plain, owned", file)?;
    }
    // Cut by root, by its owner, and to the length that it has.
    for (user, len) in [("0", "5"), ("1000", "4"), ("1000", "4"), ("1000", "+9")] {
        chown(file, Some(1000), Some(1000))?;
        give_privileges(file)?;
        let user = [format!("--reuid={user}"), "--clear-groups".into()];
        let cut = Cmd::new("setpriv").args(user).args(["truncate", "-s", len]);
        cut.arg(file).ok()?;
        note("plain, cut", file)?;
    }
    Ok(())
}

#[test]
fn privileges_survive_the_copy_up_as_on_linuxs_ext4() -> Result<()> {
    let needs = [Need::Root, Need::Fuse, Need::Loop, Need::Overlay];
    if !need(&needs) || !need(&["setfattr", "setpriv", "mke2fs"].map(Need::Tool)) {
        return Ok(());
    }
    let on_linux = copied_up(Subject::Ext4, "")?;
    let kept = "touched: 106755 1000:1000 capable true";
    ensure!(on_linux.iter().any(|line| line == kept), "{on_linux:#?}");
    let here = copied_up(Subject::Extant, "suid,allow_other")?;
    ensure!(here == on_linux, "{here:#?}\non Linux {on_linux:#?}");
    Ok(())
}
