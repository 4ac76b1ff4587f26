//! On-disk structures of ext4 and jbd2.
//!
//! Untrusted bytes in, checked types out. Nothing here reads a device, takes a lock or allocates
//! more than its result; every parser is bounded by the slice it is given and returns an error that
//! names the damage instead of panicking. Structures are `zerocopy` types over little-endian (ext4)
//! or big-endian (jbd2) fields; their sizes and field offsets are asserted at compile time.
//! [`geometry`] plans the sizes of volumes, new ones and those that grow or shrink.
#![forbid(unsafe_code)]

pub mod acl;
pub mod bitmap;
pub mod csum;
pub mod damage;
pub mod dir_edit;
pub mod dir_gap;
pub mod dir_hash;
pub mod dirent;
pub mod entry_hash;
pub mod extent;
pub mod features;
pub mod file_kind;
pub mod geometry;
pub mod group_desc;
pub mod hashed_name;
pub mod htree;
pub mod inline_data;
pub mod inline_dir;
pub mod inode;
pub mod jbd2;
pub mod location;
pub mod mmp;
pub mod orphan;
pub mod quota;
pub mod superblock;
pub mod verity;
pub mod xattr;
