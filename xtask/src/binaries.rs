//! The test binaries of a workspace: built by cargo, named, and run one by one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A test binary, and the directory in which cargo runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    /// Its crate and its target: `jbd2.linux`.
    pub(crate) name: String,
    dir: PathBuf,
    pub(crate) program: PathBuf,
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
/// another one runs. `args` may name a profile; `env` is that of [`build`]. Returns the path.
pub(crate) fn build_command(
    root: &Path,
    args: &[String],
    env: &[(&str, &str)],
) -> std::io::Result<PathBuf> {
    let mut build = cargo(root);
    build.envs(env.iter().copied());
    // An example has the features that tests have.
    build.args(["build", "-q", "--workspace", "--bin", "extant"]);
    build.args(["--example", "hand_over"]);
    let named = args.iter().position(|arg| arg == "--profile");
    let profile = named.and_then(|at| args.get(at + 1));
    let profile = profile.map_or("dev", String::as_str);
    let built = build.args(["--profile", profile]).status()?;
    if !built.success() {
        return Err(std::io::Error::other(format!("cargo build: {built}")));
    }
    let dir = if profile == "dev" { "debug" } else { profile };
    Ok(target(root).join(dir).join("extant"))
}

/// Has cargo build the test binaries that `args` choose, with `env` around it, and name them.
pub(crate) fn build(
    root: &Path,
    args: &[String],
    env: &[(&str, &str)],
) -> std::io::Result<Vec<Binary>> {
    let mut cargo = cargo(root);
    cargo.args(["test", "--quiet", "--no-run"]);
    cargo.arg("--message-format=json-render-diagnostics");
    cargo.args(args).envs(env.iter().copied());
    let built = cargo.stderr(Stdio::inherit()).output()?;
    if !built.status.success() {
        let why = format!("cargo test: {}", built.status);
        return Err(std::io::Error::other(why));
    }
    let said = String::from_utf8_lossy(&built.stdout);
    Ok(said.lines().filter_map(Binary::told).collect())
}

impl Binary {
    /// The binary that a message of cargo tells of.
    fn told(message: &str) -> Option<Binary> {
        let field = |name: &str| {
            let (_, rest) = message.split_once(&format!("\"{name}\":\""))?;
            rest.split('"').next()
        };
        let program = PathBuf::from(field("executable")?);
        let (_, profile) = message.split_once("\"profile\":{")?;
        let is_test = profile.split('}').next()?.contains("\"test\":true");
        let dir = Path::new(field("manifest_path")?).parent()?.to_path_buf();
        let file = program.file_name()?.to_str()?;
        let target = file.rsplit_once('-').map_or(file, |(target, _)| target);
        let name = format!("{}.{target}", dir.file_name()?.to_str()?);
        is_test.then_some(Binary { name, dir, program })
    }

    /// The command that runs the binary as cargo does, in a mount namespace of its own where this
    /// process may make one: what a test mounts is then in no namespace that a test of another
    /// binary makes, and in use there.
    pub(crate) fn command(&self) -> Command {
        let unshare = ["--mount", "--propagation=private"];
        let mut probe = Command::new("unshare");
        let probe = probe.args(unshare).arg("true").stderr(Stdio::null());
        let mut command = if probe.status().is_ok_and(|status| status.success()) {
            let mut command = Command::new("unshare");
            command.args(unshare).arg(&self.program);
            command
        } else {
            Command::new(&self.program)
        };
        command
            .current_dir(&self.dir)
            .env("CARGO_MANIFEST_DIR", &self.dir)
            .stdin(Stdio::null());
        without_make(&mut command);
        command
    }

    /// The tests that the binary has and `args` choose.
    pub(crate) fn tests(&self, args: &[String]) -> Vec<String> {
        let mut list = Command::new(&self.program);
        list.args(args).args(["--list", "--format", "terse"]);
        let listed = list.stderr(Stdio::null()).output();
        let listed = listed.ok().filter(|output| output.status.success());
        let listed = listed.map(|output| output.stdout).unwrap_or_default();
        let listed = String::from_utf8_lossy(&listed);
        let names = listed.lines().filter_map(|it| it.strip_suffix(": test"));
        names.map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = r#"{"reason":"compiler-artifact","manifest_path":"/c/jbd2/Cargo.toml",
        "target":{"test":true},"profile":{"opt_level":"1","test":true},
        "executable":"/t/deps/lost_flush-00ff"}"#;

    #[test]
    fn no_program_learns_of_the_make_that_ran_this_one() {
        let hidden = |command: &Command| {
            let hidden = command.get_envs().filter(|(_, value)| value.is_none());
            let hidden: Vec<_> = hidden.filter_map(|(name, _)| name.to_str()).collect();
            OF_MAKE.iter().all(|name| hidden.contains(name))
        };
        assert!(hidden(&cargo(Path::new("/"))));
        assert!(hidden(&Binary::told(TOLD).unwrap().command()));
    }

    #[test]
    fn a_binary_is_named_by_its_crate_and_target() {
        let binary = Binary::told(TOLD).unwrap();
        assert_eq!(binary.name, "jbd2.lost_flush");
        assert_eq!(binary.dir, Path::new("/c/jbd2"));
        assert_eq!(binary.program, Path::new("/t/deps/lost_flush-00ff"));
        assert_eq!(
            Binary::told(&TOLD.replace("\"1\",\"test\":true", "\"1\"")),
            None
        );
        assert_eq!(Binary::told(&TOLD.replace("executable", "none")), None);
    }
}
