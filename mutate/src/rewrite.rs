//! The text of a file with all changes of its sites, and where each site is in it.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::sites::{Form, Site};

/// A file with its changes.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) sites: Vec<Site>,
    /// The number of the first change of each site.
    pub(crate) numbers: Vec<u32>,
    /// Sites that do not compile, by their index.
    pub(crate) dropped: BTreeSet<usize>,
}

/// Text that is inserted at a byte.
struct Insertion {
    at: usize,
    /// The order at one byte: ends from the inside, then begins from the outside.
    order: (bool, usize, usize),
    site: usize,
    text: String,
}

impl Source {
    /// The text with its changes, and the bytes of each site in it.
    pub(crate) fn rewritten(&self) -> (String, Vec<(usize, Range<usize>)>) {
        let mut out = String::with_capacity(self.text.len() * 3);
        let mut places: Vec<(usize, Range<usize>)> = Vec::new();
        let mut from = 0;
        for insertion in self.all_insertions() {
            out.push_str(&self.text[from..insertion.at]);
            from = insertion.at;
            let begin = out.len();
            out.push_str(&insertion.text);
            let is_end = !insertion.order.0;
            match places.iter_mut().find(|(site, _)| *site == insertion.site) {
                Some((_, range)) if is_end => range.end = out.len(),
                _ => places.push((insertion.site, begin..out.len())),
            }
        }
        out.push_str(&self.text[from..]);
        (out, places)
    }

    /// The insertions of all sites that are left, in their order.
    fn all_insertions(&self) -> Vec<Insertion> {
        let kept = (0..self.sites.len()).filter(|index| !self.dropped.contains(index));
        let mut all: Vec<Insertion> = kept.flat_map(|index| self.insertions(index)).collect();
        all.sort_by_key(|insertion| (insertion.at, insertion.order));
        all
    }

    fn insertions(&self, index: usize) -> Vec<Insertion> {
        let site = &self.sites[index];
        let pick = format!(
            "crate::mutant_switch::pick({}, {})",
            self.numbers[index],
            site.names.len()
        );
        let arms = |codes: &[String]| {
            let arms = codes.iter().zip(1..);
            let arms = arms.map(|(code, number)| format!("{number} => {code}, "));
            arms.collect::<String>()
        };
        let (before, after) = match &site.form {
            Form::Instead(codes) => (format!("(match {pick} {{ {}_ => ", arms(codes)), " })"),
            Form::Negated => (format!("(({pick} == 1) != ("), "))"),
            Form::Deleted => (format!("if {pick} != 1 {{ "), " }"),
            Form::Returns(codes) => {
                let text = format!(" match {pick} {{ {}_ => {{}} }} ", arms(codes));
                // Behind the brace.
                return vec![Insertion {
                    at: site.range.start + 1,
                    order: (true, 0, index),
                    site: index,
                    text,
                }];
            }
        };
        let Range { start, end } = site.range;
        let (outer_first, inner_first) = (usize::MAX - end, usize::MAX - start);
        vec![
            Insertion {
                at: start,
                order: (true, outer_first, index),
                site: index,
                text: before,
            },
            Insertion {
                at: end,
                order: (false, inner_first, usize::MAX - index),
                site: index,
                text: after.to_owned(),
            },
        ]
    }

    /// The sites that an error at `bytes` of the changed text comes from: the innermost around it,
    /// else those in it, else those of its function, else all.
    pub(crate) fn blamed(&self, bytes: &Range<usize>) -> Vec<usize> {
        let (_, places) = self.rewritten();
        let around = places.iter();
        let around = around.filter(|(_, r)| r.start <= bytes.start && bytes.end <= r.end);
        if let Some((site, _)) = around.min_by_key(|(_, range)| range.len()) {
            return vec![*site];
        }
        let all = || places.iter().map(|(site, range)| (*site, range));
        let inside = all().filter(|(_, r)| bytes.start <= r.start && r.end <= bytes.end);
        let inside: Vec<usize> = inside.map(|(site, _)| site).collect();
        if !inside.is_empty() {
            return inside;
        }
        // An error may be at the signature, before the first site of the function.
        let at = self.before_changes(bytes.start);
        let all: Vec<usize> = all().map(|(site, _)| site).collect();
        let within = |site: &usize| &self.sites[*site].within;
        let around = all.iter().filter(|site| within(site).contains(&at));
        let Some(least) = around.map(|site| within(site).len()).min() else {
            return all;
        };
        let is_there = |site: &usize| within(site).contains(&at) && within(site).len() == least;
        all.into_iter().filter(is_there).collect()
    }

