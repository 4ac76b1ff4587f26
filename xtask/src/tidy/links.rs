//! Rules for documents: a relative link leads somewhere.

use super::finding::Finding;
use std::path::Path;

pub(super) fn check(root: &Path, file: &Path, text: &str) -> Vec<Finding> {
    let dir = root
        .join(file)
        .parent()
        .map(Path::to_path_buf)
        .unwrap_or_default();
    targets(text)
        .filter(|t| !dir.join(t).exists())
        .map(|t| Finding::new(file, format!("link to {t}, which is not there")))
        .collect()
}

/// Targets of `[text](target)` that are files here, without their `#section`.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let links = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', '\n']).next());
    links
        .map(|t| t.split('#').next().unwrap_or_default())
        .filter(|t| {
            !t.is_empty() && !t.contains("://") && !t.starts_with("mailto:") && !t.contains(' ')
        })
}

#[cfg(test)]
mod tests {
    use super::targets;

    #[test]
    fn relative_targets_only() {
        let text = "[a](b.md) [c](https://x.y/z) [d](#here) [e](f.md#g)";
        assert_eq!(targets(text).collect::<Vec<_>>(), ["b.md", "f.md"]);
    }
}
