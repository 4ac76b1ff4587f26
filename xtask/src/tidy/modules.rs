//! The order of the modules of a crate, or of a folder in one: each uses those before it only.
//!
//! A crate's order is documentation that the compiler does not keep; `circles` is the rule that
//! holds for crates without a list, too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::finding::Finding;
use super::graph::{self, Graph, Module};

/// The graph of each crate, by the folder of its sources.
pub(super) type Graphs = BTreeMap<PathBuf, Graph>;

/// A crate or folder whose modules have an order.
struct Order {
    /// The folder: `crates/NAME/src`, or one below it.
    root: &'static str,
    /// Its modules, the lowest first. A module of a module (`a/b`) may stand apart from the rest of
    /// its parent.
    modules: &'static [&'static str],
}

const ORDERS: &[Order] = &[
    CHECK, ENGINE, FIX, EXTANT, BENCH, PAGECACHE, IOMAP, BUFFERHEAD, JBD2, BLOCKDEV, FUSE, CLI,
    CAPI, PYTHON,
];

const CHECK: Order = Order {
    root: "crates/check/src",
    modules: &[
        "error",
        "options",
        "work",
        "remedy",
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
};

const PYTHON: Order = Order {
    root: "crates/python/src",
    modules: &["failure", "stat", "file", "filesystem", "making"],
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
        "lent_device",
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
};

const ENGINE: Order = Order {
    root: "crates/engine/src",
    modules: &[
        "types",
        "config",
        // State: what `Fs` is made of, and so does not name it.
        "volume/layout",
        "volume/stats",
        "volume/metadata_kind",
        "volume/edit_marks",
        "volume/system_zones",
        "volume/mounted_superblock",
        "volume/mmp",
        "volume/fault",
        "volume/rename_lock",
        "group",
        "alloc/request",
        "alloc/space_counts",
        "alloc/reservation",
        "alloc/pending_frees",
        "alloc/trim_lock",
        "alloc/windows",
        "alloc/allocator",
        "map/block_mapping",
        "map/extent_status",
        "map/delayed_space",
        "map/map_view",
        "map/map_lock",
        "orphan/orphan_record",
        "xattr/xattr_lock",
        "orphan/orphan_slots",
        "inode/deferred_times",
        "inode/data_path_cell",
        "inode/inode_lock",
        "inode/core_lock",
        "file/lock/append_queue",
        "file/direct/direct_state",
        "file/mapping/ordered_ranges",
        "file/mapping/logged_device",
        "file/data_state",
        "file/files",
        "inode/object",
        "inode/inode_ref",
        "inode/reaper",
        "inode/inode_cache",
        "orphan/orphans",
        "xattr/block_index",
        // Operations.
        "volume",
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
};

const FIX: Order = Order {
    root: "crates/fix/src",
    modules: &[
        "error",
        "options",
        "image",
        "primary",
        "replay",
        "log",
        "gate",
        "copies",
        "lost_found",
        "apply",
        "rounds",
        "orphans",
        "hold",
        "commit",
        "report",
    ],
};

const EXTANT: Order = Order {
    root: "crates/extant/src",
    modules: &[
        "check",
        "fix",
        "metadata",
        "walk",
        "options",
        "file",
        "file_attributes",
        "vectored",
        "cursor",
        "open_options",
        "read_dir",
        "filesystem",
        "contents",
        "trees",
        "walk_dir",
        "sides",
        "tree_copy",
        "testing",
    ],
};

const BENCH: Order = Order {
    root: "crates/bench/src",
    modules: &[
        "machine",
        "null_data",
        "peak",
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
        "buffered",
        "peers",
        "images",
        "scale",
        "runner",
    ],
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
        "joint",
    ],
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
};

const FUSE: Order = Order {
    root: "crates/fuse/src",
    modules: &[
        "abi",
        "errno",
        "in_flight",
        "descriptors",
        "fd_passing",
        "keeper",
        "mount",
        "keeper_service",
        "counters",
        "traffic",
        "device",
        "node_table",
        "open_files",
        "reply",
        "request",
        "serve",
        "control",
        "drainer",
        "init",
        "live",
        "pool",
        "uring",
        "space",
        "unmounter",
        "waiter",
        "server",
        "session",
    ],
};

const CLI: Order = Order {
    root: "crates/cli/src",
    modules: &[
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
        "source",
        "logging",
        "owner",
        "images",
        "output",
        "walk",
        "copy",
        "compare",
        "manual",
        "address_space",
        "mount_source",
        "supervisor",
        "serve",
        "commands",
        "helper",
    ],
};

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
