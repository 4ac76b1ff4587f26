//! Which file of a crate uses which, by the paths in their code, re-exports followed.
//!
//! Methods of a type whose `impl` stands in another file than the type are not seen, nor is code of
//! macros or of tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::blank::without_tests;
use super::imports::{self, Named};

/// Re-exports of re-exports end somewhere.
const DEEPEST: usize = 16;

/// A module with a file of its own, as the names of its path below the crate.
pub(super) type Module = Vec<String>;

/// A use of one module by another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) from: Module,
    pub(super) to: Module,
    pub(super) line: usize,
    /// The path as written.
    pub(super) written: String,
}

/// The modules of a crate and what each names.
#[derive(Debug, Default)]
pub(super) struct Graph {
    modules: BTreeMap<Module, File>,
}

#[derive(Debug, Default)]
struct File {
    named: Vec<Named>,
    path: PathBuf,
    items: BTreeSet<String>,
    /// What stands outside of `use` declarations.
    words: BTreeSet<String>,
}

impl Graph {
    /// Adds a file, by its path below `src` and its blanked code.
    pub(super) fn add(&mut self, inside: &Path, code: &str) {
        let Some(module) = module_of(inside) else {
            return;
        };
        let code = without_tests(code);
        let owned = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect();
        let file = File {
            named: imports::read(&code),
            path: inside.to_path_buf(),
            items: owned(imports::items(&code)),
            words: owned(imports::words_outside(&code)),
        };
        self.modules.insert(module, file);
    }

    /// The file of a module, of a crate with its sources in `sources`.
    pub(super) fn path(&self, sources: &Path, module: &Module) -> PathBuf {
        match self.modules.get(module) {
            Some(file) => sources.join(&file.path),
            None => sources.to_path_buf(),
        }
    }

    /// The names of the modules right below one.
    pub(super) fn children(&self, parent: &Module) -> BTreeSet<String> {
        let below = self.modules.keys().filter_map(|module| {
            let inside = module.strip_prefix(parent.as_slice())?;
            inside.first().cloned()
        });
        below.collect()
    }

    /// Whether a module is there, or one in it.
    pub(super) fn has(&self, module: &Module) -> bool {
        let mut all = self.modules.keys();
        all.any(|known| known.starts_with(module))
    }

    /// All uses of one file by another, a parent's declaration of its children left out.
    pub(super) fn uses(&self) -> Vec<Use> {
        let mut all = Vec::new();
        for (module, file) in &self.modules {
            for named in &file.named {
                let Some(to) = self.target(module, named) else {
                    continue;
                };
                // What a module only re-exports is used where it is named.
                let own = |alias: &String| file.words.contains(alias);
                let passes_on = named.is_public && !named.alias.as_ref().is_some_and(own);
                // The import of a path's first name has shown this use already.
                let roots = ["crate", "self", "super"];
                let is_rooted = named
                    .segments
                    .first()
                    .is_some_and(|s| roots.contains(&s.as_str()));
                let shown = named.alias.is_none()
                    && !is_rooted
                    && all.iter().any(|u: &Use| u.from == *module && u.to == to);
                if to != *module && !passes_on && !shown {
                    all.push(Use {
                        from: module.clone(),
                        to,
                        line: named.line,
                        written: named.segments.join("::"),
                    });
                }
            }
        }
        all
    }

    /// The file that a path leads to; none if it leads out of the crate.
    fn target(&self, module: &Module, named: &Named) -> Option<Module> {
        let mut here = module.clone();
        here.extend(named.inside.iter().cloned());
        self.resolve(&here, &named.segments, DEEPEST)
    }

    fn resolve(&self, here: &Module, segments: &[String], depth: usize) -> Option<Module> {
        let (first, rest) = segments.split_first()?;
        match first.as_str() {
            "crate" => self.descend(&Vec::new(), rest, depth),
            "self" => self.descend(here, rest, depth),
            "super" => {
                let (_, parent) = here.split_last()?;
                let parent = parent.to_vec();
                if rest.first().is_some_and(|s| s == "super") {
                    self.resolve(&parent, rest, depth)
                } else {
                    self.descend(&parent, rest, depth)
                }
            }
            name => {
                let mut child = here.clone();
                child.push(name.to_owned());
                if self.modules.contains_key(&child) {
                    return self.descend(&child, rest, depth);
                }
                // A name that is imported here, or something of another crate.
                let depth = depth.checked_sub(1)?;
                let file = self.modules.get(&self.file_of(here))?;
                let mut imports = file.named.iter();
                let import = imports.find(|n| n.alias.as_deref() == Some(name))?;
                if import.segments.first().is_some_and(|first| first == name) {
                    return None;
                }
                let mut path = import.segments.clone();
                path.extend(rest.iter().cloned());
                self.resolve(here, &path, depth)
            }
        }
    }

