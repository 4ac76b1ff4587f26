//! Block maps of ext2 and ext3: twelve direct block pointers in the inode, and trees of indirect
//! blocks with one, two and three levels.
//!
//! `pointers` reads them, `grow` adds to them, `remove_pointers` removes. All blocks of such a map
//! are written ones: it has no unwritten state.
//!
//! An indirect block has neither magic nor checksum: every pointer in it must be to a block that
//! the file may own. The depth comes from the pointer's index in the inode, never from the disk, so
//! a cycle ends after three levels. A removal first reads and plans, then changes, so damage that
//! it meets leaves the map as it was.

mod grow;
mod pointers;
mod remove_pointers;

pub(super) use self::grow::{enter, prepare, room};
pub(super) use self::pointers::{find, numbers, reach};
pub(super) use self::remove_pointers::remove_some;
