//! Owners as chown(1) takes them. Names are looked up in the files of this machine, not of the
//! image.

use std::fs;

/// A user, a group, or both.
pub(crate) type Owner = (Option<u32>, Option<u32>);

/// Reads `USER`, `USER:GROUP`, `USER:` (with the user's own group) or `:GROUP`.
pub(crate) fn parse(text: &str) -> Result<Owner, String> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let entry = match user {
        "" => None,
        name => Some(user_id(name).ok_or_else(|| format!("{name}: no such user"))?),
    };
    let uid = entry.map(|(uid, _)| uid);
    let gid = match group {
        None => None,
        Some("") => match entry {
            None => None,
            Some((_, own)) => Some(own.ok_or_else(|| format!("{user}: no group of its own"))?),
        },
        Some(name) => Some(group_id(name).ok_or_else(|| format!("{name}: no such group"))?),
    };
    if uid.is_none() && gid.is_none() {
        return Err(format!("{text:?}: neither user nor group"));
    }
    Ok((uid, gid))
}

/// Reads a user: a number, or a name.
pub(crate) fn parse_user(text: &str) -> Result<u32, String> {
    let found = user_id(text).map(|(uid, _)| uid);
    found.ok_or_else(|| format!("{text}: no such user"))
}

/// Reads a group: a number, or a name.
pub(crate) fn parse_group(text: &str) -> Result<u32, String> {
    group_id(text).ok_or_else(|| format!("{text}: no such group"))
}

/// A user's number, and the number of its group if the user is known here.
fn user_id(name: &str) -> Option<(u32, Option<u32>)> {
    let fields = entry("/etc/passwd", name);
    let field = |i: usize| fields.as_ref()?.get(i)?.parse().ok();
    match field(2) {
        Some(uid) => Some((uid, field(3))),
        None => number(name).map(|uid| (uid, None)),
    }
}

fn group_id(name: &str) -> Option<u32> {
    let known = entry("/etc/group", name).and_then(|fields| fields.get(2)?.parse().ok());
    known.or_else(|| number(name))
}

/// The users and groups of this machine, for ACLs that name them.
pub(crate) struct Here;

impl extant_archive::acl::Names for Here {
    fn user(&self, name: &str) -> Option<u32> {
        user_id(name).map(|(uid, _)| uid)
    }

    fn group(&self, name: &str) -> Option<u32> {
        group_id(name)
    }
}

/// An id; the largest number means "none" to the system.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&id| id != u32::MAX)
}

/// The fields of the line that begins with `name`.
fn entry(file: &str, name: &str) -> Option<Vec<String>> {
    let text = fs::read_to_string(file).ok()?;
    let mut lines = text
        .lines()
        .map(|line| line.split(':').map(str::to_owned).collect::<Vec<_>>());
    lines.find(|fields| fields.first().is_some_and(|first| first == name))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn numbers_and_names() {
        assert_eq!(parse("12:34"), Ok((Some(12), Some(34))));
        assert_eq!(parse(":7"), Ok((None, Some(7))));
        assert_eq!(parse("9"), Ok((Some(9), None)));
        assert_eq!(parse("root:root"), Ok((Some(0), Some(0))));
        assert_eq!(parse("root:"), Ok((Some(0), Some(0))));
        assert!(parse("12:").is_err());
        assert!(parse("").is_err());
        assert!(parse(":").is_err());
        assert!(parse("4294967295").is_err());
        assert!(parse("no-such-user-here").is_err());
    }
}
