//! The rule of circles: no file of a folder, and no folder in it as a whole, uses itself over
//! others of that folder. So each folder has an order.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::finding::Finding;
use super::graph::Graph;

/// The graph of each crate, by the folder of its sources.
pub(super) type Graphs = BTreeMap<PathBuf, Graph>;

/// The circles of all crates.
pub(super) fn check(graphs: &Graphs) -> Vec<Finding> {
    let mut all = Vec::new();
    for (sources, graph) in graphs {
        for (folder, circle) in graph.circles() {
            let names = circle.iter().map(|name| match name.as_str() {
                "" => "its own file",
                name => name,
            });
            let names: Vec<&str> = names.collect();
            let what = format!("a circle of {}: {}", names.len(), names.join(", "));
            let folder = folder
                .iter()
                .fold(sources.clone(), |path, name| path.join(name));
            all.push(Finding::new(&folder, what));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn circles_name_their_parts() {
        let mut graph = Graph::default();
        let mut add = |file: &str, code: &str| {
            graph.add(Path::new(file), &code.parse().unwrap());
        };
        add("c/mod.rs", "mod a; mod b; pub struct C;");
        add("c/a.rs", "use crate::c::b::B;");
        add("c/b.rs", "use super::a;");
        let found = check(&Graphs::from([("x/src".into(), graph)]));
        let shown: Vec<_> = found.iter().map(Finding::to_string).collect();
        assert_eq!(shown, ["x/src/c: a circle of 2: a, b"]);
    }
}
