//! Running other programs: with a time limit, both outputs captured, and errors that show them.
//!
//! Output goes to anonymous files rather than pipes: a daemon that outlives the command which
//! started it may keep them open without a limit.

use crate::{Context, Error, Result, ensure, lookup, made, patience};
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A command about to be run.
#[derive(Debug)]
pub struct Cmd {
    inner: Command,
    limit: Duration,
    stdin: Option<Vec<u8>>,
}

/// The exit status and the texts of a finished command.
#[derive(Debug, Clone)]
pub struct Output {
    /// The command line, for messages.
    pub line: String,
    /// Exit status; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output, lossily as text.
    pub out: String,
    /// Standard error, lossily as text.
    pub err: String,
}

impl Cmd {
    /// A command with a limit of two minutes. A program that the path lacks is looked for where
    /// the system has those of its administrator: `mke2fs` is in `/usr/sbin`.
    pub fn new(program: impl AsRef<OsStr>) -> Cmd {
        let mut inner = match lookup::off_the_path(program.as_ref()) {
            Some(found) => Command::new(found),
            None => Command::new(program),
        };
        // Tools' messages are compared: keep them in one language.
        inner.env("LC_ALL", "C.UTF-8").env_remove("LANGUAGE");
        Cmd {
            inner,
            limit: Duration::from_secs(120),
            stdin: None,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, a: impl AsRef<OsStr>) -> Cmd {
        self.inner.arg(a);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, a: impl IntoIterator<Item = S>) -> Cmd {
        self.inner.args(a);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, k: &str, v: impl AsRef<OsStr>) -> Cmd {
        self.inner.env(k, v);
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn dir(mut self, d: &Path) -> Cmd {
        self.inner.current_dir(d);
        self
    }

    /// Feeds bytes to its standard input.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Cmd {
        self.stdin = Some(bytes.into());
        self
    }

    /// Sets the time limit.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Cmd {
        self.limit = limit;
        self
    }

    /// The command line as text.
    pub fn line(&self) -> String {
        let mut s = self.inner.get_program().to_string_lossy().into_owned();
        for a in self.inner.get_args() {
            s.push(' ');
            s.push_str(&a.to_string_lossy());
        }
        s
    }

    /// Starts it without waiting; its outputs go to the returned files.
    pub fn spawn(mut self) -> Result<Running> {
        let line = self.line();
        let (out, err) = (capture()?, capture()?);
        match self.stdin.take() {
            None => self.inner.stdin(Stdio::null()),
            Some(bytes) => {
                let mut f = capture()?;
                f.write_all(&bytes)?;
                f.seek(SeekFrom::Start(0))?;
                self.inner.stdin(f)
            }
        };
        self.inner.stdout(out.try_clone()?).stderr(err.try_clone()?);
        let child = {
            let _made = made::made();
            self.inner.spawn().context(|| &line)?
        };
        Ok(Running {
            child,
            out,
            err,
            line,
            limit: self.limit,
        })
    }

    /// Runs it to its end, whatever its exit status.
    pub fn run(self) -> Result<Output> {
        let mut r = self.spawn()?;
        r.wait(r.limit)
    }

    /// Runs it; any exit status but 0 is an error that shows what it said.
    pub fn ok(self) -> Result<Output> {
        let o = self.run()?;
        ensure!(o.code == Some(0), "{}", o.describe());
        Ok(o)
    }
}

/// A command that is running.
#[derive(Debug)]
pub struct Running {
    child: Child,
    out: File,
    err: File,
    line: String,
    limit: Duration,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its end, if it has ended.
    pub fn poll(&mut self) -> Result<Option<Output>> {
        let Some(status) = self.child.try_wait()? else {
            return Ok(None);
        };
        let (out, err) = self.texts()?;
        Ok(Some(Output {
            line: self.line.clone(),
            code: status.code(),
            out,
            err,
        }))
    }

