//! The header, the sources, the shared library and the manual name the same functions, with the
//! same parameters.

use std::collections::{BTreeMap, BTreeSet};

use extant_testkit::{Cmd, Need, need};

use crate::{crate_dir, libraries};

/// The name in C of a type of the sources.
const TYPES: &[(&str, &str)] = &[
    ("*const c_char", "const char *"),
    ("*mut c_char", "char *"),
    ("*const c_void", "const void *"),
    ("*mut c_void", "void *"),
    ("usize", "size_t"),
    ("isize", "ssize_t"),
    ("i64", "int64_t"),
    ("u64", "uint64_t"),
    ("u32", "uint32_t"),
    ("c_int", "int"),
    ("*const iovec", "const struct iovec *"),
    ("Option<&[timespec; 2]>", "const struct timespec [2]"),
    ("Option<&MountedFs>", "extant_fs *"),
    ("Option<Box<MountedFs>>", "extant_fs *"),
    ("Out<'_, *mut MountedFs>", "extant_fs **"),
    ("Option<&OpenFile>", "extant_file *"),
    ("Option<Box<OpenFile>>", "extant_file *"),
    ("Out<'_, *mut OpenFile>", "extant_file **"),
    ("Option<&OpenDir>", "extant_dir *"),
    ("Option<Box<OpenDir>>", "extant_dir *"),
    ("Out<'_, *mut OpenDir>", "extant_dir **"),
    ("Option<&RequestQueue>", "extant_queue *"),
    ("Option<Box<RequestQueue>>", "extant_queue *"),
    ("Out<'_, *mut RequestQueue>", "extant_queue **"),
    ("Out<'_, StatFs>", "struct extant_statfs *"),
    ("Out<'_, Stat>", "struct extant_stat *"),
    ("Out<'_, DirEntry>", "struct extant_dirent *"),
    ("Option<&MkfsOptions>", "const struct extant_mkfs_options *"),
    ("Option<&Request<'_>>", "const struct extant_request *"),
    ("*mut Completion", "struct extant_completion *"),
];

/// A declaration: the result's type, and each parameter's name and type, as C writes them.
#[derive(Debug, PartialEq, Eq)]
struct Declaration {
    result: String,
    parameters: Vec<(String, String)>,
}

/// The text with each run of white space as one space.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The functions of the header.
fn of_header(text: &str) -> BTreeMap<String, Declaration> {
    let mut code = String::new();
    for (i, part) in text.split("/*").enumerate() {
        code += if i == 0 {
            part
        } else {
            part.split_once("*/").unwrap().1
        };
    }
    let lines = code.lines().filter(|line| !line.starts_with('#'));
    let code: String = lines.map(|line| format!("{line}\n")).collect();
    let prototypes = code.split(';').filter(|part| part.contains('('));
    let declared = prototypes.map(|prototype| {
        let (head, rest) = prototype.split_once('(').unwrap();
        let head = head.rsplit(['{', '}']).next().unwrap();
        let (result, name) = typed_name(head);
        let parameters = rest
            .trim_end()
            .trim_end_matches(')')
            .split(',')
            .map(squeezed);
        let parameters = parameters.filter(|p| p != "void").map(|p| typed_name(&p));
        let parameters = parameters.map(|(kind, name)| (name, kind)).collect();
        (name, Declaration { result, parameters })
    });
    declared.collect()
}

/// Type and name of a C declaration; the length of an array belongs to its type.
fn typed_name(declaration: &str) -> (String, String) {
    let (declaration, array) = match declaration.split_once('[') {
        Some((declaration, array)) => (declaration, format!(" [{array}")),
        None => (declaration, String::new()),
    };
    let declaration = squeezed(declaration);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let kind = declaration.trim_end_matches(is_name);
    let name = declaration[kind.len()..].to_owned();
    (squeezed(&format!("{kind}{array}")), name)
}

/// The exported functions of the sources.
fn of_sources() -> BTreeMap<String, Declaration> {
    let mut all = BTreeMap::new();
    for file in std::fs::read_dir(crate_dir().join("src")).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let code = code.collect::<Vec<_>>().join(" ");
        for exported in code.split("extern \"C\" fn ").skip(1) {
            let (name, rest) = exported.split_once('(').unwrap();
            let (parameters, rest) = rest.split_once(") -> ").unwrap();
            let (result, _) = rest.split_once('{').unwrap();
            let declaration = Declaration {
                result: c_type(result.trim()),
                parameters: rust_parameters(parameters),
            };
            all.insert(name.to_owned(), declaration);
        }
    }
    all
}

fn rust_parameters(text: &str) -> Vec<(String, String)> {
    let mut depth = 0;
    let is_end = |c: char| {
        depth += i32::from("<[".contains(c)) - i32::from(">]".contains(c));
        depth == 0 && c == ','
    };
    let parts = text
        .split(is_end)
        .map(squeezed)
        .filter(|part| !part.is_empty());
    let named = parts.map(|part| {
        let (name, kind) = part.split_once(": ").unwrap();
        (name.to_owned(), c_type(kind))
    });
    named.collect()
}

fn c_type(rust: &str) -> String {
    let found = TYPES.iter().find(|(ours, _)| *ours == rust);
    found
        .unwrap_or_else(|| panic!("no C type for {rust}"))
        .1
        .to_owned()
}

fn header() -> BTreeMap<String, Declaration> {
    of_header(&std::fs::read_to_string(crate_dir().join("include/extant.h")).unwrap())
}

#[test]
fn the_header_declares_what_the_sources_export() {
    let (header, sources) = (header(), of_sources());
    assert!(header.len() > 50, "{}", header.len());
    for (name, declared) in &header {
        assert_eq!(Some(declared), sources.get(name), "{name}");
    }
    let undeclared = sources.keys().filter(|name| !header.contains_key(*name));
    assert_eq!(undeclared.collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn the_shared_library_exports_the_header_and_no_more() {
    if !need(&[Need::Tool("gcc"), Need::Tool("nm")]) {
        return;
    }
    let library = libraries().join("libextant.so");
    let symbols = Cmd::new("nm").args(["-D", "--defined-only"]).arg(&library);
    let symbols = symbols.ok().unwrap().out;
    let mut exported = BTreeSet::new();
    for line in symbols.lines() {
        let name = line.split_whitespace().last().unwrap();
        match name.split_once("@@") {
            Some((name, version)) => {
                assert_eq!(version, "EXTANT_0.1", "{name}");
                exported.insert(name.to_owned());
            }
            None => assert!(line.contains(" A "), "without a version: {line}"),
        }
    }
    assert_eq!(exported, header().into_keys().collect());
    let dynamic = Cmd::new("readelf").arg("-d").arg(&library).ok().unwrap();
    assert!(
        dynamic.out.contains("soname: [libextant.so.0.1]"),
        "{}",
        dynamic.out
    );
}

#[test]
fn the_manual_names_every_function() {
    let manual = std::fs::read_to_string(crate_dir().join("extant.3")).unwrap();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: BTreeSet<&str> = manual.split(|c| !is_name(c)).collect();
    let missing: Vec<String> = header().into_keys().collect();
    let missing: Vec<&String> = missing
        .iter()
        .filter(|n| !words.contains(n.as_str()))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    let known = header();
    let is_function = |w: &&str| w.starts_with("extant_") && manual.contains(&format!("{w}("));
    for word in words.into_iter().filter(is_function) {
        assert!(
            known.contains_key(word),
            "the manual names {word}, which is not there"
        );
    }
}
