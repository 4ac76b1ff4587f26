//! A broken rule, with its file and line.

use std::fmt;
use std::path::{Path, PathBuf};

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) file: PathBuf,
    pub(super) line: Option<usize>,
    pub(super) what: String,
}

impl Finding {
    /// A finding about a whole file.
    pub(super) fn new(file: &Path, what: impl Into<String>) -> Finding {
        Finding {
            file: file.to_path_buf(),
            line: None,
            what: what.into(),
        }
    }

    /// A finding about a line, counted from one.
    pub(super) fn at(file: &Path, line: usize, what: impl Into<String>) -> Finding {
        Finding {
            line: Some(line),
            ..Finding::new(file, what)
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}", self.what)
    }
}