    /// The texts of both outputs so far.
    pub fn texts(&mut self) -> Result<(String, String)> {
        Ok((slurp(&mut self.out)?, slurp(&mut self.err)?))
    }

    /// Waits for its end; past `limit` it is killed and an error. On a machine that runs many
    /// suites at once the limit is a longer one ([`patience()`]).
    pub fn wait(&mut self, limit: Duration) -> Result<Output> {
        let limit = patience(limit);
        let end = Instant::now() + limit;
        let mut pause = Duration::from_micros(200);
        loop {
            if let Some(o) = self.poll()? {
                return Ok(o);
            }
            if Instant::now() >= end {
                self.kill()?;
                let (out, err) = self.texts()?;
                let o = Output {
                    line: self.line.clone(),
                    code: None,
                    out,
                    err,
                };
                return Err(Error::new(format!(
                    "still running after {} s, killed: {}",
                    limit.as_secs(),
                    o.describe()
                )));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    /// Ends it with SIGKILL and reaps it; nothing if it has ended.
    pub fn kill(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            self.child.kill()?;
            self.child.wait()?;
        }
        Ok(())
    }
}

impl Output {
    /// Command line, status and both outputs, for a message.
    pub fn describe(&self) -> String {
        let status = match self.code {
            Some(c) => format!("exit {c}"),
            None => "ended by a signal".to_owned(),
        };
        let (out, err) = (clip(&self.out), clip(&self.err));
        format!("`{}`: {status}\n{out}{err}", self.line)
    }
}

/// The last 6,000 characters: enough to see why, not a flood.
fn clip(text: &str) -> &str {
    let start = text.len().saturating_sub(6000);
    let start = (start..text.len())
        .find(|i| text.is_char_boundary(*i))
        .unwrap_or(text.len());
    text.get(start..).unwrap_or(text)
}

fn capture() -> Result<File> {
    Ok(File::from(memfd_create(
        "extant-capture",
        MemfdFlags::CLOEXEC,
    )?))
}

// The child shares the file's position, so the text is read by position through a fresh offset.
fn slurp(f: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    let mut at = 0u64;
    let mut buf = [0u8; 8192];
    loop {
        let n = std::os::unix::fs::FileExt::read_at(f, &mut buf, at)?;
        if n == 0 {
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
        bytes.extend_from_slice(buf.get(..n).unwrap_or(&[]));
        at += n as u64;
    }
}

/// Reads a whole small file as text, or says which one failed.
pub fn read_text(path: &Path) -> Result<String> {
    let mut s = Vec::new();
    File::open(path)
        .and_then(|mut f| f.read_to_end(&mut s))
        .context(|| path.display())?;
    Ok(String::from_utf8_lossy(&s).into_owned())
}

#[cfg(test)]
mod tests {
    use super::Cmd;
    use std::time::Duration;

    #[test]
    fn captures_status_and_both_outputs() {
        let o = Cmd::new("sh")
            .args(["-c", "echo a; echo b >&2; exit 3"])
            .run()
            .unwrap();
        assert_eq!(
            (o.code, o.out.as_str(), o.err.as_str()),
            (Some(3), "a\n", "b\n")
        );
    }

    #[test]
    fn feeds_standard_input() {
        assert_eq!(Cmd::new("cat").stdin("x y").ok().unwrap().out, "x y");
    }

    #[test]
    fn a_limit_ends_it() {
        let e = Cmd::new("sleep")
            .arg("60")
            .limit(Duration::from_millis(50))
            .run()
            .unwrap_err();
        assert!(e.to_string().contains("still running"));
    }

    #[test]
    fn a_failure_shows_what_was_said() {
        let e = Cmd::new("sh")
            .args(["-c", "echo why >&2; exit 1"])
            .ok()
            .unwrap_err();
        assert!(e.to_string().contains("exit 1") && e.to_string().contains("why"));
    }
}
