//! Encrypted directories: what is in them reads as it was with the key, shows nothing without it,
//! and nothing of it is on the device in the clear.

mod folded;
mod keys;
mod kit;
mod linux;
mod names;
mod refusals;
mod storm;
