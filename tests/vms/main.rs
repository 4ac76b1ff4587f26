//! Images as devices of a virtual machine: Debian's kernel in qemu uses a disk that `extant vhost`
//! serves, and what it leaves is sound.

mod disk;
mod machine;