    /// Follows `segments` from a module: children first, then what it re-exports.
    fn descend(&self, from: &Module, segments: &[String], depth: usize) -> Option<Module> {
        let Some((name, rest)) = segments.split_first() else {
            return Some(self.file_of(from));
        };
        let mut child = from.clone();
        child.push(name.clone());
        if self.modules.contains_key(&child) {
            return self.descend(&child, rest, depth);
        }
        let file = self.modules.get(&self.file_of(from))?;
        let depth = depth.checked_sub(1)?;
        let imported = file.named.iter().find(|n| n.alias.as_deref() == Some(name));
        if let Some(imported) = imported {
            let mut path = imported.segments.clone();
            path.extend(rest.iter().cloned());
            return self.resolve(from, &path, depth);
        }
        if file.items.contains(name) {
            return Some(self.file_of(from));
        }
        let globs = file
            .named
            .iter()
            .filter(|n| n.alias.as_deref() == Some("*"));
        for glob in globs {
            let target = self.resolve(from, &glob.segments, depth);
            let has_it = |m: &Module| self.modules.get(m).is_some_and(|f| f.items.contains(name));
            if let Some(target) = target.filter(has_it) {
                return Some(target);
            }
        }
        // What a macro exports or declares; where the former stands cannot be seen.
        (!from.is_empty()).then(|| self.file_of(from))
    }

    /// The module with a file that an inline module is in.
    fn file_of(&self, module: &Module) -> Module {
        let mut module = module.clone();
        while !module.is_empty() && !self.modules.contains_key(&module) {
            module.pop();
        }
        module
    }

    /// Sets of files each of which uses, over others, itself.
    pub(super) fn circles(&self) -> Vec<BTreeSet<Module>> {
        let mut next: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for used in self.uses() {
            next.entry(used.from).or_default().insert(used.to);
        }
        let reached = |start: &Module| {
            let mut seen = BTreeSet::new();
            let mut open = vec![start.clone()];
            while let Some(at) = open.pop() {
                for to in next.get(&at).into_iter().flatten() {
                    if seen.insert(to.clone()) {
                        open.push(to.clone());
                    }
                }
            }
            seen
        };
        let all: BTreeMap<&Module, BTreeSet<Module>> = next
            .keys()
            .map(|module| (module, reached(module)))
            .collect();
        let mut circles: BTreeSet<BTreeSet<Module>> = BTreeSet::new();
        for (module, seen) in &all {
            let back = |other: &&Module| all.get(*other).is_some_and(|s| s.contains(*module));
            let circle: BTreeSet<Module> = seen.iter().filter(back).cloned().collect();
            if circle.len() > 1 {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }
}

/// The module of a file below `src`; none if it is a test's.
pub(super) fn module_of(inside: &Path) -> Option<Module> {
    let mut names: Module = inside
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if names
        .last()
        .is_some_and(|n| ["mod", "lib", "main"].contains(&n.as_str()))
    {
        names.pop();
    }
    (!names.iter().any(|name| is_test(name))).then_some(names)
}

fn is_test(name: &str) -> bool {
    name == "tests" || name.ends_with("_tests") || name.starts_with("test_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(files: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::default();
        for (file, code) in files {
            graph.add(Path::new(file), code);
        }
        graph
    }

    fn uses(files: &[(&str, &str)]) -> Vec<String> {
        let all = graph(files).uses();
        let shown = all
            .iter()
            .map(|u| format!("{}>{}", u.from.join("/"), u.to.join("/")));
        shown.collect()
    }

    #[test]
    fn every_kind_of_path_is_followed() {
        let lib = ("lib.rs", "mod a; mod b; pub use b::deep::D; pub use a::*;");
        let deep = ("b/deep.rs", "pub struct D;");
        let of = |file: &'static str, code: &'static str| {
            uses(&[
                lib,
                ("a.rs", "pub fn f() {}"),
                ("b/mod.rs", "mod deep; mod c;"),
                deep,
                (file, code),
            ])
        };
        assert_eq!(of("b/c.rs", "use crate::a::f;"), ["b/c>a"]);
        assert_eq!(of("b/c.rs", "use super::super::a::f;"), ["b/c>a"]);
        assert_eq!(of("b/c.rs", "fn x() { super::deep::y() }"), ["b/c>b/deep"]);
        assert_eq!(of("b/c.rs", "use crate::D;"), ["b/c>b/deep"]);
        let imported = "use crate::b; fn x() { b::deep::y() }";
        assert_eq!(of("a.rs", imported), ["a>b", "a>b/deep"]);
        assert_eq!(of("b/c.rs", "use crate::f;"), ["b/c>a"]);
        assert_eq!(
            of("b/c.rs", "mod m { use super::super::deep::D; }"),
            ["b/c>b/deep"]
        );
        assert_eq!(
            of(
                "b/c.rs",
                "use std::a; #[cfg(test)] mod tests { use crate::a; }"
            ),
            [""; 0]
        );
        assert_eq!(
            of(
                "b/mod.rs",
                "mod deep; fn x() { deep::y(); self::deep::z() }"
            ),
            ["b>b/deep"; 2]
        );
        assert_eq!(of("b/mod.rs", "pub use deep::D;"), [""; 0]);
        assert_eq!(
            of("b/mod.rs", "pub use deep::D; fn x(_: D) {}"),
            ["b>b/deep"]
        );
        assert_eq!(of("b/c_tests.rs", "use crate::a;"), [""; 0]);
    }

    #[test]
    fn circles_are_found() {
        let lib = ("lib.rs", "mod a; mod b; mod c;");
        let a = ("a.rs", "use crate::b::B;");
        let c = ("c.rs", "use crate::a::A;");
        assert!(
            graph(&[lib, a, ("b.rs", "pub struct B;"), c])
                .circles()
                .is_empty()
        );
        let circles = graph(&[lib, a, ("b.rs", "use super::c::C;"), c]).circles();
        assert_eq!(circles.iter().map(BTreeSet::len).collect::<Vec<_>>(), [3]);
    }
}
