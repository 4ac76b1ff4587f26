//! Permissions of a user that is not privileged.

use super::node::Node;
use super::volume::Volume;
use crate::Result;
use crate::xattr::acl;

/// The permission bits of the group.
const GROUP_BITS: u16 = 0o070;

impl Volume {
    /// Returns whether mode and access ACL of `node` grant all of `wanted` (read 4, write 2,
    /// execute 1) to the user `uid`, as Linux decides without capabilities. `in_group` says
    /// whether the user is in a group; it is asked only where that decides.
    ///
    /// # Errors
    /// Damage of the ACL; a failed read.
    pub fn grants(
        &self,
        node: &Node,
        uid: u32,
        wanted: u16,
        in_group: &mut dyn FnMut(u32) -> bool,
    ) -> Result<bool> {
        let attr = self.getattr(node)?;
        let grants = |perm: u16| perm & wanted == wanted;
        let [owner, group, other] = [6, 3, 0].map(|shift| attr.perm >> shift & 7);
        if uid == attr.uid {
            return Ok(grants(owner));
        }
        // The group's bits are the mask of an ACL: without any of them it grants nothing more.
        if attr.perm & GROUP_BITS != 0
            && let Some(acl) = acl::access(self.fs(), node.inode())?
        {
            return Ok(acl.grants(uid, attr.gid, wanted, in_group));
        }
        let is_same = (group ^ other) & wanted == 0;
        Ok(grants(match !is_same && in_group(attr.gid) {
            true => group,
            false => other,
        }))
    }
}

#[cfg(test)]
mod tests {
    use extant_disk::acl::{Acl, AclEntry, AclTag};
    use extant_testkit::{Image, Need, need};

    use crate::{Cred, SetAttr, VolumeOptions, XattrMode};

    /// Bits that user 5, a member of `groups`, has of a file of user 1 and group 2.
    #[test]
    fn one_class_decides() {
        if !need(&[Need::Tool("mke2fs")]) {
            return;
        }
        let image = Image::of_mib(8).make().unwrap();
        let volume = VolumeOptions::new().write(true).open(image.path()).unwrap();
        let (root, cred) = (volume.root().unwrap(), Cred::root());
        let file = volume.create(&root, b"f", 0o600, &cred).unwrap();
        let bits = |uid, groups: &[u32]| {
            let mut is_asked = false;
            let bits = [4, 2, 1].map(|bit| {
                let mut in_group = |gid| {
                    is_asked = true;
                    groups.contains(&gid)
                };
                match volume.grants(&file, uid, bit, &mut in_group).unwrap() {
                    true => bit,
                    false => 0,
                }
            });
            (bits.iter().sum::<u16>(), is_asked)
        };
        let chmod = |perm| {
            let changes = SetAttr {
                perm: Some(perm),
                uid: Some(1),
                gid: Some(2),
                ..SetAttr::default()
            };
            volume.setattr(&file, &changes, &cred).unwrap();
        };
        chmod(0o264);
        assert_eq!(bits(1, &[2]), (2, false), "the owner");
        assert_eq!((bits(5, &[2]), bits(5, &[])), ((6, true), (4, true)));
        chmod(0o055);
        assert_eq!((bits(1, &[2]), bits(5, &[2])), ((0, false), (5, false)));
        let entry = |tag, perm| AclEntry { tag, perm };
        let acl = Acl::new(vec![
            entry(AclTag::UserObj, 0),
            entry(AclTag::User(5), 7),
            entry(AclTag::GroupObj, 0),
            entry(AclTag::Mask, 3),
            entry(AclTag::Other, 5),
        ]);
        let (name, value) = (b"system.posix_acl_access", acl.to_posix());
        let set = volume.setxattr(&file, name, &value, XattrMode::Either, &cred);
        set.unwrap();
        assert_eq!((bits(5, &[2]), bits(6, &[2])), ((3, false), (0, true)));
        assert_eq!(bits(6, &[]), (5, true));
        // The mask is empty: named users have nothing, as others neither.
        chmod(0o005);
        assert_eq!(bits(5, &[]), (5, true));
    }
}
