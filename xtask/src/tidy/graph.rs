//! Which file of a crate uses which, by the paths in their code, re-exports followed.
//!
//! Methods of a type whose `impl` stands in another file than the type are not seen, nor is code of
//! macros or of tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::TokenStream;

use super::imports::{Named, Names};

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
    path: PathBuf,
    names: Names,
}

impl Graph {
    /// Adds a file, by its path below `src` and its tokens without tests.
    pub(super) fn add(&mut self, inside: &Path, tokens: &TokenStream) {
        if let Some(module) = module_of(inside) {
            let file = File {
                path: inside.to_path_buf(),
                names: Names::read(tokens),
            };
            self.modules.insert(module, file);
        }
    }

    /// The file of a module, of a crate with its sources in `sources`.
    pub(super) fn path(&self, sources: &Path, module: &Module) -> PathBuf {
        match self.modules.get(module) {
            Some(file) => sources.join(&file.path),
            None => sources.to_path_buf(),
        }
    }

    /// The names of the modules at the top.
    pub(super) fn top(&self) -> BTreeSet<String> {
        let names = self.modules.keys().filter_map(|module| module.first());
        names.cloned().collect()
    }

    /// All uses of one file by another, a parent's declaration of its children left out.
    pub(super) fn uses(&self) -> Vec<Use> {
        let mut all = Vec::new();
        for (module, file) in &self.modules {
            for named in &file.names.named {
                let Some(to) = self.target(module, named) else {
                    continue;
                };
                // What a module only re-exports is used where it is named.
                let own = |alias: &String| file.names.words.contains(alias);
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
                // The name of a folder around this file, for the paths that begin with it.
                let is_around = named.alias.is_some()
                    && module.starts_with(&to)
                    && named.segments.last() == to.last();
                if to != *module && !passes_on && !shown && !is_around {
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
                let mut imports = file.names.named.iter();
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
        let imported = file
            .names
            .named
            .iter()
            .find(|n| n.alias.as_deref() == Some(name));
        if let Some(imported) = imported {
            let mut path = imported.segments.clone();
            path.extend(rest.iter().cloned());
            return self.resolve(from, &path, depth);
        }
        if file.names.items.contains(name) {
            return Some(self.file_of(from));
        }
        let globs = file
            .names
            .named
            .iter()
            .filter(|n| n.alias.as_deref() == Some("*"));
        for glob in globs {
            let target = self.resolve(from, &glob.segments, depth);
            let has_it = |m: &Module| {
                self.modules
                    .get(m)
                    .is_some_and(|f| f.names.items.contains(name))
            };
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

    /// Sets of parts of a folder, each with that folder, of which each uses itself over others. A
    /// part is a file or a folder as a whole; the folder's own file has no name.
    pub(super) fn circles(&self) -> BTreeSet<(Module, BTreeSet<String>)> {
        let mut folders: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for Use { from, to, .. } in self.uses() {
            let same = from.iter().zip(&to).take_while(|(from, to)| from == to);
            let depth = same.count();
            let part = |module: &Module| module.get(depth).cloned().unwrap_or_default();
            let folder = from.iter().take(depth).cloned().collect();
            let parts = folders.entry(folder).or_default();
            parts.entry(part(&from)).or_default().insert(part(&to));
        }
        let mut all = BTreeSet::new();
        for (folder, next) in folders {
            for part in next.keys() {
                let there = reached(&next, part);
                let back = |other: &&String| reached(&next, other).contains(part);
                let circle: BTreeSet<String> = there.iter().filter(back).cloned().collect();
                if !circle.is_empty() {
                    all.insert((folder.clone(), circle));
                }
            }
        }
        all
    }
}

/// The parts that one leads to.
fn reached(next: &BTreeMap<String, BTreeSet<String>>, start: &str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut open = vec![start];
    while let Some(at) = open.pop() {
        for to in next.get(at).into_iter().flatten() {
            if seen.insert(to.clone()) {
                open.push(to);
            }
        }
    }
    seen
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
    use super::super::tokens::without_tests;
    use super::*;

    fn graph(files: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::default();
        for (file, code) in files {
            graph.add(Path::new(file), &without_tests(code.parse().unwrap()));
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
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(circles, [(Vec::new(), names.into())].into());
    }

    #[test]
    fn folders_count_as_a_whole() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod low; mod high;"),
            ("a/low.rs", ""),
            ("a/high.rs", "use crate::b::B;"),
            ("b.rs", "use crate::a::low::L;"),
        ];
        let names = ["a", "b"].map(str::to_owned);
        assert_eq!(graph(&files).circles(), [(Vec::new(), names.into())].into());
    }
}
