//! A target while it is measured, and the files that stay open on it from sample to sample.

use std::collections::BTreeMap;
use std::sync::Arc;

use extant::{Node, Volume};
use extant_blockdev::BlockDevice;
use extant_extent_io_tree::IoTree;
use extant_host::{Error, Result};

use crate::target::{Appender, Counters, Data, Fresh, Names, Target};

/// A target, and the files that are open there.
pub(crate) struct TestBed {
    target: Box<dyn Target>,
    files: BTreeMap<String, Box<dyn Data>>,
}

impl TestBed {
    pub(crate) fn new(target: Box<dyn Target>) -> TestBed {
        TestBed {
            target,
            files: BTreeMap::new(),
        }
    }

    /// The file of this name; `make` fills it when it is used for the first time.
    pub(crate) fn file(
        &mut self,
        name: &str,
        make: impl FnOnce(&mut dyn Data) -> Result<()>,
    ) -> Result<&mut dyn Data> {
        if !self.files.contains_key(name) {
            let mut file = self.target.renew(name, None)?;
            make(&mut *file)?;
            self.files.insert(name.to_owned(), file);
        }
        self.known(name)
    }

    /// A new and empty file of this name.
    pub(crate) fn fresh(&mut self, name: &str) -> Result<&mut dyn Data> {
        let old = self.files.remove(name);
        let file = self.target.renew(name, old)?;
        self.files.insert(name.to_owned(), file);
        self.known(name)
    }

    /// Returns whether no sample has had a file of this name.
    pub(crate) fn is_new(&self, name: &str) -> bool {
        !self.files.contains_key(name)
    }

    fn known(&mut self, name: &str) -> Result<&mut dyn Data> {
        match self.files.get_mut(name) {
            Some(file) => Ok(&mut **file),
            None => Err(Error::new(format!("no file {name}"))),
        }
    }

    /// Removes what a sample wrote. Memory stays, to be used again.
    pub(crate) fn clear(&mut self, name: &str) -> Result<()> {
        self.fresh(name).map(drop)
    }

    /// A file that several threads append to.
    pub(crate) fn appender(&mut self, name: &str) -> Result<Box<dyn Appender>> {
        let appender = self.target.appender(name)?;
        appender.ok_or_else(|| Error::new("nothing to append to"))
    }

    /// A file that is there, for the requests of a queue.
    pub(crate) fn node(&mut self, name: &str) -> Result<(Volume, Node)> {
        let file = self.target.node(name)?;
        file.ok_or_else(|| Error::new("no queue for files"))
    }

    /// A file that is there, opened past every cache.
    pub(crate) fn past_cache(&mut self, name: &str) -> Result<Box<dyn Data + Send>> {
        let file = self.target.past_cache(name)?;
        file.ok_or_else(|| Error::new("no O_DIRECT here"))
    }

    /// The device that this is.
    pub(crate) fn device(&self) -> Result<Arc<dyn BlockDevice>> {
        self.target.device().ok_or_else(|| Error::new("no device"))
    }

    /// Calls on names.
    pub(crate) fn names(&self) -> Result<&dyn Names> {
        let names = self.target.names();
        names.ok_or_else(|| Error::new("no names"))
    }

    /// The tree that this is.
    pub(crate) fn tree(&self) -> Result<Arc<IoTree>> {
        self.target.tree().ok_or_else(|| Error::new("no tree"))
    }

    /// A file that is there, opened once more, for a thread of its own.
    pub(crate) fn opener(&mut self, name: &str) -> Result<Box<dyn Data + Send>> {
        self.target.opener(name)
    }

    /// A file of `len` bytes that is there, opened to be read.
    pub(crate) fn reader(&mut self, name: &str, len: u64) -> Result<Box<dyn Data>> {
        self.target.reader(name, len)
    }

    pub(crate) fn counters(&self) -> Result<Counters> {
        self.target.counters()
    }

    /// The end without a look at the image; returns what was mounted, if it was.
    pub(crate) fn unmount(self) -> Result<Option<Fresh>> {
        drop(self.files);
        self.target.unmount()
    }

    pub(crate) fn close(self) -> Result<()> {
        drop(self.files);
        self.target.close()
    }
}
