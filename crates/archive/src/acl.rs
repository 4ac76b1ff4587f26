//! ACLs in words, as archives have them: `user::rwx`, `user:NAME:r-x`, `group::r-x`, `mask::r-x`,
//! `other::r-x`, in lines or with commas between them.
//!
//! GNU tar writes names or numbers; star and libarchive write a number behind the permissions too,
//! which goes before the name. Inside of an image ACLs have numbers only, in the form of the
//! extended attributes: a version of four bytes, then tag, permissions and id of each entry,
//! little-endian.

use std::collections::HashMap;

use crate::header::Member;

/// The version of the attribute's form.
const VERSION: u32 = 2;
/// The id of entries that have none.
const NO_ID: u32 = u32::MAX;

const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The attributes that the words for a member become, by the keys that archives have for them.
pub const KINDS: [(&[u8], &[u8]); 2] = [
    (b"access", b"system.posix_acl_access"),
    (b"default", b"system.posix_acl_default"),
];

/// How names become numbers: of users, and of groups.
pub trait Names {
    /// The number of a user.
    fn user(&self, name: &str) -> Option<u32>;
    /// The number of a group.
    fn group(&self, name: &str) -> Option<u32>;
}

/// The attribute that says the same as `text`.
///
/// # Errors
/// The fault of the text, in words.
pub fn from_text(text: &[u8], names: &dyn Names) -> Result<Vec<u8>, String> {
    let text = str::from_utf8(text).map_err(|_| "an ACL that is no text".to_owned())?;
    let mut known = HashMap::new();
    let mut entries = Vec::new();
    for word in text.split(['\n', ',']) {
        let word = word.split('#').next().unwrap_or("").trim();
        let word = word.strip_prefix("default:").unwrap_or(word);
        if word.is_empty() {
            continue;
        }
        entries.push(entry(word, names, &mut known)?);
    }
    entries.sort_unstable();
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, id, perm) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(perm.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    Ok(value)
}

/// Adds the attributes for ACLs that a member has in words. One that it has as an attribute is
/// exact, and stays.
///
/// # Errors
/// The fault of an ACL, in words.
pub fn add_missing(
    member: &Member,
    xattrs: &mut Vec<(Vec<u8>, Vec<u8>)>,
    names: &dyn Names,
) -> Result<(), String> {
    for (key, text) in &member.acls {
        let Some((_, name)) = KINDS.into_iter().find(|(kind, _)| kind == key) else {
            continue;
        };
        if !xattrs.iter().any(|(known, _)| known == name) {
            xattrs.push((name.to_vec(), from_text(text, names)?));
        }
    }
    Ok(())
}

/// Tag, id and permissions: entries are in order by them.
type Entry = (u16, u32, u16);

fn entry<'a>(
    word: &'a str,
    names: &dyn Names,
    known: &mut HashMap<(u16, &'a str), u32>,
) -> Result<Entry, String> {
    let wrong = || format!("an ACL with {word:?} in it");
    let mut fields = word.split(':').map(str::trim);
    let mut field = || fields.next().unwrap_or("");
    let (tag, name, perms, id) = (field(), field(), field(), field());
    let tag = match (tag, name.is_empty()) {
        ("user" | "u", true) => USER_OBJ,
        ("user" | "u", false) => USER,
        ("group" | "g", true) => GROUP_OBJ,
        ("group" | "g", false) => GROUP,
        ("mask" | "m", true) => MASK,
        ("other" | "o", true) => OTHER,
        _ => return Err(wrong()),
    };
    let mut perm = 0;
    for letter in perms.chars() {
        perm |= match letter {
            'r' => 4,
            'w' => 2,
            'x' => 1,
            '-' => 0,
            _ => return Err(wrong()),
        };
    }
    if perms.is_empty() {
        return Err(wrong());
    }
    if name.is_empty() {
        return Ok((tag, NO_ID, perm));
    }
    let number = |text: &str| text.parse().ok().filter(|&id| id != NO_ID);
    if let Some(id) = number(id).or_else(|| number(name)) {
        return Ok((tag, id, perm));
    }
    if let Some(&id) = known.get(&(tag, name)) {
        return Ok((tag, id, perm));
    }
    let plain = unescaped(name);
    let (kind, id) = match tag {
        USER => ("user", names.user(&plain)),
        _ => ("group", names.group(&plain)),
    };
    let id = id.ok_or_else(|| format!("an ACL for {kind} {plain:?}, not known here"))?;
    known.insert((tag, name), id);
    Ok((tag, id, perm))
}

