//! The rule of manifests: crates that are published say what a registry asks for, and need nothing
//! that is not published.

use std::path::Path;

use super::finding::Finding;
use super::repository::Repository;

/// The fields that a published crate inherits from the workspace.
const INHERITED: &[&str] = &[
    "version",
    "edition",
    "rust-version",
    "license",
    "repository",
    "readme",
    "keywords",
    "categories",
];

/// Checks the manifest of the workspace and those of its crates.
pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    let workspace = repository.text("Cargo.toml");
    let manifests = repository.with("toml");
    let crates =
        manifests.filter(|s| s.path.starts_with("crates") && s.path.ends_with("Cargo.toml"));
    let crates: Vec<(&Path, &str)> = crates
        .map(|s| (s.path.as_path(), s.text.as_str()))
        .collect();
    let unpublished = crates.iter().filter(|(_, text)| !is_published(text));
    let unpublished: Vec<&str> = unpublished
        .filter_map(|(_, text)| value(text, "name"))
        .collect();
    let mut all = wrong_versions(workspace, &unpublished);
    for (file, text) in crates.iter().filter(|(_, text)| is_published(text)) {
        all.extend(wrong(file, text, &unpublished));
    }
    all
}

fn is_published(text: &str) -> bool {
    !text.lines().any(|line| line == "publish = false")
}

/// The value of the first `key = "value"`.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = text.lines();
    lines.find_map(|line| {
        line.strip_prefix(key)?
            .strip_prefix(" = \"")?
            .strip_suffix('"')
    })
}

/// The workspace's own crates without the workspace's version. Without a version a crate cannot be
/// published that depends on it; with one, tests of published crates would need it there.
fn wrong_versions(workspace: &str, unpublished: &[&str]) -> Vec<Finding> {
    let file = Path::new("Cargo.toml");
    let version = value(workspace, "version").unwrap_or_default();
    let versioned = format!("version = \"{version}\"");
    let lines = workspace.lines().enumerate();
    let ours = lines.filter(|(_, line)| line.starts_with("extant") && line.contains("path = "));
    let wrong = ours.filter(|(_, line)| {
        let name = line.split([' ', '=']).next().unwrap_or_default();
        line.contains(&versioned) == unpublished.contains(&name)
    });
    wrong
        .map(|(i, line)| {
            let what = format!("`{line}`: published crates, and no others, have {versioned}");
            Finding::at(file, i + 1, what)
        })
        .collect()
}

/// Returns the faults of the manifest of a published crate.
fn wrong(file: &Path, text: &str, unpublished: &[&str]) -> Vec<Finding> {
    let mut all = Vec::new();
    let missing = INHERITED.iter().filter(|key| {
        let line = format!("{key}.workspace = true");
        !text.lines().any(|l| l == line)
    });
    all.extend(missing.map(|key| Finding::new(file, format!("no {key}.workspace = true"))));
    for needed in ["description = \"", "[package.metadata.docs.rs]"] {
        if !text.lines().any(|line| line.starts_with(needed)) {
            all.push(Finding::new(file, format!("no `{needed}`")));
        }
    }
    let mut section = "";
    for (i, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            section = line;
        }
        let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
        if !name.starts_with("extant") || !section.contains("dependencies]") {
            continue;
        }
        let is_unpublished = unpublished.contains(&name);
        if section.contains("dev-dependencies]") {
            // A registry would look for a version of it, though no user of the crate needs it.
            if !is_unpublished && !line.contains("path = ") {
                let what = format!("{name}: a dev-dependency of ours has a path alone");
                all.push(Finding::at(file, i + 1, what));
            }
        } else if is_unpublished {
            let what = format!("{name} is not published, and this crate is");
            all.push(Finding::at(file, i + 1, what));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_registry_refuses_is_found() {
        let mut text = "[package]\nname = \"extant-a\"\ndescription = \"A\"\n".to_owned();
        for key in INHERITED {
            text += &format!("{key}.workspace = true\n");
        }
        text += "[package.metadata.docs.rs]\n[dependencies]\nextant-b.workspace = true\n";
        text += "[dev-dependencies]\nextant-kit.workspace = true\nextant-c = { path = \"../c\" }\n";
        let count = |text: &str| wrong(Path::new("Cargo.toml"), text, &["extant-kit"]).len();
        assert_eq!(count(&text), 0);
        assert_eq!(count(&text.replace("readme.workspace = true\n", "")), 1);
        assert_eq!(count(&text.replace("description", "describes")), 1);
        assert_eq!(count(&text.replace("extant-b", "extant-kit")), 1);
        assert_eq!(
            count(&text.replace(" = { path = \"../c\" }", ".workspace = true")),
            1
        );
    }

    #[test]
    fn versions_of_our_crates_are_compared() {
        let text = "[workspace.package]\nversion = \"0.3.0\"\n[workspace.dependencies]\n\
                    extant-a = { path = \"a\", version = \"0.3.0\" }\n\
                    extant-kit = { path = \"k\" }\n";
        let count = |text: &str| wrong_versions(text, &["extant-kit"]).len();
        assert_eq!(count(text), 0);
        assert_eq!(
            count(&text.replace("a\", version = \"0.3.0\"", "a\", version = \"0.2.0\"")),
            1
        );
        assert_eq!(
            count(&text.replace("path = \"k\"", "path = \"k\", version = \"0.3.0\"")),
            1
        );
    }
}
