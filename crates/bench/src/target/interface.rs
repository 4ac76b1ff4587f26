//! The interface that a case needs of its target.

use std::collections::BTreeMap;
use std::sync::Arc;

use extant::{Node, Volume};
use extant_blockdev::BlockDevice;
use extant_extent_io_tree::IoTree;
use extant_host::Result;

use super::data::{Appender, Data};
use super::fresh::Fresh;
use super::names::Names;

/// Counters by name.
pub(crate) type Counters = BTreeMap<String, u64>;

/// A target of calls, with the folder of its files.
pub(crate) trait Target {
    /// Opens a file, making it if there is none.
    fn open(&mut self, name: &str) -> Result<Box<dyn Data>>;
    /// Removes a file; nothing if there is none.
    fn remove(&mut self, name: &str) -> Result<()>;
    /// A file that several threads append to; `None` where that means nothing.
    fn appender(&mut self, _name: &str) -> Result<Option<Box<dyn Appender>>> {
        Ok(None)
    }
    /// A file that is there, for the requests of a queue; `None` where that means nothing.
    fn node(&mut self, _name: &str) -> Result<Option<(Volume, Node)>> {
        Ok(None)
    }
    /// The tree that this is, if it is one.
    fn tree(&self) -> Option<Arc<IoTree>> {
        None
    }
    /// Calls on names; `None` where there are none.
    fn names(&self) -> Option<&dyn Names> {
        None
    }
    /// A file that is there, opened once more, for a thread of its own.
    fn opener(&mut self, name: &str) -> Result<Box<dyn Data + Send>>;
    /// A file of `len` bytes that is there, opened to be read.
    fn reader(&mut self, name: &str, _len: u64) -> Result<Box<dyn Data>> {
        Ok(self.opener(name)?)
    }
    /// A file opened past every cache (`O_DIRECT`); `None` where that means nothing.
    fn past_cache(&mut self, _name: &str) -> Result<Option<Box<dyn Data + Send>>> {
        Ok(None)
    }
    /// The device that this is, if it is one.
    fn device(&self) -> Option<Arc<dyn BlockDevice>> {
        None
    }
    /// The counters now; empty where there are none.
    fn counters(&self) -> Result<Counters>;
    /// Checks at the end that the image is clean.
    fn close(self: Box<Self>) -> Result<()>;
    /// The end without a look at the image; returns what was mounted, if it was.
    fn unmount(self: Box<Self>) -> Result<Option<Fresh>> {
        self.close().map(|()| None)
    }

    /// A new and empty file instead of `old`.
    fn renew(&mut self, name: &str, old: Option<Box<dyn Data>>) -> Result<Box<dyn Data>> {
        drop(old);
        self.remove(name)?;
        self.open(name)
    }
}
