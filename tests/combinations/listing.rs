//! A tree as text, a line for each entry: two kernels' views are compared, also where one of them
//! was written down in a virtual machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use extant_testkit::content::Hasher;
use extant_testkit::{Cmd, Result, Tree, ensure};

/// Differences that are shown.
const SHOWN: usize = 12;

/// The entries of a tree by their paths, in words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Listing(BTreeMap<String, String>);

impl Listing {
    /// Takes down what is below `top`: everything that two views of one image share, flags and
    /// projects, and the digests of sealed files.
    pub(super) fn take(top: &Path) -> Result<Self> {
        let mut entries = BTreeMap::new();
        for (path, entry) in Tree::take(top)?.iter() {
            let mut entry = entry.clone();
            for value in entry.xattrs.values_mut() {
                let mut hasher = Hasher::default();
                hasher.add(value);
                *value = hasher.end().to_be_bytes().to_vec();
            }
            entries.insert(format!("{path:?}"), format!("{entry:?}"));
        }
        for (path, mark) in marks(top)? {
            if let Some(entry) = entries.get_mut(&format!("{path:?}")) {
                *entry += &mark;
            }
        }
        Ok(Self(entries))
    }

    /// The text of [`Listing::of_text`].
    pub(super) fn text(&self) -> String {
        let lines = self.0.iter();
        lines
            .map(|(path, entry)| format!("{path}\t{entry}\n"))
            .collect()
    }

    pub(super) fn of_text(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once('\t'));
        let pairs = pairs.map(|(path, entry)| (path.to_owned(), entry.to_owned()));
        Self(pairs.collect())
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The number of entries that have a flag, by lsattr's letter.
    pub(super) fn count(&self, flag: char) -> usize {
        let flags = |entry: &String| {
            let (_, rest) = entry.split_once(", flags ")?;
            Some(rest.split(' ').next()?.contains(flag))
        };
        self.0
            .values()
            .filter(|entry| flags(entry) == Some(true))
            .count()
    }

    /// An error that shows the entries which differ, if there are any.
    pub(super) fn expect_equal(&self, other: &Self) -> Result<()> {
        let mut differences = Vec::new();
        let only = |path, which| format!("{path}: only in the {which}");
        for (path, entry) in &self.0 {
            match other.0.get(path) {
                None => differences.push(only(path, "first")),
                Some(shown) if shown != entry => {
                    differences.push(format!("{path}:\n  {entry}\n  {shown}"));
                }
                Some(_) => {}
            }
        }
        let seconds = other.0.keys().filter(|path| !self.0.contains_key(*path));
        differences.extend(seconds.map(|path| only(path, "second")));
        let count = differences.len();
        differences.truncate(SHOWN);
        ensure!(
            count == 0,
            "{count} differences:\n{}",
            differences.join("\n")
        );
        Ok(())
    }
}

/// The projects and flags below `top`, as lsattr shows them, and digests of what is sealed.
fn marks(top: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let (mut marks, mut sealed) = (BTreeMap::new(), Vec::new());
    // It fails for links, which have no flags.
    let lsattr = Cmd::new("lsattr").args(["-R", "-a", "-p"]).arg(top).run()?;
    for line in lsattr.out.lines() {
        let words = line.trim_start().split_once(' ');
        let words = words.and_then(|(id, rest)| Some((id, rest.split_once(' ')?)));
        let Some((id, (flags, path))) = words.filter(|(id, _)| id.parse::<u32>().is_ok()) else {
            continue;
        };
        if flags.contains('V') {
            sealed.push(path);
        }
        let mark = format!(", project {id}, flags {flags} ");
        marks.insert(Path::new(path).strip_prefix(top)?.to_owned(), mark);
    }
    if !sealed.is_empty() {
        let measured = Cmd::new("fsverity").arg("measure").args(&sealed).ok()?;
        ensure!(
            measured.out.lines().count() == sealed.len(),
            "{}",
            measured.describe()
        );
        for (path, line) in sealed.iter().zip(measured.out.lines()) {
            let digest = line.split(' ').next().unwrap_or_default();
            if let Some(mark) = marks.get_mut(Path::new(path).strip_prefix(top)?) {
                *mark += digest;
            }
        }
    }
    Ok(marks)
}
