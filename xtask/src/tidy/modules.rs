//! The order of the modules of a crate, or of a folder in one: each uses those before it only.
//!
//! A crate's order is documentation that the compiler does not keep; `circles` is the rule that
//! holds for crates without a list, too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::finding::Finding;
use super::graph::{self, Graph, Module, Use};

/// The graph of each crate, by the folder of its sources.
pub(super) type Graphs = BTreeMap<PathBuf, Graph>;

/// A crate or folder whose modules have an order.
struct Order {
    /// The folder: `crates/NAME/src`, or one below it.
    root: &'static str,
    /// Its modules, the lowest first.
    modules: &'static [&'static str],
    /// Files that hold a piece of every part's state, and so name the types of all.
    state: &'static [&'static str],
    /// Types from such files, which every module may name.
    everywhere: &'static [&'static str],
}

const ORDERS: &[Order] = &[
    CHECK, ENGINE, EXTANT, BENCH, PAGECACHE, IOMAP, BUFFERHEAD, JBD2, BLOCKDEV, FUSE, CLI, CAPI,
];

const CHECK: Order = Order {
    root: "crates/check/src",
    modules: &[
        "error",
        "options",
        "work",
        "findings",
        "role",
        "volume",
        "superblock",
        "mmp",
        "usage",
        "maps",
        "fields",
        "attrs",
        "reserved",
        "orphans",
        "journal",
        "open",
        "inodes",
        "dirs",
        "links",
        "copies",
        "groups",
        "report",
    ],
    state: &[],
    everywhere: &[],
};

const CAPI: Order = Order {
    root: "crates/capi/src",
    modules: &[
        "outcome",
        "arguments",
        "message",
        "maker",
        "filesystem",
        "file",
        "vectored",
        "position",
        "directory",
        "names",
        "attributes",
        "xattr",
        "queue",
    ],
    state: &[],
    everywhere: &[],
};

const JBD2: Order = Order {
    root: "crates/jbd2/src",
    modules: &[
        "hash",
        "error",
        "stats",
        "sizes",
        "config",
        "ordered",
        "blockio",
        "block",
        "cache",
        "log_map",
        "ring",
        "log_superblock",
        "recovery",
        "transaction",
        "log_index",
        "log",
        "state",
        "shared",
        "nesting",
        "checkpoint",
        "running",
        "log_write",
        "commit",
        "journal",
        "handle",
    ],
    state: &[],
    everywhere: &[],
};

const BLOCKDEV: Order = Order {
    root: "crates/blockdev/src",
    modules: &[
        "io_buf",
        "queue",
        "device",
        "inline_queue",
        "thread_queue",
        "open_queue",
        "flush_latch",
        "latched_queue",
        "latched_device",
        "null",
        "memory",
        "cow",
        "recorder",
        "faults",
        "gate",
        "lossy",
        "share",
        "claim",
        "loops",
        "ring_refusal",
        "io_counters",
        "direct",
        "host_file",
        "uring",
        "open_file",
        "file",
    ],
    state: &[],
    everywhere: &[],
};

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
        "open_options",
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
        "gains",
        "tables",
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
        "scale",
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

const IOMAP: Order = Order {
    root: "crates/iomap/src",
    modules: &[
        "map",
        "ioend",
        "counters",
        "buffers",
        "fill_guard",
        "ops",
        "iter",
        "fill_lock",
        "fill",
        "read",
        "write",
        "view",
        "zero",
        "seek",
        "writeback",
    ],
    state: &[],
    everywhere: &[],
};

const BUFFERHEAD: Order = Order {
    root: "crates/bufferhead/src",
    modules: &[
        "counters",
        "ops",
        "record",
        "ring",
        "commit",
        "prepare",
        "write",
        "submission",
        "logged",
        "writeback",
    ],
    state: &[],
    everywhere: &[],
};

const FUSE: Order = Order {
    root: "crates/fuse/src",
    modules: &[
        "abi",
        "errno",
        "in_flight",
        "mount",
        "counters",
        "device",
        "node_table",
        "open_files",
        "reply",
        "request",
        "control",
        "drainer",
        "init",
        "live",
        "pool",
        "space",
        "unmounter",
        "waiter",
        "server",
        "session",
    ],
    state: &[],
    everywhere: &[],
};

const CLI: Order = Order {
    root: "crates/cli/src",
    modules: &[
        "archive",
        "mode",
        "names",
        "operand",
        "pattern",
        "printable",
        "program",
        "progress",
        "size",
        "utab",
        "visited",
        "args",
        "descent",
        "failure",
        "logging",
        "owner",
        "images",
        "output",
        "walk",
        "copy",
        "compare",
        "manual",
        "address_space",
        "commands",
        "helper",
    ],
    state: &[],
    everywhere: &[],
};

/// What breaks an order: outside of its exemptions, and within them.
#[derive(Debug, Default)]
pub(super) struct Upwards {
    pub(super) broken: Vec<Finding>,
    pub(super) exempt: Vec<Finding>,
}

