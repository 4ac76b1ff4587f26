//! The directory code over blocks in memory: against a map, against readers, against hostile bytes.

mod dir_model;
mod hidden_names;
mod hostile_dirs;
mod memory_dir;
mod positions;
mod rooms;
