//! The rows of SPEC A2 (ext4's buffered I/O over ranges, 27 patches) that show from the outside, by
//! number. `docs/SEEDS.md` has the whole table: rows that only show from the inside have their
//! tests beside the code. Rows of A3 (clearing bits in an I/O tree) are in `delayed`.

mod delayed;
mod edges;
mod locks;
mod path;
mod ranges;
mod rig;
mod space;
mod stale;
