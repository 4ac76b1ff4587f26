//! The launchers of `examples`: a daemon that never has privileges serves what they hand over.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use extant_testkit::{Cmd, Image, Need, Result, TempDir, ensure, need, tools};

/// A user without rights, on most systems.
const UID: u32 = 65534;

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Tool("mke2fs"),
    Need::Tool("umount"),
];

/// The daemon of the mount that has this image open: its process.
fn daemon_of(image: &Path) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir("/proc")?.flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let fds = fs::read_dir(entry.path().join("fd"));
        let has = |fd: std::io::Result<fs::DirEntry>| {
            fd.is_ok_and(|fd| fs::read_link(fd.path()).is_ok_and(|path| path == image))
        };
        if line.starts_with(b"extant\0mount\0") && fds.is_ok_and(|mut fds| fds.any(has)) {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

/// Mounts by the launcher `program`, looks at the daemon, and unmounts.
fn hands_over(program: &Path) -> Result<()> {
    let extant = tools::extant()?;
    let image = Image::of_mib(32).make()?;
    let at = TempDir::new_in(&std::env::temp_dir(), "hand-over")?;
    Cmd::new(program)
        .args([image.path(), at.path()])
        .arg(UID.to_string())
        .env("EXTANT_BIN", &extant)
        .ok()?;
    fs::write(at.join("f"), vec![7; 300_000])?;
    ensure!(fs::metadata(at.join("f"))?.len() == 300_000, "not written");
    let daemon = daemon_of(image.path())?;
    let daemon = daemon.ok_or_else(|| extant_testkit::Error::new("no daemon"))?;
    ensure!(fs::metadata(&daemon)?.uid() == UID, "it is another user's");
    let status = fs::read_to_string(daemon.join("status"))?;
    for line in ["CapPrm:\t0000000000000000", "Seccomp:\t2", "NoNewPrivs:\t1"] {
        ensure!(status.contains(line), "{line}: {status}");
    }
    let stats = Cmd::new(&extant).arg("stats").arg(at.path()).ok()?.out;
    ensure!(stats.contains("sandbox_seccomp"), "{stats}");
    Cmd::new(&extant).arg("umount").arg(at.path()).ok()?;
    image.fsck_clean()?;
    let listed = Cmd::new(&extant)
        .arg("ls")
        .arg(format!("{}:/", image.path().display()))
        .ok()?;
    ensure!(listed.out.contains('f'), "{}", listed.describe());
    Ok(())
}

#[test]
fn the_launcher_in_rust_hands_over() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    hands_over(&tools::example("hand_over")?)
}

#[test]
fn the_launcher_in_c_hands_over() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("cc")]) {
        return Ok(());
    }
    let dir = TempDir::new("hand-over-c")?;
    let program = dir.join("hand_over");
    Cmd::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(tools::workspace().join("crates/cli/examples/hand_over.c"))
        .ok()?;
    hands_over(&program)
}

#[test]
fn what_was_not_handed_over_is_refused() -> Result<()> {
    let extant = tools::extant()?;
    let mount = |words: &[&str]| Cmd::new(&extant).arg("mount").args(words).run();
    let o = mount(&["-f", "--image-fd", "77", "--fuse-fd", "78"])?;
    let named = o.err.contains("77 is not a descriptor");
    ensure!(o.code == Some(1) && named, "{}", o.describe());
    let o = mount(&["-f", "--image-fd", "0", "--fuse-fd", "1"])?;
    ensure!(
        o.code == Some(1) && o.err.contains("0 is not"),
        "{}",
        o.describe()
    );
    let o = mount(&["--image-fd", "3"])?;
    ensure!(o.code == Some(2), "{}", o.describe());
    let o = mount(&["--image-fd", "3", "--fuse-fd", "4", "image", "dir"])?;
    ensure!(o.code == Some(2), "{}", o.describe());
    Ok(())
}

/// The launcher alone knows which users the mount is for, and the daemon cannot find out what they
/// may do.
#[test]
fn a_mount_that_was_handed_over_is_checked_by_the_kernel() -> Result<()> {
    const MOUNT: &str = "exec \"$0\" mount -f -o \"$1\" --image-fd 3 --fuse-fd 4 \
        3<>/dev/null 4<>/dev/null";
    let extant = tools::extant()?;
    for (options, refused) in [
        ("nodefault_permissions", true),
        ("default_permissions", false),
    ] {
        let cmd = Cmd::new("sh").args(["-c", MOUNT]).arg(&extant);
        let o = cmd.arg(options).run()?;
        let named = o.err.contains("nodefault_permissions: not for a mount");
        ensure!(o.code != Some(0) && named == refused, "{}", o.describe());
    }
    Ok(())
}
