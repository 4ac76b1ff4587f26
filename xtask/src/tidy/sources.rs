//! Rules for Rust sources: a header that says what the file is for, a bounded length, nothing left
//! unfinished, `unsafe` in named crates only.

use super::finding::Finding;
use std::path::Path;

/// Longest file, in lines.
const LONGEST: usize = 600;
/// Crates whose sources may hold `unsafe`, each block with its reason.
const UNSAFE: &[&str] = &[
    "crates/pagecache/",
    "crates/blockdev/",
    "crates/capi/",
    "crates/fuse/",
    "crates/ring/",
];
/// Macros that must not be left in a commit.
const UNFINISHED: &[&str] = &[
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
];

pub(super) fn check(file: &Path, text: &str) -> Vec<Finding> {
    let mut all = Vec::new();
    let lines = text.lines().count();
    if lines > LONGEST {
        all.push(Finding::new(
            file,
            format!("{lines} lines, more than {LONGEST}: split it"),
        ));
    }
    let name = file
        .file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default();
    if name != "tests.rs" && !text.lines().any(|l| l.starts_with("//!")) {
        all.push(Finding::new(
            file,
            "no header (`//!`) that says what it is responsible for",
        ));
    }
    let may_be_unsafe = UNSAFE.iter().any(|u| file.starts_with(u));
    if !may_be_unsafe && is_crate_root(file) && !text.contains("#![forbid(unsafe_code)]") {
        all.push(Finding::new(file, "no #![forbid(unsafe_code)]"));
    }
    for (i, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for word in UNFINISHED.iter().filter(|w| code.contains(**w)) {
            all.push(Finding::new(file, format!("line {}: {word}..)", i + 1)));
        }
        if may_be_unsafe && is_unsafe_block(code) && !explained(text, i) {
            all.push(Finding::new(
                file,
                format!("line {}: unsafe without a SAFETY comment", i + 1),
            ));
        }
    }
    all
}

fn is_crate_root(file: &Path) -> bool {
    file.ends_with("src/lib.rs") || file.ends_with("src/main.rs")
}

fn is_unsafe_block(code: &str) -> bool {
    let words: Vec<&str> = code
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect();
    words.contains(&"unsafe") && !code.contains('"')
}

/// A comment within the eight lines above says why it is sound.
fn explained(text: &str, line: usize) -> bool {
    let from = line.saturating_sub(8);
    text.lines().skip(from).take(line - from + 1).any(|l| {
        let l = l.trim_start();
        l.contains("SAFETY")
            || l.contains("# Safety")
            || l.contains("deny(unsafe")
            || l.contains("allow(unsafe")
    })
}

#[cfg(test)]
mod tests {
    use super::check;
    use std::path::Path;

    fn findings(file: &str, text: &str) -> usize {
        check(Path::new(file), text).len()
    }

    #[test]
    fn each_rule_can_fail() {
        let fine = "//! Header.\n#![forbid(unsafe_code)]\n";
        assert_eq!(findings("crates/a/src/lib.rs", fine), 0);
        assert_eq!(findings("crates/a/src/lib.rs", "//! Header.\n"), 1);
        assert_eq!(findings("crates/a/src/x.rs", "fn f() {}\n"), 1);
        assert_eq!(
            findings(
                "crates/a/src/x.rs",
                &format!("//! H.\n{}", "\n".repeat(600))
            ),
            1
        );
        let unfinished = format!("//! H.\nfn f() {{ {}!() }}\n", "todo");
        assert_eq!(findings("crates/a/src/x.rs", &unfinished), 1);
        assert_eq!(
            findings("crates/pagecache/src/x.rs", "//! H.\nunsafe { x() }\n"),
            1
        );
        assert_eq!(
            findings(
                "crates/pagecache/src/x.rs",
                "//! H.\n// SAFETY: y\nunsafe { x() }\n"
            ),
            0
        );
    }
}
