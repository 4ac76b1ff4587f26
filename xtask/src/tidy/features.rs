//! `docs/COMPATIBILITY.md` names every feature bit that the code names.

use super::finding::Finding;
use std::path::Path;

const CODE: &str = "crates/disk/src/features.rs";
const DOCUMENT: &str = "docs/COMPATIBILITY.md";

pub(super) fn check(root: &Path) -> Vec<Finding> {
    let read = |p: &str| std::fs::read_to_string(root.join(p)).unwrap_or_default();
    let (code, document) = (read(CODE), read(DOCUMENT));
    let names: Vec<&str> = names(&code).collect();
    if names.len() < 30 {
        return vec![Finding::new(
            Path::new(CODE),
            "the feature names cannot be found any more",
        )];
    }
    let missing = names
        .into_iter()
        .filter(|n| !document.contains(&format!("`{n}`")));
    missing
        .map(|n| Finding::new(Path::new(DOCUMENT), format!("does not list `{n}`")))
        .collect()
}

/// The names in lines like `EXTENTS = 0x40, "extent";`.
fn names(code: &str) -> impl Iterator<Item = &str> {
    code.lines().filter_map(|l| {
        let (constant, rest) = l.trim().split_once(" = 0x")?;
        let is_constant = constant
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        let (_, name) = rest.split_once(", \"")?;
        if is_constant {
            name.strip_suffix("\";")
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn names_are_found() {
        let code = "  HAS_JOURNAL = 0x4, \"has_journal\";\n  let x = 0x4;\n";
        assert_eq!(names(code).collect::<Vec<_>>(), ["has_journal"]);
    }
}
