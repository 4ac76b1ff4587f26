//! Range operations from the outside: beside Linux's own ext4, and what each refuses.

mod fiemap;
mod linux;
mod matrix;
mod world;
