//! The order of the modules inside of a crate: each uses those before it only, so that there are no circles.
//!
//! What is read are the paths that begin with `crate::`, in code that is not a test's. Methods of a type whose `impl` stands in another
//! module are not seen.

use super::Finding;
use std::path::{Component, Path};

/// A crate whose modules have an order.
struct Order {
    /// Its sources.
    root: &'static str,
    /// Its top-level modules, the lowest first.
    modules: &'static [&'static str],
    /// Files that hold a piece of every part's state, and so name the types of all.
    state: &'static [&'static str],
    /// Types from such files: anybody may name them.
    everywhere: &'static [&'static str],
}

const ORDERS: &[Order] = &[ENGINE, EXTANT, BENCH, PAGECACHE];

const ENGINE: Order = Order {
    root: "crates/engine/src",
    modules: &[
        "types",
        "config",
        "volume",
        "group",
        "inode",
        "alloc",
        "map",
        "xattr",
        "orphan",
        "new_inode",
        "dir",
        "file",
        "attr",
        "namei",
        "inspect",
        "mount",
        "api",
    ],
    state: &["volume/fs.rs", "inode/object.rs"],
    everywhere: &["volume::Fs"],
};

const EXTANT: Order = Order {
    root: "crates/extant/src",
    modules: &[
        "check",
        "metadata",
        "walk",
        "options",
        "file",
        "vectored",
        "read_dir",
        "filesystem",
        "trees",
    ],
    state: &[],
    everywhere: &[],
};

const BENCH: Order = Order {
    root: "crates/bench/src",
    modules: &[
        "machine",
        "null_data",
        "pinned",
        "plan",
        "times",
        "rows",
        "plot",
        "report",
        "target",
        "bed",
        "variant",
        "case",
        "append",
        "clears",
        "direct",
        "meta",
        "overwrite",
        "parallel",
        "psync",
        "queue",
        "randwrite",
        "peers",
        "runner",
    ],
    state: &[],
    everywhere: &[],
};

const PAGECACHE: Order = Order {
    root: "crates/pagecache/src",
    modules: &[
        "sync",
        "config",
        "counters",
        "errseq",
        "readahead",
        "block_bits",
        "buddy",
        "arena",
        "pinnable",
        "private",
        "folio_tree",
        "locks",
        "wakeup",
        "dirty_list",
        "folio",
        "folio_guard",
        "clock",
        "cache_state",
        "flusher",
        "cache",
        "address_space",
        "invalidate",
        "pin",
        "recent",
        "verify",
    ],
    state: &[],
    everywhere: &[],
};

pub(super) fn check(file: &Path, text: &str) -> Vec<Finding> {
    let all = ORDERS.iter().filter_map(|order| {
        let inside = file.strip_prefix(order.root).ok()?;
        Some(order.check(file, inside, text))
    });
    all.flatten().collect()
}

impl Order {
    fn check(&self, file: &Path, inside: &Path, text: &str) -> Vec<Finding> {
        let code = code(text);
        if inside == Path::new("lib.rs") {
            return self.check_list(file, &code);
        }
        if is_test(inside) || self.state.iter().any(|state| inside == Path::new(state)) {
            return Vec::new();
        }
        let Some(own) = self.place(&module_of(inside)) else {
            return Vec::new();
        };
        let mut upwards: Vec<String> = paths(&code);
        upwards.retain(|path| {
            let module = path.split("::").next().unwrap_or_default();
            let is_above = self.place(module).is_some_and(|place| place > own);
            is_above && !self.everywhere.contains(&path.as_str())
        });
        upwards.sort_unstable();
        upwards.dedup();
        let findings = upwards.into_iter().map(|path| {
            let what = format!("uses {path}, which stands above it (xtask's modules)");
            Finding::new(file, what)
        });
        findings.collect()
    }

    /// Every module of the crate has its place.
    fn check_list(&self, file: &Path, code: &str) -> Vec<Finding> {
        let words = code.lines().filter_map(|line| {
            let line = line.strip_prefix("pub ").unwrap_or(line);
            line.strip_prefix("mod ")?.strip_suffix(';')
        });
        let there: Vec<&str> = words.collect();
        let missing = there.iter().filter(|name| self.place(name).is_none());
        let gone = self.modules.iter().filter(|name| !there.contains(name));
        let missing = missing.map(|name| format!("module {name} has no place in the order"));
        let gone = gone.map(|name| format!("module {name} of the order is not there"));
        let all = missing.chain(gone);
        all.map(|what| Finding::new(file, what + " (xtask's modules)"))
            .collect()
    }

    fn place(&self, module: &str) -> Option<usize> {
        self.modules.iter().position(|name| *name == module)
    }
}

