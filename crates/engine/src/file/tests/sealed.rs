//! Fills beside the seal of a file.

use extant_disk::verity::VerityParams;
use extant_iomap::IomapOps;
use extant_units::Pos;

use super::{file, mounted_with, put};
use crate::file::enable_verity;
use crate::file::mapping::iomap_ops::FileContext;
use crate::mount;
use crate::types::Cred;

/// A reader that began before the seal, and waited for it, fills the cache with nothing but what
/// the tree vouches for.
#[test]
fn a_fill_that_began_before_a_seal_is_checked() {
    let fs = mounted_with("-b 4096 -O verity", "");
    let inode = file(&fs, b"f");
    put(&fs, &inode, 0, &[7; 8192]);
    let cx = FileContext::new(&fs, &inode);
    assert!(!cx.checks_fills());
    enable_verity(&fs, &inode, &VerityParams::default(), &Cred::root()).unwrap();
    assert!(cx.checks_fills());
    assert!(cx.check_filled(Pos::ZERO, &[7; 4096]).is_ok());
    assert!(cx.check_filled(Pos::ZERO, &[8; 4096]).is_err());
    drop(inode);
    mount::unmount(&fs).unwrap();
}
