//! The directory code over blocks in memory: against a map, against readers, against hostile bytes.

mod hostile;
mod listing;
mod memory;
mod model;
