//! An I/O tree with nothing around it.

use std::sync::Arc;

use extant_extent_io_tree::{IoTree, TreeTuning};
use extant_host::{Error, Result};

use super::data::Data;
use super::interface::{Counters, Target};

/// A tree, and no files.
pub(crate) struct TreeOnly(Arc<IoTree>);

impl TreeOnly {
    pub(crate) fn new(tuning: TreeTuning) -> Self {
        Self(Arc::new(IoTree::new(tuning)))
    }
}

fn no_files<T>() -> Result<T> {
    Err(Error::new("a tree has no files"))
}

impl Target for TreeOnly {
    fn open(&mut self, _name: &str) -> Result<Box<dyn Data>> {
        no_files()
    }

    fn remove(&mut self, _name: &str) -> Result<()> {
        no_files()
    }

    fn opener(&mut self, _name: &str) -> Result<Box<dyn Data + Send>> {
        no_files()
    }

    fn tree(&self) -> Option<Arc<IoTree>> {
        Some(Arc::clone(&self.0))
    }

    fn counters(&self) -> Result<Counters> {
        let all = self.0.stats();
        Ok(all.all().map(|(name, n)| (name.to_owned(), n)).collect())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
