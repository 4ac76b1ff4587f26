//! The processors that the kernel has queues for.

use std::{fs, io};

/// The most processors that rings are made for.
const MAX: usize = 1024;

/// The processors of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Processors {
    /// How many there may ever be: the kernel has a queue for each, and numbers them from 0.
    pub(super) possible: usize,
    /// Those that run now, of the possible ones.
    pub(super) online: Vec<usize>,
}

impl Processors {
    /// Reads the kernel's lists.
    pub(crate) fn read() -> io::Result<Processors> {
        let list = |name: &str| {
            let path = format!("/sys/devices/system/cpu/{name}");
            let text = fs::read_to_string(&path)?;
            parse(&text).ok_or_else(|| io::Error::other(format!("{path}: no list of processors")))
        };
        let possible = list("possible")?.len();
        let mut online = list("online")?;
        online.retain(|&number| number < possible);
        Ok(Processors { possible, online })
    }
}

/// A list such as `0-3,8`.
fn parse(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MAX {
            return None;
        }
        all.extend(first..=last);
    }
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel() {
        assert_eq!(parse("0-1\n"), Some(vec![0, 1]));
        assert_eq!(parse("0"), Some(vec![0]));
        assert_eq!(parse("0-2,5,7-8"), Some(vec![0, 1, 2, 5, 7, 8]));
        for bad in ["", "x", "0-", "3-1", "0-99999999999", "0-4096", ","] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn this_machine_has_some() {
        let processors = Processors::read().unwrap();
        assert!(!processors.online.is_empty() && processors.online.len() <= processors.possible);
    }
}
