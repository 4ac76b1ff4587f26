//! The kernel's switch for FUSE over io_uring: the parameter `enable_uring` of the module `fuse`.
//!
//! It matters while a file system is mounted, and not afterwards. [`FuseRings`] sets it for that
//! moment and keeps other users of this module away meanwhile, those of other processes too.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

use crate::{Context, Result, made};

/// The switch.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The switch is set as wished until this is dropped; then it is as it was.
#[derive(Debug)]
pub struct FuseRings {
    /// The earlier value, if that was another one.
    before: Option<String>,
    /// Locked.
    _file: File,
}

impl FuseRings {
    /// Why mounts cannot use rings here; `None` if they can.
    pub fn missing() -> Option<String> {
        let Ok(value) = fs::read_to_string(SWITCH) else {
            return Some("needs FUSE over io_uring (Linux 6.14)".to_owned());
        };
        if value.trim() != "Y" && !geteuid().is_root() {
            return Some(format!("needs root, or Y in {SWITCH}"));
        }
        let refusal = extant_blockdev::io_uring().err();
        refusal.map(|refusal| refusal.to_string())
    }

    /// Sets the switch. Waits while another user has it.
    ///
    /// # Errors
    /// There is no switch, or it may not be set.
    pub fn set(on: bool) -> Result<FuseRings> {
        let file = File::open(SWITCH).context(|| SWITCH.to_owned())?;
        flock(&file, FlockOperation::LockExclusive)?;
        let wanted = if on { "Y" } else { "N" };
        let value = fs::read_to_string(SWITCH)?.trim().to_owned();
        let mut before = None;
        if value != wanted {
            let mut made = made::made();
            fs::write(SWITCH, wanted).context(|| SWITCH.to_owned())?;
            made.switch = Some((SWITCH, value.clone()));
            before = Some(value);
        }
        Ok(FuseRings {
            before,
            _file: file,
        })
    }

    /// Sets the switch for a mount with these options, if they insist on rings.
    pub(crate) fn for_options(options: &str) -> Result<Option<FuseRings>> {
        let insist = options.split(',').any(|word| word == "transport=uring");
        if insist && Path::new(SWITCH).exists() && geteuid().is_root() {
            return FuseRings::set(true).map(Some);
        }
        Ok(None)
    }
}

impl Drop for FuseRings {
    fn drop(&mut self) {
        let Some(before) = &self.before else { return };
        let mut made = made::made();
        if let Err(error) = fs::write(SWITCH, before) {
            eprintln!("{SWITCH} stays switched: {error}");
        }
        made.switch = None;
    }
}
