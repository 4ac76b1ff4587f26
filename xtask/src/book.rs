//! The book: the pages of `docs`, and a reference that is made from the command, the lists of
//! public items and the header, by mdBook.
//!
//! mdBook wants its pages in one folder, and links between them. So the pages are copied first: a
//! link that leads out of `docs` becomes one to the repository. Any warning of mdBook is an error.

use std::fs;
use std::io;
use std::path::{Component, Path};
use std::process::{Command, ExitCode};

use crate::binaries;

/// The address of all files that are no pages of the book.
const REPOSITORY: &str = "https://github.com/extant-fs/extant/blob/main";
/// The heading of `SUMMARY.md` below which the reference is listed.
const REFERENCE: &str = "# Reference\n\n";

/// Pages of the reference: paths, titles and texts.
type Pages = Vec<(String, String, String)>;

/// Makes the book, in `book` of the target directory.
pub(crate) fn run(root: &Path) -> ExitCode {
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root.join(dir),
        None => root.join("target"),
    };
    match make(root, &target) {
        Ok(()) => {
            println!("{}", target.join("book/index.html").display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn make(root: &Path, target: &Path) -> io::Result<()> {
    let staged = target.join("book-source");
    let _ = fs::remove_dir_all(&staged);
    let pages = staged.join("src");
    copy(&root.join("docs"), &pages, Path::new(""))?;
    let reference = reference(root)?;
    for (path, _, text) in &reference {
        write(&pages.join(path), text)?;
    }
    let summary = fs::read_to_string(root.join("docs/book/SUMMARY.md"))?;
    let summary = with_reference(&summary, &reference)?;
    write(&pages.join("SUMMARY.md"), &summary)?;
    fs::copy(root.join("docs/book/book.toml"), staged.join("book.toml"))?;
    let made = output(
        Command::new("mdbook")
            .arg("build")
            .arg(&staged)
            .arg("-d")
            .arg(target.join("book")),
    )
    .map_err(|error| io::Error::other(format!("{error}\nmdBook: cargo install --locked mdbook")))?;
    match made.lines().find(|line| line.contains("WARN")) {
        Some(warning) => Err(io::Error::other(format!("mdbook warns: {warning}\n{made}"))),
        None => Ok(()),
    }
}

/// Copies the pages, lists, figures and pictures below `from`, which is `dir` of the documents.
fn copy(from: &Path, to: &Path, dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&path, &to.join(&name), &dir.join(&name))?;
        } else if path.extension().is_some_and(|e| e == "md") && name != "SUMMARY.md" {
            write(&to.join(&name), &relinked(&fs::read_to_string(&path)?, dir))?;
        } else if ["json", "svg", "txt"]
            .iter()
            .any(|e| path.extension() == Some(e.as_ref()))
        {
            write(&to.join(&name), &fs::read_to_string(&path)?)?;
        }
    }
    Ok(())
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(file, text)
}

/// Runs a program and returns the text of both of its outputs.
fn output(command: &mut Command) -> io::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let named = |error| io::Error::other(format!("{name}: {error}"));
    let done = command.output().map_err(named)?;
    let bytes = [done.stdout, done.stderr].concat();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match done.status.success() {
        true => Ok(text),
        false => Err(io::Error::other(format!("{name}: {}\n{text}", done.status))),
    }
}

/// The text of a page in the folder `dir` of the documents, with links that work in the book.
fn relinked(text: &str, dir: &Path) -> String {
    let mut parts = text.split("](");
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (target, rest) = part.split_at(part.find(')').unwrap_or(part.len()));
        all.push_str("](");
        all.push_str(&link(target, dir));
        all.push_str(rest);
    }
    all
}

/// A link of a page in `dir`: as it is inside of the documents, else one to the repository.
fn link(target: &str, dir: &Path) -> String {
    let is_path = !target.is_empty() && !target.starts_with('#') && !target.contains([' ', ':']);
    if !is_path {
        return target.to_owned();
    }
    let mut inside = Vec::new();
    let mut above = 0;
    for component in dir.join(target).components() {
        match component {
            Component::ParentDir if inside.pop().is_none() => above += 1,
            Component::Normal(name) => inside.push(name.to_string_lossy().into_owned()),
            _ => {}
        }
    }
    let path = inside.join("/");
    match above {
        0 => target.to_owned(),
        _ => format!("{REPOSITORY}/{path}"),
    }
}

