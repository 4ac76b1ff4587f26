//! A runner for test binaries that lets none of them hang: `cargo xtask watch BINARY ARGS`, which
//! `cargo xtask test` and the soak have cargo use. With `--turns N` before the binary its tests
//! take turns: it runs those whose turn is in this round (`EXTANT_ROUND`), each in every Nth.
//!
//! It passes the binary's output on. When a test, or the binary as a whole, has run for too long,
//! the runner names the tests that have not ended, shows what every thread does, kills the binary,
//! and says in the words of the test harness that they failed.
//!
//! # Errors
//! `EXTANT_TEST_LIMIT` is the limit of one test in seconds; the limit of a binary is three times
//! that.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

#[allow(unreachable_pub, reason = "the test kit's")]
#[path = "../../crates/testkit/src/stacks.rs"]
mod stacks;

/// The limit of a test, unless the environment has another: several times what the slowest takes on
/// a busy machine.
const TEST_LIMIT: Duration = Duration::from_secs(600);
/// When the test harness says for the first time that a test takes long.
const TOLD_AFTER: Duration = Duration::from_secs(60);
/// How often the limits are looked at.
const LOOK: Duration = Duration::from_millis(250);
/// How long the output of a binary that has ended is waited for: a daemon that it left may keep it
/// open.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Names the file that gets the processor time of the binary and of what it waited for.
pub(crate) const CPU_NOTE: &str = "EXTANT_CPU_NOTE";
/// The argument before the number of turns.
pub(crate) const TURNS: &str = "--turns";
/// Names the number of the round.
pub(crate) const ROUND: &str = "EXTANT_ROUND";
/// The unit of the times in `/proc`, the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Runs the test binary `args` to its end.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let own = std::env::var("EXTANT_TEST_LIMIT").ok();
    let own = own.and_then(|text| text.parse().ok());
    let limit = own.map_or(TEST_LIMIT, Duration::from_secs);
    let round = std::env::var(ROUND).ok();
    let round = round.and_then(|round| round.parse().ok()).unwrap_or(0);
    let ended = in_turn(args, round).and_then(|args| match args {
        Some(args) => watch(&args, limit, &mut std::io::stdout().lock()),
        None => Ok(0),
    });
    if let Some(note) = std::env::var_os(CPU_NOTE) {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The time is for a table: a run without it is a run all the same.
        let _ = std::fs::write(note, children_seconds(&stat).unwrap_or(0.0).to_string());
    }
    match ended {
        Ok(0) => ExitCode::SUCCESS,
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(101)),
        Err(error) => {
            eprintln!("cannot run {args:?}: {error}");
            ExitCode::from(101)
        }
    }
}

/// The command of this round: with `--turns N` in front, that of the tests whose turn it is. None
/// if it is the turn of none.
fn in_turn(args: &[String], round: usize) -> std::io::Result<Option<Vec<String>>> {
    let [first, turns, command @ ..] = args else {
        return Ok(Some(args.to_vec()));
    };
    if first != TURNS {
        return Ok(Some(args.to_vec()));
    }
    let turns: usize = turns.parse().map_err(std::io::Error::other)?;
    let tests = listed(command);
    if tests.is_empty() {
        return Err(std::io::Error::other("it lists no tests"));
    }
    // Or all binaries with one test would have their turn in the same round.
    let offset = command
        .first()
        .map_or(0, |program| program.bytes().map(usize::from).sum::<usize>());
    let mut command = command.to_vec();
    command.push("--exact".to_owned());
    let others = command.len();
    command.extend(turn(&tests, turns, round + offset).cloned());
    Ok((command.len() > others).then_some(command))
}

/// The tests whose turn it is.
fn turn(tests: &[String], turns: usize, round: usize) -> impl Iterator<Item = &String> {
    let turns = turns.max(1);
    tests.iter().skip(round % turns).step_by(turns)
}

/// Reads and removes what a run left under [`CPU_NOTE`], in seconds.
pub(crate) fn take_cpu_note(note: &Path) -> f64 {
    let text = std::fs::read_to_string(note).unwrap_or_default();
    // Missing where the runner itself was ended.
    let _ = std::fs::remove_file(note);
    text.parse().unwrap_or(0.0)
}

/// The processor time of the children that a process has waited for, by its `/proc/PID/stat`.
fn children_seconds(stat: &str) -> Option<f64> {
    // The second field is a name in parentheses, with any bytes in it.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(13);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

/// What is known of the tests of a binary.
#[derive(Default)]
struct Tests {
    /// Those that ended, and whether well.
    ended: BTreeMap<String, bool>,
    ignored: usize,
    /// Those that take long, and since when they run.
    long: BTreeMap<String, Instant>,
}

impl Tests {
    /// Takes the next line of the output.
    fn line(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test ") else {
            return;
        };
        if let Some((name, _)) = rest.split_once(" has been running for over ") {
            let since = Instant::now().checked_sub(TOLD_AFTER);
            let since = since.unwrap_or_else(Instant::now);
            self.long.entry(name.to_owned()).or_insert(since);
        } else if let Some((name, result)) = rest.split_once(" ... ") {
            self.long.remove(name);
            if result.starts_with("ignored") {
                self.ignored += 1;
            }
            self.ended.insert(name.to_owned(), result != "FAILED");
        }
    }
}

