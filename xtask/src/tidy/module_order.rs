//! The rule of order: where `docs/ARCHITECTURE.md` has a table of a crate's modules, each of them
//! uses those above it only. For other crates, and within folders, `circles` sees to it that there
//! is an order.

use std::path::Path;

use super::circles::Graphs;
use super::finding::Finding;
use super::graph::Graph;

/// The page with the tables.
pub(super) const DOCUMENT: &str = "docs/ARCHITECTURE.md";
/// The beginning of the head of such a table.
const HEAD: &str = "| modules of `";

/// Checks all orders of the page.
pub(super) fn check(document: &str, graphs: &Graphs) -> Vec<Finding> {
    let mut all = Vec::new();
    for (number, line) in document.lines().enumerate() {
        let Some((name, _)) = line
            .strip_prefix(HEAD)
            .and_then(|line| line.split_once('`'))
        else {
            continue;
        };
        let rows = document.lines().skip(number + 2);
        let rows = rows.map_while(|row| row.strip_prefix("| `")?.split('`').next());
        let order: Vec<&str> = rows.collect();
        let sources = Path::new("crates").join(name).join("src");
        match graphs.get(&sources) {
            Some(graph) => all.extend(wrong(&order, &sources, graph)),
            None => {
                let what = format!("there is no crate {name}");
                all.push(Finding::at(Path::new(DOCUMENT), number + 1, what));
            }
        }
    }
    if all.is_empty() && !document.contains(HEAD) {
        all.push(Finding::new(
            Path::new(DOCUMENT),
            "the tables of modules cannot be found",
        ));
    }
    all
}

/// The uses that lead up, the modules without a row, and the rows without a module.
fn wrong(order: &[&str], sources: &Path, graph: &Graph) -> Vec<Finding> {
    let there = graph.top();
    let missing = there.iter().filter(|name| !order.contains(&name.as_str()));
    let missing = missing.map(|name| format!("has no row for module {name}"));
    let gone = order.iter().filter(|name| !there.contains(**name));
    let gone = gone.map(|name| format!("names module {name}, which is not there"));
    let mut all: Vec<Finding> = missing
        .chain(gone)
        .map(|what| Finding::new(Path::new(DOCUMENT), what))
        .collect();
    for used in graph.uses() {
        let row = |module: &[String]| {
            order
                .iter()
                .position(|name| module.first().is_some_and(|it| it == name))
        };
        if let (Some(from), Some(to)) = (row(&used.from), row(&used.to))
            && to > from
        {
            let file = graph.path(sources, &used.from);
            let what = format!("uses {}, which stands above it", used.written);
            all.push(Finding::at(&file, used.line, what));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings of a crate in which `file` has `code`.
    fn with(file: &str, code: &str) -> Vec<String> {
        let mut graph = Graph::default();
        for name in ["low.rs", "high/mod.rs", "high/roof.rs"] {
            let code = if name == file { code } else { "" };
            graph.add(Path::new(name), &code.parse().unwrap());
        }
        let table = "| modules of `a` | x |\n|---|---|\n| `low` | y |\n| `high` | z |\n";
        let found = check(table, &Graphs::from([("crates/a/src".into(), graph)]));
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_stands_above_is_found() {
        let used = with("low.rs", "use crate::high::roof::Roof;");
        let up = "crates/a/src/low.rs:1: uses crate::high::roof::Roof, which stands above it";
        assert_eq!(used, [up]);
        assert_eq!(with("low.rs", "fn f() { x(super::high::f(1)) }").len(), 1);
        assert_eq!(with("high/roof.rs", "use crate::low;"), [""; 0]);
    }

    #[test]
    fn every_module_has_its_row() {
        let table = "| modules of `a` | x |\n|---|---|\n| `low` | y |\n";
        let mut graph = Graph::default();
        graph.add(Path::new("other.rs"), &"".parse().unwrap());
        let graphs = Graphs::from([("crates/a/src".into(), graph)]);
        assert_eq!(check(table, &graphs).len(), 2);
        assert_eq!(check("", &graphs).len(), 1);
        assert_eq!(check(&table.replace("`a`", "`b`"), &graphs).len(), 1);
    }
}
