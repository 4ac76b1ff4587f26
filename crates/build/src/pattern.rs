//! Patterns for names and paths.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// A pattern: `*` stands for any bytes, `?` for one; a slash stands for itself only.
///
/// Without a slash it is compared with the last name of a path, else with the whole path below the
/// top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Vec<u8>,
    whole: bool,
}

impl From<OsString> for Pattern {
    fn from(text: OsString) -> Pattern {
        let text = text.into_vec();
        let whole = text.contains(&b'/');
        let below = text.strip_prefix(b"./").or(text.strip_prefix(b"/"));
        let below = below.unwrap_or(&text);
        let below = below.strip_suffix(b"/").unwrap_or(below);
        Pattern {
            text: below.to_vec(),
            whole,
        }
    }
}

impl Pattern {
    /// Returns whether it means the file at `below`, a path below the top.
    #[must_use]
    pub fn means(&self, below: &Path) -> bool {
        let name = match self.whole {
            true => Some(below.as_os_str()),
            false => below.file_name(),
        };
        name.is_some_and(|name| matches(&self.text, name.as_bytes()))
    }
}

/// Compares `name` with `pattern`, in time of the product of their lengths at most: only the last
/// `*` ever takes another byte.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut pos) = (0, 0);
    // Behind the last star, and the bytes of the name that it does not take yet.
    let mut star: Option<(usize, usize)> = None;
    while let Some(&byte) = name.get(pos) {
        match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                star = Some((at, pos));
            }
            Some(&wanted) if wanted == byte || (wanted == b'?' && byte != b'/') => {
                (at, pos) = (at + 1, pos + 1);
            }
            _ => match star {
                Some((behind, from)) if name.get(from) != Some(&b'/') => {
                    star = Some((behind, from + 1));
                    (at, pos) = (behind, from + 1);
                }
                _ => return false,
            },
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn means(pattern: &str, path: &str) -> bool {
        Pattern::from(OsString::from(pattern)).means(Path::new(path))
    }

    #[test]
    fn a_pattern_without_a_slash_means_names() {
        for path in ["a.pyc", "deep/down/a.pyc", ".pyc"] {
            assert!(means("*.pyc", path), "{path}");
        }
        assert!(means("lost+found", "lost+found"));
        assert!(means("a*b*c", "aXbbYc"));
        assert!(means("a?c", "abc"));
        for path in ["a.pyo", "a.pyc/b", "pyc"] {
            assert!(!means("*.pyc", path), "{path}");
        }
        assert!(!means("a?c", "ac"));
        assert!(!means("", "a"));
    }

    #[test]
    fn a_pattern_with_a_slash_means_paths() {
        assert!(means("/var/*", "var/log"));
        assert!(means("./var/log/", "var/log"));
        assert!(means("*/log", "var/log"));
        assert!(!means("/var/*", "var/log/x"));
        assert!(!means("/var", "usr/var"));
        assert!(!means("var/lo?", "var/lo/"));
    }

    #[test]
    fn many_stars_end() {
        let pattern = "*a".repeat(100);
        assert!(!means(&pattern, &"a".repeat(99)));
        assert!(means(&pattern, &"a".repeat(5000)));
        assert!(!means(&(pattern + "b"), &"a".repeat(5000)));
    }
}
