//! The rules of functions: at most 70 lines each, from `fn` to the closing brace, and at most five
//! parameters, of which a tuple counts as its parts.

use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::finding::Finding;
use super::tokens::{each_level, group, is_punct, is_word, line, parts, word};

/// Longest function, in lines.
const LONGEST: usize = 70;
/// Most parameters, beside `self`.
const PARAMETERS: usize = 5;
/// Sources whose functions have the parameters that C's and Python's interface give them.
const FOREIGN: &[&str] = &["crates/capi/src", "crates/python/src"];

/// The functions of a source that are too long.
pub(super) fn check(file: &Path, tokens: &TokenStream) -> Vec<Finding> {
    let mut all = Vec::new();
    each_function(tokens, &mut |first, name, rest| {
        let lines = end_of_body(rest).map_or(0, |end| end - first + 1);
        if lines > LONGEST {
            let what = format!("fn {name} has {lines} lines, more than {LONGEST}");
            all.push(Finding::at(file, first, what));
        }
    });
    all
}

/// The functions of a source that have too many parameters.
pub(super) fn check_parameters(file: &Path, tokens: &TokenStream) -> Vec<Finding> {
    let mut all = Vec::new();
    if FOREIGN.iter().any(|sources| file.starts_with(sources)) {
        return all;
    }
    each_function(tokens, &mut |first, name, rest| {
        let count = parameters(rest);
        if count > PARAMETERS {
            let what = format!("fn {name} takes {count} values, more than {PARAMETERS}");
            all.push(Finding::at(file, first, what));
        }
    });
    all
}

/// Calls `visit` with the line and the name of each function, and with what follows the name.
fn each_function(tokens: &TokenStream, visit: &mut impl FnMut(usize, &str, &[TokenTree])) {
    each_level(tokens, &mut |level| {
        for (at, token) in level.iter().enumerate() {
            // A type `fn(..)` has no name right behind the word.
            let name = word(level.get(at + 1)).filter(|_| is_word(Some(token), "fn"));
            if let (Some(name), Some(rest)) = (name, level.get(at + 2..)) {
                visit(line(token), &name, rest);
            }
        }
    });
}

/// The number of values that a function takes beside `self`, each part of a tuple counted.
fn parameters(rest: &[TokenTree]) -> usize {
    let (mut angles, mut before) = (0, ' ');
    let list = rest.iter().find_map(|token| {
        if let TokenTree::Punct(punct) = token {
            let c = punct.as_char();
            angles += i32::from(c == '<') - i32::from(c == '>' && !"-=".contains(before));
            before = c;
        }
        group(Some(token), Delimiter::Parenthesis).filter(|_| angles == 0)
    });
    let all = list.map(parts).unwrap_or_default();
    all.iter().map(|parameter| values(parameter)).sum()
}

/// The number of values in a parameter.
fn values(parameter: &[TokenTree]) -> usize {
    let colon = parameter
        .iter()
        .position(|token| is_punct(Some(token), ':'));
    let has_self = parameter.iter().any(|token| is_word(Some(token), "self"));
    match (
        colon.and_then(|colon| parameter.get(colon + 1..)),
        parameter.last(),
    ) {
        (None, _) if has_self => 0,
        (Some([tuple]), _) => group(Some(tuple), Delimiter::Parenthesis).map_or(1, |tuple| {
            let parts = parts(tuple);
            parts.len().max(1)
        }),
        _ => 1,
    }
}

/// The line that the body of a function ends in; none where it has no body.
fn end_of_body(rest: &[TokenTree]) -> Option<usize> {
    let mut heads = rest.iter().take_while(|token| !is_punct(Some(token), ';'));
    let body = heads.find_map(|token| group(Some(token), Delimiter::Brace))?;
    Some(body.span_close().end().line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_functions_are_found() {
        let check = |text: &str| check(Path::new("a.rs"), &text.parse().unwrap());
        let function = |lines: usize| {
            let body = "x;\n".repeat(lines - 3);
            format!("fn a(x: [u8; 4]) -> u8\n{{\n{body}}}\n")
        };
        assert!(check(&function(LONGEST)).is_empty());
        let short = function(20);
        let two = format!("{short}m! {{ fn b(&self); {}}}", function(LONGEST + 1));
        let found = check(&two);
        assert_eq!(found.len(), 1);
        assert_eq!(found.first().and_then(|f| f.line), Some(21));
        let fields = "a: u8,\n".repeat(90);
        assert!(check(&format!("type F = fn(u8); struct S {{ {fields}}}")).is_empty());
    }
    #[test]
    fn a_tuple_counts_as_its_parts() {
        let count = |text: &str| {
            let tokens = text.parse().unwrap();
            check_parameters(Path::new("a.rs"), &tokens).len()
        };
        assert_eq!(
            count("fn f<F: Fn(u8, u8)>(&self, a: A<u8, u8>, b: B, c: C, d: (D, D)) {}"),
            0
        );
        assert_eq!(count("fn f(a: A, b: B, (c, d): (C, D), e: E, f: F) {}"), 1);
        assert_eq!(count("fn f(a: A, b: B, c: C, d: D, e: E, f: F);"), 1);
        assert_eq!(
            count("fn f(mut self, a: A, b: B, c: C, d: D, e: &dyn Fn(u8, u8)) {}"),
            0
        );
    }
}