/// Checks all orders.
pub(super) fn check(graphs: &Graphs) -> Upwards {
    let mut all = Upwards::default();
    for order in ORDERS {
        let root = Path::new(order.root);
        let found = graphs.iter().find(|(sources, _)| root.starts_with(sources));
        match found {
            Some((sources, graph)) => order.check(sources, graph, &mut all),
            None => all.broken.push(Finding::new(
                root,
                "has an order, and is not there (xtask's modules)",
            )),
        }
    }
    all
}

impl Order {
    fn check(&self, sources: &Path, graph: &Graph, all: &mut Upwards) {
        let root = Path::new(self.root);
        let below = root.strip_prefix(sources).unwrap_or(Path::new(""));
        let prefix = graph::module_of(below).unwrap_or_default();
        all.broken.extend(self.check_list(graph, &prefix));
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
                let list = match self.is_exempt(&prefix, &used) {
                    true => &mut all.exempt,
                    false => &mut all.broken,
                };
                list.push(Finding::at(&file, used.line, what));
            }
        }
    }

    fn is_exempt(&self, prefix: &Module, used: &Use) -> bool {
        let from_state = self.state.iter().any(|file| {
            let inside = graph::module_of(Path::new(file)).unwrap_or_default();
            used.from.strip_prefix(prefix.as_slice()) == Some(inside.as_slice())
        });
        let names = |item: &&&str| {
            let mut written = used.written.rsplit("::");
            let last = written.next();
            item.rsplit_once("::").is_some_and(|(module, name)| {
                last == Some(name) && used.to.last().is_some_and(|m| m == module)
            })
        };
        from_state || self.everywhere.iter().find(names).is_some()
    }

    /// Every module of the folder has its place.
    fn check_list(&self, graph: &Graph, prefix: &Module) -> Vec<Finding> {
        let there = graph.children(prefix);
        let missing = there
            .iter()
            .filter(|name| !self.modules.contains(&name.as_str()));
        let gone = self
            .modules
            .iter()
            .filter(|name| !there.iter().any(|n| n == *name));
        let missing = missing.map(|name| format!("module {name} has no place in the order"));
        let gone = gone.map(|name| format!("module {name} of the order is not there"));
        let all = missing.chain(gone);
        all.map(|what| Finding::new(Path::new(self.root), what + " (xtask's modules)"))
            .collect()
    }

    /// Where the module of the folder that `module` belongs to stands.
    fn place(&self, prefix: &Module, module: &Module) -> Option<usize> {
        let child = module.strip_prefix(prefix.as_slice())?.first()?;
        self.modules.iter().position(|name| name == child)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Order = Order {
        root: "a/src",
        modules: &["low", "state", "high"],
        state: &["state.rs"],
        everywhere: &["state::All"],
    };

    fn findings(order: &Order, files: &[(&str, &str)]) -> Vec<String> {
        let mut graph = Graph::default();
        for (file, code) in files {
            graph.add(Path::new(file), code);
        }
        let mut all = Upwards::default();
        order.check(Path::new("a/src"), &graph, &mut all);
        assert!(all.exempt.len() <= 1);
        all.broken.iter().map(ToString::to_string).collect()
    }

    /// The findings of a crate in which `file` has `code`.
    fn with(file: &str, code: &str) -> Vec<String> {
        let lib = ("lib.rs", "mod low; mod state; mod high;");
        let others = [
            ("low.rs", ""),
            ("state.rs", "struct All; struct B;"),
            ("high.rs", ""),
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
        let used = with("low.rs", "use crate::high::Roof;");
        assert_eq!(used, up("low.rs", "crate::high::Roof"));
        assert_eq!(
            with("low.rs", "use super::high;"),
            up("low.rs", "super::high")
        );
        let path = "x(super::super::high::f(1))";
        assert_eq!(
            with("low/part.rs", path),
            up("low/part.rs", "super::super::high::f")
        );
        assert_eq!(
            with("low.rs", "use crate::state::B;"),
            up("low.rs", "crate::state::B")
        );
        assert_eq!(with("low.rs", "use super::state::All;"), none);
        assert_eq!(
            with("high.rs", "use crate::{low, state::{self, All}};"),
            none
        );
        assert_eq!(with("state.rs", "use crate::high::Part;"), none);
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
        let files = [
            ("lib.rs", ""),
            ("low.rs", ""),
            ("state.rs", ""),
            ("other/mod.rs", ""),
        ];
        assert_eq!(findings(&SMALL, &files).len(), 2);
    }

    #[test]
    fn a_folder_has_an_order() {
        let folder = Order {
            root: "a/src/b",
            modules: &["low", "high"],
            state: &[],
            everywhere: &[],
        };
        let files = |code| [("b/mod.rs", ""), ("b/low.rs", code), ("b/high.rs", "")];
        assert_eq!(findings(&folder, &files("")), Vec::<String>::new());
        assert_eq!(findings(&folder, &files("use super::high;")).len(), 1);
        assert_eq!(findings(&folder, &files("use crate::b::high;")).len(), 1);
    }
}
