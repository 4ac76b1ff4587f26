//! The journal: handles, transactions, commit, checkpoint, revoke, recovery.
#![forbid(unsafe_code)]

mod block;
mod cache;
mod config;
mod error;
mod handle;
mod journal;
mod log_map;
mod recovery;
mod stats;

pub use block::{Block, BlockData, CheckKey};
pub use cache::BlockCache;
pub use config::Config;
pub use error::{BlockError, JournalError};
pub use handle::Handle;
pub use journal::Journal;
pub use log_map::LogMap;
pub use recovery::{Recovery, recover};
pub use stats::JournalStats;
