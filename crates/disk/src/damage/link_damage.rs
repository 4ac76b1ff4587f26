//! Damage of names, link counts and the way to the root.

use extant_units::Ino;

damage! {
    /// Names, link counts and the way to the root.
    LinkDamage {
        Root => "the root is not a directory",
        Count { stored: u32, found: u32 } => "link count {stored}, found {found}",
        NoName { links: u32 } => "no name leads to it, its link count is {links}",
        NoWayFromRoot => "directory without a way from the root",
        SecondParent { first: Ino, second: Ino } =>
            "directory with a second parent: {first} and {second}",
        TwoNames => "a directory with two names",
        ContainsItself => "a directory that contains itself",
        OwnEntry => "directory has an entry that leads to itself",
        DeletedInode { ino: Ino } => "leads to the deleted inode {ino}",
        Parent { dotdot: Ino, parent: Ino } =>
            "\"..\" leads to inode {dotdot}, the parent is {parent}",
        ParentKind => "'..' leads to something that is no directory",
        ParentsPastRoot => "the parents do not end at the root",
    }
}
