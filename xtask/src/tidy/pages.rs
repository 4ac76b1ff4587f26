//! The rule of pages: the README and the page for contributors lead to every page of `docs/`.

use super::finding::Finding;
use super::repository::Repository;
use std::path::Path;

/// The pages that lead to the others.
const INDEXES: [&str; 2] = ["README.md", "CONTRIBUTING.md"];

/// The pages that one of the indexes does not link to. Those of the book have an index of their
/// own.
pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    let pages = repository.with("md").map(|source| source.path.as_path());
    let pages: Vec<&Path> = pages
        .filter(|p| p.parent() == Some("docs".as_ref()))
        .collect();
    let missing = INDEXES.iter().flat_map(|index| {
        let text = repository.text(index);
        pages
            .iter()
            .filter_map(|page| not_linked(index, text, page))
    });
    missing.collect()
}

fn not_linked(index: &str, text: &str, page: &Path) -> Option<Finding> {
    let link = format!("]({})", page.display());
    let what = || format!("does not lead to {}", page.display());
    (!text.contains(&link)).then(|| Finding::new(Path::new(index), what()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_without_a_link_is_found() {
        let page = Path::new("docs/A.md");
        assert!(not_linked("README.md", "| [A](docs/A.md) |", page).is_none());
        assert!(not_linked("README.md", "[A](docs/AB.md), `docs/A.md`", page).is_some());
    }
}
