//! Mounts of an image by Extant, by Linux, by fuse2fs, and of a directory by libfuse's
//! pass-through example.
//!
//! A [`Mount`] is a guard: dropped, it unmounts, and where that fails it kills the daemon and
//! detaches. A FUSE daemon that stops answering would hang its callers for ever, so each has a
//! watchdog that kills it after a time that no test needs ([`WATCHDOG`]). The callers then see an
//! error.

mod daemon;
mod table;

use crate::{Cmd, Context, FuseRings, Result, TempDir, bail, ensure, loop_device, patience};
use daemon::Daemon;
pub use daemon::WATCHDOG;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
pub(crate) use table::mount_points;

/// Mount options with the transport that `EXTANT_TRANSPORT` names, unless they name one. `dev`
/// without the variable: `auto` goes by a switch of the kernel, which other processes move.
fn with_transport(options: &str) -> String {
    if options.contains("transport=") {
        return options.to_owned();
    }
    let name = std::env::var("EXTANT_TRANSPORT");
    let word = format!("transport={}", name.as_deref().unwrap_or("dev"));
    let words = [word.as_str(), options];
    words.join(",").trim_end_matches(',').to_owned()
}

/// A mounted file system.
#[derive(Debug)]
pub struct Mount {
    how: &'static str,
    dir: PathBuf,
    daemon: Option<Daemon>,
    umount: Vec<PathBuf>,
    live: bool,
    /// The file behind a loop device of the mount's own.
    image: Option<PathBuf>,
    _parent: TempDir,
}

impl Mount {
    /// Mounts with fuse2fs, in our foreground.
    ///
    /// # Errors
    /// The message of fuse2fs.
    pub fn by_fuse2fs(image: &Path, options: &str) -> Result<Mount> {
        let options = if options.is_empty() {
            "rw".into()
        } else {
            options.to_owned()
        };
        let cmd = |dir: &Path| {
            Cmd::new("fuse2fs")
                .arg("-f")
                .arg(image)
                .arg(dir)
                .args(["-o", &options])
        };
        Self::by_daemon("fuse2fs", cmd, vec!["umount".into()])
    }

    /// Mounts with the `extant` command at `bin`, in our foreground. `EXTANT_TRANSPORT` says how
    /// requests come, unless the options do.
    pub fn by_extant(bin: &Path, image: &Path, options: &str) -> Result<Mount> {
        let options = &with_transport(options);
        let _switched = FuseRings::for_options(options)?;
        let cmd = |dir: &Path| {
            let mut c = Cmd::new(bin).args(["mount", "-f"]);
            if !options.is_empty() {
                c = c.args(["-o", options]);
            }
            c.arg(image).arg(dir)
        };
        Self::by_daemon("extant", cmd, vec![bin.to_owned(), "umount".into()])
    }

    /// Mounts with a file system of Linux's, through a loop device.
    pub fn by_linux(kind: &'static str, image: &Path, options: &str) -> Result<Mount> {
        let options = if options.is_empty() {
            "loop".into()
        } else {
            format!("loop,{options}")
        };
        let cmd = |dir: &Path| {
            Cmd::new("mount")
                .args(["-t", kind, "-o", &options])
                .arg(image)
                .arg(dir)
        };
        let mut mount = Self::by_command(kind, cmd, vec!["umount".into()])?;
        mount.image = Some(image.to_owned());
        Ok(mount)
    }

    /// Mounts a block device with a file system of Linux's.
    ///
    /// # Errors
    /// The message of `mount`.
    pub fn by_linux_on(kind: &'static str, device: &Path, options: &str) -> Result<Mount> {
        let options = if options.is_empty() { "rw" } else { options };
        let cmd = |dir: &Path| {
            Cmd::new("mount")
                .args(["-t", kind, "-o", options])
                .arg(device)
                .arg(dir)
        };
        Self::by_command(kind, cmd, vec!["umount".into()])
    }

    /// Mounts with the `extant` command at `bin` without `-f`: the command returns once the
    /// mount answers, the daemon goes to the background.
    ///
    /// # Errors
    /// The message of the command.
    pub fn by_extant_in_background(bin: &Path, image: &Path, options: &str) -> Result<Mount> {
        let options = &with_transport(options);
        let _switched = FuseRings::for_options(options)?;
        let cmd = |dir: &Path| {
            let mut c = Cmd::new(bin).arg("mount");
            if !options.is_empty() {
                c = c.args(["-o", options]);
            }
            c.arg(image).arg(dir)
        };
        Self::by_command("extant", cmd, vec![bin.to_owned(), "umount".into()])
    }

    /// Mounts `source` again through libfuse's `passthrough_ll` at `bin`, with extra `options`.
    ///
    /// # Errors
    /// The message of the program.
    pub fn passthrough(bin: &Path, source: &Path, options: &str) -> Result<Mount> {
        let mut all = format!("source={}", source.display());
        if !options.is_empty() {
            all = format!("{all},{options}");
        }
        let cmd = |dir: &Path| Cmd::new(bin).args(["-f", "-o", &all]).arg(dir);
        Self::by_daemon("passthrough", cmd, vec!["umount".into()])
    }

    fn by_command(
        how: &'static str,
        cmd: impl FnOnce(&Path) -> Cmd,
        umount: Vec<PathBuf>,
    ) -> Result<Mount> {
        let (parent, dir) = mount_point()?;
        cmd(&dir).ok()?;
        ensure!(
            table::is_mounted(&dir)?,
            "{how} said it mounted {}, but did not",
            dir.display()
        );
        Ok(Mount {
            how,
            dir,
            daemon: None,
            umount,
            live: true,
            image: None,
            _parent: parent,
        })
    }