/// Runs a test binary with its arguments; its output goes to `out`. Returns its exit status.
fn watch(args: &[String], limit: Duration, out: &mut impl Write) -> std::io::Result<i32> {
    // The harness says which test has ended only where it is not quiet.
    let args = args.iter().filter(|arg| *arg != "--quiet");
    let args: Vec<String> = args.cloned().collect();
    let program = args.first().ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut child = apart(&args).stdout(Stdio::piped()).spawn()?;
    let lines = lines_of(&mut child);
    let begin = Instant::now();
    let mut tests = Tests::default();
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(line) => {
                tests.line(&String::from_utf8_lossy(&line));
                out.write_all(&line)?;
                out.write_all(b"\n")?;
                out.flush()?;
                continue;
            }
            // The output has ended, and the binary is about to.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(1)),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(status) = child.try_wait()? {
            while let Ok(line) = lines.recv_timeout(LAST_WORDS) {
                out.write_all(&line)?;
                out.write_all(b"\n")?;
            }
            return Ok(status.code().unwrap_or(101));
        }
        let hung = tests
            .long
            .iter()
            .filter(|(_, since)| since.elapsed() >= limit);
        let mut hung: Vec<String> = hung.map(|(name, _)| name.clone()).collect();
        if hung.is_empty() && begin.elapsed() >= limit * 3 {
            hung = not_ended(&args, &tests);
        } else if hung.is_empty() {
            continue;
        }
        let stacks = stacks::of_process(child.id());
        child.kill()?;
        child.wait()?;
        conclude(program, &hung, &tests, &stacks, out)?;
        return Ok(101);
    }
}

/// The command `args`, in a mount namespace of its own where this process may make one: what a test
/// mounts is then in no namespace that a test of another binary makes, and in use there.
fn apart(args: &[String]) -> Command {
    let unshare = ["--mount", "--propagation=private"];
    let mut probe = Command::new("unshare");
    let probe = probe.args(unshare).arg("true").stderr(Stdio::null());
    if probe.status().is_ok_and(|status| status.success()) {
        let mut command = Command::new("unshare");
        command.args(unshare).args(args);
        command
    } else {
        let mut words = args.iter();
        let mut command = Command::new(words.next().map_or("", String::as_str));
        command.args(words);
        command
    }
}

/// The lines of the output as they come.
fn lines_of(child: &mut Child) -> Receiver<Vec<u8>> {
    let (send, lines) = channel();
    if let Some(output) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut all = BufReader::new(output).split(b'\n').map_while(Result::ok);
            all.all(|line| send.send(line).is_ok())
        });
    }
    lines
}

/// The tests that a binary has and these arguments choose.
fn listed(args: &[String]) -> Vec<String> {
    let Some((program, rest)) = args.split_first() else {
        return Vec::new();
    };
    let rest = rest.iter().filter(|arg| *arg != "--quiet");
    let mut list = Command::new(program);
    list.args(rest).args(["--list", "--format", "terse"]);
    let listed = list.stderr(Stdio::null()).output();
    let listed = listed.ok().filter(|output| output.status.success());
    let listed = listed.map(|output| output.stdout).unwrap_or_default();
    let listed = String::from_utf8_lossy(&listed);
    let names = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    names.map(str::to_owned).collect()
}

/// The tests that the binary was asked for and that have not ended, or have not begun.
fn not_ended(args: &[String], tests: &Tests) -> Vec<String> {
    let mut left = listed(args);
    left.retain(|name| !tests.ended.contains_key(name));
    if left.is_empty() {
        left.extend(args.first().cloned());
    }
    left
}

