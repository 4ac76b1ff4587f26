//! Images as devices of a virtual machine: Debian's kernel in qemu uses a disk and a file system
//! that `extant vhost` serves, and what it leaves is sound.

mod disk;
mod file_system;
mod machine;
mod soak;