/// A name whose odd characters are written as a backslash and three octal digits.
fn unescaped(name: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = || {
            let digits = str::from_utf8(after.get(..3)?).ok()?;
            u8::from_str_radix(digits, 8).ok()
        };
        if first == b'\\'
            && let Some(byte) = octal()
        {
            bytes.push(byte);
            rest = &after[3..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The words for an attribute, with numbers, a line each; `None` if it is no ACL.
pub(crate) fn to_text(value: &[u8]) -> Option<Vec<u8>> {
    let (version, entries) = value.split_at_checked(4)?;
    if u32::from_le_bytes(version.try_into().ok()?) != VERSION || entries.len() % 8 != 0 {
        return None;
    }
    let mut text = String::new();
    for entry in entries.chunks_exact(8) {
        let half = |at| Some(u16::from_le_bytes(entry.get(at..at + 2)?.try_into().ok()?));
        let (tag, perm) = (half(0)?, half(2)?);
        let id = u32::from_le_bytes(entry.get(4..)?.try_into().ok()?);
        text += match tag {
            USER_OBJ | USER => "user:",
            GROUP_OBJ | GROUP => "group:",
            MASK => "mask:",
            OTHER => "other:",
            _ => return None,
        };
        if matches!(tag, USER | GROUP) {
            text += &id.to_string();
        }
        text.push(':');
        for (bit, letter) in [(4, 'r'), (2, 'w'), (1, 'x')] {
            text.push(if perm & bit != 0 { letter } else { '-' });
        }
        text.push('\n');
    }
    Some(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Known;

    impl Names for Known {
        fn user(&self, name: &str) -> Option<u32> {
            (name == "a b").then_some(7)
        }

        fn group(&self, name: &str) -> Option<u32> {
            (name == "staff").then_some(50)
        }
    }

    fn round(text: &str) -> Result<String, String> {
        let value = from_text(text.as_bytes(), &Known)?;
        Ok(String::from_utf8(to_text(&value).unwrap()).unwrap())
    }

    #[test]
    fn names_and_numbers_of_all_writers_are_read() {
        let right =
            "user::rwx\nuser:7:r-x\nuser:10:rw-\ngroup::r--\ngroup:50:--x\nmask::rwx\nother::---\n";
        for text in [
            right,
            "user::rwx\nuser:10:rw-\t#effective:r--\nuser:a\\040b:r-x\n\
             group::r--\ngroup:staff:--x\nmask::rwx\nother::---\n",
            "user::rwx,group::r--,other::---,user:games:rw-:10,user:x:r-x:7,\
             group:staff:--x,mask::rwx",
            "u::rwx, u:7:rx, u:10:rw, g::r, g:50:x, m::rwx, o::-",
        ] {
            assert_eq!(round(text).as_deref(), Ok(right), "{text}");
        }
        assert_eq!(round("").as_deref(), Ok(""));
    }

    #[test]
    fn what_is_no_acl_is_reported() {
        for (text, what) in [
            ("user:root", "an ACL with \"user:root\" in it"),
            ("user::rwq", "an ACL with \"user::rwq\" in it"),
            ("mask:5:rwx", "an ACL with \"mask:5:rwx\" in it"),
            ("user:me:rwx", "an ACL for user \"me\", not known here"),
            ("group:me:rwx", "an ACL for group \"me\", not known here"),
            (
                "user:4294967295:rwx",
                "an ACL for user \"4294967295\", not known here",
            ),
        ] {
            assert_eq!(round(text), Err(what.to_owned()));
        }
        assert!(from_text(b"\xff", &Known).is_err());
        for value in [&b""[..], b"\x02\0\0", b"\x01\0\0\0", b"\x02\0\0\0\x01\0"] {
            assert_eq!(to_text(value), None);
        }
    }
}
