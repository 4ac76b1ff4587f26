//! The journal: handles, transactions, commit, checkpoint, revoke, recovery.
#![forbid(unsafe_code)]

mod block;
mod blockio;
mod cache;
mod checkpoint;
mod commit;
mod config;
mod error;
mod handle;
mod hash;
mod journal;
mod log;
mod log_index;
mod log_map;
mod log_write;
mod nesting;
mod recovery;
mod running;
mod sizes;
mod stats;
mod transaction;

pub use block::{Block, BlockData, CheckKey};
pub use cache::BlockCache;
pub use config::Config;
pub use error::{BlockError, JournalError};
pub use handle::Handle;
pub use journal::Journal;
pub use log_map::LogMap;
pub use recovery::{Recovery, inspect, recover};
pub use stats::JournalStats;