/// Says what hung, as the test harness says what failed.
fn conclude(
    program: &str,
    hung: &[String],
    tests: &Tests,
    stacks: &str,
    out: &mut impl Write,
) -> std::io::Result<()> {
    for name in hung {
        writeln!(out, "test {name} ... FAILED")?;
    }
    writeln!(out, "\nfailures:\n")?;
    for (nth, name) in hung.iter().enumerate() {
        writeln!(out, "---- {name} stdout ----")?;
        writeln!(
            out,
            "it had not ended at its limit, and {program} was killed"
        )?;
        if nth == 0 {
            writeln!(out, "{stacks}")?;
        }
    }
    let failed = tests.ended.values().filter(|fine| !**fine).count() + hung.len();
    let passed = tests.ended.values().filter(|fine| **fine).count();
    let passed = passed.saturating_sub(tests.ignored);
    writeln!(
        out,
        "\nfailures:\n\n\
         test result: FAILED. {passed} passed; {failed} failed; {} ignored; \
         0 measured; 0 filtered out",
        tests.ignored
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    /// A program that speaks as a test binary does.
    fn script(name: &str, body: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("xtask-{}-{name}", std::process::id()));
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        let mode = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(&path, mode).unwrap();
        path
    }

    fn watched(path: &PathBuf, limit: Duration) -> (i32, String) {
        let mut out = Vec::new();
        let args = [&path.display().to_string(), "some_filter", "--quiet"].map(str::to_owned);
        let code = loop {
            match watch(&args, limit, &mut out) {
                // A child that another test starts has the script open for writing until it runs
                // its program.
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
                Ok(126) => out.clear(),
                other => break other.unwrap(),
            }
        };
        std::fs::remove_file(path).unwrap();
        (code, String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_binary_has_its_own_mounts() {
        let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap();
        let may = Command::new("unshare").args(["--mount", "true"]).status();
        let may = may.is_ok_and(|status| status.success());
        let path = script("mounts", "readlink /proc/self/ns/mnt");
        let (code, output) = watched(&path, TOLD_AFTER);
        assert_eq!(code, 0);
        let own = output.trim() == space("self").to_str().unwrap();
        assert_eq!(own, !may, "{output}");
    }

    #[test]
    fn a_test_that_hangs_is_named_and_killed() {
        let body = "echo running 3 tests; echo test a::fine ... ok; echo test c::not ... ignored\n\
                    echo 'test b::hung has been running for over 60 seconds'; exec sleep 1000";
        let path = script("hung", body);
        let (code, output) = watched(&path, TOLD_AFTER);
        assert_eq!(code, 101);
        assert!(output.contains("\ntest b::hung ... FAILED\n"), "{output}");
        assert!(output.contains("---- b::hung stdout ----\n"), "{output}");
        let result = "test result: FAILED. 1 passed; 1 failed; 1 ignored;";
        assert!(output.contains(result), "{output}");
    }

    #[test]
    fn a_binary_that_hangs_has_those_named_that_did_not_end() {
        let body = "if [ \"$2\" = --list ]; then echo a::fine: test; echo b::hung: test; exit; fi\n\
                    echo running 2 tests; echo test a::fine ... ok; exec sleep 1000";
        let path = script("binary", body);
        let (code, output) = watched(&path, Duration::from_millis(500));
        assert_eq!(code, 101);
        assert!(output.contains("\ntest b::hung ... FAILED\n"), "{output}");
        assert!(!output.contains("test a::fine ... FAILED"), "{output}");
    }

    #[test]
    fn a_long_test_that_ended_is_not_taken_for_one_that_hangs() {
        let body = "echo 'test a has been running for over 60 seconds'\n\
                    case \"$*\" in *--quiet*) echo .;; *) echo 'test a ... ok';; esac\n\
                    sleep 1";
        let path = script("long", body);
        let limit = TOLD_AFTER + Duration::from_millis(200);
        let (code, output) = watched(&path, limit);
        assert_eq!(code, 0, "{output}");
    }

    #[test]
    fn tests_take_turns_and_each_comes_in_as_many_rounds() {
        let tests = ["a", "b", "c", "d", "e"].map(str::to_owned);
        let of = |turns, round| {
            let names: Vec<&str> = turn(&tests, turns, round).map(String::as_str).collect();
            names.concat()
        };
        assert_eq!([of(2, 0), of(2, 1), of(2, 2)], ["ace", "bd", "ace"]);
        assert_eq!([of(9, 4), of(9, 5), of(9, 9)], ["e", "", "a"]);
    }

    #[test]
    fn a_binary_without_a_turn_is_not_run() {
        let body = "if [ \"$1\" = --list ]; then echo a: test; echo b: test; fi";
        let path = script("turns", body);
        let args = |turns: &str| [TURNS, turns, &path.display().to_string()].map(str::to_owned);
        // As above, the script may be open in a child of another test.
        let of = |turns| {
            let mut tries = std::iter::repeat_with(|| in_turn(&args(turns), 0));
            tries.find_map(Result::ok).unwrap()
        };
        let both = of("1").unwrap();
        assert_eq!(both[1..], ["--exact", "a", "b"]);
        let alone = of("2").unwrap();
        assert_eq!(alone[..2], both[..2]);
        assert!(alone.len() == 3 && both[2..].contains(&alone[2]));
        let bytes: usize = both[0].bytes().map(usize::from).sum();
        let none = (3..).find(|turns| bytes % turns > 1).unwrap();
        assert_eq!(of(&none.to_string()), None);
        std::fs::remove_file(&path).unwrap();
        assert!(
            in_turn(&args("2"), 0).is_err(),
            "a binary that lists nothing"
        );
        assert_eq!(in_turn(&both, 0).unwrap(), Some(both));
    }

    #[test]
    fn the_time_of_children_is_in_fields_16_and_17() {
        let stat = "7 (a ) name) S 1 7 7 0 -1 4194560 1 2 3 4 100 200 250 50 20 0 1 0 9";
        assert_eq!(children_seconds(stat), Some(3.0));
        assert_eq!(children_seconds("7 (cut"), None);
    }

    #[test]
    fn what_ends_in_time_is_passed_on() {
        let path = script("fine", "echo test a ... ok; echo -n 'no newline'; exit 3");
        let (code, output) = watched(&path, TEST_LIMIT);
        assert_eq!((code, &*output), (3, "test a ... ok\nno newline\n"));
    }
}
