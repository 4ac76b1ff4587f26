//! Extended attributes, and the ACLs and contexts in them.

use extant_crypt::{Context, KeyId, MasterKey, Policy};
use extant_disk::acl::Acl;
use extant_disk::xattr::{self, NameIndex, XattrName, XattrSet};
use extant_units::Pblk;

use super::parts::{SEED, block_size, padded};
use crate::feed::Feed;

pub(super) fn xattrs(how: u8, feed: &mut Feed<'_>) {
    let pblk = Pblk::new(u64::from(feed.u32()));
    let in_inode = how & 4 != 0;
    let (name_len, value_len) = (usize::from(feed.u8()), usize::from(feed.u16()));
    let name = XattrName {
        index: NameIndex::from_raw(1 + feed.u8() % 8),
        rest: feed.take(name_len),
    };
    let value = feed.take(value_len % 300);
    let mut bytes = if in_inode {
        let len = 4 * usize::from(feed.u8() % 64);
        padded(feed, len)
    } else {
        padded(feed, block_size(how).bytes())
    };
    if how & 8 != 0 {
        // The magic number of either place.
        for (to, from) in bytes.iter_mut().zip(0xea02_0000_u32.to_le_bytes()) {
            *to = from;
        }
    }
    if how & 16 != 0 && !in_inode {
        xattr::seal_block(Some(SEED), pblk, &mut bytes);
    }
    let _ = xattr::check_block(Some(SEED), pblk, &bytes);
    let entries = if in_inode {
        xattr::area_entries(&bytes)
    } else {
        xattr::block_entries(&bytes)
    };
    let Ok(entries) = entries else { return };
    for entry in entries.clone().flatten() {
        let _ = entry.name.full();
    }
    let _ = entries.clone().find(&name);
    let Ok(mut set) = XattrSet::read(entries) else {
        return;
    };
    if !name.rest.contains(&0) {
        set.set(&name, value);
        assert_eq!(set.get(&name), Some(value));
    }
    written_and_read(&set, &mut bytes, in_inode);
    if set.remove(&name) {
        written_and_read(&set, &mut bytes, in_inode);
    }
}

/// Attributes that fit read back, whatever their order.
fn written_and_read(set: &XattrSet, bytes: &mut [u8], in_inode: bool) {
    let fits = if in_inode {
        set.write_area(bytes)
    } else {
        set.write_block(bytes)
    };
    if fits != xattr::Fit::Fits {
        return;
    }
    let entries = if in_inode {
        xattr::area_entries(bytes)
    } else {
        xattr::block_entries(bytes)
    };
    let again = entries.and_then(XattrSet::read);
    let Ok(again) = again else {
        panic!("{set:?} does not read back: {again:?}");
    };
    let sorted = |set: &XattrSet| {
        let mut all: Vec<_> = set
            .iter()
            .map(|(name, value)| (name.index.raw(), name.rest.to_vec(), value.to_vec()))
            .collect();
        all.sort();
        all
    };
    assert_eq!(sorted(set), sorted(&again));
}

/// A context, and with a key for it, names and contents in its modes.
pub(super) fn context(feed: &mut Feed<'_>) {
    let ino = feed.u32();
    let bytes = feed.rest();
    for length in [28, 40] {
        let Some((context, text)) = bytes.split_at_checked(length) else {
            return;
        };
        let Ok(mut context) = Context::parse(context) else {
            continue;
        };
        assert_eq!(context.to_bytes(), bytes[..length]);
        let policy = context.policy.to_bytes();
        assert_eq!(Policy::parse(&policy), Ok(context.policy));
        let key = MasterKey::new(&[7; 64]).expect("a key of 64 bytes");
        if let KeyId::Identifier(_) = context.policy.key {
            context.policy.key = key.identifier();
        }
        let names = key.names(&context, ino, &[1; 16]).expect("its key");
        if let Some(name) = names.decrypt(text) {
            let stored = names.encrypt(&name, text.len());
            assert_eq!(names.decrypt(&stored), Some(name));
        }
        let contents = key.contents(&context, ino, &[1; 16]).expect("its key");
        let mut unit = text.to_vec();
        unit.resize(512, 0);
        let before = unit.clone();
        contents.decrypt_units(ino.into(), 512, &mut unit);
        contents.encrypt_units(ino.into(), 512, &mut unit);
        assert_eq!(unit, before);
    }
}

pub(super) fn acl(how: u8, feed: &mut Feed<'_>) {
    let mode = feed.u16();
    let mut value = feed.rest().to_vec();
    if how & 1 != 0 {
        let version: u32 = if how & 2 != 0 { 1 } else { 2 };
        for (to, from) in value.iter_mut().zip(version.to_le_bytes()) {
            *to = from;
        }
    }
    let acl = if how & 2 != 0 {
        Acl::from_stored(&value)
    } else {
        Acl::from_posix(&value)
    };
    let Ok(mut acl) = acl else { return };
    assert_eq!(Acl::from_stored(&acl.to_stored()), Ok(acl.clone()));
    assert_eq!(Acl::from_posix(&acl.to_posix()), Ok(acl.clone()));
    // Decoding does not validate; what is valid stays so.
    let valid = acl.validate().is_ok();
    let _ = acl.mode(mode);
    acl.chmod(mode);
    let _ = acl.inherit(mode);
    assert!(!valid || acl.validate().is_ok(), "{acl:?}");
}
