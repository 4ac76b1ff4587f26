//! The log on its device.

use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_units::{Pblk, Tid};

use crate::cache::BlockCache;
use crate::config::Config;
use crate::error::JournalError;
use crate::journal::Core;
use crate::log_map::LogMap;
use crate::sizes::Sizes;
use crate::transaction::Parts;

pub(crate) struct Log {}

impl Log {
    pub(crate) fn open(
        _dev: Arc<dyn BlockDevice>,
        _map: LogMap,
        _cache: &BlockCache,
        _config: &Config,
    ) -> Result<Self, JournalError> {
        Err(JournalError::Unsupported("a log, for the moment".into()))
    }
    pub(crate) fn sizes(&self) -> Sizes {
        Sizes::for_log(16, 1, 1)
    }
    pub(crate) fn next_tid(&self) -> Tid {
        Tid::new(1)
    }
    pub(crate) fn recorded_errno(&self) -> i32 {
        0
    }
    pub(crate) fn clear_errno(&self, _barrier: bool) -> Result<(), JournalError> {
        Ok(())
    }
    pub(crate) fn wake_all(&self) {}
    pub(crate) fn stop(&self) {}
}

impl Core {
    pub(crate) fn is_in_log(&self, _p: Pblk) -> bool {
        false
    }
    pub(crate) fn log_has_room(&self, _blocks: u32) -> bool {
        true
    }
    pub(crate) fn checkpoint_for(&self, _blocks: u32) -> Result<bool, JournalError> {
        Ok(true)
    }
    pub(crate) fn checkpoint_loop(&self) {}
    pub(crate) fn empty_log(&self) -> Result<(), JournalError> {
        Ok(())
    }
    pub(crate) fn commit_to_log(
        &self,
        _log: &Log,
        _tid: Tid,
        _parts: &mut Parts,
    ) -> Result<(), JournalError> {
        Ok(())
    }
}
