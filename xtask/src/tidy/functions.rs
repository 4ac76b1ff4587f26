//! The rule of functions: at most 70 lines each, from `fn` to the closing brace.

use std::path::Path;

use super::blank::{balanced, line_of, words};
use super::finding::Finding;

/// Longest function, in lines.
const LONGEST: usize = 70;

/// The functions of a blanked source that are too long.
pub(super) fn check(file: &Path, code: &str) -> Vec<Finding> {
    let mut all = Vec::new();
    let mut words = words(code);
    while let Some((at, word)) = words.next() {
        if word != "fn" {
            continue;
        }
        let Some((name_at, name)) = words.next() else {
            break;
        };
        // A type `fn(..)` has no name right behind the word.
        let between = code.get(at + 2..name_at).unwrap_or_default();
        let Some(len) = body_len(code.get(name_at..).unwrap_or_default()) else {
            continue;
        };
        let first = line_of(code, at);
        let lines = line_of(code, name_at + len) - first + 1;
        if between.trim().is_empty() && lines > LONGEST {
            let what = format!("fn {name} has {lines} lines, more than {LONGEST}");
            all.push(Finding::at(file, first, what));
        }
    }
    all
}

/// The length from a function's name to the end of its body; none where it has no body.
fn body_len(from: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in from.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.checked_sub(1)?,
            ';' if depth == 0 => return None,
            '{' if depth == 0 => return Some(at + balanced(from.get(at..)?, '{', '}') - 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_functions_are_found() {
        let check = |text: &str| check(Path::new("a.rs"), text);
        let function = |lines: usize| {
            format!(
                "fn a(x: [u8; 4]) -> u8\n{{\n{}}}\n",
                "x;\n".repeat(lines - 3)
            )
        };
        assert!(check(&function(LONGEST)).is_empty());
        let two = format!(
            "{}trait T {{ fn b(&self); }}\n{}",
            function(20),
            function(LONGEST + 2)
        );
        let found = check(&two);
        assert_eq!(found.len(), 1);
        assert_eq!(found.first().and_then(|f| f.line), Some(22));
        assert!(
            check(&format!(
                "type F = fn(u8); struct S {{ {}}}",
                "a: u8,\n".repeat(90)
            ))
            .is_empty()
        );
    }
}
