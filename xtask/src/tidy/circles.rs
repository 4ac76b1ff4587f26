//! The rule of circles: no file of a crate uses, over others, itself.

use super::finding::Finding;
use super::module_order::Graphs;

/// The circles of all crates.
pub(super) fn check(graphs: &Graphs) -> Vec<Finding> {
    let mut all = Vec::new();
    for (sources, graph) in graphs {
        for circle in graph.circles() {
            let names = circle.iter().map(|module| match module.as_slice() {
                [] => "lib".to_owned(),
                path => path.join("/"),
            });
            let names: Vec<String> = names.collect();
            let what = format!("a circle of {} files: {}", names.len(), names.join(", "));
            all.push(Finding::new(sources, what));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::graph::Graph;
    use super::*;
    use std::path::Path;

    #[test]
    fn circles_name_their_files() {
        let mut graph = Graph::default();
        graph.add(Path::new("lib.rs"), "mod a; mod b; pub struct C;");
        graph.add(Path::new("a.rs"), "use crate::b::B;");
        graph.add(Path::new("b.rs"), "use super::a;");
        let found = check(&Graphs::from([("x/src".into(), graph)]));
        let shown: Vec<_> = found.iter().map(Finding::to_string).collect();
        assert_eq!(shown, ["x/src: a circle of 2 files: a, b"]);
    }
}
