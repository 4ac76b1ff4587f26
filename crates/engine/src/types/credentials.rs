//! The identity of a caller.

/// The identity under which an operation runs. It becomes the owner of created inodes, decides
/// about root's reserve and about which set-id bits survive. The front end checks access
/// permissions (rwx), not this crate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cred {
    /// The user that owns what is created.
    pub uid: u32,
    /// The group that owns what is created outside of set-group-id directories.
    pub gid: u32,
    /// Further groups of the caller.
    pub groups: Vec<u32>,
    /// May do what root may: use reserved blocks, keep set-id bits, change protected flags.
    pub privileged: bool,
    /// File mode bits to clear on creation, unless a default ACL applies.
    pub umask: u16,
}

impl Cred {
    /// Root, with an empty umask.
    pub const fn root() -> Self {
        Self {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            privileged: true,
            umask: 0,
        }
    }

    /// Returns whether the caller belongs to group `gid`.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Returns whether the caller is neither privileged nor in group `gid`.
    pub(crate) fn is_outsider(&self, gid: u32) -> bool {
        !self.privileged && !self.in_group(gid)
    }
}
