//! How a volume is mounted: the options of a mount, under Linux's names, and the engine's switches.

mod mount_options;
mod tuning;

pub use self::mount_options::{AtimeMode, Backend, DataMode, ErrorsPolicy, MountOptions};
pub use self::tuning::{BufferedPath, Tuning};
