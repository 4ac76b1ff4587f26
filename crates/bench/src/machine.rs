//! The machine, the time and the program of a run's figures.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// Version, commit, processor, cores, memory, kernel; the date, and the load of the last minute.
pub(crate) fn describe() -> Value {
    let read = |p: &str| std::fs::read_to_string(p).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text
            .lines()
            .find(|l| l.starts_with(name))
            .unwrap_or_default();
        line.split_once(':')
            .map(|(_, v)| v.trim().to_owned())
            .unwrap_or_default()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory: f64 = field(&read("/proc/meminfo"), "MemTotal")
        .split_whitespace()
        .next()
        .and_then(|kib| kib.parse().ok())
        .unwrap_or(f64::NAN);
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "commit": commit(Path::new(".")),
        "cpu": field(&read("/proc/cpuinfo"), "model name"),
        "cores": cores,
        "memory_gib": (memory / 1024.0 / 1024.0 * 10.0).round() / 10.0,
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "date": said("date", &["-u", "+%Y-%m-%d"], Path::new(".")),
        "load": read("/proc/loadavg").split(' ').next().and_then(|load| load.parse::<f64>().ok()),
    })
}

/// Standard output of a program that succeeds.
fn said(program: &str, args: &[&str], dir: &Path) -> Option<String> {
    let output = Command::new(program).current_dir(dir).args(args).output();
    let output = output.ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// The commit of the checkout that `dir` is in, with a `+` where it has changes; none outside of
/// one, as of a program that was installed.
fn commit(dir: &Path) -> Option<String> {
    let git = |args: &[&str]| said("git", args, dir);
    let top = git(&["rev-parse", "--show-toplevel"])?;
    // Another project's checkout says nothing of this program.
    if !Path::new(&top)
        .join("crates/bench/src/machine.rs")
        .is_file()
    {
        return None;
    }
    let head = git(&["rev-parse", "--short=10", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    match changed.is_none_or(|files| !files.is_empty()) {
        true => Some(format!("{head}+")),
        false => Some(head),
    }
}

#[cfg(test)]
mod tests {
    use extant_host::TempDir;

    use super::*;

    #[test]
    fn what_lies_outside_of_a_checkout_has_no_commit() {
        let dir = TempDir::new("elsewhere").unwrap();
        assert_eq!(commit(dir.path()), None);
        assert_eq!(commit(&dir.join("missing")), None);
    }
}
