//! How a volume is mounted: the options of a mount, under Linux's names, and the engine's switches.

mod journal_device;
mod memory_budget;
mod mount_options;
mod tuning;

pub(crate) use self::journal_device::JournalDevice;
pub(crate) use self::memory_budget::page_cache_budget;
pub use self::mount_options::{AtimeMode, Backend, DataMode, ErrorsPolicy, MountOptions};
pub use self::tuning::{BufferedPath, Tuning};
