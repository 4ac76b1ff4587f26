//! Checks that run no code of the project: format, its own rules, clippy, rustdoc, licences.
//!
//! [`quick`] takes seconds and finds simple mistakes before anything else is built. The slow part
//! compiles the workspace twice more and takes minutes. In a run of all suites clippy compiles the
//! tests (`scripts/compile-for-tests`), and rustdoc looks at what was compiled ([`documented`])
//! beside the suites, at low priority, as many of them wait most of their time. Its output is
//! printed as a whole at its end.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use crate::{binaries, documented, tidy};

/// A part of the check, and how it is run.
struct Step {
    name: String,
    command: Command,
}

/// Runs all of it, one step after the other.
pub(crate) fn run(root: &Path) -> ExitCode {
    let fine = quick(root)
        && [clippy(root), rustdoc(root)]
            .into_iter()
            .chain(licences(root))
            .all(|mut step| {
                let status = step.command.status();
                status.is_ok_and(|status| status.success())
            });
    if fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The project's rules and the format; returns whether both are kept.
pub(crate) fn quick(root: &Path) -> bool {
    let format = cargo(root, "fmt --all --check").status();
    format.is_ok_and(|status| status.success()) && tidy::is_tidy(root)
}

fn clippy(root: &Path) -> Step {
    Step {
        name: "clippy".into(),
        command: cargo(root, "clippy -q --workspace --all-targets -- -D warnings"),
    }
}

fn rustdoc(root: &Path) -> Step {
    let mut command = cargo(
        root,
        "doc -q --workspace --no-deps --document-private-items",
    );
    command.env("RUSTDOCFLAGS", "-D warnings");
    Step {
        name: "rustdoc".into(),
        command,
    }
}

/// The licences of what the project stands on, where cargo-deny is installed.
fn licences(root: &Path) -> Option<Step> {
    let mut deny = cargo(root, "deny --version");
    let deny = deny.stdout(Stdio::null()).stderr(Stdio::null()).status();
    deny.is_ok_and(|status| status.success()).then(|| Step {
        name: "licences".into(),
        command: cargo(root, "deny -L error check licenses bans sources"),
    })
}

fn cargo(root: &Path, args: &str) -> Command {
    let mut cargo = binaries::cargo(root);
    cargo.args(args.split_whitespace());
    cargo
}

/// Steps that the compiler of the tests does not do, at low priority, all of them, so that one run
/// tells of everything that is wrong. Returns how many steps failed, and what they said.
pub(crate) fn behind_suites(root: &Path) -> (u64, Vec<u8>) {
    let documented = documented::waiting(root).into_iter();
    let steps = documented.map(|(crate_name, command)| Step {
        name: format!("rustdoc of {crate_name}"),
        command,
    });
    run_behind(steps.chain(licences(root)).collect())
}

fn run_behind(steps: Vec<Step>) -> (u64, Vec<u8>) {
    let begin = Instant::now();
    let (mut failed, mut said) = (0, Vec::new());
    for Step { name, command } in steps {
        let output = match behind(&command).output() {
            Ok(output) if output.status.success() => continue,
            Ok(output) => [output.stdout, output.stderr].concat(),
            Err(error) => error.to_string().into_bytes(),
        };
        println!("lint: {name} failed; its output follows the suites");
        failed += 1;
        said.extend(format!("---- lint: {name} ----\n").bytes());
        said.extend(output);
    }
    let seconds = begin.elapsed().as_secs();
    said.extend(format!("lint: {failed} steps failed ({seconds} s)\n").bytes());
    (failed, said)
}

/// `command` at low priority, without input.
fn behind(command: &Command) -> Command {
    let mut behind = Command::new("nice");
    behind
        .args(["-n", "4"])
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => behind.env(name, value),
            None => behind.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        behind.current_dir(dir);
    }
    behind
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str, script: &str) -> Step {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir("/");
        command.env("SAID", "from the environment");
        Step {
            name: name.into(),
            command,
        }
    }

    #[test]
    fn every_step_runs_and_what_failed_is_printed_whole() {
        let (failed, said) = run_behind(vec![
            step("first", "echo \"$SAID\"; pwd >&2; exit 3"),
            step("fine", "echo not to be seen"),
            step("last", "exit 1"),
        ]);
        assert_eq!(failed, 2);
        let out = String::from_utf8(said).unwrap();
        let expected = "---- lint: first ----\nfrom the environment\n/\n---- lint: last ----\n";
        assert!(out.starts_with(expected), "{out}");
        assert!(out.contains("\nlint: 2 steps failed ("), "{out}");
        assert!(!out.contains("not to be seen"), "{out}");
    }
}