    /// The byte of the text without changes that stands at `byte` of the changed text.
    fn before_changes(&self, byte: usize) -> usize {
        let mut added = 0;
        for insertion in self.all_insertions() {
            if insertion.at + added >= byte {
                break;
            }
            added += insertion.text.len();
        }
        byte.saturating_sub(added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sites::find;

    fn source(text: &str) -> Source {
        let sites = find(text).unwrap().sites;
        let mut next = 0;
        let mut first = |site: &Site| {
            next += site.names.len();
            u32::try_from(next - site.names.len()).unwrap()
        };
        Source {
            path: "a.rs".to_owned(),
            text: text.to_owned(),
            numbers: sites.iter().map(&mut first).collect(),
            sites,
            dropped: BTreeSet::new(),
        }
    }

    #[test]
    fn every_change_stands_beside_what_is_there() {
        let source = source("fn f(a: u8, b: u8) -> bool { g(); a + b < 1 }");
        let names: Vec<&str> = source
            .sites
            .iter()
            .flat_map(|s| &s.names)
            .map(|n| &**n)
            .collect();
        assert_eq!(
            names,
            [
                "replace the body with true in f",
                "replace the body with false in f",
                "delete `g();` in f",
                "replace `a + b < 1` by <= in f",
                "replace `a + b < 1` by >= in f",
                "replace `a + b` by - in f",
                "replace `1` by 2 in f",
            ]
        );
        let (text, _) = source.rewritten();
        let text = text.replace("crate::mutant_switch::", "");
        assert_eq!(
            text,
            "fn f(a: u8, b: u8) -> bool { \
             match pick(0, 2) { 1 => return true, 2 => return false, _ => {} }  \
             if pick(2, 1) != 1 { g(); } \
             (match pick(3, 2) { 1 => (a + b) <= (1), 2 => (a + b) >= (1), \
             _ => (match pick(5, 1) { 1 => (a) - (b), _ => a + b }) < \
             (match pick(6, 1) { 1 => 2, _ => 1 }) }) }"
        );
        syn::parse_file(&text).unwrap();
    }

    #[test]
    fn code_for_tests_constants_and_unsafe_code_stay() {
        let text = "#[cfg(test)] mod tests { fn f() { g(); h(); } }
                    #[cfg(test)] mod beside;
                    const A: u8 = 1 + 2;
                    const fn a() -> u8 { 1 }
                    impl Debug for B { fn fmt(&self) -> bool { true || false } }
                    fn b() -> [u8; 3] { unsafe { c(1) } }
                    fn d(e: E) { assert!(1 < 2); if let E::F(1) = e && x {} }";
        let found = find(text).unwrap();
        let names: Vec<&String> = found.sites.iter().flat_map(|site| &site.names).collect();
        assert_eq!(names, ["replace the body with () in d"]);
        assert_eq!(found.left_out, ["beside"]);
    }

    #[test]
    fn an_error_is_the_innermost_site_s_around_it() {
        let mut source = source("fn f(a: u8) -> u8 { (a * 2) + a }");
        let (text, _) = source.rewritten();
        let at = text.find("/ (2)").unwrap();
        let [site] = source.blamed(&(at..at + 1))[..] else {
            panic!("one site")
        };
        assert_eq!(source.sites[site].names, ["replace `a * 2` by / in f"]);
        // Outside of all, the whole function's are left out.
        let all = source.blamed(&(0..text.len()));
        assert_eq!(all.len(), source.sites.len());
        source.dropped.extend(all);
        assert_eq!(source.rewritten().0, source.text);
    }

    #[test]
    fn an_error_at_a_signature_is_its_function_s() {
        let source = source("fn f(a: u8) -> u8 { a * 2 }\nfn g(b: u8) -> u8 { b + b }\nuse h;");
        let (text, _) = source.rewritten();
        let named = |at: usize| {
            let names = source.blamed(&(at..at + 1)).into_iter();
            names
                .flat_map(|site| source.sites[site].names.clone())
                .collect::<Vec<_>>()
        };
        let of = |name: &str, names: Vec<String>| {
            !names.is_empty() && names.iter().all(|text| text.ends_with(name))
        };
        assert!(of("in f", named(text.find("a: u8").unwrap())));
        assert!(of("in g", named(text.find("b: u8").unwrap())));
        let all: usize = source.sites.iter().map(|site| site.names.len()).sum();
        assert_eq!(named(text.find("use h").unwrap()).len(), all);
    }
}
