//! What the figures were measured on.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// Commit, processor, cores, memory, kernel.
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
        "commit": commit(),
        "cpu": field(&read("/proc/cpuinfo"), "model name"),
        "cores": cores,
        "memory_gib": (memory / 1024.0 / 1024.0 * 10.0).round() / 10.0,
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
    })
}

/// The commit of the checkout that this runs in, with a `+` where it has changes; the version
/// outside of one.
fn commit() -> String {
    let git = |args: &[&str]| -> Option<String> {
        let output = Command::new("git").args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let version = concat!("of version ", env!("CARGO_PKG_VERSION")).to_owned();
    let Some(top) = git(&["rev-parse", "--show-toplevel"]) else {
        return version;
    };
    // Another project's checkout says nothing of this program.
    if !Path::new(&top)
        .join("crates/bench/src/machine.rs")
        .is_file()
    {
        return version;
    }
    let Some(head) = git(&["rev-parse", "--short=10", "HEAD"]) else {
        return version;
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    if changed.is_none_or(|files| !files.is_empty()) {
        return format!("{head}+");
    }
    head
}
