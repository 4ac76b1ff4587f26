//! Maps on real images: made by mke2fs and Linux and read here, and the other way round.

mod block_maps;
mod faults;
mod goals;
mod maps_of_linux;
mod mounted;
mod noted_changes;
mod operations;
mod view_model;
