//! A device that `extant vhost` serves, and a machine that has it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use extant_testkit::cmd::{Output, Running};
use extant_testkit::{Cmd, Need, Result, TempDir, ensure, tools};

pub(crate) const NEEDS: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("qemu-system-x86_64"),
    Need::Tool("cpio"),
    Need::Tool("apt-get"),
];

/// One machine at a time: each has a processor of the host for itself.
pub(crate) static TURN: Mutex<()> = Mutex::new(());
/// How long the host waits for a step.
const PATIENCE: Duration = Duration::from_secs(60);

/// A device that is served.
pub(crate) struct Served {
    kind: &'static str,
    image: PathBuf,
    options: Vec<String>,
    dir: TempDir,
    process: Running,
}

impl Served {
    /// Serves `image` as a device of `kind`, `blk` or `fs`.
    pub(crate) fn start(kind: &'static str, image: &Path, options: &[&str]) -> Result<Served> {
        let dir = TempDir::new("vms")?;
        let options: Vec<String> = options.iter().map(|&word| word.to_owned()).collect();
        let process = serve(kind, image, &options, &dir.join("socket"))?;
        let served = Served {
            kind,
            image: image.to_owned(),
            options,
            dir,
            process,
        };
        let socket = served.socket();
        wait_until("there is a socket", || Ok(socket.exists()))?;
        Ok(served)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    /// Boots a machine that runs `script`, and waits for its end, which has to be good. Returns
    /// what it printed.
    pub(crate) fn boot(&self, script: &str) -> Result<String> {
        let mut machine = self.begin(script)?;
        let output = machine.wait(Duration::from_secs(120))?;
        ensure!(output.code == Some(0), "{}", output.describe());
        Ok(output.out)
    }

    /// Boots a machine that runs `script`.
    pub(crate) fn begin(&self, script: &str) -> Result<Running> {
        self.begin_with(script, None)
    }

    /// The same, with the files of a folder.
    pub(crate) fn begin_with(&self, script: &str, files: Option<&Path>) -> Result<Running> {
        let file = self.dir.join("script");
        fs::write(&file, script)?;
        Cmd::new(tools::workspace().join("scripts/guest"))
            .arg(format!("vhost-{}:{}", self.kind, self.socket().display()))
            .arg(file)
            .args(files)
            .env("GUEST_PID", self.dir.join("pid"))
            .spawn()
    }

    /// The process id of the machine that runs.
    pub(crate) fn machine(&self) -> Result<String> {
        Ok(fs::read_to_string(self.dir.join("pid"))?.trim().to_owned())
    }

    /// Waits until the guest has written so many MiB more to the image.
    pub(crate) fn wait_for_writes(&self, mib: u64) -> Result<()> {
        let blocks = || -> Result<u64> { Ok(fs::metadata(&self.image)?.blocks()) };
        let before = blocks()?;
        let more = mib * 2048;
        wait_until("the guest writes", || Ok(blocks()? >= before + more))
    }

    /// Waits until the image was written at so many moments.
    pub(crate) fn wait_for_changes(&self, moments: usize) -> Result<()> {
        let (mut last, mut seen) = (None, 0);
        wait_until("the guest writes", || {
            let metadata = fs::metadata(&self.image)?;
            let now = Some((metadata.mtime(), metadata.mtime_nsec()));
            seen += usize::from(last != now);
            last = now;
            Ok(seen > moments)
        })
    }

    /// Kills the process that serves.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Kills the process that serves, and has another one serve in its place.
    pub(crate) fn die_and_come_back(&mut self) -> Result<()> {
        self.kill()?;
        self.process = serve(self.kind, &self.image, &self.options, &self.socket())?;
        Ok(())
    }

    /// The end of the process that serves, which has to be good.
    pub(crate) fn ended(mut self) -> Result<()> {
        let output: Output = self.process.wait(PATIENCE)?;
        ensure!(output.code == Some(0), "{}", output.describe());
        ensure!(output.err.is_empty(), "{}", output.describe());
        Ok(())
    }

    /// Ends the process as a user does, and waits for it.
    pub(crate) fn terminate(self) -> Result<()> {
        kill("TERM", &self.process.pid().to_string())?;
        self.ended()
    }
}

fn serve(kind: &str, image: &Path, options: &[String], socket: &Path) -> Result<Running> {
    Cmd::new(tools::extant()?)
        .arg("vhost")
        .args(options)
        .arg(format!("--{kind}"))
        .arg(socket)
        .arg(image)
        .spawn()
}

/// Sends a signal.
pub(crate) fn kill(signal: &str, process: &str) -> Result<()> {
    Cmd::new("kill")
        .args(["-s", signal, process])
        .ok()
        .map(drop)
}

/// Waits until `is_so`.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