    fn by_daemon(
        how: &'static str,
        cmd: impl FnOnce(&Path) -> Cmd,
        umount: Vec<PathBuf>,
    ) -> Result<Mount> {
        let (parent, dir) = mount_point()?;
        let daemon = Daemon::start(cmd(&dir))?;
        let mut m = Mount {
            how,
            dir,
            daemon: Some(daemon),
            umount,
            live: true,
            image: None,
            _parent: parent,
        };
        let limit = patience(Duration::from_secs(60));
        let end = Instant::now() + limit;
        while !table::is_mounted(&m.dir)? {
            let daemon = m
                .daemon
                .as_mut()
                .ok_or_else(|| crate::Error::new("no daemon"))?;
            if let Some(o) = daemon.running().poll()? {
                m.live = false;
                bail!("{how} did not mount: {}", o.describe());
            }
            ensure!(Instant::now() < end, "{how} did not mount within {limit:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
        // The table knows the mount before the daemon has answered its first request.
        std::fs::metadata(&m.dir).context(|| format!("{how}: first look at its root"))?;
        Ok(m)
    }

    /// Lets its daemon run for `limit` from now before it counts as hung, instead of [`WATCHDOG`]
    /// from its start. Linux's own mounts have no limit.
    pub fn watch_for(&self, limit: Duration) {
        if let Some(daemon) = &self.daemon {
            daemon.watch_for(limit);
        }
    }

    /// The directory of the mount.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A path inside.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// The daemon's process id, if it runs in our foreground.
    pub fn pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Daemon::pid)
    }

    /// Unmounts by the usual command, and waits until the image is closed. The daemon's own exit
    /// status must be 0. What it said is returned.
    pub fn unmount(mut self) -> Result<String> {
        let end = Instant::now() + patience(Duration::from_secs(20));
        loop {
            let o = self.umount_command().run()?;
            // A namespace that something else on this machine has made keeps the mount as well, for
            // as long as it lives: the daemon ends after it.
            let passing = self.daemon.is_some() && o.err.contains("another mount namespace");
            if o.code == Some(0) || passing {
                break;
            }
            // Linux may still hold the last file of a finished process for a moment.
            let busy = o.err.contains("busy") && Instant::now() < end;
            if !busy {
                let said = self.daemon_said();
                bail!("{}: {}{said}", self.how, o.describe());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.live = false;
        if let Some(image) = &self.image {
            loop_device::wait_until_cleared(image);
        }
        let Some(mut daemon) = self.daemon.take() else {
            return Ok(String::new());
        };
        let o = daemon.running().wait(Duration::from_secs(120))?;
        ensure!(
            o.code == Some(0),
            "{} ended badly: {}",
            self.how,
            o.describe()
        );
        Ok(o.err)
    }

    /// Waits until a daemon in our foreground has ended by itself, after a signal or an unmount of
    /// the caller's.
    pub fn ended(mut self, limit: Duration) -> Result<crate::cmd::Output> {
        let Some(mut daemon) = self.daemon.take() else {
            bail!("{} has no daemon of ours to wait for", self.how)
        };
        let output = daemon.running().wait(limit);
        self.live = table::is_mounted(&self.dir)?;
        output
    }

    /// Kills the daemon with SIGKILL, then detaches the dead mount.
    pub fn crash(mut self) -> Result<()> {
        let Some(mut daemon) = self.daemon.take() else {
            bail!("{} has no daemon of ours to kill", self.how)
        };
        daemon.running().kill()?;
        self.live = false;
        detach(&self.dir)
    }

    /// Returns the output of the daemon, if it runs in our foreground.
    fn daemon_said(&mut self) -> String {
        let said = self.daemon.as_mut().and_then(|d| d.running().texts().ok());
        said.map_or_else(String::new, |(out, err)| {
            format!("the daemon said:\n{out}{err}")
        })
    }

    fn umount_command(&self) -> Cmd {
        let mut words = self.umount.iter();
        let program = words
            .next()
            .map_or_else(|| PathBuf::from("umount"), Clone::clone);
        Cmd::new(program).args(words).arg(&self.dir)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.live {
            return;
        }
        let asked = self.umount_command().limit(Duration::from_secs(30)).run();
        // A daemon whose mount has gone otherwise is closing its image, and must not be killed.
        let gone = asked.is_ok_and(|o| o.code == Some(0))
            || table::is_mounted(&self.dir).is_ok_and(|mounted| !mounted);
        if let Some(mut d) = self.daemon.take() {
            if gone && d.running().wait(Duration::from_secs(30)).is_ok() {
                return;
            }
            let _ = d.running().kill();
        }
        if !gone {
            let _ = detach(&self.dir);
        }
    }
}

fn mount_point() -> Result<(TempDir, PathBuf)> {
    // Not beside the images: a lazy unmount's cleanup would not find it there.
    let parent = TempDir::new_in(&std::env::temp_dir(), "mnt")?;
    let dir = parent.join("mnt");
    std::fs::create_dir(&dir)?;
    Ok((parent, dir))
}

fn detach(dir: &Path) -> Result<()> {
    if !table::is_mounted(dir)? {
        return Ok(());
    }
    if crate::need::is_root() {
        Cmd::new("umount").arg("-l").arg(dir).ok()?;
    } else {
        Cmd::new("fusermount3").args(["-u", "-z"]).arg(dir).ok()?;
    }
    Ok(())
}