/// The top-level module that a file belongs to.
fn module_of(inside: &Path) -> String {
    let first = inside.components().next().map(Component::as_os_str);
    let name = first.unwrap_or_default().to_string_lossy();
    name.trim_end_matches(".rs").to_owned()
}

/// Whether a file is a test's.
fn is_test(inside: &Path) -> bool {
    let is_tests = |part: Component<'_>| part.as_os_str() == "tests";
    let stem = inside.file_stem().unwrap_or_default().to_string_lossy();
    inside.components().any(is_tests)
        || stem == "tests"
        || stem.ends_with("_tests")
        || stem.starts_with("test_")
}

/// `text` without comments, and without items for tests only.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            let item = lines.by_ref().find(|line| !line.trim().starts_with("#["));
            let indent = |line: &str| line.len() - line.trim_start().len();
            if let Some(item) = item.filter(|item| item.trim_end().ends_with('{')) {
                let closes = |line: &&str| indent(line) == indent(item) && line.contains('}');
                lines.by_ref().find(closes);
            }
            continue;
        }
        code.push_str(line.split("//").next().unwrap_or_default());
        code.push('\n');
    }
    code
}

/// What follows each `crate::`, one path for every branch of a tree in braces.
fn paths(code: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (at, start) in code.match_indices("crate::") {
        // `extant_crate::` and `$crate::` are others.
        let before = code.get(..at).and_then(|text| text.chars().next_back());
        if before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '$') {
            let tree = code.get(at + start.len()..).unwrap_or_default();
            branches("", tree, &mut all);
        }
    }
    all
}

/// Adds the paths of the tree that `text` begins with, below `prefix`, and returns what follows it.
fn branches<'a>(prefix: &str, text: &'a str, all: &mut Vec<String>) -> &'a str {
    let text = text.trim_start();
    let Some(mut rest) = text.strip_prefix('{') else {
        let word = |c: char| c.is_alphanumeric() || c == '_' || c == '*';
        let end = text.find(|c| !word(c)).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        let path = match name {
            "self" => prefix.trim_end_matches("::").to_owned(),
            name => format!("{prefix}{name}"),
        };
        return match rest.strip_prefix("::") {
            Some(deeper) => branches(&format!("{path}::"), deeper, all),
            None => {
                all.push(path);
                rest
            }
        };
    };
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        match rest.strip_prefix('}') {
            Some(after) => return after,
            None => {
                let after = branches(prefix, rest, all);
                if after.len() == rest.len() {
                    // No tree: nothing more to be had of it.
                    return rest;
                }
                rest = after;
            }
        }
        // A name that it is given here.
        if let Some(renamed) = rest.trim_start().strip_prefix("as ") {
            rest = renamed.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Order = Order {
        root: "src",
        modules: &["low", "state", "high"],
        state: &["state.rs"],
        everywhere: &["state::All"],
    };

    fn findings(file: &str, text: &str) -> Vec<String> {
        let found = SMALL.check(Path::new(file), Path::new(file), text);
        found.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn what_stands_above_is_found() {
        let up = |path| {
            vec![format!(
                "uses {path}, which stands above it (xtask's modules)"
            )]
        };
        let none = Vec::<String>::new();
        assert_eq!(
            findings("low.rs", "use crate::high::Roof;"),
            up("high::Roof")
        );
        assert_eq!(
            findings("low/part.rs", "x(crate::high::f(1))"),
            up("high::f")
        );
        assert_eq!(
            findings("high.rs", "use crate::{low, state::{self, All}};"),
            none
        );
        let tree = "use crate::{low::{A as B, C}, high as h,\n    state::All};";
        assert_eq!(findings("low.rs", tree), up("high"));
        assert_eq!(findings("state.rs", "use crate::high::Part;"), none);
    }

    #[test]
    fn tests_and_comments_may_look_up() {
        let none = Vec::<String>::new();
        let test = "#[cfg(test)]\nmod tests {\n    use crate::high::f;\n}\n";
        assert_eq!(findings("low.rs", test), none);
        assert_eq!(
            findings("low.rs", &format!("{test}use crate::high;")).len(),
            1
        );
        assert_eq!(
            findings("low.rs", "/// [`crate::high`]\n//! crate::high"),
            none
        );
        assert_eq!(findings("low/tests/x.rs", "use crate::high;"), none);
    }

    #[test]
    fn every_module_has_its_place() {
        assert!(findings("lib.rs", "mod low;\nmod state;\nmod high;\n").is_empty());
        let other = "mod low;\nmod state;\nmod other;\n#[cfg(test)]\nmod test_x;\n";
        assert_eq!(findings("lib.rs", other).len(), 2);
    }
}
