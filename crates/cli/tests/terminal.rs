//! The command at a terminal: colours, progress, suggestions.

use std::ffi::OsStr;
use std::fs;

use extant_testkit::{Cmd, Need, Result, TempDir, ensure, need};

/// A command without what the caller's environment says of colours. (`CI` says that a terminal has
/// them, whatever its name.)
fn plain(program: &str) -> Cmd {
    let said = ["CI", "CLICOLOR", "CLICOLOR_FORCE", "NO_COLOR"];
    let left_out = said.into_iter().flat_map(|name| ["-u", name]);
    Cmd::new("env").args(left_out).arg(program)
}

/// Runs a command line of `extant` in a terminal of its own, and returns what that shows.
fn at_terminal(line: &str, env: &[(&str, &str)]) -> Result<String> {
    let line = format!("{} {line}", env!("CARGO_BIN_EXE_extant"));
    let set = env.iter().map(|(name, value)| format!("{name}={value}"));
    let script = plain("env").arg("TERM=xterm").args(set);
    let script = script.args(["script", "-q", "-e", "-c", &line, "/dev/null"]);
    Ok(script.run()?.out)
}

/// Returns whether text sets a colour or a weight.
fn is_coloured(text: &str) -> bool {
    let starts = text.split("\x1b[").skip(1);
    starts
        .filter_map(|rest| rest.split_once(|c: char| !c.is_ascii_digit() && c != ';'))
        .any(|(codes, rest)| !codes.is_empty() && codes != "0" && !rest.is_empty())
}

#[test]
fn colours_are_for_terminals_that_want_them() -> Result<()> {
    if !need(&[Need::Tool("script")]) {
        return Ok(());
    }
    let shown = at_terminal("cp --nonsense", &[])?;
    ensure!(
        shown.contains("--nonsense") && is_coloured(&shown),
        "{shown:?}"
    );
    for quiet in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let shown = at_terminal("cp --nonsense", &[quiet])?;
        ensure!(
            shown.contains("--nonsense") && !is_coloured(&shown),
            "{quiet:?}: {shown:?}"
        );
    }
    // No terminal, no colour.
    let piped = plain(env!("CARGO_BIN_EXE_extant"))
        .args(["cp", "--nonsense"])
        .run()?;
    ensure!(
        piped.code == Some(2) && !piped.err.contains('\x1b'),
        "{}",
        piped.describe()
    );
    Ok(())
}

#[test]
fn a_wrong_word_is_answered_with_the_right_one() -> Result<()> {
    for (args, right) in [
        (&["chekc", "disk.img"][..], "'check'"),
        (&["cp", "--recursiv", "a", "b:/"], "'--recursive'"),
        (&["mkfs", "--lable", "x", "disk.img"], "'--label'"),
        (&["cp", "--sparse", "alway", "a", "b:/"], "'always'"),
        (&["completions", "bahs"], "'bash'"),
    ] {
        let o = plain(env!("CARGO_BIN_EXE_extant")).args(args).run()?;
        ensure!(
            o.code == Some(2) && o.err.contains("tip:") && o.err.contains(right),
            "{}",
            o.describe()
        );
    }
    Ok(())
}

/// A directory of an image that takes long enough to show a bar.
fn busy(dir: &TempDir) -> Result<String> {
    let image = dir.join("disk.img").display().to_string();
    let extant = |args: &[&dyn AsRef<OsStr>]| {
        let args = args.iter().map(|arg| arg.as_ref().to_owned());
        Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args).ok()
    };
    extant(&[&"mkfs", &"-q", &image, &"64M"])?;
    let input = dir.join("in");
    fs::write(&input, vec![7; 8 << 20])?;
    for name in ["one", "two"] {
        extant(&[&"cp", &input, &format!("{image}:/{name}")])?;
    }
    Ok(image)
}

#[test]
fn no_archive_is_written_to_a_terminal() -> Result<()> {
    if !need(&[Need::Tool("script")]) {
        return Ok(());
    }
    let dir = TempDir::new("binary")?;
    let image = busy(&dir)?;
    let shown = at_terminal(&format!("tar {image}:/"), &[])?;
    ensure!(
        shown.contains("standard output: a terminal: write to a file with -f"),
        "{shown:?}"
    );
    Ok(())
}

/// A bar shows how far a command is, with its rate, and goes away; `-q` has none.
#[test]
fn an_archive_shows_its_progress_at_a_terminal_alone() -> Result<()> {
    if !need(&[Need::Tool("script")]) {
        return Ok(());
    }
    let dir = TempDir::new("progress")?;
    let image = busy(&dir)?;
    let out = dir.join("out.tar").display().to_string();
    // A reader that takes its time: the bar appears after a moment.
    let pipe = dir.join("pipe").display().to_string();
    Cmd::new("mkfifo").arg(&pipe).ok()?;
    let slowly = format!(
        "sh -c '(sleep 1; cat >{out}) <{pipe} & \"$0\" \"$@\"; code=$?; wait; exit $code' "
    );
    for (quiet, shows) in [("", true), ("-q", false)] {
        let line = format!("tar {quiet} -f {pipe} {image}:/");
        let line = format!("{slowly}{} {line}", env!("CARGO_BIN_EXE_extant"));
        let script = plain("script").args(["-q", "-e", "-c", &line, "/dev/null"]);
        let shown = script.env("TERM", "xterm").ok()?.out;
        let has_bar = shown.contains("MiB/s") && shown.contains("16.00 MiB");
        ensure!(has_bar == shows, "{quiet:?}: {shown:?}");
    }
    // An archive is the same, with a bar or without.
    let plain =
        Cmd::new(env!("CARGO_BIN_EXE_extant")).args(["tar", "-f", "-", &format!("{image}:/")]);
    let plain = plain.run()?;
    ensure!(
        plain.code == Some(0) && plain.err.is_empty(),
        "{}",
        plain.err
    );
    ensure!(fs::metadata(&out)?.len() > 16 << 20, "{out} is not whole");
    Ok(())
}