/// The summary, from the top of the pages, with the pages of the reference in it.
fn with_reference(summary: &str, reference: &Pages) -> io::Result<String> {
    let (before, after) = summary
        .split_once(REFERENCE)
        .ok_or_else(|| io::Error::other("SUMMARY.md has no reference"))?;
    let list: String = reference
        .iter()
        .map(|(path, title, _)| {
            let depth = path.matches('/').count().saturating_sub(1);
            format!("{}- [{title}]({path})\n", "    ".repeat(depth))
        })
        .collect();
    let page = |part: &str| part.replace("](", "](book/").replace("](book/../", "](");
    Ok(format!("{}{REFERENCE}{list}{}", page(before), page(after)))
}

/// The pages that are made.
fn reference(root: &Path) -> io::Result<Pages> {
    let extant = binaries::build_command(root, &[], &[])?;
    let help = |args: &[&str]| output(Command::new(&extant).args(args).env("COLUMNS", "90"));
    let page = |path: &str, title: &str, intro: &str, language: &str, text: &str| {
        let text = format!(
            "# {title}\n\n{intro}\n\n````{language}\n{}\n````\n",
            text.trim_end()
        );
        (path.to_owned(), title.to_owned(), text)
    };
    let all = help(&["--help"])?;
    let intro = "The command `extant`, as `extant --help` and extant(1) show it.";
    let mut pages = vec![page(
        "reference/commands.md",
        "Commands",
        intro,
        "text",
        &all,
    )];
    for name in commands(&all) {
        let text = help(&[&name, "--help"])?;
        let (path, title) = (
            format!("reference/commands/{name}.md"),
            format!("extant {name}"),
        );
        let intro = format!("As `extant {name} --help` and extant-{name}(1) show it.");
        pages.push(page(&path, &title, &intro, "text", &text));
    }
    for (name, title) in [
        ("extant", "The library in Rust: paths"),
        ("engine", "The library in Rust: inodes"),
    ] {
        let list = fs::read_to_string(root.join(format!("docs/api/{name}.txt")))?;
        let intro = "Every public item, without its documentation: `make doc` has that.";
        let path = format!("reference/api-{name}.md");
        pages.push(page(&path, title, intro, "rust", &list));
    }
    let header = fs::read_to_string(root.join("crates/capi/include/extant.h"))?;
    let intro = "`extant.h`; the manual page extant(3) has the same in words.";
    pages.push(page(
        "reference/c.md",
        "The library in C",
        intro,
        "c",
        &header,
    ));
    let readme = fs::read_to_string(root.join("crates/python/README.md"))?;
    let title = "The library in Python".to_owned();
    let readme = readme.replacen("# Extant for Python", &format!("# {title}"), 1);
    pages.push(("reference/python.md".to_owned(), title, readme));
    Ok(pages)
}

/// The commands that a help text lists.
fn commands(help: &str) -> Vec<String> {
    let list = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let is_name = |name: &&str| !name.is_empty() && *name != "help";
    names.filter(is_name).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_documents_lead_to_the_repository() {
        let page = "[a](../IMAGES.md#x) [b](https://c.d/e) [f](#g) [h](../../crates/i.rs) `x](`";
        let there = relinked(page, Path::new("book"));
        let expected = format!(
            "[a](../IMAGES.md#x) [b](https://c.d/e) [f](#g) [h]({REPOSITORY}/crates/i.rs) `x](`"
        );
        assert_eq!(there, expected);
    }

    #[test]
    fn the_summary_lists_the_reference() {
        let summary = "[A](a.md)\n# Reference\n\n- [B](../B.md)\n";
        let pages = vec![
            ("reference/c.md".to_owned(), "C".to_owned(), String::new()),
            ("reference/c/d.md".to_owned(), "D".to_owned(), String::new()),
        ];
        let expected = "[A](book/a.md)\n# Reference\n\n- [C](reference/c.md)\n    \
                        - [D](reference/c/d.md)\n- [B](B.md)\n";
        assert_eq!(
            with_reference(summary, &pages).unwrap_or_default(),
            expected
        );
        assert!(with_reference("", &pages).is_err());
    }

    #[test]
    fn commands_are_read_from_the_help() {
        let help =
            "X\n\nCommands:\n  ls     List\n         more\n  cp  Copy\n  help  Help\n\nOptions:\n";
        assert_eq!(commands(help), ["ls", "cp"]);
    }
}
