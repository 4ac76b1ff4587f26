//! A PostgreSQL server of the test's own, with some or all of its files on the volume.
//!
//! # Errors
//! Whatever the server refuses comes with its log.

use crate::clients::CHECKPOINT_FAILED;
use crate::quiet;
use extant_testkit::cmd::Running;
use extant_testkit::{Cmd, Error, Result, bail, ensure, patience, tools};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// An unprivileged user: PostgreSQL refuses to run as root.
const USER: u32 = 65534;
/// How long a server may take to come up, which includes its recovery, or to end.
const LIMIT: Duration = Duration::from_secs(120);

/// Which of the server's files are on the volume.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Layout {
    /// A tablespace.
    Tablespace,
    /// The data directory without its log.
    Data,
    /// The data directory with its log.
    Everything,
}

impl Layout {
    /// All of them.
    pub(crate) const ALL: [Layout; 3] = [Layout::Tablespace, Layout::Data, Layout::Everything];

    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Layout::Tablespace => "tablespace",
            Layout::Data => "data directory",
            Layout::Everything => "data directory and log",
        }
    }

    /// Returns whether the server may panic: PostgreSQL does where its log cannot grow, and where a
    /// checkpoint cannot write `pg_logical/replorigin_checkpoint.tmp`.
    pub(crate) fn may_panic(self) -> bool {
        !matches!(self, Layout::Tablespace)
    }
}

/// The server. Dropped, it ends at once.
pub(crate) struct Server {
    bin: PathBuf,
    layout: Layout,
    volume: PathBuf,
    data: PathBuf,
    sockets: PathBuf,
    running: Option<Running>,
    /// Log of its earlier runs.
    log: String,
}

