//! The order of the modules of a crate, or of a folder in one: each uses those before it only.
//!
//! A crate's order is documentation that the compiler does not keep; `circles` is the rule that
//! holds for crates without a list, too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::finding::Finding;
use super::graph::{self, Graph, Module};
use super::modules::{ORDERS, Order};

/// The graph of each crate, by the folder of its sources.
pub(super) type Graphs = BTreeMap<PathBuf, Graph>;

/// Checks all orders.
pub(super) fn check(graphs: &Graphs) -> Vec<Finding> {
    let mut all = Vec::new();
    for order in ORDERS {
        let root = Path::new(order.root);
        let found = graphs.iter().find(|(sources, _)| root.starts_with(sources));
        match found {
            Some((sources, graph)) => order.check(sources, graph, &mut all),
            None => all.push(Finding::new(
                root,
                "has an order, and is not there (xtask's modules)",
            )),
        }
    }
    all
}

impl Order {
    fn check(&self, sources: &Path, graph: &Graph, all: &mut Vec<Finding>) {
        let root = Path::new(self.root);
        let below = root.strip_prefix(sources).unwrap_or(Path::new(""));
        let prefix = graph::module_of(below).unwrap_or_default();
        all.extend(self.check_list(graph, &prefix));
        for used in graph.uses() {
            let (Some(from), Some(to)) = (
                self.place(&prefix, &used.from),
                self.place(&prefix, &used.to),
            ) else {
                continue;
            };
            if to > from {
                let file = graph.path(sources, &used.from);
                let what = format!("uses {}, which stands above it", used.written);
                all.push(Finding::at(&file, used.line, what));
            }
        }
    }

    /// Every module of the folder has its place, and every place its module.
    fn check_list(&self, graph: &Graph, prefix: &Module) -> Vec<Finding> {
        let there = graph.children(prefix);
        let missing = there
            .iter()
            .filter(|name| !self.modules.contains(&name.as_str()));
        let gone = self.modules.iter().filter(|name| {
            let inside = name.split('/').map(str::to_owned);
            let module: Module = prefix.iter().cloned().chain(inside).collect();
            !graph.has(&module)
        });
        let missing = missing.map(|name| format!("module {name} has no place in the order"));
        let gone = gone.map(|name| format!("module {name} of the order is not there"));
        let all = missing.chain(gone);
        all.map(|what| Finding::new(Path::new(self.root), what + " (xtask's modules)"))
            .collect()
    }

    /// The place of a module of the folder: that of the longest entry that it is, or is in.
    fn place(&self, prefix: &Module, module: &Module) -> Option<usize> {
        let inside = module.strip_prefix(prefix.as_slice())?;
        let path = inside.join("/");
        let holds = |entry: &str| {
            let rest = path.strip_prefix(entry);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let entries = self.modules.iter().enumerate();
        let longest = entries
            .filter(|(_, entry)| holds(entry))
            .max_by_key(|(_, entry)| entry.len());
        longest.map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Order = Order {
        root: "a/src",
        modules: &["high/state", "low", "high"],
    };

    fn findings(order: &Order, files: &[(&str, &str)]) -> Vec<String> {
        let mut graph = Graph::default();
        for (file, code) in files {
            graph.add(Path::new(file), code);
        }
        let mut all = Vec::new();
        order.check(Path::new("a/src"), &graph, &mut all);
        all.iter().map(ToString::to_string).collect()
    }

    /// The findings of a crate in which `file` has `code`.
    fn with(file: &str, code: &str) -> Vec<String> {
        let lib = ("lib.rs", "mod low; mod high;");
        let others = [
            ("low.rs", ""),
            ("high/mod.rs", "mod state; mod roof;"),
            ("high/state.rs", "struct All;"),
            ("high/roof.rs", "struct Roof;"),
        ];
        let mut files = vec![lib];
        files.extend(others.into_iter().filter(|(name, _)| *name != file));
        files.push((file, code));
        findings(&SMALL, &files)
    }

    #[test]
    fn what_stands_above_is_found() {
        let up = |file: &str, path: &str| {
            vec![format!(
                "a/src/{file}:1: uses {path}, which stands above it"
            )]
        };
        let none = Vec::<String>::new();
        let used = with("low.rs", "use crate::high::roof::Roof;");
        assert_eq!(used, up("low.rs", "crate::high::roof::Roof"));
        assert_eq!(
            with("low.rs", "use super::high;"),
            up("low.rs", "super::high")
        );
        let path = "x(super::super::high::f(1))";
        assert_eq!(
            with("low/part.rs", path),
            up("low/part.rs", "super::super::high::f")
        );
        assert_eq!(with("high/roof.rs", "use crate::low;"), none);
    }

    #[test]
    fn a_part_of_a_module_may_stand_apart() {
        let none = Vec::<String>::new();
        assert_eq!(with("low.rs", "use crate::high::state::All;"), none);
        assert_eq!(with("high/roof.rs", "use super::state::All;"), none);
        let used = with("high/state.rs", "use crate::low;");
        let up = "a/src/high/state.rs:1: uses crate::low, which stands above it";
        assert_eq!(used, [up]);
        let used = with("high/state.rs", "use super::roof::Roof;");
        let up = "a/src/high/state.rs:1: uses super::roof::Roof, which stands above it";
        assert_eq!(used, [up]);
    }

    #[test]
    fn tests_may_look_up() {
        let none = Vec::<String>::new();
        let test = "#[cfg(test)]\nmod tests {\n    use crate::high::f;\n}\n";
        assert_eq!(with("low.rs", test), none);
        assert_eq!(with("low.rs", &format!("{test}use crate::high;")).len(), 1);
        assert_eq!(with("low/tests/x.rs", "use crate::high;"), none);
    }

    #[test]
    fn every_module_has_its_place() {
        let files = [("lib.rs", ""), ("low.rs", ""), ("other/mod.rs", "")];
        let found = findings(&SMALL, &files).join("\n");
        for what in [
            "other has no place",
            "high of the order",
            "high/state of the order",
        ] {
            assert!(found.contains(what), "{found}");
        }
    }

    #[test]
    fn a_folder_has_an_order() {
        let folder = Order {
            root: "a/src/b",
            modules: &["low", "high"],
        };
        let files = |code| [("b/mod.rs", ""), ("b/low.rs", code), ("b/high.rs", "")];
        assert_eq!(findings(&folder, &files("")), Vec::<String>::new());
        assert_eq!(findings(&folder, &files("use super::high;")).len(), 1);
        assert_eq!(findings(&folder, &files("use crate::b::high;")).len(), 1);
    }
}
