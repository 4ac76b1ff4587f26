//! Targets of measurement, behind one interface: memory, the library, mounts, trees and devices.

mod data;
mod device;
mod engine;
mod fresh;
mod host;
mod interface;
mod memory;
mod names;
mod tree;

pub(crate) use data::{Appender, Call, Data, VECTORS};
pub(crate) use device::DeviceFile;
pub(crate) use engine::Engine;
pub(crate) use fresh::{Driver, Fresh, Medium};
pub(crate) use host::Host;
pub(crate) use interface::{Counters, Target};
pub(crate) use memory::Memory;
pub(crate) use names::Names;
pub(crate) use tree::TreeOnly;
