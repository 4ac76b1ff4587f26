//! One run of a test binary, with an end.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::package::Binary;

/// The memory that a run may map, in KiB: a change may make a loop endless.
const MEMORY_KIB: &str = "12000000";

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Passed,
    Failed,
    TimedOut,
}

/// Runs `names` of `binary` until one fails or takes longer than `limit`. `dir` is for what it
/// leaves, and emptied.
pub(crate) fn run(
    binary: &Binary,
    names: &[&str],
    mutant: &str,
    dir: &Path,
    limit: Duration,
) -> Result<End, String> {
    let told = |error: std::io::Error| format!("{}: {error}", binary.program.display());
    let temporary = dir.join("tmp");
    let _ = std::fs::remove_dir_all(&temporary);
    std::fs::create_dir_all(&temporary).map_err(told)?;
    let mut command = Command::new("nice");
    let limited = format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"");
    command.args(["-n", "5", "sh", "-c", &limited]);
    command
        .arg(&binary.program)
        .args(["--exact", "--test-threads=1"]);
    command
        .args(names)
        .current_dir(&binary.dir)
        .process_group(0);
    command
        .env("EXTANT_MUTANT", mutant)
        .env("EXTANT_REACHED", dir.join("reached"));
    command.env("TMPDIR", &temporary).env("RUST_BACKTRACE", "0");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut begin = Instant::now();
    let mut child = command.spawn().map_err(told)?;
    let output = child.stdout.take().ok_or("no output")?;
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let end = loop {
        let left = limit.saturating_sub(begin.elapsed());
        match lines.recv_timeout(left) {
            Ok(line) if line.ends_with(b" FAILED") => break Some(End::Failed),
            Ok(line) if line.starts_with(b"test result: ok") => break Some(End::Passed),
            Ok(_) => begin = Instant::now(),
            Err(RecvTimeoutError::Timeout) => break Some(End::TimedOut),
            Err(RecvTimeoutError::Disconnected) => break None,
        }
    };
    if end != Some(End::Passed) {
        // With what the test has started.
        let group = format!("-{}", child.id());
        let mut kill = Command::new("kill");
        kill.args(["-KILL", "--", &group]).stderr(Stdio::null());
        let _ = kill.status();
    }
    let status = child.wait().map_err(told)?;
    let own = if status.success() {
        End::Passed
    } else {
        End::Failed
    };
    Ok(end.unwrap_or(own))
}