/// A directory that belongs to the server's user.
fn own_dir(path: &Path) -> Result<()> {
    fs::create_dir(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    Ok(chown(path, Some(USER), Some(USER))?)
}

impl Server {
    /// Makes its files: those of `layout` on `volume`, the others below `host`.
    pub(crate) fn new(layout: Layout, volume: &Path, host: &Path) -> Result<Server> {
        let bin = tools::postgres().ok_or_else(|| Error::new("no PostgreSQL"))?;
        let base = match layout {
            Layout::Tablespace => host,
            Layout::Data | Layout::Everything => volume,
        };
        let server = Server {
            bin,
            layout,
            volume: volume.to_owned(),
            data: base.join("data"),
            sockets: host.join("sockets"),
            running: None,
            log: String::new(),
        };
        own_dir(&server.data)?;
        own_dir(&server.sockets)?;
        let mut initdb = server
            .as_user("initdb")
            .args(["--auth=trust", "--username=postgres", "--no-locale"])
            .args(["--encoding=UTF8", "--data-checksums", "--wal-segsize=1"])
            .arg("-D")
            .arg(&server.data);
        if matches!(layout, Layout::Data) {
            own_dir(&host.join("log"))?;
            initdb = initdb.arg("-X").arg(host.join("log"));
        }
        initdb.ok()?;
        if matches!(layout, Layout::Tablespace) {
            own_dir(&volume.join("tablespace"))?;
        }
        Ok(server)
    }

    /// A program of PostgreSQL's as the server's user.
    fn as_user(&self, program: &str) -> Cmd {
        let user = format!("--reuid={USER}");
        let group = format!("--regid={USER}");
        Cmd::new("setpriv")
            .args([&user, &group, "--clear-groups"])
            .arg(self.bin.join(program))
            .dir(Path::new("/"))
    }

    /// Starts it and waits until it answers.
    pub(crate) fn start(&mut self) -> Result<()> {
        let settings = [
            "listen_addresses=",
            "shared_buffers=8MB",
            "max_wal_size=8MB",
            "min_wal_size=4MB",
            "checkpoint_timeout=30s",
            "autovacuum_naptime=5s",
        ];
        let sockets = format!("unix_socket_directories={}", self.sockets.display());
        let mut server = self.as_user("postgres").arg("-D").arg(&self.data);
        for setting in settings.iter().chain([&sockets.as_str()]) {
            server = server.args(["-c", setting]);
        }
        self.running = Some(server.spawn()?);
        self.wait_until_ready()
    }

    /// Waits until it answers: it may have begun to recover by itself.
    fn wait_until_ready(&mut self) -> Result<()> {
        let limit = patience(LIMIT);
        let end = Instant::now() + limit;
        while self.psql().args(["-c", "select 1"]).run()?.code != Some(0) {
            let ended = self.has_ended()?;
            ensure!(!ended, "the server has ended\n{}", self.brief_log());
            if Instant::now() >= end {
                self.end(Signal::QUIT)?;
                bail!("no answer for {limit:?}\n{}", self.brief_log());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// The table, and what checks its index.
    pub(crate) fn prepare(&self) -> Result<()> {
        let mut place = String::new();
        if matches!(self.layout, Layout::Tablespace) {
            let dir = self.volume.join("tablespace");
            self.sql(&format!(
                "create tablespace small location '{}'",
                dir.display()
            ))?;
            place = "tablespace small".to_owned();
        }
        self.sql("create extension amcheck")?;
        self.sql(&format!(
            "create table rows (client int, batch int, number int, data text) {place}"
        ))?;
        let key = "create unique index rows_key on rows (client, batch, number)";
        self.sql(&format!("{key} {place}"))?;
        Ok(())
    }

    /// A client of it.
    pub(crate) fn psql(&self) -> Cmd {
        Cmd::new(self.bin.join("psql"))
            .args(["-X", "-q", "-A", "-t", "-U", "postgres", "-d", "postgres"])
            .arg("-h")
            .arg(&self.sockets)
    }

    /// The answer to one statement.
    pub(crate) fn sql(&self, statement: &str) -> Result<String> {
        Ok(self.psql().args(["-c", statement]).ok()?.out)
    }

    /// Has it write everything back, which a full volume may refuse with a plain error.
    pub(crate) fn try_checkpoint(&self) -> Result<()> {
        let output = self.psql().args(["-c", "checkpoint"]).run()?;
        let plain = output.code == Some(0) || output.err.contains(CHECKPOINT_FAILED);
        ensure!(plain, "{}", output.describe());
        Ok(())
    }

    /// Returns whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        let Some(running) = &mut self.running else {
            return Ok(true);
        };
        if let Some(output) = running.poll()? {
            self.log.push_str(&output.err);
            self.running = None;
        }
        Ok(self.running.is_none())
    }

    /// Its log, its present run left out.
    pub(crate) fn log(&self) -> &str {
        &self.log
    }

    /// Its log about itself: the errors of statements are left out.
    pub(crate) fn brief_log(&self) -> String {
        let kinds = [" LOG: ", " WARNING: ", " FATAL: ", " PANIC: "];
        let about_itself = |line: &&str| kinds.iter().any(|kind| line.contains(kind));
        let lines: Vec<&str> = self.log.lines().filter(about_itself).collect();
        lines.join("\n")
    }

    /// Ends it by `signal`; its exit status.
    fn end(&mut self, signal: Signal) -> Result<Option<i32>> {
        let Some(mut running) = self.running.take() else {
            bail!("the server has ended\n{}", self.brief_log());
        };
        let pid = i32::try_from(running.pid()).ok().and_then(Pid::from_raw);
        kill_process(pid.ok_or_else(|| Error::new("no process id"))?, signal)?;
        let output = running.wait(LIMIT)?;
        self.log.push_str(&output.err);
        Ok(output.code)
    }

    /// Ends it without a checkpoint: the next start recovers.
    pub(crate) fn crash(&mut self) -> Result<()> {
        self.end(Signal::QUIT).map(drop)
    }

    /// Ends it in order.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let index = "select bt_index_check('rows_key', true)";
        self.sql(index)?;
        let heap = self.sql("select * from verify_heapam('rows')")?;
        ensure!(heap.trim().is_empty(), "damaged rows: {heap}");
        let code = self.end(Signal::INT)?;
        ensure!(code == Some(0), "ended with {code:?}\n{}", self.brief_log());
        Ok(())
    }

    /// Compares each page of a server that has ended with its checksum.
    pub(crate) fn check_files(&self) -> Result<()> {
        quiet(self.as_user("pg_checksums").arg("--check").arg(&self.data))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.running.is_some() {
            // The test has failed already; what the server says to it does not matter.
            let _ = self.end(Signal::QUIT);
        }
    }
}
