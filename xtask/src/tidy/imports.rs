//! The paths in a source file: what it imports, and what it names by a path.

use super::blank::{balanced, line_of, words};

/// A path as written, with the inline modules that it stands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) line: usize,
    /// Names of the modules of this file around it.
    pub(super) inside: Vec<String>,
    pub(super) segments: Vec<String>,
    /// The name that a `use` gives it; `*` for a glob. None for a path in other code.
    pub(super) alias: Option<String>,
    /// A re-export.
    pub(super) is_public: bool,
}

/// The `use` declarations and paths of a source that is blanked and has no tests.
pub(super) fn read(code: &str) -> Vec<Named> {
    let modules = inline_modules(code);
    let mut all = Vec::new();
    let mut skip_to = 0;
    for (at, word) in words(code) {
        if at < skip_to {
            continue;
        }
        let rest = code.get(at + word.len()..).unwrap_or_default();
        let (line, inside) = (line_of(code, at), || around(&modules, at));
        if word == "use" && rest.starts_with(char::is_whitespace) {
            let len = rest.find(';').unwrap_or(rest.len());
            skip_to = at + word.len() + len;
            let is_public = is_public(code, at);
            let mut found = Vec::new();
            branches(&[], rest.get(..len).unwrap_or_default(), &mut found);
            all.extend(found.into_iter().map(|(segments, alias)| Named {
                line,
                inside: inside(),
                segments,
                alias: Some(alias),
                is_public,
            }));
        } else if rest.starts_with("::") && !is_within_path(code, at) && !is_visibility(code, at) {
            let segments = path(code.get(at..).unwrap_or_default());
            all.push(Named {
                line,
                inside: inside(),
                segments,
                alias: None,
                is_public: false,
            });
        }
    }
    all
}

/// The words that do not stand in `use` declarations.
pub(super) fn words_outside(code: &str) -> Vec<&str> {
    let mut skip_to = 0;
    let mut all = Vec::new();
    for (at, word) in words(code) {
        let rest = code.get(at..).unwrap_or_default();
        if at >= skip_to && word == "use" {
            skip_to = at + rest.find(';').unwrap_or_default();
        } else if at >= skip_to {
            all.push(word);
        }
    }
    all
}

/// Whether the `use` at `at` is a re-export.
fn is_public(code: &str, at: usize) -> bool {
    let before = code.get(..at).unwrap_or_default().trim_end();
    before.ends_with("pub")
        || (before.ends_with(')')
            && before.rfind("pub(").is_some_and(|p| {
                before
                    .get(p..)
                    .is_some_and(|rest| rest.matches([')', ';', '{']).count() == 1)
            }))
}

/// Whether the word at `at` goes on with a path, or belongs to a macro's `$crate`.
fn is_within_path(code: &str, at: usize) -> bool {
    let before = code.get(..at).unwrap_or_default();
    before.ends_with("::") || before.ends_with('$')
}

/// Whether the word at `at` begins a path that only says where an item is visible: `pub(in PATH)`.
fn is_visibility(code: &str, at: usize) -> bool {
    let before = code.get(..at).unwrap_or_default().trim_end();
    before
        .strip_suffix("in")
        .is_some_and(|before| before.trim_end().ends_with("pub("))
}

/// The path at the start of `text`.
fn path(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut rest = text;
    loop {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        if word.is_empty() {
            return all;
        }
        all.push(word.to_owned());
        match after.strip_prefix("::") {
            Some(deeper) => rest = deeper,
            None => return all,
        }
    }
}

/// Adds the paths of the tree that `text` begins with, below `prefix`; returns what follows it.
fn branches<'a>(prefix: &[String], text: &'a str, all: &mut Vec<(Vec<String>, String)>) -> &'a str {
    let text = text.trim_start();
    if let Some(inner) = text.strip_prefix('{') {
        let mut rest = inner;
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
            if let Some(after) = rest.strip_prefix('}') {
                return after;
            }
            let after = branches(prefix, rest, all);
            if after.len() == rest.len() {
                return rest;
            }
            rest = after;
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '*');
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    if name.is_empty() {
        return rest;
    }
    let mut whole = prefix.to_vec();
    if name != "self" || prefix.is_empty() {
        whole.push(name.to_owned());
    }
    if let Some(deeper) = rest.strip_prefix("::") {
        return branches(&whole, deeper, all);
    }
    let (alias, rest) = match rest.trim_start().strip_prefix("as ") {
        Some(renamed) => {
            let renamed = renamed.trim_start();
            let end = renamed.find(|c: char| !c.is_alphanumeric() && c != '_');
            renamed.split_at(end.unwrap_or(renamed.len()))
        }
        None => (name, rest),
    };
    let alias = match alias {
        "self" => whole.last().cloned().unwrap_or_default(),
        "*" => {
            whole.pop();
            "*".to_owned()
        }
        alias => alias.to_owned(),
    };
    all.push((whole, alias));
    rest
}

/// The modules with a body in this file: where they begin and end, and their names.
fn inline_modules(code: &str) -> Vec<(usize, usize, String)> {
    let mut all = Vec::new();
    let mut words = words(code);
    while let Some((_, word)) = words.next() {
        if word != "mod" {
            continue;
        }
        let Some((at, name)) = words.next() else {
            break;
        };
        let rest = code.get(at + name.len()..).unwrap_or_default();
        if rest.trim_start().starts_with('{') {
            let end = at + name.len() + balanced(rest, '{', '}');
            all.push((at, end, name.to_owned()));
        }
    }
    all
}

fn around(modules: &[(usize, usize, String)], at: usize) -> Vec<String> {
    let around = modules
        .iter()
        .filter(|(from, to, _)| *from < at && at < *to);
    around.map(|(_, _, name)| name.clone()).collect()
}

/// The names of the items that a blanked source declares.
pub(super) fn items(code: &str) -> Vec<&str> {
    const KINDS: &[&str] = &[
        "struct",
        "enum",
        "trait",
        "type",
        "fn",
        "const",
        "static",
        "union",
        "macro_rules",
    ];
    let mut all = Vec::new();
    let mut before = "";
    for (_, word) in words(code) {
        if KINDS.contains(&before) {
            all.push(word);
        }
        before = word;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_and_paths_are_read() {
        let code = "use crate::{low::{self, A as B}, high::*};\npub use super::C;\n\
                    fn f() { self::g::h(std::i) }\nmod m { use super::n; }\n$crate::x();\n\
                    pub(in crate::o) fn p() {}";
        let all = read(code);
        let shown: Vec<String> = all
            .iter()
            .map(|n| {
                let alias = n.alias.as_deref().unwrap_or("-");
                format!(
                    "{} {} {} {alias}",
                    n.line,
                    n.inside.join("/"),
                    n.segments.join("::")
                )
            })
            .collect();
        let expected = [
            "1  crate::low low",
            "1  crate::low::A B",
            "1  crate::high *",
            "2  super::C C",
            "3  self::g::h -",
            "3  std::i -",
            "4 m super::n n",
        ];
        assert_eq!(shown, expected);
        assert_eq!(
            items("pub(crate) struct A; const fn b() {}"),
            ["A", "fn", "b"]
        );
    }
}
