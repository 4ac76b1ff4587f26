//! Maps on real images: made by mke2fs and Linux, read here.

mod linux;
