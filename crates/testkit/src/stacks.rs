//! Stacks of the threads of a process: for a test that hangs.
//!
//! The runner of `cargo xtask test` uses this file as well, so it stands by itself.

use std::fmt::Write;
use std::fs::File;
use std::process::{Command, Stdio};

/// The stacks of all threads of process `pid`: as gdb or eu-stack show them if the machine has one
/// of these, otherwise what the kernel says of each thread.
pub fn of_process(pid: u32) -> String {
    let number = pid.to_string();
    let quiet = ["-batch", "-nx", "-ex", "set debuginfod enabled off"];
    let gdb = ["-ex", "thread apply all backtrace 40", "-p", &number];
    let programs: [(&str, Vec<&str>); 2] = [
        ("gdb", [&quiet[..], &gdb[..]].concat()),
        ("eu-stack", vec!["-n", "40", "-p", &number]),
    ];
    let shown = programs.iter().find_map(|(program, args)| {
        let shown = run(program, args).ok()?;
        shown.contains("#0").then_some(shown)
    });
    shown.unwrap_or_else(|| from_kernel(pid))
}

/// Returns the output of `program`. It stops the process that it looks at, which may be this one:
/// so its output goes to a file, as a pipe would fill up, and its time is kept by another process.
fn run(program: &str, args: &[&str]) -> std::io::Result<String> {
    let path = std::env::temp_dir().join(format!("extant-stacks-{}", std::process::id()));
    let file = File::create(&path)?;
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "100", program]).args(args);
    command.stdin(Stdio::null()).stdout(file);
    let done = command.stderr(Stdio::null()).status();
    let shown = std::fs::read(&path);
    std::fs::remove_file(&path)?;
    done?;
    Ok(String::from_utf8_lossy(&shown?).into_owned())
}

/// Name, state, waiting place and kernel stack of each thread.
fn from_kernel(pid: u32) -> String {
    let mut text = String::new();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    for thread in threads.into_iter().flatten().flatten() {
        let dir = thread.path();
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
        let status = read("status");
        let state = status.lines().find(|line| line.starts_with("State:"));
        let _ = writeln!(
            text,
            "thread {} ({}): {}, {}, call {}",
            thread.file_name().to_string_lossy(),
            read("comm").trim(),
            state.unwrap_or_default(),
            read("wchan"),
            read("syscall").trim(),
        );
        text.push_str(&read("stack"));
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_thread_of_a_process_is_shown() {
        let (ended, wait) = std::sync::mpsc::channel::<()>();
        let (runs, begun) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("shown".into());
        let body = move || {
            runs.send(()).unwrap();
            wait.recv()
        };
        let thread = thread.spawn(body).unwrap();
        begun.recv().unwrap();
        let shown = super::from_kernel(std::process::id());
        assert!(shown.contains("(shown)"), "{shown}");
        drop(ended);
        thread.join().unwrap().unwrap_err();
    }
}
