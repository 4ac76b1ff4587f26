//! Attributes that a user gives to all that a command makes: `--owner` and `--mode`.

use clap::Args;

use crate::mode::ModeChange;
use crate::owner::{self, Owner};

/// The owner and the permissions of what a command makes, where the user names them.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Given {
    /// The owner of all that is made: USER, USER:GROUP or :GROUP, as for chown. A file that gets
    /// another owner loses set-id bits and capabilities
    #[arg(long, value_name = "OWNER", value_parser = owner::parse)]
    pub(crate) owner: Option<Owner>,
    /// A change of the permissions of all that is made but symbolic links, as for chmod
    #[arg(long, value_name = "MODE", value_parser = ModeChange::read)]
    pub(crate) mode: Option<ModeChange>,
}

impl Given {
    /// The owner, instead of `uid` and `gid`.
    pub(crate) fn owner(&self, uid: u32, gid: u32) -> (u32, u32) {
        let (user, group) = self.owner.unwrap_or_default();
        (user.unwrap_or(uid), group.unwrap_or(gid))
    }

    /// The permissions, instead of `perm`.
    pub(crate) fn perm(&self, perm: u16, is_dir: bool, umask: u16) -> u16 {
        let mode = self.mode.as_ref();
        mode.map_or(perm, |mode| mode.apply(perm, is_dir, umask))
    }
}
