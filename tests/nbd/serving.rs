//! `extant nbd` as other projects' clients and e2fsck see it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use extant_testkit::cmd::Running;
use extant_testkit::{
    Cmd, Error, Image, Need, Result, TempDir, content, ensure, is_listening, need, patience, tools,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::commands::{extant, refused, use_by_commands};

const NEEDS: &[Need] = &[
    Need::Tool("qemu-img"),
    Need::Tool("qemu-io"),
    Need::Tool("nbdinfo"),
    Need::Tool("nbdcopy"),
];

/// `extant nbd` at a socket.
pub(crate) struct Serving {
    running: Running,
    socket: PathBuf,
}

impl Serving {
    /// Serves with these arguments, at `socket`.
    pub(crate) fn start(socket: &Path, arguments: &[&str]) -> Result<Serving> {
        let cmd = Cmd::new(tools::extant()?).args(["nbd", "--socket"]);
        let cmd = cmd.arg(socket).args(arguments);
        let mut running = cmd.limit(Duration::from_secs(400)).spawn()?;
        let end = Instant::now() + patience(Duration::from_secs(30));
        while !is_listening(socket) {
            if let Some(output) = running.poll()? {
                extant_testkit::bail!("it ended: {}", output.describe());
            }
            ensure!(Instant::now() < end, "it does not listen");
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(Serving {
            running,
            socket: socket.to_owned(),
        })
    }

    pub(crate) fn address(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// Ends it by SIGTERM. It has to end well.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.terminate()?;
        self.ended().map(drop)
    }

    /// Sends it SIGTERM.
    pub(crate) fn terminate(&self) -> Result<()> {
        let pid = Pid::from_raw(self.running.pid().cast_signed());
        let pid = pid.ok_or_else(|| Error::new("no process".to_owned()))?;
        Ok(kill_process(pid, Signal::TERM)?)
    }

    /// The log so far.
    pub(crate) fn log(&mut self) -> Result<String> {
        Ok(self.running.texts()?.1)
    }

    /// Waits for its end; returns what it printed.
    pub(crate) fn ended(&mut self) -> Result<String> {
        let ended = self.running.wait(Duration::from_secs(60))?;
        ensure!(ended.code == Some(0), "{}", ended.describe());
        ensure!(!self.socket.exists(), "the socket is left");
        Ok(ended.out)
    }
}

/// An image of 64 MiB with files in it.
fn image(dir: &TempDir) -> Result<PathBuf> {
    let (image, tree) = (dir.join("disk.img"), dir.join("tree"));
    fs::create_dir(&tree)?;
    for number in 0..20 {
        let file = tree.join(number.to_string());
        fs::write(file, content::fill(number, 0, 1 << 18))?;
    }
    let (from, to) = (tree.display().to_string(), image.display().to_string());
    extant(&["build", "-q", "--size", "64M", &from, &to])?;
    Ok(image)
}

/// nbdinfo, nbdcopy and qemu-io agree on a served image, and what they wrote is in it.
#[test]
fn clients_of_others_use_what_is_served() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let dir = TempDir::new("nbd-serving")?;
    let (image, copy) = (image(&dir)?, dir.join("copy"));
    let path = image.display().to_string();
    let serving = Serving::start(&dir.join("socket"), &["--export", "disk", &path])?;
    let at = serving.address();
    let told = Cmd::new("nbdinfo").arg(&at).ok()?.out;
    for line in [
        "export-size: 67108864",
        "is_read_only: false",
        "can_flush: true",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
    ] {
        ensure!(told.contains(line), "{line}: {told}");
    }
    let listed = Cmd::new("nbdinfo").arg("--list").arg(&at).ok()?.out;
    ensure!(listed.contains("export=\"disk\""), "{listed}");
    let wrong = Cmd::new("nbdinfo").arg(at.replace(":///", ":///other"));
    ensure!(wrong.run()?.code != Some(0), "another export");
    Cmd::new("nbdcopy").arg(&at).arg(&copy).ok()?;
    ensure!(fs::read(&copy)? == fs::read(&image)?, "the copy differs");
    let commands = [
        "write -P 7 40M 2M",
        "write -f -P 8 50M 64k",
        "write -z 41M 64k",
        "write -z -u 42048k 64k",
        "discard 60M 1M",
        "flush",
        "read -P 7 40M 1M",
        "read -P 0 41M 128k",
        "read -P 8 50M 64k",
    ];
    let qemu = Cmd::new("qemu-io").args(["-f", "raw"]);
    let qemu = commands.iter().fold(qemu, |cmd, one| cmd.args(["-c", one]));
    let said = qemu.arg(&at).ok()?;
    let verified = !said.out.contains("verification failed");
    ensure!(verified, "{}", said.describe());
    serving.stop()?;
    let bytes = fs::read(&image)?;
    let is = |at: usize, len: usize, byte| bytes[at..at + len].iter().all(|&one| one == byte);
    ensure!(
        is(40 << 20, 1 << 20, 7) && is(41 << 20, 128 << 10, 0),
        "7 and 0"
    );
    ensure!(is(50 << 20, 64 << 10, 8), "8");
    Ok(())
}

/// The own client's commands on a served image leave what e2fsck finds sound.
#[test]
fn commands_work_on_what_is_served() -> Result<()> {
    if !need(&[Need::Tool("e2fsck")]) {
        return Ok(());
    }
    let dir = TempDir::new("nbd-own")?;
    let image = dir.join("disk.img");
    fs::File::create(&image)?.set_len(64 << 20)?;
    let path = image.display().to_string();
    let serving = Serving::start(&dir.join("socket"), &[&path])?;
    use_by_commands(&serving.address())?;
    // It is claimed while it is served.
    refused(&["mkdir", &format!("{path}:/x")], "in use")?;
    refused(&["nbd", "--socket", "other", &path], "in use")?;
    serving.stop()?;
    Image::fsck_clean_at(&image)
}

/// A server of a server, one of a version in a store, and one that only lets read.
#[test]
fn exports_and_versions_are_served_again() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let dir = TempDir::new("nbd-again")?;
    let image = image(&dir)?;
    let path = image.display().to_string();
    let store = format!("file://{}/store/disk", dir.path().display());
    extant(&["push", "-q", &path, &store])?;
    let first = Serving::start(&dir.join("first"), &["--read-only", &path])?;
    let second = Serving::start(&dir.join("second"), &[&first.address(), "--read-only"])?;
    let third = Serving::start(&dir.join("third"), &[&store])?;
    for serving in [&first, &second, &third] {
        let at = serving.address();
        let copy = dir.join("copy");
        Cmd::new("nbdcopy").arg(&at).arg(&copy).ok()?;
        ensure!(fs::read(&copy)? == fs::read(&image)?, "{at} differs");
        ensure!(extant(&["check", &at])?.contains("clean"), "{at}");
        refused(&["mkdir", &format!("{at}:/x")], "read-only")?;
    }
    second.stop()?;
    first.stop()?;
    third.stop()
}

/// With --once it ends after the last client; the line that says where it is comes first.
#[test]
fn it_ends_with_its_last_client() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let dir = TempDir::new("nbd-once")?;
    let image = image(&dir)?;
    let path = image.display().to_string();
    let mut serving = Serving::start(&dir.join("socket"), &["--once", &path])?;
    let copy = Cmd::new("nbdcopy").args(["--connections=4"]);
    copy.arg(serving.address()).arg(dir.join("copy")).ok()?;
    let ready = format!("ready: {}\n", serving.address());
    ensure!(serving.ended()? == ready, "it says {ready}");
    refused(&["nbd", "/nonexistent"], "No such file")?;
    refused(&["nbd", "--listen", "localhost:x", &path], "localhost:x")
}
