//! Images over the network: commands and mounts on exports of nbdkit and qemu-nbd, some of them
//! slow, failing, stopped or killed; and images that `extant nbd` serves to others.

mod commands;
mod confined;
mod losses;
mod made_images;
mod servers;
mod serving;
