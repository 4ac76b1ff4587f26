//! The test binaries of a workspace: built by cargo, named, and run one by one.
//!
//! Cargo tells what it would run by running it, so a listing run has this program as its runner
//! (`cargo xtask note BINARY ARGS`), which writes the binary down and ends.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::watch;

/// Names the file in which the runner of the listing run notes the binaries.
const NOTES: &str = "EXTANT_BINARY_NOTES";

/// A test binary, and the directory in which cargo runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    /// Its crate and its target: `jbd2.linux`.
    pub(crate) name: String,
    dir: PathBuf,
    command: Vec<String>,
}

/// Variables by which a make tells programs that it runs about itself: for other makes, which a
/// test may run.
const OF_MAKE: [&str; 3] = ["MAKEFLAGS", "MFLAGS", "MAKELEVEL"];

/// Cargo in the checkout, without what it told this program of its own package: some build scripts
/// run anew for other values, and what depends on them is then compiled again. Without what a make
/// has told this program, too.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root);
    without_make(&mut cargo);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    cargo
}

fn without_make(command: &mut Command) {
    for name in OF_MAKE {
        command.env_remove(name);
    }
}

/// Cargo's target directory.
pub(crate) fn target(root: &Path) -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR");
    root.join(named.unwrap_or_else(|| "target".into()))
}

/// Builds the command that most suites run, and its example, with the features that the tests of
/// the whole workspace have: the build of these has made it already. Without them every crate would
/// be compiled twice. They add failpoints, none of which is on. No suite then builds anything while
/// another one runs. `target` is cargo's target directory; `args` may name a profile. Returns the
/// command's path.
pub(crate) fn build_command(
    root: &Path,
    target: &Path,
    args: &[String],
) -> std::io::Result<PathBuf> {
    let mut build = cargo(root);
    // An example has the features that tests have.
    build.args(["build", "-q", "--workspace", "--bin", "extant"]);
    build.args(["--example", "hand_over"]);
    let named = args.iter().position(|arg| arg == "--profile");
    let profile = named.and_then(|at| args.get(at + 1));
    if let Some(profile) = profile {
        build.args(["--profile", profile]);
    }
    let built = build.status()?;
    if !built.success() {
        return Err(std::io::Error::other(format!("cargo build: {built}")));
    }
    let dir = profile.map_or("debug", String::as_str);
    Ok(target.join(dir).join("extant"))
}

/// Has cargo build the test binaries that `args` choose (all, if empty) and name them. `notes` is
/// a file for the names.
pub(crate) fn build(root: &Path, notes: &Path, args: &[String]) -> std::io::Result<Vec<Binary>> {
    if let Some(dir) = notes.parent() {
        std::fs::create_dir_all(dir)?;
    }
    File::create(notes)?;
    let xtask = std::env::current_exe()?.display().to_string();
    let runner = format!("target.'cfg(all())'.runner = [{xtask:?}, \"note\"]");
    let mut cargo = cargo(root);
    cargo.args(["test", "--quiet", "--tests"]);
    cargo.args(["--config", &runner]);
    if args.is_empty() {
        cargo.arg("--workspace");
    }
    let built = cargo.args(args).env(NOTES, notes).status()?;
    if !built.success() {
        return Err(std::io::Error::other(format!("cargo test: {built}")));
    }
    let notes = std::fs::read_to_string(notes)?;
    Ok(notes.lines().filter_map(Binary::noted).collect())
}

/// Writes down a test binary, in its stead: cargo's runner of the listing run.
pub(crate) fn note(args: &[String]) -> ExitCode {
    let noted = || -> std::io::Result<()> {
        let notes = std::env::var_os(NOTES).ok_or(std::io::ErrorKind::NotFound)?;
        let mut notes = OpenOptions::new().append(true).create(true).open(notes)?;
        let dir = std::env::current_dir()?;
        writeln!(notes, "{}\t{}", dir.display(), args.join("\t"))
    };
    match noted() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot note {args:?}: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Binary {
    /// The binary that a note tells of: named by its crate and its target.
    fn noted(line: &str) -> Option<Binary> {
        let mut parts = line.split('\t');
        let dir = PathBuf::from(parts.next()?);
        let command: Vec<String> = parts.map(str::to_owned).collect();
        let file = Path::new(command.first()?).file_name()?.to_str()?;
        let target = file.rsplit_once('-').map_or(file, |(target, _)| target);
        let name = format!("{}.{target}", dir.file_name()?.to_str()?);
        Some(Binary { name, dir, command })
    }

    /// A line that [`parse`](Self::parse) reads.
    pub(crate) fn line(&self) -> String {
        let (name, dir) = (&self.name, self.dir.display());
        format!("{name}\t{dir}\t{}\n", self.command.join("\t"))
    }

    /// What [`line`](Self::line) wrote, without the line's end.
    pub(crate) fn parse(line: &str) -> Option<Binary> {
        let mut parts = line.split('\t');
        Some(Binary {
            name: parts.next()?.to_owned(),
            dir: parts.next()?.into(),
            command: parts.map(str::to_owned).collect(),
        })
    }

    /// Has runs take the file as it is now, whatever cargo builds meanwhile.
    pub(crate) fn keep_in(&mut self, dir: &Path) -> std::io::Result<()> {
        let kept = dir.join(&self.name);
        let _ = std::fs::remove_file(&kept);
        if let Some(program) = self.command.first_mut() {
            std::fs::hard_link(&*program, &kept)?;
            *program = kept.display().to_string();
        }
        Ok(())
    }

    /// Gives the binary arguments more, and its environment `env`.
    pub(crate) fn narrow(&mut self, env: &[&str], args: &[&str]) {
        let own = |texts: &[&str]| {
            texts
                .iter()
                .map(|&text| text.to_owned())
                .collect::<Vec<_>>()
        };
        if !env.is_empty() {
            let first = ["env".to_owned()].into_iter().chain(own(env));
            self.command.splice(..0, first);
        }
        self.command.extend(own(args));
    }

    /// Runs the binary as cargo does, but watched: none may hang. Each of its tests is run in
    /// every round out of `turns`.
    pub(crate) fn watched(&self, turns: usize) -> std::io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("watch");
        if turns > 1 {
            command.args([watch::TURNS, &turns.to_string()]);
        }
        command
            .args(&self.command)
            .current_dir(&self.dir)
            .env("CARGO_MANIFEST_DIR", &self.dir)
            .stdin(Stdio::null());
        without_make(&mut command);
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_program_learns_of_the_make_that_ran_this_one() {
        let hidden = |command: &Command| {
            let hidden = command.get_envs().filter(|(_, value)| value.is_none());
            let hidden: Vec<_> = hidden.filter_map(|(name, _)| name.to_str()).collect();
            OF_MAKE.iter().all(|name| hidden.contains(name))
        };
        assert!(hidden(&cargo(Path::new("/"))));
        let binary = Binary::noted("/c/jbd2\t/t/deps/lost_flush-00ff").unwrap();
        assert!(hidden(&binary.watched(1).unwrap()));
    }

    #[test]
    fn a_note_names_a_binary_by_its_crate_and_target() {
        let binary = Binary::noted("/c/jbd2\t/t/deps/lost_flush-00ff\tfilter").unwrap();
        assert_eq!(binary.name, "jbd2.lost_flush");
        assert_eq!(binary.dir, Path::new("/c/jbd2"));
        assert_eq!(binary.command, ["/t/deps/lost_flush-00ff", "filter"]);
        assert_eq!(Binary::noted("/c/jbd2"), None);
        assert_eq!(Binary::parse(binary.line().trim_end()), Some(binary));
    }
}
