//! What the figures were measured on.

use serde_json::{Value, json};

/// Processor, cores, memory, kernel.
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
        "cpu": field(&read("/proc/cpuinfo"), "model name"),
        "cores": cores,
        "memory_gib": (memory / 1024.0 / 1024.0 * 10.0).round() / 10.0,
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
    })
}
