//! Promise: each line of the examples in the help and the manual pages runs, as it stands there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use extant_testkit::{Cmd, Need, Result, TempDir, ensure, need, tools};

fn extant(args: &[&str]) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args)
}

/// Files that the examples name: images, a mount point, a tree and its archives, a container.
const GIVEN: &str = "
    mkdir -p mnt site/etc site/srv/site
    echo 127.0.0.1 localhost >site/etc/hosts
    echo hello >site/srv/site/index.html
    head -c 300000 /dev/zero | tr '\\0' x >site/srv/data
    extant build -q --size 64M --owner 0:0 site disk.img
    extant mkfs -q other.img 64M
    rm -r site && mkdir site && echo hello >site/index.html
    tar -cf site.tar site && gzip -k site.tar
    head -c 1M /dev/zero | gzip >disk.img.gz
    docker() { tar -C site -c .; }
    trap 'extant umount mnt 2>log || true' EXIT
";

/// A version that examples are about.
const STORED: &str = "extant push -q disk.img file://$PWD/store/disk >log\n";

/// Set-up where something is mounted already.
const MOUNTED: &str = "extant mount disk.img ./mnt\n";

/// Ends what runs in the background: with its own status, once it has begun.
const ENDED: &str = "
    sleep 1
    for job in $(jobs -p); do kill $job && wait $job; done
";

/// The lines of the examples of a command, or of all commands.
fn examples(command: &[&str]) -> Result<Vec<String>> {
    let help = extant(command).arg("--help").ok()?.out;
    let (_, examples) = help.split_once("\nExamples:\n").unwrap_or_default();
    Ok(examples
        .lines()
        .map(|line| line.trim().to_owned())
        .collect())
}

/// The commands that the help lists.
fn commands() -> Result<Vec<String>> {
    let help = extant(&["--help"]).ok()?.out;
    let (_, list) = help.split_once("\nCommands:\n").unwrap_or_default();
    let (list, _) = list.split_once("\n\n").unwrap_or_default();
    let words = list
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    Ok(words
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect())
}

/// Runs lines in a folder of their own.
fn run(before: &str, lines: &[String]) -> Result<()> {
    let dir = TempDir::new("examples")?;
    let bin = Path::new(env!("CARGO_BIN_EXE_extant")).parent().unwrap();
    let path = std::env::var("PATH")?;
    let script = format!("set -eu -o pipefail\n{GIVEN}{before}{}\n", lines.join("\n"));
    let ran = Cmd::new("bash").args(["-c", &script]).dir(dir.path());
    let ran = ran.env("PATH", format!("{}:{path}", bin.display()));
    ran.ok().map(drop)
}

#[test]
fn every_example_runs_as_it_stands() -> Result<()> {
    let mounts = need(&[Need::Fuse]);
    let benches = need(&[Need::Tool("mke2fs")]);
    for command in commands()? {
        let lines = examples(&[&command])?;
        ensure!(
            !lines.is_empty() || ["help", "completions"].contains(&command.as_str()),
            "{command} has no examples"
        );
        let before = match command.as_str() {
            "mount" if !mounts => continue,
            "umount" | "stats" if !mounts => continue,
            "umount" | "stats" => MOUNTED,
            "pull" | "versions" | "gc" => STORED,
            "bench" if !benches => continue,
            _ => "",
        };
        let mut lines = lines;
        if command == "vhost" {
            lines.push(ENDED.to_owned());
        }
        run(before, &lines)?;
    }
    if mounts {
        // The volume of the first example is new.
        run("rm disk.img\n", &examples(&[])?)?;
    }
    Ok(())
}

/// The sections of each page that `manual` writes.
#[test]
fn manual_pages_have_their_sections() -> Result<()> {
    let dir = TempDir::new("manual")?;
    extant(&["manual"]).arg(dir.path()).ok()?;
    let mut pages = BTreeMap::new();
    for file in fs::read_dir(dir.path())?.flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        pages.insert(name, fs::read_to_string(file.path())?);
    }
    for command in commands()? {
        if command == "help" {
            continue;
        }
        let page = pages.get(&format!("extant-{command}.1"));
        let page = page.map_or("", String::as_str);
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "SEE ALSO"] {
            let heading = format!(".SH {section}\n").replace("EXIT STATUS", "\"EXIT STATUS\"");
            let heading = heading.replace("SEE ALSO", "\"SEE ALSO\"");
            ensure!(page.contains(&heading), "{command}: no {section}: {page}");
        }
        let has_examples = page.contains(".SH EXAMPLES\n");
        ensure!(
            has_examples || command == "completions",
            "{command}: {page}"
        );
        ensure!(
            !page.contains("[\\fB\\-o\\fR") && !page.contains("\\-o ]"),
            "{page}"
        );
    }
    let check = &pages["extant-check.1"];
    ensure!(check.contains("0 clean, 4 damage was found"), "{check}");
    ensure!(!check.contains("Exit status:"), "{check}");
    let options = &pages["extant-options.5"];
    ensure!(
        options.contains("commit=SECONDS") && options.contains("transport="),
        "{options}"
    );
    if tools::find("groff").is_some() {
        for name in pages.keys() {
            let groff = Cmd::new("groff")
                .args(["-man", "-ww", "-z"])
                .arg(dir.join(name));
            let said = groff.ok()?.err;
            ensure!(said.is_empty(), "{name}: {said}");
        }
    }
    Ok(())
}
